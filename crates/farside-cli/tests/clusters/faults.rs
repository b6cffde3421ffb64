//! A cluster that is away, and whoever else uses it.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cluster::{Osd, cluster, cluster_alone};
use crate::keeper::{Keeper, Kind, MIB, pair};
use crate::support::{Site, eventually, status};

const SIZE: u64 = 16 * MIB;

/// A pool is known by where it is: it is connected again after a restart, and forgotten without a change to its images.
#[test]
fn a_pool_of_ceph_comes_and_goes() {
    let Some(conf) = cluster() else { return };
    let root = tempfile::tempdir().unwrap();
    let mut a = Site::start(root.path(), "a");
    let p = Keeper::make(&a, Kind::Rbd, "p", &conf);
    p.rbd(&["create", "--size", "16M", &p.image("theirs")]);
    let listed = a.json("pool list");
    assert_eq!((listed[0]["engine"].as_str(), listed[0]["state"].as_str()), (Some("rbd"), Some("open")));
    assert!(a.fails(4, &format!("pool create p {}", p.words())).contains("already exists"));
    a.ok(&format!("pool create p {} --if-absent", p.words()));
    a.ok("volume create p/v --size 16M");
    assert!(a.fails(4, "volume create p/v --size 16M").contains("already exists"));
    a.ok("snapshot create p/v@one");
    assert!(a.fails(4, "snapshot create p/v@one").contains("already exists"));
    a.kill();
    a.restart();
    eventually("it is connected", || a.json("pool list")[0]["state"] == "open");
    let volumes = a.json("volume list");
    let names: Vec<&str> = volumes.as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["p/theirs", "p/v"]);
    assert_eq!(a.json("snapshot list p/v")[0]["name"], "one");
    // What needs the embedded store says so.
    for words in [
        "pool scrub p",
        "volume resize p/v --size 32M --yes",
        "clone p/v@one p/w",
        "snapshot hold p/v@one",
        "pool grow p --size 2G",
    ] {
        let said = a.fails(4, words);
        let is_unchanged = said.contains("Nothing was done") || said.contains("Nothing was changed");
        assert!(said.contains("of Ceph RBD") && is_unchanged, "{words}: {said}");
    }
    a.ok("snapshot delete p/v@one --yes");
    a.ok("volume delete p/v --yes");
    a.ok("pool delete p --yes");
    assert_eq!(
        String::from_utf8(p.rbd(&["ls", &format!("rbd/{}", p.image("").split('/').nth(1).unwrap())]))
            .unwrap(),
        "theirs\n"
    );
    for (words, what) in [
        ("--engine rbd --rbd-pool nowhere", "cannot be opened"),
        ("--engine rbd --rbd-pool rbd --user nobody-known", "client.nobody-known"),
        ("--engine rbd --rbd-pool rbd --rbd-namespace no-such", "namespace"),
    ] {
        let said = a.farside(&format!("pool create x {words} --conf {}", &*conf));
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.contains(what) && said.contains("Nothing was changed"), "{words}: {said}");
    }
    assert_eq!(a.json("pool list").as_array().map(Vec::len), Some(0));
}

/// Two sites that want the same image: the second is told who has it, and the first goes on.
#[test]
fn another_site_is_not_fenced() {
    let Some(conf) = cluster() else { return };
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (Site::start(root.path(), "a"), Site::start(root.path(), "b"));
    let (p, q) = (Keeper::make(&a, Kind::Embedded, "p", &conf), Keeper::make(&b, Kind::Rbd, "q", &conf));
    pair(root.path(), &a, &b);
    a.ok(&format!("volume create p/v --size {SIZE}"));
    p.write(&a, "v", SIZE, &[(0, &[7; 8192])]);
    a.ok("peer allow b p/v");
    b.ok("mirror create a:p/v q/v");
    b.ok("mirror initialize q/v");
    let mut c = Site::start(root.path(), "c");
    c.ok(&format!("pool create q {}", q.words()));
    p.write(&a, "v", SIZE, &[(0, &[8; 8192])]);
    b.ok("mirror update q/v");
    assert!(q.bytes(&b, "v")[..8192] == [8; 8192]);
    c.stop();
    b.ok("mirror break q/v --yes");
}

/// A cluster that stands still has the mirror wait, hosts of other pools and the status notice nothing, and all goes on by itself.
#[test]
fn a_cluster_that_stands_still_holds_up_its_own_mirrors_alone() {
    let Some(conf) = cluster_alone() else { return };
    let Some(osd) = Osd::of(&conf) else { return };
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (Site::start(root.path(), "a"), Site::start(root.path(), "b"));
    let (p, q) = (Keeper::make(&a, Kind::Rbd, "p", &conf), Keeper::make(&b, Kind::Embedded, "q", &conf));
    pair(root.path(), &a, &b);
    a.ok(&format!("pool create e --path {} --size 256M", root.path().join("e.pool").display()));
    a.ok("volume create e/v --size 16M");
    a.ok(&format!("volume create p/v --size {SIZE}"));
    p.write(&a, "v", SIZE, &[(0, &[7; 8192])]);
    a.ok("peer allow b p/v");
    b.ok("mirror create a:p/v q/v --every 1s");
    b.ok("mirror initialize q/v");
    osd.signal(Signal::STOP);
    let mut longest = Duration::ZERO;
    let until = Instant::now() + Duration::from_secs(15);
    while Instant::now() < until {
        let asked = Instant::now();
        b.json("mirror status");
        a.json("mirror status");
        a.json("pool list");
        let mut host = a.nbd("e/v");
        host.write(0, &[1; 4096]).unwrap();
        host.flush().unwrap();
        longest = longest.max(asked.elapsed());
        std::thread::sleep(Duration::from_millis(200));
    }
    osd.signal(Signal::CONT);
    println!("status, pools and a flush beside it: {longest:?} at most");
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    p.write(&a, "v", SIZE, &[(0, &[8; 8192])]);
    eventually("the replica has it", || q.bytes(&b, "v")[..8192] == [8; 8192]);
    eventually("it is in order", || status(&b, "q/v")["state"] == "mirrored");
}

/// What a disaster needs lies with the image: the site's state and key are gone, its source is dead, and the replica is taken over.
#[test]
fn a_break_needs_neither_state_nor_source() {
    let Some(conf) = cluster() else { return };
    let root = tempfile::tempdir().unwrap();
    let (mut a, mut b) = (Site::start(root.path(), "a"), Site::start(root.path(), "b"));
    let (p, q) = (Keeper::make(&a, Kind::Embedded, "p", &conf), Keeper::make(&b, Kind::Rbd, "q", &conf));
    pair(root.path(), &a, &b);
    a.ok(&format!("volume create p/v --size {SIZE}"));
    p.write(&a, "v", SIZE, &[(0, &[7; 8192])]);
    a.ok("peer allow b p/v");
    b.ok("mirror create a:p/v q/v");
    b.ok("mirror initialize q/v");
    a.kill();
    b.kill();
    for file in std::fs::read_dir(&b.dir).unwrap().map(|file| file.unwrap().path()) {
        if file.is_file() && file.file_name().unwrap() != "log" {
            std::fs::remove_file(file).unwrap();
        }
    }
    b.peer_address = None;
    b.restart();
    // The client of before may hold the image until the cluster gives it up: nobody knows any more that it was this site's.
    eventually("the pool is there", || b.farside(&format!("pool create q {}", q.words())).status.success());
    assert_eq!(status(&b, "q/v")["role"], "destination");
    let asked = Instant::now();
    eventually("the replica is taken over", || b.farside("mirror break q/v --yes").status.success());
    println!("broken off {:.1} s after it was asked", asked.elapsed().as_secs_f64());
    assert!(q.bytes(&b, "v")[..8192] == [7; 8192]);
    q.write(&b, "v", SIZE, &[(0, &[9; 4096])]);
}
