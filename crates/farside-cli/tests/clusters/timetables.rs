//! Snapshots of images by a timetable, and the retention of a replica that is an image.

use crate::cluster::cluster;
use crate::keeper::{Keeper, Kind, MIB, pair};
use crate::support::{Site, eventually};

const SIZE: u64 = 16 * MIB;

fn names(site: &Site, volume: &str) -> Vec<String> {
    let all = site.json(&format!("snapshot list {volume}"));
    all.as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_owned()).collect()
}

fn of_timetable(site: &Site, volume: &str) -> Vec<String> {
    names(site, volume).into_iter().filter(|name| name.starts_with("auto-")).collect()
}

/// From a cluster to a cluster: the timetable takes and lets go at the source, its snapshots travel, and the replica keeps more of them.
#[test]
fn an_image_has_a_timetable_and_its_replica_a_retention() {
    let Some(conf) = cluster() else { return };
    let root = tempfile::tempdir().unwrap();
    let (mut a, b) = (Site::start(root.path(), "a"), Site::start(root.path(), "b"));
    let (p, _q) = (Keeper::make(&a, Kind::Rbd, "p", &conf), Keeper::make(&b, Kind::Rbd, "q", &conf));
    pair(root.path(), &a, &b);
    a.ok(&format!("volume create p/v --size {SIZE}"));
    a.ok(&format!("volume create p/w --size {SIZE}"));
    p.write(&a, "v", SIZE, &[(0, &[1; 8192])]);
    let said = a.fails(4, "snapshot schedule p/v p/w --every 1s --keep last=2");
    assert!(said.contains("one instant is of one image") && said.contains("Nothing was changed"), "{said}");

    a.ok("snapshot schedule p/v --every 1s --keep last=2");
    let mut seen = std::collections::BTreeSet::new();
    eventually("it takes them", || {
        seen.extend(of_timetable(&a, "p/v"));
        seen.len() >= 5
    });
    let there = of_timetable(&a, "p/v");
    assert!((2..=3).contains(&there.len()), "the rest went: {there:?}");
    let shown = a.json("snapshot schedule p/v");
    assert!(shown["points"].as_u64().is_some_and(|points| points <= 3) && shown["why"].is_null(), "{shown}");
    // A person may delete what only the timetable keeps, and nothing else goes with it.
    a.ok("snapshot schedule p/v --every 1h --keep last=2");
    let there = of_timetable(&a, "p/v");
    a.ok(&format!("snapshot delete p/v@{} --yes", there[0]));
    assert_eq!(of_timetable(&a, "p/v"), there[1..]);

    // They travel, and stay there by the replica's own rule.
    a.ok("peer allow b p/v");
    b.ok("mirror create a:p/v q/v --keep last=3,floor=1");
    b.ok("mirror initialize q/v");
    a.ok("snapshot schedule p/v --every 1s --keep last=2");
    let mut came = std::collections::BTreeSet::new();
    eventually("they travel", || {
        b.ok("mirror update q/v");
        came.extend(of_timetable(&b, "q/v"));
        came.len() >= 6
    });
    a.ok("snapshot schedule p/v --every 1h --keep last=2");
    b.ok("mirror update q/v");
    eventually("the replica's retention lets go", || {
        let there = names(&b, "q/v");
        there.len() < came.len() && !there.iter().any(|name| Some(name) == came.first())
    });
    let refused = b.json("snapshot schedule q/v --every 1s --keep last=2");
    eventually("a replica takes none of its own", || {
        b.json("snapshot schedule q/v")["why"].as_str().is_some_and(|why| why.contains("is a replica"))
    });
    assert_eq!(refused["volume"], "q/v");
    b.ok("snapshot schedule q/v --off");

    // It goes on after a restart; when it ends, what it took stays.
    a.stop();
    a.restart();
    eventually("the pool is connected", || a.farside("volume status p/v").status.success());
    assert!(a.json("snapshot schedule p/v")["schedule"].to_string().contains("every"));
    a.ok("snapshot schedule p/v --every 1s --keep last=2");
    let before = of_timetable(&a, "p/v");
    eventually("it goes on", || of_timetable(&a, "p/v") != before);
    a.ok("snapshot schedule p/v --off");
    let stay = of_timetable(&a, "p/v");
    assert!(!stay.is_empty());
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(of_timetable(&a, "p/v"), stay);

    // An image with a timetable goes with what that took.
    a.ok("snapshot schedule p/w --every 1s --keep last=2");
    eventually("it takes one", || !of_timetable(&a, "p/w").is_empty());
    a.ok("volume delete p/w --yes");
    assert!(!a.json("snapshot schedule").to_string().contains("p/w"));
}
