//! A site that lost its key, or replaced it: its mirrors go on with differences, in both directions.

use crate::support::{Pair, Site, eventually, status};

const BLOCK: u64 = 4096;
/// Of the first copies.
const BLOCKS: u64 = 2048;

fn put(site: &Site, export: &str, first: u64, count: u64, seed: u64) {
    use rand::{Rng, SeedableRng};
    let mut bytes = vec![0; (count * BLOCK) as usize];
    rand::rngs::StdRng::seed_from_u64(seed).fill(&mut bytes[..]);
    let mut host = site.nbd(export);
    for (index, part) in bytes.chunks(1 << 20).enumerate() {
        host.write(first * BLOCK + ((index as u64) << 20), part).unwrap();
    }
    host.flush().unwrap();
    drop(host);
    eventually("the hosts are gone", || site.json(&format!("volume status {export}"))["writers"] == 0);
}

fn same(a: &Site, of: &str, b: &Site, to: &str) {
    assert!(a.nbd(of).read_all() == b.nbd(to).read_all(), "{of} and {to} differ");
}

/// `p/v` of `a` is mirrored as `q/v`, `q/w` of `b` as `p/w`; both have been copied.
fn both_ways() -> Pair {
    let pair = Pair::start();
    let (a, b) = (&pair.a, &pair.b);
    a.ok("volume create p/v --size 16M");
    b.ok("volume create q/w --size 16M");
    a.ok("peer allow b p/v --reverse --fence");
    b.ok("peer allow a q/w");
    b.ok("peer set a --throttle-in 900MB/s");
    put(a, "p/v", 0, BLOCKS, 1);
    put(b, "q/w", 0, BLOCKS, 2);
    b.ok("mirror create a:p/v q/v --every 1h");
    b.ok("mirror initialize q/v");
    a.ok("mirror create b:q/w p/w");
    a.ok("mirror initialize p/w");
    pair
}

/// Both mirrors bring what changed, and no more.
#[track_caller]
fn updates_are_differences(a: &Site, b: &Site, seed: u64) {
    put(a, "p/v", 100 + seed, 8, seed);
    put(b, "q/w", 200 + seed, 8, seed + 1);
    for (site, replica) in [(b, "q/v"), (a, "p/w")] {
        site.ok(&format!("mirror update {replica}"));
        let history = site.json(&format!("mirror history {replica}"));
        let newest = &history[0];
        let sent = newest["wire_bytes_received"].as_u64().unwrap_or_else(|| panic!("{newest}"));
        assert!(newest["result"] == "ok" && sent < BLOCKS * BLOCK / 8, "{newest}");
    }
    same(a, "p/v", b, "q/v");
    same(b, "q/w", a, "p/w");
}

/// `b` takes the site that answers at A's address for `a`.
fn pair_anew(pair: &Pair) {
    let code = pair.root.path().join("code-anew");
    std::fs::write(&code, pair.a.ok("peer invite")).unwrap();
    let address = pair.a.published("peer.addr");
    pair.b.ok(&format!("peer join {address} --name anew --code-file {}", code.display()));
}

#[test]
fn a_site_that_lost_its_key_and_database_goes_on_with_differences_both_ways() {
    let mut pair = both_ways();
    updates_are_differences(&pair.a, &pair.b, 10);
    let old = pair.b.json("peer status a")["id"].clone();
    assert_eq!(pair.a.stop(), Some(0));
    for file in std::fs::read_dir(&pair.a.dir).unwrap().map(|file| file.unwrap().path()) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("farside.db") || name == "identity.pem" {
            std::fs::remove_file(file).unwrap();
        }
    }
    pair.a.restart();
    pair.a.ok(&format!("pool import p --path {}", pair.root.path().join("p.pool").display()));
    pair_anew(&pair);
    let (a, b) = (&pair.a, &pair.b);
    a.ok("peer allow b p/v --reverse --fence");

    let plan = b.ok("peer rekey a anew --plan");
    for told in [
        "q/v is updated from there",
        "a:p/w goes on as a mirror of q/w",
        "it may mirror what a might: q/v, q/w",
    ] {
        assert!(plan.contains(told), "{told:?} is not in\n{plan}");
    }
    assert!(b.fails(2, "peer rekey a a --yes").contains("it has the key"));
    assert!(b.fails(3, "peer rekey nobody anew --yes").contains("nobody"));
    b.ok("peer rekey a anew --yes");
    let now = b.json("peer status a");
    assert!(now["id"] != old && now["throttle_in"]["rules"] == "900MB/s", "{now}");
    assert_eq!(b.json("peer list").as_array().unwrap().len(), 1);
    assert_eq!(now["rights"].as_array().unwrap().iter().map(|r| &r["volume"]).collect::<Vec<_>>().len(), 2);
    let mirror = status(b, "q/v");
    assert!(mirror["source"] == "a:p/v" && mirror["schedule"] == "every 1h", "{mirror}");
    updates_are_differences(a, b, 20);

    // After a restart too.
    assert_eq!(pair.b.stop(), Some(0));
    pair.b.restart();
    updates_are_differences(&pair.a, &pair.b, 30);
    // And a failover goes both ways as ever.
    let (a, b) = (&pair.a, &pair.b);
    b.ok("mirror break q/v --yes");
    eventually("A learns of it", || !status(a, "p/v")["overtaken"].is_null());
    put(b, "q/v", 40, 4, 40);
    a.ok("mirror resync p/v --from b:q/v --yes");
    same(a, "p/v", b, "q/v");
}

#[test]
fn a_key_is_replaced_while_a_pool_is_away_and_its_peer_was_removed() {
    let mut pair = both_ways();
    let old = pair.b.json("peer status a")["id"].as_str().unwrap().to_owned();
    assert_eq!(pair.a.stop(), Some(0));
    std::fs::rename(pair.a.dir.join("identity.pem"), pair.root.path().join("stolen")).unwrap();
    pair.a.restart();
    // The pool of the replica is not there when the key is replaced.
    assert_eq!(pair.b.stop(), Some(0));
    let (pool, away) = (pair.root.path().join("q.pool"), pair.root.path().join("away"));
    std::fs::rename(&pool, &away).unwrap();
    pair.b.restart();
    pair.b.ok("peer remove a --yes");
    pair_anew(&pair);
    pair.b.ok(&format!("peer rekey {} anew --yes", &old[..16]));
    std::fs::rename(&away, &pool).unwrap();
    pair.b.ok(&format!("pool import q --path {}", pool.display()));
    // Rights went with the peer that was removed.
    pair.b.ok("peer allow anew q/w");
    eventually("they are connected", || pair.a.json("peer status b")["state"] == "connected");
    updates_are_differences(&pair.a, &pair.b, 50);
}

/// A copy of a machine, as a backup or a clone of it is: the same key, state and pool.
#[test]
fn a_copy_that_runs_isolated_serves_its_volumes_and_reaches_nobody() {
    let mut pair = both_ways();
    assert_eq!(pair.a.stop(), Some(0));
    let copy_dir = pair.root.path().join("copy");
    std::fs::create_dir(&copy_dir).unwrap();
    for file in std::fs::read_dir(&pair.a.dir).unwrap().map(|file| file.unwrap()) {
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), copy_dir.join(file.file_name())).unwrap();
        }
    }
    let (original, copied) = (pair.root.path().join("p.pool"), pair.root.path().join("p-copy.pool"));
    std::fs::copy(&original, &copied).unwrap();
    // The copy has the pool at its own place: a machine of its own would have it under the same name.
    pair.a.restart();
    pair.a.ok("mirror update p/w");
    let session = pair.b.json("peer status a");
    assert_eq!(session["state"], "connected", "{session}");

    let mut copy = Site::new(&copy_dir, "a");
    copy.isolated();
    let unreachable = copy.json("peer status b");
    assert_eq!(unreachable["state"], "disconnected");
    assert!(unreachable["why"].as_str().unwrap().contains("isolated"), "{unreachable}");
    copy.fails(4, "peer invite");
    // The path in its state leads to the original's pool, which it leaves alone, whether or not the original runs.
    for asked in ["volume status p/v", "pool reopen p", &format!("pool import p --path {}", copied.display())]
    {
        let said = copy.fails(4, asked);
        assert!(said.contains("that site's own") && said.contains("pool delete p"), "{asked}: {said}");
    }
    assert_eq!(copy.json("pool list")[0]["state"], "failed");
    copy.ok(&format!("pool import copied --path {}", copied.display()));
    // Hosts write there, somebody practises a failover, and nobody else hears of it.
    put(&copy, "copied/v", 0, 4, 77);
    copy.ok("mirror break copied/w --yes");
    put(&copy, "copied/w", 0, 4, 78);
    updates_are_differences(&pair.a, &pair.b, 60);
    assert!(status(&pair.b, "q/w")["overtaken"].is_null());
    assert_eq!(pair.b.json("peer status a")["state"], "connected");
    assert_eq!(copy.stop(), Some(0));
}
