//! Volumes with a quota, with something reserved, and that grow by themselves: what hosts meet, what is said, and what mirrors make
//! of it.

use crate::support::nbd::Client;
use crate::support::{Pair, Site, check_pool, eventually, status};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// A MiB in which no two blocks are the same.
fn megabyte(stamp: u64) -> Vec<u8> {
    let words = (0..131_072u64).map(|i| (stamp * 131_072 + i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect()
}

/// Writes MiBs, each flushed.
fn fill(host: &mut Client, mib: std::ops::Range<u64>, stamp: u64) {
    for at in mib {
        host.write(at * MIB, &megabyte(at + stamp)).and_then(|()| host.flush()).expect("it has room");
    }
}

fn site_with_pool(root: &std::path::Path, mib: u64) -> Site {
    let site = Site::start(root, "a");
    site.ok(&format!("pool create p --path {} --size {mib}M", root.join("p.pool").display()));
    site
}

fn figure(site: &Site, line: &str) -> u64 {
    let metrics = site.http("/metrics");
    let of = |found: &str| found.strip_prefix(line)?.trim().parse().ok();
    metrics.lines().find_map(of).unwrap_or_else(|| panic!("no {line}: {metrics}"))
}

/// What is said everywhere while p/v is at `level`.
#[track_caller]
fn assert_said(site: &Site, level: u64, room: &str, word: &str) {
    eventually("the level is known", || figure(site, "farside_volume_room_level{volume=\"p/v\"}") == level);
    let volume = site.json("volume status p/v");
    assert_eq!((&volume["room"], volume["warning"].is_string()), (&Value::from(room), level > 0), "{volume}");
    for said in [site.ok("volume list"), site.ok("volume status p/v")] {
        assert!(said.contains(word), "{said}");
    }
    let warnings = site.json("site status")["warnings"].as_array().unwrap().clone();
    assert_eq!(warnings.len(), usize::from(level >= 2), "{warnings:?}");
    let health = site.http("/healthz");
    assert!(health.contains("200 OK") && health.contains("volume p/v: ") == (level >= 2), "{health}");
}

#[test]
fn a_volume_comes_near_its_quota_and_is_told_of() {
    let root = tempfile::tempdir().unwrap();
    let mut site = site_with_pool(root.path(), 128);
    site.ok("volume create p/v --size 64M --quota 20M");
    site.ok("volume create p/w --size 64M");
    let (mut v, mut w) = (site.nbd("p/v"), site.nbd("p/w"));
    assert_said(&site, 0, "enough", "enough");
    fill(&mut v, 0..15, 0);
    // A host that overwrites what it has takes nothing.
    for stamp in 1..6 {
        fill(&mut v, 0..15, stamp * 100);
    }
    assert_said(&site, 0, "enough", "enough");
    fill(&mut v, 15..17, 0);
    assert_said(&site, 1, "filling", "filling");
    fill(&mut v, 17..19, 0);
    v.write(19 * MIB, &megabyte(19)[..MIB as usize / 2]).and_then(|()| v.flush()).unwrap();
    assert_said(&site, 3, "full", "full");
    // Less than a MiB is left, and it can be had.
    v.write(19 * MIB, &megabyte(19)).and_then(|()| v.flush()).unwrap();
    let refused = v.write(20 * MIB, &megabyte(20)).unwrap_err();
    assert!(refused.to_string().contains("28"), "ENOSPC: {refused}");
    site.has_logged("the quota of p/v is reached");
    // What no snapshot has is overwritten for ever; other volumes notice nothing.
    for stamp in 1..4 {
        fill(&mut v, 0..20, stamp * 1000);
    }
    fill(&mut w, 0..30, 0);
    assert!(site.json("volume status p/v")["occupied_bytes"].as_u64().unwrap() <= 20 * MIB);
    // A snapshot is taken, and keeps what would be overwritten.
    site.ok("snapshot create p/v@s");
    assert!(v.write(0, &megabyte(5000)).is_err());
    assert_eq!(v.bytes(0, MIB as usize).unwrap(), megabyte(3000));
    v.trim(19 * MIB, MIB as u32).and_then(|()| v.flush()).unwrap();
    site.ok("snapshot delete p/v@s --yes");
    fill(&mut v, 0..19, 6000);
    // More; it is said that it is over.
    assert!(site.fails(4, "volume set p/v --quota 10M").contains("occupies"));
    let set = site.json("volume set p/v --quota 40M --autogrow off");
    assert_eq!((&set["quota_bytes"], &set["autogrow"]), (&Value::from(40 * MIB), &Value::Null), "{set}");
    assert_said(&site, 0, "enough", "enough");
    site.has_logged("the volume has enough of its quota left again");
    fill(&mut v, 19..21, 0);
    site.kill();
    site.restart();
    assert_eq!(site.json("volume status p/v")["quota_bytes"], 40 * MIB);
    site.ok("volume set p/v --quota none");
    assert_eq!(site.json("volume status p/v")["room"], Value::Null);
    site.fails(2, "volume set p/v");
    site.fails(2, "volume set p/v --quota much");
    site.fails(3, "volume set p/nothing --quota 1G");
    assert_eq!(site.stop(), Some(0));
    check_pool(&root.path().join("p.pool"));
}

#[test]
fn what_is_reserved_for_a_volume_is_shown_and_kept() {
    let root = tempfile::tempdir().unwrap();
    let mut site = site_with_pool(root.path(), 96);
    let refused = site.fails(1, "volume create p/v --size 1G --reserve 200M");
    assert!(refused.contains("cannot be reserved") && refused.contains("pool grow"), "{refused}");
    site.ok("volume create p/v --size 1G --reserve 32M");
    site.ok("volume create p/w --size 1G");
    let reserved = |site: &Site| site.json("pool status p")["reserved_bytes"].as_u64().unwrap();
    assert_eq!(reserved(&site), 32 * MIB);
    assert!(
        site.ok("pool list").contains("32.0 MiB")
            && site.ok("pool status p").contains("32.0 MiB for volumes")
    );
    assert_eq!(figure(&site, "farside_pool_reserved_bytes{pool=\"p\"}"), 32 * MIB);
    let (mut v, mut w) = (site.nbd("p/v"), site.nbd("p/w"));
    fill(&mut v, 0..4, 0);
    assert_eq!(reserved(&site), 28 * MIB);
    let filled =
        (0..).take_while(|at| w.write(at * MIB, &megabyte(*at)).and_then(|()| w.flush()).is_ok()).count();
    assert!((20..60).contains(&filled), "{filled} MiB");
    eventually("the pool is full for others", || site.json("pool status p")["room"] == "full");
    // Its own snapshots share it, those of others take nothing from it.
    site.ok("snapshot create p/w@s");
    fill(&mut v, 4..20, 0);
    site.ok("snapshot create p/v@s");
    fill(&mut v, 0..12, 100);
    assert_eq!(reserved(&site), 0);
    assert_eq!(v.bytes(0, MIB as usize).unwrap(), megabyte(100));
    drop((v, w));
    assert_eq!(site.stop(), Some(0));
    check_pool(&root.path().join("p.pool"));
}

#[test]
fn a_volume_grows_by_itself_and_hosts_see_it_when_they_open_it_anew() {
    let root = tempfile::tempdir().unwrap();
    let mut site = site_with_pool(root.path(), 128);
    site.ok("volume create p/v --size 16M --autogrow 28M,step=8M");
    let volume = site.json("volume status p/v");
    assert_eq!(volume["autogrow"]["to_bytes"], 28 * MIB, "{volume}");
    assert!(site.ok("volume status p/v").contains("by itself to 28.0 MiB, by 8.0 MiB"));
    let mut host = site.nbd("p/v");
    fill(&mut host, 0..14, 0);
    assert_eq!(site.json("volume status p/v")["size_bytes"], 16 * MIB);
    fill(&mut host, 14..16, 0);
    eventually("it has grown", || site.json("volume status p/v")["size_bytes"] == 24 * MIB);
    // NBD has no word for it: who has it open sees it next time.
    assert_eq!(host.size_bytes, 16 * MIB);
    fill(&mut host, 0..16, 50);
    let mut again = site.nbd("p/v");
    assert_eq!(again.size_bytes, 24 * MIB);
    fill(&mut again, 16..24, 0);
    eventually("it has grown to its limit", || site.json("volume status p/v")["size_bytes"] == 28 * MIB);
    site.has_logged("goes no further");
    drop((host, again));
    let mut host = site.nbd("p/v");
    assert_eq!(host.bytes(0, MIB as usize).unwrap(), megabyte(50));
    assert_eq!(host.bytes(27 * MIB, MIB as usize).unwrap(), vec![0; MIB as usize]);
    site.ok("volume set p/v --autogrow off");
    drop(host);
    assert_eq!(site.stop(), Some(0));
    check_pool(&root.path().join("p.pool"));
}

#[test]
fn a_source_that_grew_by_itself_brings_its_new_size() {
    let pair = Pair::start();
    let (a, b) = (&pair.a, &pair.b);
    pair.mirror(16 * MIB);
    a.ok("volume set p/v --autogrow 64M,step=16M");
    b.ok("mirror initialize q/v");
    // The replica's own word does not count while it is one.
    b.ok("volume set q/v --autogrow 1G,step=512M");
    fill(&mut a.nbd("p/v"), 0..16, 0);
    eventually("the source has grown", || a.json("volume status p/v")["size_bytes"] == 32 * MIB);
    let mut host = a.nbd("p/v");
    fill(&mut host, 16..18, 0);
    b.ok("mirror update q/v");
    assert_eq!(b.json("volume status q/v")["size_bytes"], 32 * MIB);
    assert_eq!(a.nbd("p/v").read_all(), b.nbd("q/v").read_all());
}

#[test]
fn an_update_waits_for_the_quota_of_its_replica() {
    let pair = Pair::start();
    let (a, b) = (&pair.a, &pair.b);
    pair.mirror(64 * MIB);
    fill(&mut a.nbd("p/v"), 0..8, 0);
    b.ok("mirror initialize q/v");
    b.ok("volume set q/v --quota 12M");
    let before = b.nbd("q/v").read_all();
    fill(&mut a.nbd("p/v"), 8..24, 0);
    let refused = b.fails(1, "mirror update q/v");
    assert!(refused.contains("the quota of the replica (12.0 MiB)"), "{refused}");
    assert!(b.nbd("q/v").read_all() == before, "the replica is as it was");
    let why = status(b, "q/v")["why"].to_string();
    assert!(why.contains("quota"), "{why}");
    b.ok("volume set q/v --quota 64M");
    b.ok("mirror update q/v");
    assert!(a.nbd("p/v").read_all() == b.nbd("q/v").read_all());
}
