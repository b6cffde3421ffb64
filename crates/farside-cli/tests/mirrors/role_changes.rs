//! Roles that change, again and again, on real daemons: unplanned (break, then resync of the side that was
//! overtaken) and planned (swap). Nothing that a host flushed at the side that counts is ever missing, what moves follows
//! what was written since the role change, and what was overwritten opens as a side branch.

use std::time::Duration;

use crate::support::model::{BLOCK, Model};
use crate::support::relay::Relay;
use crate::support::{Pair, Site, eventually, seed};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

const BLOCKS: u64 = 1024;
/// Ten failovers, ten failbacks.
const ROLE_CHANGES: u32 = 20;
/// Blocks written at a side between two role changes, at most.
const WRITES_MAX: u64 = 200;
/// What a transfer may cost besides its blocks: messages, TLS, frames of a few blocks each.
const WIRE_OVERHEAD_BYTES: u64 = 64 << 10;

/// One side: its daemon, and its volume.
#[derive(Clone, Copy)]
struct Side<'a> {
    site: &'a Site,
    volume: &'a str,
}

impl Side<'_> {
    fn image(&self) -> Vec<u8> {
        self.site.nbd(self.volume).read_all()
    }

    /// Writes scattered blocks and flushes; how many bytes.
    fn write(&self, model: &mut Model, random: &mut StdRng) -> u64 {
        let count = random.random_range(1..=WRITES_MAX);
        model.scatter(&mut self.site.nbd(self.volume), random, count).unwrap();
        count * BLOCK
    }

    /// The snapshots that lie beside the line of what hosts see.
    fn side_branches(&self) -> Vec<String> {
        let listed = self.site.json(&format!("snapshot list {}", self.volume));
        let beside = listed.as_array().unwrap().iter().filter(|s| s["on_main_line"] == false);
        beside.map(|s| s["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The newest transfer of this kind that brought something to this side.
    fn newest(&self, kind: &str) -> Value {
        let history = self.site.json(&format!("mirror history {}", self.volume));
        let newest = history.as_array().unwrap().iter().find(|r| r["kind"] == kind).cloned();
        newest.unwrap_or_else(|| panic!("no {kind} in {history}"))
    }

    fn destination_status(&self) -> Value {
        role(self, "destination")
    }
}

/// What a side's daemon says of the volume in this role.
#[track_caller]
fn role(side: &Side<'_>, role: &str) -> Value {
    let all = side.site.json(&format!("mirror status {}", side.volume));
    let found = all.as_array().unwrap().iter().find(|m| m["role"] == role).cloned();
    found.unwrap_or_else(|| panic!("{} is not listed as {role}: {all}", side.volume))
}

/// `p/v` at A, mirrored as `q/v` at B every second, and the way back allowed.
fn start() -> (Pair, Model) {
    let pair = Pair::start();
    let (a, b) = (&pair.a, &pair.b);
    a.ok(&format!("volume create p/v --size {}", BLOCKS * BLOCK));
    a.ok("peer allow b p/v --reverse");
    b.ok("mirror create a:p/v q/v --every 1s");
    let mut model = Model::new(BLOCKS);
    model.fill(&mut a.nbd("p/v"), 0, BLOCKS).unwrap();
    b.ok("mirror initialize q/v");
    (pair, model)
}

/// An update comes by itself.
fn schedule_is_alive(from: Side<'_>, into: Side<'_>, model: &mut Model, random: &mut StdRng) {
    from.write(model, random);
    let wanted = from.image();
    eventually("an update by itself", || into.image() == wanted);
}

#[test]
fn ten_failovers_and_failbacks_in_a_row() {
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let (pair, mut model) = start();
    let (a, b) = (Side { site: &pair.a, volume: "p/v" }, Side { site: &pair.b, volume: "q/v" });
    schedule_is_alive(a, b, &mut model, &mut random);
    for number in 0..ROLE_CHANGES {
        let (old, new) = if number % 2 == 0 { (a, b) } else { (b, a) };
        old.write(&mut model, &mut random);
        new.site.ok(&format!("mirror update {}", new.volume));
        new.site.ok(&format!("mirror break {} --yes", new.volume));
        // The old side does not know yet, or does not care: what its hosts write now is lost to the main line.
        let mut diverged = Model::new(BLOCKS);
        let overwritten = old.write(&mut diverged, &mut random);
        let rescued = old.image();
        // The new side is what counts.
        model.check(&new.image());
        let written = new.write(&mut model, &mut random);
        eventually("the old side hears of it", || !role(&old, "source")["overtaken"].is_null());

        let resync = if number == 0 {
            format!("mirror resync {} --from b:{} --every 1s", old.volume, new.volume)
        } else {
            format!("mirror resync {}", old.volume)
        };
        if number < 2 {
            let host = old.site.nbd(old.volume);
            let said = old.site.fails(4, &format!("{resync} --yes"));
            assert!(said.contains("NBD"), "{said}");
            drop(host);
            eventually("the host is gone", || {
                let plan = old.site.json(&format!("{resync} --plan"));
                plan["kept_bytes"].as_u64().is_some_and(|kept| kept > 0)
            });
        }
        old.site.ok(&format!("{resync} --yes"));
        let image = old.image();
        model.check(&image);
        assert!(new.image() == image, "role change {number}: the sides differ");
        let record = old.newest("resync");
        let (changed, wire) = (
            record["changed_bytes"].as_u64().unwrap(),
            record["wire_bytes_sent"].as_u64().unwrap() + record["wire_bytes_received"].as_u64().unwrap(),
        );
        let moved_max = written + overwritten;
        assert!(record["result"] == "ok" && changed <= moved_max, "role change {number}: {record}");
        assert!(wire <= moved_max + WIRE_OVERHEAD_BYTES, "role change {number}: {record}");
        // What was overwritten opens, is what it was, and goes when it is told to.
        let branches = old.side_branches();
        let [rescue] = &branches[..] else { panic!("role change {number}: {branches:?}") };
        assert!(rescue.starts_with("rescue-"), "{rescue}");
        let branch = format!("{}@{rescue}", old.volume);
        assert!(
            old.site.nbd(&branch).read_all() == rescued,
            "role change {number}: {branch} is not what was there"
        );
        old.site.ok(&format!("snapshot delete {branch} --yes"));
    }
    // Both directions are still on schedule: that of the moment, and after one more role change the other.
    schedule_is_alive(a, b, &mut model, &mut random);
    b.site.ok("mirror break q/v --yes");
    a.site.ok("mirror resync p/v --yes");
    schedule_is_alive(b, a, &mut model, &mut random);
    // Each second an update runs.
    eventually("it rests between two updates", || a.destination_status()["state"] == "mirrored");
    finish(pair);
}

/// Nothing is left over, and nothing is wrong, in either pool.
fn finish(mut pair: Pair) {
    for site in [&mut pair.a, &mut pair.b] {
        assert_eq!(site.stop(), Some(0));
    }
    for pool in ["p.pool", "q.pool"] {
        crate::support::check_pool(&pair.root.path().join(pool));
    }
}

#[test]
fn planned_role_changes_lose_nothing() {
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let (pair, mut model) = start();
    let (a, b) = (Side { site: &pair.a, volume: "p/v" }, Side { site: &pair.b, volume: "q/v" });
    for number in 0..6 {
        let (old, new) = if number % 2 == 0 { (a, b) } else { (b, a) };
        old.write(&mut model, &mut random);
        let swap = format!("mirror swap {} --yes", new.volume);
        if number < 2 {
            let host = old.site.nbd(old.volume);
            let said = new.site.fails(4, &swap);
            assert!(said.contains("NBD"), "{said}");
            assert!(!host.read_only);
            drop(host);
            model.fill(&mut old.site.nbd(old.volume), 0, 1).unwrap();
        }
        eventually("the roles change", || new.site.farside(&swap).status.success());
        assert!(old.site.nbd(old.volume).read_only, "both sides are writable");
        assert!(!new.site.nbd(new.volume).read_only);
        model.check(&new.image());
        new.write(&mut model, &mut random);
        // The old side follows by itself: the schedule has turned round too.
        let wanted = new.image();
        eventually("an update by itself", || old.image() == wanted);
        assert!(old.side_branches().is_empty() && new.side_branches().is_empty());
    }
    finish(pair);
}

/// Until it has committed, a resync shows what this side had, whoever dies; a break gives it back; and in the end it is
/// a side branch.
#[test]
fn a_resync_whose_ends_are_killed_loses_neither_side() {
    const RATE: u64 = 1 << 20;
    let mut random = StdRng::seed_from_u64(seed());
    let (mut pair, relay) = Pair::through_relay();
    pair.mirror(BLOCKS * BLOCK);
    let mut model = Model::new(BLOCKS);
    model.fill(&mut pair.a.nbd("p/v"), 0, BLOCKS).unwrap();
    pair.b.ok("mirror initialize q/v");
    pair.b.ok("mirror break q/v --yes");
    Model::new(BLOCKS).scatter(&mut pair.b.nbd("q/v"), &mut random, WRITES_MAX).unwrap();
    model.fill(&mut pair.a.nbd("p/v"), 0, BLOCKS).unwrap();
    let own = pair.b.nbd("q/v").read_all();
    let begin = |pair: &Pair, bytes: u64| {
        relay.limit(Some(RATE));
        let passed = relay.passed();
        // The host that has just gone may still be seen.
        eventually("no host is there", || {
            pair.b.farside("mirror resync q/v --yes --no-wait").status.success()
        });
        assert!(relay.wait_for(passed + bytes, Duration::from_secs(20)), "the resync does not run");
    };
    let again = |site: &mut Site, relay: &Relay| {
        site.kill();
        relay.cut();
        site.restart();
    };
    let meet = |pair: &Pair| {
        relay.heal();
        pair.b.ok("peer set a --address off");
        pair.b.ok(&format!("peer set a --address {}", relay.address));
    };
    let shows_its_own = |pair: &Pair, when: &str| {
        let mut reader = pair.b.nbd("q/v");
        assert!(reader.read_only && reader.read_all() == own, "other content after {when}");
    };

    // 2.5 s, of which two are durable.
    begin(&pair, RATE * 5 / 2);
    again(&mut pair.b, &relay);
    shows_its_own(&pair, "the destination was killed");
    meet(&pair);
    begin(&pair, RATE / 2);
    again(&mut pair.a, &relay);
    shows_its_own(&pair, "the source was killed");
    model.check(&pair.a.nbd("p/v").read_all());

    // Given up: hosts go on with what they had.
    pair.b.ok("mirror break q/v --yes");
    let mut host = pair.b.nbd("q/v");
    assert!(!host.read_only && host.read_all() == own, "a break did not give back what was there");
    host.write(0, &[7; BLOCK as usize]).unwrap();
    host.flush().unwrap();
    let own = host.read_all();
    drop(host);

    meet(&pair);
    relay.limit(None);
    eventually("no host is there", || pair.b.farside("mirror resync q/v --yes").status.success());
    let side = Side { site: &pair.b, volume: "q/v" };
    assert!(side.image() == pair.a.nbd("p/v").read_all(), "the sides differ");
    let branches = side.side_branches();
    assert!(
        branches.iter().any(|name| pair.b.nbd(&format!("q/v@{name}")).read_all() == own),
        "no side branch of {branches:?} holds what was overwritten"
    );
    finish(pair);
}
