//! A chain of three sites whose middle one dies at any moment, again and again, while a host writes at the first: each replica is one
//! whole snapshot of what it follows, nothing is copied again that had arrived, and the far end is near again soon.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use serde_json::Value;

use crate::figures::{moment, now, quantile};
use crate::support::relay::Relay;
use crate::support::{Pair, Site, check_pool, eventually, seed, status};

/// Large beside what changes between two kills: a second full copy would show.
const VOLUME_BYTES: u64 = 16 << 20;
/// Bytes per second of either link.
const RATE: u64 = 2 << 20;
/// What the host writes in a second, about.
const WRITTEN_PER_SECOND: u64 = 1 << 19;
const BLOCK: u64 = 4096;
/// Blocks between two flushes.
const BATCH: u64 = 16;
/// What may travel twice because of one kill: in flight, or received and not durable yet. A destination makes what is staged durable
/// every two seconds.
const AGAIN_MAX: u64 = 3 * RATE;
/// Kills without `FARSIDE_KILLS`, in the long test.
const KILLS: u32 = 200;

#[test]
#[ignore = "minutes: 200 kills; FARSIDE_KILLS says otherwise"]
fn the_middle_of_a_chain_dies_at_any_moment() {
    let kills = std::env::var("FARSIDE_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    Chain::start(seed()).run(kills);
}

/// A host of the first site that writes until it is told to stop.
struct Writer {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Writer {
    fn start(site: &Site, seed: u64) -> Writer {
        let mut host = site.nbd("p/v");
        let mut random = StdRng::seed_from_u64(seed);
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&written));
        let thread = std::thread::spawn(move || {
            let mut bytes = vec![0; BLOCK as usize];
            let pause = Duration::from_secs_f64((BATCH * BLOCK) as f64 / WRITTEN_PER_SECOND as f64);
            while !stopped.load(Ordering::SeqCst) {
                for _ in 0..BATCH {
                    random.fill_bytes(&mut bytes);
                    host.write(random.random_range(0..VOLUME_BYTES / BLOCK) * BLOCK, &bytes).unwrap();
                }
                counted.fetch_add(BATCH * BLOCK, Ordering::SeqCst);
                host.flush().unwrap();
                std::thread::sleep(pause);
            }
        });
        Writer { stop, written, thread }
    }

    fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
    }
}

/// One link of the chain.
struct Link {
    relay: Relay,
    /// When the newest snapshot was taken that its replica is known to have shown.
    shown: f64,
    passed: u64,
    /// What has travelled for one kill, bytes.
    most: u64,
}

struct Chain {
    random: StdRng,
    pair: Pair,
    c: Site,
    links: [Link; 2],
    /// Content roots that snapshots had, by identity.
    roots: HashMap<String, Value>,
    /// Bytes that the host had written after the last three kills.
    written: [u64; 3],
}

/// The newest point of a volume, as the pool has it: what was published last.
fn newest(site: &Site, volume: &str) -> Value {
    let listed = site.json(&format!("snapshot list {volume}"));
    let newest = listed.as_array().unwrap().iter().rfind(|s| s["on_main_line"] == true).cloned();
    newest.unwrap_or_else(|| panic!("{volume} has lost its content: {listed}"))
}

fn is_connected(site: &Site, peer: &str) -> bool {
    let all = site.json("peer list");
    all.as_array().unwrap().iter().any(|p| p["name"] == peer && p["state"] == "connected")
}

impl Chain {
    /// `p/v` at `a`, a replica `q/v` of it at `b`, and one of that, `w/v`, at `c`; every byte past a relay.
    fn start(seed: u64) -> Chain {
        let mut pair = Pair::with_pools(512 << 20, 512 << 20);
        let mut c = Site::start(pair.root.path(), "c");
        c.ok(&format!("pool create w --path {} --size 512M", pair.root.path().join("w.pool").display()));
        let code = pair.root.path().join("code-c");
        std::fs::write(&code, pair.b.ok("peer invite")).unwrap();
        c.ok(&format!("peer join {} --code-file {}", pair.b.published("peer.addr"), code.display()));
        let links = [&pair.a, &pair.b].map(|source| Link {
            relay: Relay::start(&source.published("peer.addr")),
            shown: 0.0,
            passed: 0,
            most: 0,
        });
        // Whoever has the replica dials, and nobody else.
        pair.a.ok("peer set b --address off");
        pair.b.ok("peer set c --address off");
        pair.b.ok(&format!("peer set a --address {}", links[0].relay.address));
        c.ok(&format!("peer set b --address {}", links[1].relay.address));
        for site in [&mut pair.a, &mut pair.b, &mut c] {
            site.kill();
            site.restart();
        }
        eventually("the sites meet", || is_connected(&pair.b, "a") && is_connected(&c, "b"));
        pair.mirror(VOLUME_BYTES);
        let mut random = StdRng::seed_from_u64(seed);
        let mut host = pair.a.nbd("p/v");
        for at in 0..VOLUME_BYTES >> 20 {
            let mut bytes = vec![0; 1 << 20];
            random.fill_bytes(&mut bytes);
            host.write(at << 20, &bytes).unwrap();
        }
        host.flush().unwrap();
        pair.b.ok("mirror initialize q/v");
        pair.b.ok("peer allow c q/v");
        c.ok("mirror create b:q/v w/v");
        c.ok("mirror initialize w/v");
        pair.b.ok("mirror set q/v --every 1s");
        c.ok("mirror set w/v --every 1s");
        Chain { random, pair, c, links, roots: HashMap::new(), written: [0; 3] }
    }

    fn run(mut self, kills: u32) {
        let began = Instant::now();
        let writer = Writer::start(&self.pair.a, self.random.random());
        for link in &mut self.links {
            link.relay.limit(Some(RATE));
            link.passed = link.relay.passed();
        }
        let first = self.links.each_ref().map(|link| link.passed);
        let (mut in_transfer, mut recoveries, mut lags) = ([0, 0], Vec::new(), Vec::new());
        for kill in 0..kills {
            std::thread::sleep(Duration::from_millis(self.random.random_range(100..2500)));
            let running = [(&self.pair.b, "q/v"), (&self.c, "w/v")].map(|(site, volume)| {
                let status = status_of_replica(site, volume);
                if volume == "w/v" {
                    lags.push(status["lag_seconds"].as_f64().unwrap());
                }
                u32::from(status["state"] == "transferring")
            });
            self.pair.b.kill();
            let died = now();
            (in_transfer[0], in_transfer[1]) = (in_transfer[0] + running[0], in_transfer[1] + running[1]);
            self.links.iter().for_each(|link| link.relay.cut());
            let without = ("FARSIDE_IO_URING".to_owned(), "off".to_owned());
            self.pair.b.environment = if self.random.random() { vec![without] } else { Vec::new() };
            self.pair.b.restart();
            self.compare();
            let restarted = Instant::now();
            self.links.iter().for_each(|link| link.relay.heal());
            eventually("the far end is near again", || moment(&newest(&self.c, "w/v")["created_at"]) > died);
            recoveries.push(restarted.elapsed().as_secs_f64());
            self.count(writer.written());
            if kill % 20 == 19 || kill == 4 {
                println!("{} kills, {:.0} s", kill + 1, began.elapsed().as_secs_f64());
            }
        }
        let written = writer.written();
        writer.stop();
        self.links.iter().for_each(|link| link.relay.limit(None));
        self.pair.b.ok("mirror update q/v");
        self.c.ok("mirror update w/v");
        let image = self.pair.a.nbd("p/v").read_all();
        assert!(image == self.pair.b.nbd("q/v").read_all(), "q/v is not what p/v is");
        assert!(image == self.c.nbd("w/v").read_all(), "w/v is not what p/v is");
        for (site, volume) in [(&self.pair.b, "q/v"), (&self.c, "w/v")] {
            // The history of B has what no kill ended.
            let history = site.json(&format!("mirror history {volume}"));
            let full = |record: &&Value| record["base"].is_null() && record["result"] == "ok";
            let firsts = history.as_array().unwrap().iter().filter(full).count();
            assert!(firsts <= 1, "{volume} was copied in full {firsts} times");
        }
        let passed = [0, 1].map(|at| self.links[at].relay.passed() - first[at]);
        println!(
            "{kills} kills, {} while B's transfer ran, {} while C's did, {:.0} s; {:.1} MiB written, {:.1} and {:.1} MiB travelled, for one \
             kill {:.1} and {:.1} MiB at most; a new point at C after {:.1} s (median), {:.1} s (9 of 10), {:.1} s (at most); its lag before \
             kills {:.1} s (median), {:.1} s (at most)",
            in_transfer[0],
            in_transfer[1],
            began.elapsed().as_secs_f64(),
            written as f64 / 1048576.0,
            passed[0] as f64 / 1048576.0,
            passed[1] as f64 / 1048576.0,
            self.links[0].most as f64 / 1048576.0,
            self.links[1].most as f64 / 1048576.0,
            quantile(&recoveries, 0.5),
            quantile(&recoveries, 0.9),
            quantile(&recoveries, 1.0),
            quantile(&lags, 0.5),
            quantile(&lags, 1.0),
        );
        for site in [&mut self.pair.a, &mut self.pair.b, &mut self.c] {
            assert_eq!(site.stop(), Some(0));
        }
        for pool in ["p.pool", "q.pool", "w.pool"] {
            check_pool(&self.pair.root.path().join(pool));
        }
    }

    /// Each replica is exactly one snapshot of what it follows, by identity, root and bytes, and none is older than it was. No site
    /// meets another meanwhile.
    fn compare(&mut self) {
        // C may publish what had arrived whole.
        for (at, source, volume) in [(0, "p/v", "q/v"), (1, "q/v", "w/v")] {
            let (above, here) = if at == 0 { (&self.pair.a, &self.pair.b) } else { (&self.pair.b, &self.c) };
            let (shown, bytes) = loop {
                let shown = newest(here, volume);
                let bytes = here.nbd(volume).read_all();
                if newest(here, volume)["uuid"] == shown["uuid"] {
                    break (shown, bytes);
                }
            };
            let taken = moment(&shown["created_at"]);
            assert!(taken >= self.links[at].shown, "{volume} has gone back to {shown}");
            self.links[at].shown = taken;
            let listed = above.json(&format!("snapshot list {source}"));
            let there = listed.as_array().unwrap().iter().find(|s| s["uuid"] == shown["uuid"]);
            let there = there.unwrap_or_else(|| panic!("{source} has no snapshot like {shown}: {listed}"));
            assert_eq!((&there["content_root"], &there["name"]), (&shown["content_root"], &shown["name"]));
            let uuid = shown["uuid"].as_str().unwrap().to_owned();
            let known = self.roots.entry(uuid).or_insert_with(|| shown["content_root"].clone());
            assert_eq!(*known, shown["content_root"], "{volume}");
            let original = above.nbd(&format!("{source}@{}", there["name"].as_str().unwrap())).read_all();
            assert!(original == bytes, "{volume} is not what {there} is");
        }
    }

    /// No more has travelled than was written since the kill before the last, and what a kill may cost: far less than a full copy.
    fn count(&mut self, written: u64) {
        self.written = [self.written[1], self.written[2], written];
        let fresh = self.written[2] - self.written[0];
        for link in &mut self.links {
            let passed = link.relay.passed();
            let of_this = passed - std::mem::replace(&mut link.passed, passed);
            link.most = link.most.max(of_this);
            let most = fresh + fresh / 20 + AGAIN_MAX;
            assert!(of_this <= most, "{of_this} bytes have travelled for one kill, {fresh} were written");
        }
    }
}

/// The mirror by which a volume follows.
fn status_of_replica(site: &Site, volume: &str) -> Value {
    let all = site.json(&format!("mirror status {volume}"));
    let found = all.as_array().unwrap().iter().find(|m| m["role"] == "destination").cloned();
    found.unwrap_or_else(|| status(site, volume))
}
