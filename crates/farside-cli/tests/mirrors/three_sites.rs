//! Three sites, as their administrators know them: whatever two of them do, the third goes on with a difference.

use crate::support::{Pair, Site, eventually};
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

const SIZE: &str = "16M";

struct Trio {
    pair: Pair,
    c: Site,
}

impl Trio {
    /// `p/v` at `a`, copies of it as `q/v` at `b` and `w/v` at `c`.
    fn fan_out() -> Trio {
        let pair = Pair::start();
        let c = Site::start(pair.root.path(), "c");
        c.ok(&format!("pool create w --path {} --size 128M", pair.root.path().join("w.pool").display()));
        for of in [&pair.a, &pair.b] {
            let code = pair.root.path().join("code-c");
            std::fs::write(&code, of.ok("peer invite")).unwrap();
            c.ok(&format!("peer join {} --code-file {}", of.published("peer.addr"), code.display()));
        }
        pair.a.ok(&format!("volume create p/v --size {SIZE}"));
        put(&pair.a, "p/v", 0, 512, 1);
        for peer in ["b", "c"] {
            pair.a.ok(&format!("peer allow {peer} p/v --reverse"));
        }
        pair.b.ok("mirror create a:p/v q/v");
        pair.b.ok("mirror initialize q/v");
        c.ok("mirror create a:p/v w/v");
        c.ok("mirror initialize w/v");
        // What each may have to follow some day.
        for (at, peer, volume) in [(&pair.b, "c", "q/v"), (&c, "b", "w/v")] {
            at.ok(&format!("peer allow {peer} {volume} --reverse"));
        }
        Trio { pair, c }
    }
}

/// Hosts write `count` blocks from `first` on, and flush.
fn put(site: &Site, volume: &str, first: u64, count: u64, seed: u64) {
    let mut bytes = vec![0; (count * 4096) as usize];
    rand::rngs::StdRng::seed_from_u64(seed).fill(&mut bytes[..]);
    let mut host = site.nbd(volume);
    host.write(first * 4096, &bytes).unwrap();
    host.flush().unwrap();
    drop(host);
    eventually("the host is gone", || site.json(&format!("volume status {volume}"))["writers"] == 0);
}

/// The mirror by which a volume follows, or followed, another.
fn follows(site: &Site, volume: &str) -> Value {
    let all = site.json(&format!("mirror status {volume}"));
    let found = all.as_array().unwrap().iter().find(|m| m["role"] == "destination").cloned();
    found.unwrap_or_else(|| panic!("it follows nothing: {all}"))
}

fn image(site: &Site, volume: &str) -> Vec<u8> {
    site.nbd(volume).read_all()
}

/// The newest transfer of a volume was a difference of at most so many blocks.
fn was_difference(site: &Site, volume: &str, at_most_blocks: u64) {
    let newest = site.json(&format!("mirror history {volume}"))[0].clone();
    assert_eq!(newest["result"], "ok", "{newest}");
    assert_ne!(newest["base"], Value::Null, "{newest}");
    assert!(newest["changed_bytes"].as_u64().unwrap() <= at_most_blocks * 4096, "{newest}");
}

#[test]
fn a_second_replica_follows_through_failover_and_failback_and_the_loss_of_the_original() {
    let Trio { mut pair, c } = Trio::fan_out();
    let (a, b) = (&pair.a, &pair.b);
    put(a, "p/v", 0, 4, 2);
    b.ok("mirror update q/v");
    put(a, "p/v", 8, 4, 3);
    c.ok("mirror update w/v");
    put(a, "p/v", 16, 4, 4);

    // The textbook: b takes over, a follows it, and they change back. c has a state of a that is on nobody's line any more.
    b.ok("mirror break q/v");
    put(b, "q/v", 24, 4, 5);
    a.ok("mirror resync p/v --from b:q/v");
    c.ok("mirror update w/v");
    assert_eq!(image(&c, "w/v"), image(b, "q/v"));
    was_difference(&c, "w/v", 16);
    let kept = c.json("snapshot list w/v");
    assert!(
        kept.as_array().unwrap().iter().any(|s| s["name"].as_str().unwrap().starts_with("rescue-")),
        "{kept}"
    );
    a.ok("mirror swap p/v");
    put(a, "p/v", 32, 4, 6);
    b.ok("mirror update q/v");
    c.ok("mirror update w/v");
    was_difference(&c, "w/v", 4);
    // A planned turn with the other one; what a remembers of b is not in the way.
    c.ok("mirror swap w/v");
    assert_eq!(follows(&c, "w/v")["state"], "broken-off");
    a.ok("mirror swap p/v");
    c.ok("mirror update w/v");
    b.ok("mirror update q/v");

    // a is gone for good. b takes over; c holds the same and can follow.
    pair.a.kill();
    let b = &pair.b;
    b.ok("mirror break q/v");
    put(b, "q/v", 40, 4, 7);
    let plan: Value = c.json("mirror resync w/v --from b:q/v --plan");
    let would = plan["would"].to_string();
    assert!(would.contains("the mirror of w/v with a:p/v is over") && would.contains("base-TIME"), "{plan}");
    assert_eq!(plan["lost"], json!([]), "{plan}");
    c.ok("mirror resync w/v --from b:q/v");
    was_difference(&c, "w/v", 4);
    assert_eq!(image(&c, "w/v"), image(b, "q/v"));
    assert_eq!(follows(&c, "w/v")["source"], "b:q/v");
    let kept = c.json("snapshot list w/v");
    assert!(
        kept.as_array().unwrap().iter().any(|s| s["name"].as_str().unwrap().starts_with("base-")),
        "{kept}"
    );
    put(b, "q/v", 48, 4, 8);
    c.ok("mirror update w/v");
    was_difference(&c, "w/v", 4);

    // Nothing in common any more but the data: compared, on request.
    c.ok("mirror delete w/v");
    put(&c, "w/v", 56, 4, 9);
    let shown = image(&c, "w/v");
    eventually("b has let the base go", || {
        b.json("mirror destinations q/v").as_array().unwrap().iter().all(|d| d["peer"] != "c")
    });
    for snapshot in c.json("snapshot list w/v").as_array().unwrap() {
        c.ok(&format!("snapshot delete w/v@{} --yes", snapshot["name"].as_str().unwrap()));
    }
    let said = c.fails(4, "mirror resync w/v --from b:q/v");
    assert!(said.contains("--whole"), "{said}");
    let plan = c.json("mirror resync w/v --from b:q/v --whole --plan");
    assert!(plan["would"].to_string().contains("all of w/v is compared"), "{plan}");
    assert!(plan["would"].to_string().contains("w/v@rescue-TIME"), "{plan}");
    let said = c.ok("mirror resync w/v --from b:q/v --whole");
    assert!(said.contains("stays as w/v@rescue-"), "{said}");
    assert_eq!(image(&c, "w/v"), image(b, "q/v"));
    let newest = c.json("mirror history w/v")[0].clone();
    assert!(newest["wire_bytes_received"].as_u64().unwrap() < 512 * 1024, "{newest}");
    let kept = c.json("snapshot list w/v");
    let rescue = kept
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["name"].as_str().unwrap())
        .find(|n| n.starts_with("rescue-"));
    assert_eq!(image(&c, &format!("w/v@{}", rescue.expect("what c had of its own"))), shown);
}

/// The two replicas were updated at different moments, and no person has named a snapshot.
#[test]
fn replicas_of_different_moments_have_a_point_in_common_when_the_original_is_lost() {
    let Trio { mut pair, c } = Trio::fan_out();
    let (a, b) = (&pair.a, &pair.b);
    for round in 0..2 {
        put(a, "p/v", 16 * round, 4, round + 20);
        b.ok("mirror update q/v");
        put(a, "p/v", 16 * round + 8, 4, round + 30);
        c.ok("mirror update w/v");
    }
    let made_by = |site: &Site, volume: &str| -> Vec<String> {
        let all = site.json(&format!("snapshot list {volume}"));
        let all = all.as_array().unwrap().iter();
        all.map(|s| s["made_by"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(made_by(&c, "w/v"), ["common", "mirror"]);
    let common = c.json("snapshot list w/v")[0]["name"].as_str().unwrap().to_owned();
    let said = c.fails(4, &format!("snapshot delete w/v@{common} --yes"));
    assert!(said.contains("also at other replicas"), "{said}");
    // The newer one has something of its own when it follows the older.
    let shown = image(&c, "w/v");

    pair.a.kill();
    let b = &pair.b;
    b.ok("mirror break q/v");
    put(b, "q/v", 64, 4, 40);
    c.ok("mirror resync w/v --from b:q/v");
    was_difference(&c, "w/v", 8);
    assert_eq!(image(&c, "w/v"), image(b, "q/v"));
    let kept = c.json("snapshot list w/v");
    let mut kept = kept.as_array().unwrap().iter().filter(|s| s["made_by"] == "person");
    let is_shown = |s: &Value| image(&c, &format!("w/v@{}", s["name"].as_str().unwrap())) == shown;
    assert!(kept.any(is_shown), "what only the newer one had");
}

/// The old original follows the one that took over before the other replica does, which was cut off for some updates.
#[test]
fn a_replica_follows_after_the_old_original_with_a_difference() {
    let Trio { pair, c } = Trio::fan_out();
    let (a, b) = (&pair.a, &pair.b);
    put(a, "p/v", 0, 4, 50);
    b.ok("mirror update q/v");
    put(a, "p/v", 8, 4, 51);
    c.ok("mirror update w/v");
    b.ok("mirror break q/v");
    put(b, "q/v", 16, 4, 52);
    a.ok("mirror resync p/v --from b:q/v");
    for round in 0..3 {
        put(b, "q/v", 24 + 8 * round, 4, 53 + round);
        a.ok("mirror update p/v");
    }
    let kept = b.json("snapshot list q/v");
    assert_eq!(kept.as_array().unwrap().len(), 2, "the base, and what c holds: {kept}");
    c.ok("mirror resync w/v --from b:q/v");
    was_difference(&c, "w/v", 24);
    assert_eq!(image(&c, "w/v"), image(b, "q/v"));
    put(b, "q/v", 64, 4, 60);
    a.ok("mirror update p/v");
    assert_eq!(image(a, "p/v"), image(b, "q/v"));
}
