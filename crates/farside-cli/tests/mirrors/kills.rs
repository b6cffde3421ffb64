//! SIGKILL of either real daemon at random moments of transfers, while a host writes: no flushed write is lost, the
//! replica is one source snapshot and never older than the last that was committed, an interrupted transfer goes on
//! where it was, and the next one completes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::model::{BLOCK, Model};
use crate::support::relay::Relay;
use crate::support::{Pair, Site, eventually, seed, status};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

/// 16 MiB: large enough to be hit in the middle at [`RATE`], small enough to be read and compared after each kill.
const BLOCKS: u64 = 4096;
/// Bytes per second of the link: a first copy takes 4 s, an update of [`BURST_MAX`] blocks 2 s.
const RATE: u64 = 4 << 20;
/// What may be on its way, or received and not staged yet, when something dies: travels again.
const IN_FLIGHT_MAX: u64 = 3 << 20;
/// What a destination may lose that dies: it makes what is staged durable every two seconds; twice that on a busy machine.
const UNDURABLE_MAX: u64 = 4 * RATE;
/// Blocks that are written before a transfer begins, at most; the host goes on during it.
const BURST_MAX: u64 = 2048;
/// Kills without `FARSIDE_KILLS`, in the long test.
const KILLS: u32 = 200;
/// Of a transfer that is killed again and again, kills at most.
const KILLS_IN_A_ROW_MAX: u32 = 3;

#[test]
fn either_daemon_dies_in_the_middle_of_transfers() {
    Trial::start(seed()).run(8);
}

#[test]
#[ignore = "minutes: 200 kills; FARSIDE_KILLS says otherwise"]
fn either_daemon_dies_in_the_middle_of_transfers_hundreds_of_times() {
    let kills = std::env::var("FARSIDE_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    Trial::start(seed()).run(kills);
}

/// What has travelled before a kill does not travel again: first the destination dies, then the source.
#[test]
fn a_first_copy_whose_ends_are_killed_goes_on_where_it_was() {
    let (mut pair, relay) = Pair::through_relay();
    pair.mirror(BLOCKS * BLOCK);
    Model::new(BLOCKS).fill(&mut pair.a.nbd("p/v"), 0, BLOCKS).unwrap();
    relay.limit(Some(RATE));
    let wait_for = |bytes: u64| {
        let passed = relay.passed();
        assert!(relay.wait_for(passed + bytes, Duration::from_secs(30)), "the first copy does not run");
    };
    let kill = |site: &mut Site| {
        site.kill();
        relay.cut();
        site.restart();
        relay.heal();
    };
    let dial = |b: &Site| {
        b.ok("peer set a --address off");
        b.ok(&format!("peer set a --address {}", relay.address));
    };
    pair.b.ok("mirror initialize q/v --no-wait");
    // 3 s, so that 2 s of it are durable.
    wait_for(3 * RATE);
    kill(&mut pair.b);
    assert_eq!(status(&pair.b, "q/v")["current_snapshot"], Value::Null);
    dial(&pair.b);
    pair.b.ok("mirror initialize q/v --no-wait");
    wait_for(RATE);
    kill(&mut pair.a);
    dial(&pair.b);
    relay.limit(None);
    pair.b.ok("mirror initialize q/v");
    assert!(pair.a.nbd("p/v").read_all() == pair.b.nbd("q/v").read_all());
    let history = pair.b.json("mirror history q/v");
    assert_eq!((&history[0]["result"], &history[0]["resumed"]), (&Value::from("ok"), &Value::from(true)));
    let (last, all) = (history[0]["wire_bytes_received"].as_u64().unwrap(), relay.passed());
    println!("{last} bytes travelled after the second kill, {all} in all, for {} of data", BLOCKS * BLOCK);
    assert!(last < BLOCKS * BLOCK * 3 / 4, "{history}");
}

/// A mirror at B.
struct Mirror {
    /// Its volume.
    replica: String,
    /// The newest snapshot that it is known to have shown: identity, and when it was taken.
    committed: Option<(String, String)>,
    /// The transfer that runs must be going on with what one before it has staged.
    must_go_on: bool,
}

impl Mirror {
    fn new(replica: String) -> Mirror {
        Mirror { replica, committed: None, must_go_on: false }
    }
}

struct Trial {
    random: StdRng,
    pair: Pair,
    relay: Relay,
    model: Option<Model>,
    mirrors_made: u32,
    kills: u32,
    kills_in_transfer: u32,
    /// Transfers that have gone on with what another had staged.
    went_on: usize,
}

/// A host that writes until it is stopped, or its daemon dies.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Model>,
}

impl Writer {
    fn start(site: &Site, mut model: Model, seed: u64) -> Writer {
        let mut host = site.nbd("p/v");
        let (ready, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (is_ready, stopped) = (Arc::clone(&ready), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            // Its end is the daemon's.
            let _ = model.write_on(&mut host, &mut StdRng::seed_from_u64(seed), &is_ready, &stopped);
            model
        });
        eventually("a flush", || ready.load(Ordering::SeqCst));
        Writer { stop, thread }
    }

    fn stop(self) -> Model {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

impl Trial {
    fn start(seed: u64) -> Trial {
        let (pair, relay) = Pair::through_relay();
        pair.mirror(BLOCKS * BLOCK);
        let mut model = Model::new(BLOCKS);
        model.fill(&mut pair.a.nbd("p/v"), 0, BLOCKS).unwrap();
        pair.b.ok("mirror initialize q/v");
        Trial {
            random: StdRng::seed_from_u64(seed),
            pair,
            relay,
            model: Some(model),
            mirrors_made: 0,
            kills: 0,
            kills_in_transfer: 0,
            went_on: 0,
        }
    }

    fn run(mut self, kills: u32) {
        let began = Instant::now();
        let mut updated = Mirror::new("q/v".into());
        self.look(&mut updated);
        while self.kills < kills {
            if self.kills == 0 || self.random.random_ratio(1, 4) {
                self.initialize();
            } else {
                self.update(&mut updated);
            }
        }
        println!(
            "{} kills, {} of them while a transfer ran, {} transfers went on, {:.0} s",
            self.kills,
            self.kills_in_transfer,
            self.went_on,
            began.elapsed().as_secs_f64()
        );
        for site in [&mut self.pair.a, &mut self.pair.b] {
            assert_eq!(site.stop(), Some(0));
        }
        for pool in ["p.pool", "q.pool"] {
            crate::support::check_pool(&self.pair.root.path().join(pool));
        }
    }

    /// One update that is killed up to three times, and then completes.
    fn update(&mut self, mirror: &mut Mirror) {
        let (first, count) =
            (self.random.random_range(0..BLOCKS - BURST_MAX), self.random.random_range(1..=BURST_MAX));
        self.model.as_mut().unwrap().fill(&mut self.pair.a.nbd("p/v"), first, count).unwrap();
        for attempt in 0..self.random.random_range(1..=KILLS_IN_A_ROW_MAX) {
            self.kill("update", mirror, count * BLOCK, attempt == 0);
        }
        self.complete("update", mirror);
    }

    /// The same with a first copy into a volume of its own, which is then given up.
    fn initialize(&mut self) {
        self.mirrors_made += 1;
        let mut mirror = Mirror::new(format!("q/v{}", self.mirrors_made));
        let replica = mirror.replica.clone();
        self.pair.b.ok(&format!("mirror create a:p/v {replica}"));
        let written = |trial: &Trial| trial.model.as_ref().unwrap().written_bytes();
        let (passed, before) = (self.relay.passed(), written(self));
        let mut wire_max = BLOCKS * BLOCK;
        for attempt in 0..self.random.random_range(1..=KILLS_IN_A_ROW_MAX) {
            let is_source = self.kill("initialize", &mut mirror, BLOCKS * BLOCK, attempt == 0);
            wire_max += IN_FLIGHT_MAX + if is_source { 0 } else { UNDURABLE_MAX };
        }
        self.complete("initialize", &mut mirror);
        let (passed, written) = (self.relay.passed() - passed, written(self) - before);
        assert!(
            passed <= (wire_max + written) * 102 / 100,
            "{passed} bytes have travelled for {replica}; {written} were written meanwhile, and {wire_max} would do"
        );
        self.pair.b.ok(&format!("mirror delete {replica} --yes"));
        self.pair.b.ok(&format!("volume delete {replica} --yes"));
    }

    /// A transfer of at least these bytes begins, a host writes, and one of the daemons dies. It is started again.
    /// Answers whether it was the source's. `is_fresh`: nothing of the transfer has travelled before.
    fn kill(&mut self, verb: &str, mirror: &mut Mirror, bytes: u64, is_fresh: bool) -> bool {
        let Mirror { replica, .. } = mirror;
        let writer = Writer::start(&self.pair.a, self.model.take().unwrap(), self.random.random());
        let passed = self.relay.passed();
        // It may have been completed just before the kill before this one.
        let verb = if verb == "initialize" && status(&self.pair.b, replica)["current_snapshot"].is_string() {
            "update"
        } else {
            verb
        };
        self.relay.limit(Some(RATE));
        self.pair.b.ok(&format!("mirror {verb} {replica} --no-wait"));
        // Mostly a moment in bytes, which is in the middle; else one in time, which may also be at either end.
        if self.random.random_ratio(4, 5) {
            let moment = passed + self.random.random_range(0..bytes);
            self.wait_for(moment, &mirror.replica);
        } else {
            std::thread::sleep(Duration::from_millis(self.random.random_range(0..1000)));
        }
        let is_source = self.random.random();
        self.look(mirror);
        self.kills += 1;
        let state = status(&self.pair.b, &mirror.replica)["state"].clone();
        let is_running = state == "transferring" || state == "initializing";
        self.kills_in_transfer += u32::from(is_running);
        // So much that some of it is staged, durably if need be, and not so much that it may be complete.
        let came = self.relay.passed() - passed;
        let lost_max = if is_source { IN_FLIGHT_MAX } else { IN_FLIGHT_MAX + UNDURABLE_MAX };
        mirror.must_go_on |= is_fresh && is_running && came > lost_max && came < bytes;
        let site = if is_source { &mut self.pair.a } else { &mut self.pair.b };
        site.kill();
        let mut model = writer.stop();
        // Nothing goes on before what is there has been compared.
        self.relay.cut();
        // Each life reads and writes its pool by io_uring, or without.
        let without = ("FARSIDE_IO_URING".to_owned(), "off".to_owned());
        site.environment = if self.random.random() { vec![without] } else { Vec::new() };
        site.restart();
        if is_source {
            model.check(&self.pair.a.nbd("p/v").read_all());
        }
        self.model = Some(model);
        self.compare(mirror);
        self.relay.heal();
        // Dials at once: the pause after failures in a row grows to 30 s.
        self.pair.b.ok("peer set a --address off");
        self.pair.b.ok(&format!("peer set a --address {}", self.relay.address));
        is_source
    }

    /// Until the relay has passed this much, or the transfer has ended with less.
    fn wait_for(&self, passed: u64, replica: &str) {
        let began = Instant::now();
        while !self.relay.wait_for(passed, Duration::from_millis(50)) {
            let is_over = status(&self.pair.b, replica)["transfer"].is_null();
            if is_over || began.elapsed() > Duration::from_secs(10) {
                return;
            }
        }
    }

    /// The next transfer completes, and brings what is at the source now.
    fn complete(&mut self, verb: &str, mirror: &mut Mirror) {
        let Mirror { replica, .. } = mirror;
        let b = &self.pair.b;
        self.relay.limit(None);
        let is_there = status(b, replica)["current_snapshot"].is_string();
        if verb == "initialize" && !is_there {
            b.ok(&format!("mirror initialize {replica}"));
        }
        b.ok(&format!("mirror update {replica}"));
        assert!(
            self.pair.a.nbd("p/v").read_all() == b.nbd(replica).read_all(),
            "{replica} is not what p/v is now"
        );
        self.look(mirror);
        // History lacks the transfers that a kill of the destination ended; its log has them.
        let all = self.pair.b.log().matches("going on with what is staged").count();
        let went_on = all - std::mem::replace(&mut self.went_on, all);
        let must_go_on = std::mem::take(&mut mirror.must_go_on);
        assert!(went_on > 0 || !must_go_on, "{} began anew", mirror.replica);
    }

    /// The replica is not older than it was; what it shows, if anything: the snapshot's identity.
    fn look(&mut self, mirror: &mut Mirror) -> Option<String> {
        let b = &self.pair.b;
        loop {
            let shown = status(b, &mirror.replica);
            let Some(name) = shown["current_snapshot"].as_str() else {
                assert!(mirror.committed.is_none(), "{} has lost its content", mirror.replica);
                return None;
            };
            let listed = b.json(&format!("snapshot list {}", mirror.replica));
            // A transfer may have published the next one meanwhile, and let this one go.
            let Some(here) = listed.as_array().unwrap().iter().find(|s| s["name"] == name) else { continue };
            assert_eq!(here["content_root"], shown["content_root"]);
            let (uuid, created_at) = (text(here, "uuid"), text(here, "created_at"));
            if let Some((before, since)) = &mirror.committed {
                assert!(
                    uuid == *before || created_at > *since,
                    "{} shows {here}, which is older than {before} of {since}",
                    mirror.replica
                );
            }
            mirror.committed = Some((uuid.clone(), created_at));
            return Some(uuid);
        }
    }

    /// The replica is exactly one snapshot of the source, by root and by bytes. Both sites run, and do not meet.
    fn compare(&mut self, mirror: &mut Mirror) {
        if self.look(mirror).is_none() {
            return;
        }
        // What had arrived whole may be published yet: hosts see it a moment before the status tells, the pool at once.
        let newest = |b: &Site| {
            let listed = b.json(&format!("snapshot list {}", mirror.replica));
            let listed = listed.as_array().unwrap().iter().rev();
            let shown = listed.clone().find(|s| s["on_main_line"] == true);
            shown.unwrap_or_else(|| panic!("{listed:?}")).clone()
        };
        let (shown, bytes) = loop {
            let shown = newest(&self.pair.b);
            let bytes = self.pair.b.nbd(&mirror.replica).read_all();
            if newest(&self.pair.b)["uuid"] == shown["uuid"] {
                break (shown, bytes);
            }
        };
        let (uuid, root) = (text(&shown, "uuid"), shown["content_root"].clone());
        let listed = self.pair.a.json("snapshot list p/v");
        let there = listed.as_array().unwrap().iter().find(|s| s["uuid"] == uuid);
        let there = there.unwrap_or_else(|| panic!("the source has no snapshot {uuid}: {listed}"));
        assert_eq!(there["content_root"], root);
        let original = self.pair.a.nbd(&format!("p/v@{}", text(there, "name"))).read_all();
        assert!(original == bytes, "{} is not what {there} is", mirror.replica);
    }
}

fn text(document: &Value, key: &str) -> String {
    document[key].as_str().unwrap().to_owned()
}
