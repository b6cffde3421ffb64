//! A pool fills up under its hosts, to the end, and is freed again: what is said at 80, 95 and 100 %, and what goes on.

use crate::support::nbd::Client;
use crate::support::small::Small;
use crate::support::{Pair, Site, check_pool, eventually, status};
use serde_json::Value;

const MIB: u64 = 1 << 20;
const POOL: u64 = 64 * MIB;

/// A MiB in which no two blocks are the same.
fn megabyte(stamp: u64) -> Vec<u8> {
    let words = (0..131_072u64).map(|i| (stamp * 131_072 + i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect()
}

/// A quarter of it is written at once, so that no level is passed over.
const STEP: u64 = MIB / 4;

fn step(at: u64) -> Vec<u8> {
    let from = (at % 4 * STEP) as usize;
    megabyte(at / 4)[from..from + STEP as usize].to_vec()
}

/// Writes step after step, each flushed, until so little is left; answers with the next one.
fn fill(site: &Site, host: &mut Client, from: u64, left: u64) -> u64 {
    let mut at = from;
    while figure(site, "farside_pool_room_bytes") > left {
        host.write(at * STEP, &step(at)).and_then(|()| host.flush()).expect("it has room");
        at += 1;
    }
    at
}

/// The same until the pool says that it is at `level`: a consistency point that ends meanwhile gives some of the room back.
fn fill_to(level_wanted: u64, site: &Site, host: &mut Client, from: u64, left: u64) -> u64 {
    let mut at = from;
    eventually(&format!("it is at level {level_wanted}"), || {
        at = fill(site, host, at, left);
        level(site) == level_wanted
    });
    at
}

fn figure(site: &Site, name: &str) -> u64 {
    let metrics = site.http("/metrics");
    let of = |line: &str| line.strip_prefix(name)?.strip_prefix("{pool=\"p\"} ")?.parse().ok();
    metrics.lines().find_map(of).unwrap_or_else(|| panic!("no {name}: {metrics}"))
}

fn level(site: &Site) -> u64 {
    figure(site, "farside_pool_room_level")
}

/// What is said everywhere while the pool is at `level`.
#[track_caller]
fn assert_said(site: &Site, at: u64, room: &str, word: &str) {
    assert_eq!(level(site), at);
    let pool = site.json("pool status p");
    assert_eq!(pool["room"], room, "{pool}");
    assert_eq!(pool["state"], "open", "{pool}");
    assert!(pool["error"].is_null(), "{pool}");
    assert_eq!(pool["volume_bytes"], 1u64 << 30);
    assert_eq!(pool["warning"].is_string(), at > 0, "{pool}");
    for said in [site.ok("pool list"), site.ok("pool status p")] {
        assert!(said.contains(word), "{said}");
    }
    let health = site.http("/healthz");
    assert!(health.contains("200 OK"), "a warning leaves health as it is: {health}");
    let body: Value = serde_json::from_str(health.split("\r\n\r\n").last().unwrap()).unwrap();
    assert_eq!(body["status"], "ok");
    assert_eq!(body["warnings"].as_array().unwrap().len(), usize::from(at >= 2), "{body}");
    assert_eq!(site.json("site status")["warnings"], body["warnings"]);
}

fn lines(site: &Site, of: &str) -> usize {
    site.log().lines().filter(|line| line.contains(of)).count()
}

#[test]
fn a_pool_that_fills_up_warns_in_time_and_ends_well() {
    let root = tempfile::tempdir().unwrap();
    let mut site = Site::start(root.path(), "a");
    let path = root.path().join("p.pool");
    site.ok(&format!("pool create p --path {} --size 64M", path.display()));
    site.ok("volume create p/v --size 1G");
    let mut host = site.nbd("p/v");
    assert_said(&site, 0, "enough", "enough");

    // A host that overwrites what it has fills nothing, although it looks so until the next consistency point.
    let at = fill(&site, &mut host, 0, POOL / 4);
    for round in 0..2 * at {
        host.write(round % at * STEP, &step(round % at)).unwrap();
        assert_eq!(level(&site), 0, "round {round}");
    }

    // Level by level, said by itself.
    let at = fill_to(1, &site, &mut host, at, POOL / 5);
    assert_said(&site, 1, "filling", "filling");
    site.ok("snapshot create p/v@early");
    let mut at = fill_to(2, &site, &mut host, at, POOL / 20);
    assert_said(&site, 2, "nearly-full", "nearly full");
    assert!(site.http("/healthz").contains("farside pool grow p"));
    // All goes on there: what no snapshot has is overwritten over and over, and snapshots come and go.
    for round in 0..200 {
        let over = at - 1 - round % 8;
        host.write(over * STEP, &step(over)).and_then(|()| host.flush()).unwrap();
    }
    site.ok("snapshot create p/v@late");
    site.ok("snapshot delete p/v@late --yes");
    while host.write(at * STEP, &step(at)).is_ok() {
        host.flush().unwrap();
        at += 1;
        assert!(at * STEP < POOL, "it never ends");
    }
    assert_said(&site, 3, "full", "full");
    assert!(site.ok("pool status p").contains("no space"));

    // What goes on, and what does not: no new data, not even over old data, since a snapshot has that.
    assert!(host.write(0, &megabyte(2000)).is_err(), "overwriting needs room");
    assert_eq!(host.bytes(0, MIB as usize).unwrap(), megabyte(0));
    host.flush().unwrap();
    host.trim((at - 1) * STEP, STEP as u32).unwrap();
    host.flush().unwrap();
    at -= 1;
    site.ok("snapshot create p/v@full");

    // Nothing flushed is lost, whatever ends the daemon.
    site.kill();
    site.restart();
    let mut host = site.nbd("p/v");
    for i in 0..at {
        assert!(host.bytes(i * STEP, STEP as usize).unwrap() == step(i), "step {i}");
    }
    assert!(level(&site) >= 2, "{}", level(&site));

    // Freed: back without a write, a restart or a person who looks.
    let told = lines(&site, "the pool fills up");
    host.trim(2 * MIB, (at * STEP - 2 * MIB) as u32).unwrap();
    host.flush().unwrap();
    site.ok("snapshot delete p/v@early --yes");
    site.ok("snapshot delete p/v@full --yes");
    eventually("the log says that it is over", || lines(&site, "the pool has enough room again") == 1);
    assert_said(&site, 0, "enough", "enough");
    assert_eq!(lines(&site, "the pool fills up"), told, "on the way back nothing is said twice");
    host.write(0, &megabyte(3000)).unwrap();
    host.flush().unwrap();
    drop(host);
    assert_eq!(site.stop(), Some(0));
    check_pool(&path);
}

/// The file system below the pool's file is shorter than the pool: that it fills is an alarm before hosts are refused, and names it.
#[test]
fn a_file_system_that_fills_below_a_pool_is_told_before_it_is_full() {
    let root = tempfile::tempdir().unwrap();
    let Some(small) = Small::at(&root.path().join("small"), "200m") else { return };
    let site = Site::start(root.path(), "a");
    site.ok(&format!("pool create p --path {} --size 1G", small.0.join("p.pool").display()));
    site.ok("volume create p/v --size 100M");
    let room = || site.json("pool list")[0]["room"].clone();
    assert_eq!(room(), "enough");
    std::fs::write(small.0.join("other"), vec![1; 195 << 20]).or_else(ends_when_full).unwrap();
    eventually("the level is seen", || room() == "nearly-full");
    let said = site.json("pool status p")["warning"].as_str().unwrap().to_owned();
    assert!(said.contains("p.pool") && said.contains("the file system of"), "{said}");
    let raised = || site.json("alarm list")[0].clone();
    eventually("the alarm is raised", || raised()["kind"] == "pool-nearly-full");
    let hint = raised()["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains("file system") && !hint.contains("pool grow"), "{hint}");
    std::fs::remove_file(small.0.join("other")).unwrap();
    eventually("there is room again", || room() == "enough");
    drop(site);
    drop(small);
}

/// The pool is larger than its file system, which the site's database shares: what does not fit there is refused before it comes.
#[test]
fn what_does_not_fit_below_a_pool_is_refused_and_leaves_the_site_its_room() {
    let root = tempfile::tempdir().unwrap();
    let Some(small) = Small::at(&root.path().join("b"), "64m") else { return };
    let pair = Pair { a: Site::start(root.path(), "a"), b: Site::start(root.path(), "b"), root };
    let (a, b) = (&pair.a, &pair.b);
    a.ok(&format!("pool create p --path {} --size 256M", pair.root.path().join("p.pool").display()));
    let path = small.0.join("q.pool");
    b.ok(&format!("pool create q --path {} --size 1G", path.display()));
    pair.pair_at(&a.published("peer.addr"));
    a.ok("volume create p/v --size 80M");
    let mut host = a.nbd("p/v");
    (0..60).for_each(|at| host.write(at * MIB, &megabyte(at)).unwrap());
    host.flush().unwrap();
    a.ok("peer allow b p/v --reverse");
    let said = b.ok("mirror create a:p/v q/v");
    assert!(said.contains("only") && said.contains("mirror initialize q/v --plan"), "{said}");
    let plan = b.ok("mirror initialize q/v --plan");
    assert!(plan.contains("does not fit") && plan.contains("the file system of"), "{plan}");
    assert!(!plan.contains("pool grow"), "{plan}");
    for _ in 0..2 {
        let said = b.fails(1, "mirror initialize q/v");
        assert!(said.contains("the file system of") && said.contains("q.pool"), "{said}");
        let record = &b.json("mirror history q/v")[0];
        assert!(record["wire_bytes_received"].as_u64().unwrap() < MIB, "{record}");
    }
    let raised = || b.json("alarm list").as_array().unwrap().iter().any(|alarm| alarm["kind"] == "no-room");
    eventually("it is an alarm", raised);
    // The site goes on: what it writes down has room.
    for n in 0..50 {
        b.ok(&format!("peer allow a q/some-other-volume-{n}"));
    }
    assert!(b.json("pool status q")["error"].is_null());
    assert!(status(b, "q/v")["why"].as_str().unwrap().contains("the file system of"));
    // Less to carry arrives; and with a larger file system all of it does.
    host.trim(20 * MIB, 40 << 20).and_then(|()| host.flush()).unwrap();
    b.ok("mirror initialize q/v");
    assert!(a.nbd("p/v").read_all() == b.nbd("q/v").read_all());
    (20..60).for_each(|at| host.write(at * MIB, &megabyte(at)).unwrap());
    host.flush().unwrap();
    let said = b.fails(1, "mirror update q/v");
    assert!(said.contains("the file system of"), "{said}");
    let remount = ["-o", "remount,size=200m"];
    let larger = std::process::Command::new("mount").args(remount).arg(&small.0).status().unwrap();
    assert!(larger.success());
    b.ok("mirror update q/v");
    assert!(a.nbd("p/v").read_all() == b.nbd("q/v").read_all());
    drop((host, pair, small));
}

/// The new size of a pool could not be written down: nothing has changed, and what is said of it stays true.
#[test]
fn a_pool_without_room_below_is_not_made_larger_by_half() {
    let root = tempfile::tempdir().unwrap();
    let Some(small) = Small::at(&root.path().join("small"), "40m") else { return };
    let site = Site::start(root.path(), "a");
    let path = small.0.join("p.pool");
    site.ok(&format!("pool create p --path {} --size 256M", path.display()));
    site.ok("volume create p/v --size 128M");
    let mut host = site.nbd("p/v");
    (0..8).for_each(|at| host.write(at * MIB, &megabyte(at)).unwrap());
    host.flush().unwrap();
    std::fs::write(small.0.join("other"), vec![1; 64 << 20]).or_else(ends_when_full).unwrap();
    let figures = || {
        let pool = site.json("pool status p");
        (pool["size_bytes"].as_u64().unwrap(), pool["used_bytes"].as_u64().unwrap())
    };
    let before = figures();
    let length = path.metadata().unwrap().len();
    let said = site.fails(1, "pool grow p --size 3G");
    assert!(said.contains("free at least") && said.contains("Nothing was changed"), "{said}");
    assert_eq!((figures(), path.metadata().unwrap().len()), (before, length));
    std::fs::remove_file(small.0.join("other")).unwrap();
    site.ok("pool grow p --size 3G");
    let (size, used) = figures();
    assert_eq!(size, 3 << 30);
    assert!(used.abs_diff(before.1) < 8 * MIB, "{used} of {}", before.1);
    drop((host, site, small));
}

/// It is said while it is so: a pool at rest has no write that would find out that its device takes data again.
#[test]
fn that_a_device_refuses_data_is_over_when_there_is_room_though_nobody_writes() {
    let root = tempfile::tempdir().unwrap();
    let Some(small) = Small::at(&root.path().join("small"), "24m") else { return };
    let site = Site::start(root.path(), "a");
    site.ok(&format!("pool create p --path {} --size 256M", small.0.join("p.pool").display()));
    site.ok("volume create p/v --size 128M");
    let mut host = site.nbd("p/v");
    std::fs::write(small.0.join("other"), vec![1; 64 << 20]).or_else(ends_when_full).unwrap();
    let refused =
        (0..64).find(|at| host.write(at * MIB, &megabyte(*at)).and_then(|()| host.flush()).is_err());
    assert!(refused.is_some(), "it never fails");
    drop(host);
    let pool = || site.json("pool status p");
    assert!(pool()["error"].as_str().is_some_and(|error| error.contains("refuses data")), "{}", pool());
    eventually("what to do comes first", || {
        pool()["advice"].as_str().is_some_and(|advice| advice.starts_with("make room: "))
    });
    std::fs::remove_file(small.0.join("other")).unwrap();
    eventually("it is over by itself", || pool()["error"].is_null());
    assert!(site.http("/healthz").contains("200 OK"));
    drop((site, small));
}

/// All that went is what there is.
fn ends_when_full(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::StorageFull { Ok(()) } else { Err(error) }
}
