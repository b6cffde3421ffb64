//! A data directory that was full for a moment: it is told, and it is over when there is room again. On a small file system of its
//! own; needs root. Where that cannot be had the test says that it is skipped; `FARSIDE_REQUIRE_LAB=1` makes that a failure.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod support;

use std::io::Write;

use support::small::Small;
use support::{Pair, Site, eventually};

/// Until what the database has allocated is used up.
fn fill(small: &Small, site: &Site) {
    let mut file = std::fs::File::create(small.0.join("fill")).unwrap();
    for part in [1 << 20, 4096, 1] {
        while file.write_all(&vec![1; part]).is_ok() {}
    }
    let names = |round: usize| -> String { (0..200).map(|n| format!(" f/{round}-{n}")).collect() };
    let is_full = |round| !site.farside(&format!("peer allow b{}", names(round))).status.success();
    assert!((0..100).any(is_full), "it never gets full");
}

/// A pool that is not deleted goes on, a base that is not released stays, and the daemon starts.
#[test]
fn what_a_full_data_directory_refuses_has_changed_nothing() {
    let root = tempfile::tempdir().unwrap();
    let Some(small) = Small::at(&root.path().join("a"), "12m") else { return };
    let mut pair = Pair { a: Site::start(root.path(), "a"), b: Site::start(root.path(), "b"), root };
    let path = pair.root.path().join("p.pool");
    pair.a.ok(&format!("pool create p --path {} --size 64M", path.display()));
    pair.b.ok(&format!("pool create q --path {} --size 64M", pair.root.path().join("q.pool").display()));
    pair.a.ok(&format!("pool create other --path {} --size 64M", pair.root.path().join("other").display()));
    pair.a.ok("volume create other/v --size 1M");
    pair.pair_at(&pair.a.published("peer.addr"));
    pair.mirror(1 << 20);
    pair.b.ok("mirror initialize q/v");
    let base = pair.a.json("mirror destinations p/v")[0]["base_snapshot"].clone();
    assert!(base.is_string(), "{base}");
    fill(&small, &pair.a);

    let said = pair.a.fails(1, "pool delete other --yes");
    assert!(said.contains("full"), "{said}");
    assert_eq!(pair.a.json("pool status other")["state"], "open");
    let mut host = pair.a.nbd("other/v");
    host.write(0, &[1; 4096]).unwrap();
    host.flush().unwrap();
    drop(host);
    pair.a.fails(1, "mirror release p/v b --yes");
    assert_eq!(pair.a.json("mirror destinations p/v")[0]["base_snapshot"], base, "the base is still there");

    // It starts, and serves.
    pair.a.kill();
    pair.a.isolated();
    assert!(pair.a.nbd("other/v").bytes(0, 4096).unwrap() == vec![1; 4096]);
    std::fs::remove_file(small.0.join("fill")).unwrap();
    pair.a.ok("pool delete other --yes");
    pair.a.ok("mirror release p/v b --yes");
    assert_eq!(pair.a.json("mirror destinations p/v"), serde_json::json!([]));
    drop(pair);
    drop(small);
}

/// Of what belongs together in a data directory one is lost.
#[test]
fn a_data_directory_that_lost_its_database_or_its_key_says_so() {
    let root = tempfile::tempdir().unwrap();
    let mut site = Site::start(root.path(), "a");
    assert!(site.http("/healthz").contains("200 OK"), "a new site is well");
    let path = root.path().join("p.pool");
    site.ok(&format!("pool create p --path {} --size 64M", path.display()));
    assert_eq!(site.stop(), Some(0));
    std::fs::write(site.dir.join("farside.db"), "").unwrap();
    site.restart();
    let health = site.http("/healthz");
    assert!(health.contains("503") && health.contains("farside pool import"), "{health}");
    assert!(site.log().contains("the state database was not there"));
    site.ok(&format!("pool import p --path {}", path.display()));
    assert!(site.http("/healthz").contains("200 OK"), "it was done about");
    assert_eq!(site.stop(), Some(0));
    std::fs::remove_file(site.dir.join("identity.pem")).unwrap();
    site.restart();
    assert!(site.log().contains("peers refuse it"));
}

#[test]
fn rights_log_and_health_come_back_with_the_room() {
    let root = tempfile::tempdir().unwrap();
    let Some(small) = Small::at(&root.path().join("b"), "12m") else { return };
    let pair = Pair { a: Site::start(root.path(), "a"), b: Site::start(root.path(), "b"), root };
    let (a, b) = (&pair.a, &pair.b);
    a.ok(&format!("pool create p --path {} --size 64M", pair.root.path().join("p.pool").display()));
    b.ok(&format!("pool create q --path {} --size 64M", pair.root.path().join("q.pool").display()));
    pair.pair_at(&a.published("peer.addr"));
    pair.mirror(1 << 20);
    b.ok("mirror initialize q/v");
    b.ok("peer allow a q/kept");
    let well = || b.http("/healthz").contains("200 OK");
    assert!(well());

    let fill = small.0.join("fill");
    let mut file = std::fs::File::create(&fill).unwrap();
    for part in [1 << 20, 4096, 1] {
        while file.write_all(&vec![1; part]).is_ok() {}
    }
    drop(file);
    // Until what the database has allocated is used up.
    let names = |round: usize| -> String { (0..200).map(|n| format!(" q/{round}-{n}")).collect() };
    let mut refused = None;
    for round in 0..100 {
        let output = b.farside(&format!("peer allow a{}", names(round)));
        if !output.status.success() {
            refused = Some(support::text(&output.stderr));
            break;
        }
    }
    let refused = refused.expect("it is full");
    assert!(refused.contains("full"), "{refused}");
    eventually("health tells", || !well());
    // What is safe goes on, and leaves more transactions that fail.
    b.ok("mirror update q/v");
    b.fails(1, "peer allow a q/one-more-with-a-long-name");
    // Nobody is told that a right is gone which is there again after a restart, nor that it stays while it is gone.
    let has_right = || b.json("peer status a")["rights"].to_string().contains("\"q/kept\"");
    assert!(has_right());
    let denied = b.fails(1, "peer deny a q/kept");
    assert!(denied.contains("nothing has changed") && has_right(), "{denied}");

    std::fs::remove_file(&fill).unwrap();
    // A pool that cannot be remembered is not made; nothing of it is left.
    let path = pair.root.path().join("new.pool");
    let made = b.farside(&format!("pool create new --path {} --size 64M", path.display()));
    assert_eq!(path.exists(), made.status.success(), "{}", support::text(&made.stderr));
    assert_eq!(b.json("pool list").as_array().unwrap().len(), 1 + usize::from(made.status.success()));
    let log = b.json("mirror log q/v");
    let until = log.as_array().and_then(|lines| lines.last()).unwrap()["at"].as_str().unwrap().to_owned();
    b.ok("peer allow a q/after");
    b.ok("peer deny a q/after");
    b.ok("peer deny a q/kept");
    assert!(!has_right());
    eventually("health tells", well);
    let before = b.json("mirror history q/v").as_array().unwrap().len();
    b.ok("mirror update q/v");
    assert_eq!(b.json("mirror history q/v").as_array().unwrap().len(), before + 1);
    let log = b.json("mirror log q/v");
    let last = log.as_array().and_then(|lines| lines.last()).unwrap();
    assert_eq!(last["event"], "end", "{log}");
    assert!(last["at"].as_str() > Some(until.as_str()), "{log}");
    drop(pair);
    drop(small);
}
