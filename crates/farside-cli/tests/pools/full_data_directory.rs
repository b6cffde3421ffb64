//! A data directory that was full for a moment: it is told, and it is over when there is room again. On a small file system of its
//! own; needs root. Where that cannot be had the test says that it is skipped; `FARSIDE_REQUIRE_LAB=1` makes that a failure.

use std::io::Write;

use crate::support::host::{Host, serving};
use crate::support::small::Small;
use crate::support::{Pair, Site, eventually};

/// Until what the database has allocated is used up.
fn fill(small: &Small, site: &Site, peer: &str) {
    let mut file = std::fs::File::create(small.0.join("fill")).unwrap();
    for part in [1 << 20, 4096, 1] {
        while file.write_all(&vec![1; part]).is_ok() {}
    }
    let names = |round: usize| -> String { (0..200).map(|n| format!(" f/{round}-{n}")).collect() };
    let is_full = |round| !site.farside(&format!("peer allow {peer}{}", names(round))).status.success();
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
    fill(&small, &pair.a, "b");

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

/// A mirror is made or deleted as a whole or not at all, and after a restart it is what was said.
#[test]
fn a_mirror_that_a_full_data_directory_refuses_to_make_or_delete_is_as_it_was() {
    let root = tempfile::tempdir().unwrap();
    let Some(small) = Small::at(&root.path().join("b"), "12m") else { return };
    let mut pair = Pair { a: Site::start(root.path(), "a"), b: Site::start(root.path(), "b"), root };
    for (site, pool) in [(&pair.a, "p"), (&pair.b, "q")] {
        let path = pair.root.path().join(format!("{pool}.pool"));
        site.ok(&format!("pool create {pool} --path {} --size 64M", path.display()));
    }
    pair.pair_at(&pair.a.published("peer.addr"));
    pair.mirror(1 << 20);
    pair.b.ok("mirror initialize q/v");
    pair.a.ok("volume create p/w --size 1M");
    pair.a.ok("peer allow b p/w --reverse");
    fill(&small, &pair.b, "a");
    let looks = |b: &Site| {
        (
            b.json("volume list"),
            b.json("snapshot list q/v"),
            b.json("mirror status").as_array().unwrap().len(),
        )
    };
    let before = looks(&pair.b);
    let (made, deleted) =
        (pair.b.farside("mirror create a:p/w q/w"), pair.b.farside("mirror delete q/v --yes"));
    println!("made: {}, deleted: {}", made.status, deleted.status);
    assert!(!made.status.success() && !deleted.status.success(), "it is full");
    assert_eq!(looks(&pair.b), before);
    assert_eq!(crate::support::status(&pair.b, "q/v")["state"], "mirrored");
    pair.b.kill();
    pair.b.isolated();
    assert_eq!(looks(&pair.b), before);
    assert_eq!(crate::support::status(&pair.b, "q/v")["state"], "mirrored");
    std::fs::remove_file(small.0.join("fill")).unwrap();
    assert_eq!(pair.b.stop(), Some(0));
    pair.b.restart();
    pair.b.ok("mirror create a:p/w q/w");
    pair.b.ok("mirror delete q/v --yes");
    assert!(!pair.b.nbd("q/v").read_only);
    drop(pair);
    drop(small);
}

/// Nobody is told that a host or its right is gone which is there again after a restart, nor that it stays while it is gone.
#[test]
fn what_cannot_be_taken_from_a_host_stays_whole_and_whoever_asked_is_told() {
    let root = tempfile::tempdir().unwrap();
    let Some(small) = Small::at(&root.path().join("a"), "12m") else { return };
    let mut pair = Pair { a: serving(root.path()), b: Site::start(root.path(), "b"), root };
    pair.a.ok("volume create p/web --size 1M");
    let web = Host::add(&pair.a, pair.root.path(), "web1");
    pair.a.ok("host allow web1 p/web");
    pair.pair_at(&pair.a.published("peer.addr"));
    let mut client = web.open("p/web").unwrap();
    client.write(0, &[1; 4096]).unwrap();
    fill(&small, &pair.a, "b");
    let before = pair.a.json("host status web1");
    for command in ["host deny web1 p/web", "host remove web1 --yes"] {
        let said = pair.a.fails(1, command);
        assert!(said.contains("nothing has changed"), "{command}: {said}");
        client.write(0, &[2; 4096]).unwrap();
        assert_eq!(pair.a.json("host status web1"), before);
        assert!(!web.open("p/web").unwrap().read_only);
    }
    pair.a.kill();
    std::fs::remove_file(small.0.join("fill")).unwrap();
    pair.a.restart();
    let web = Host { address: pair.a.published("nbd.addr"), ..web };
    assert!(!web.open("p/web").unwrap().read_only);
    pair.a.ok("host deny web1 p/web");
    assert!(web.open("p/web").is_err());
    pair.a.ok("host remove web1 --yes");
    drop(pair);
    drop(small);
}

/// The daemon ends between the two records of a deletion: that of the database, and that of the pool.
#[test]
fn a_deletion_that_was_interrupted_is_finished_at_the_next_start() {
    let mut pair = Pair::dialled_by_b();
    pair.mirror(1 << 20);
    pair.b.ok("mirror initialize q/v");
    assert_eq!(pair.b.stop(), Some(0));
    let (pool, before) = (pair.root.path().join("q.pool"), pair.root.path().join("before"));
    std::fs::copy(&pool, &before).unwrap();
    pair.a.kill();
    pair.b.restart();
    pair.b.ok("mirror delete q/v --yes");
    assert_eq!(pair.b.stop(), Some(0));
    std::fs::copy(&before, &pool).unwrap();
    pair.a.restart();
    pair.b.restart();
    assert_eq!(pair.b.json("mirror status"), serde_json::json!([]), "{}", pair.b.log());
    pair.b.has_logged("finished the deletion");
    assert!(!pair.b.nbd("q/v").read_only);
    eventually("the source hears of it", || pair.a.json("mirror destinations p/v") == serde_json::json!([]));
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
    site.has_logged("the state database was not there");
    site.ok(&format!("pool import p --path {}", path.display()));
    assert!(site.http("/healthz").contains("200 OK"), "it was done about");
    assert_eq!(site.stop(), Some(0));
    std::fs::remove_file(site.dir.join("identity.pem")).unwrap();
    site.restart();
    site.has_logged("peers refuse it");
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
            refused = Some(crate::support::text(&output.stderr));
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
    assert_eq!(path.exists(), made.status.success(), "{}", crate::support::text(&made.stderr));
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
