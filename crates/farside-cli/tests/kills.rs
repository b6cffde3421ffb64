//! SIGKILL at random moments, ten times each side: no flushed write is lost, the replica is one whole point in time,
//! and the next update completes.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod support;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use support::{Pair, nbd, seed};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 1024;
const KILLS: u32 = 10;

/// What a host knows: for each block the number that was last flushed there, and every later one that may be there.
#[derive(Default)]
struct Model {
    flushed: HashMap<u64, u64>,
    since: HashMap<u64, Vec<u64>>,
}

/// A block that says which write it is of.
fn block(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().repeat(BLOCK as usize / 8);
    bytes[8..16].copy_from_slice(&(!number).to_le_bytes());
    bytes
}

/// The number of a block; 0 for a hole. Anything else is torn.
fn number(bytes: &[u8]) -> u64 {
    if bytes.iter().all(|b| *b == 0) {
        return 0;
    }
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, block(number), "a torn block");
    number
}

impl Model {
    /// Writes and flushes until the daemon is gone.
    fn write(
        &mut self,
        host: &mut nbd::Client,
        random: &mut StdRng,
        next: &mut u64,
        ready: &AtomicBool,
    ) -> io::Error {
        loop {
            for _ in 0..random.random_range(1..8) {
                let at = random.random_range(0..BLOCKS);
                *next += 1;
                // It may arrive although its answer does not.
                self.since.entry(at).or_default().push(*next);
                if let Err(error) = host.write(at * BLOCK, &block(*next)) {
                    return error;
                }
            }
            if let Err(error) = host.flush() {
                return error;
            }
            for (at, numbers) in self.since.drain() {
                self.flushed.insert(at, *numbers.last().unwrap());
            }
            ready.store(true, Ordering::SeqCst);
        }
    }

    /// What is there must be what was flushed, or later. Then it is what counts.
    fn check(&mut self, image: &[u8]) {
        for at in 0..BLOCKS {
            let found = number(&image[(at * BLOCK) as usize..][..BLOCK as usize]);
            let flushed = self.flushed.get(&at).copied().unwrap_or(0);
            let possible = self.since.get(&at).is_some_and(|later| later.contains(&found));
            assert!(found == flushed || possible, "block {at} has {found}; {flushed} was flushed");
            self.flushed.insert(at, found);
        }
        self.since.clear();
    }
}

#[test]
fn the_source_dies_while_a_host_writes() {
    let seed = seed();
    let mut pair = Pair::start();
    pair.mirror(BLOCKS * BLOCK);
    pair.b.ok("mirror initialize q/v");
    let (mut model, mut next) = (Model::default(), 0);
    let mut random = StdRng::seed_from_u64(seed);
    for round in 0..KILLS {
        let ready = Arc::new(AtomicBool::new(false));
        let mut host = pair.a.nbd("p/v");
        let (mut writer_random, seen) = (StdRng::seed_from_u64(random.random()), Arc::clone(&ready));
        let writer = std::thread::spawn(move || {
            model.write(&mut host, &mut writer_random, &mut next, &seen);
            (model, next)
        });
        // Now and then a transfer is under way as well.
        if round % 2 == 0 {
            pair.b.ok("mirror update q/v --no-wait");
        }
        support::eventually("a flush", || ready.load(Ordering::SeqCst));
        std::thread::sleep(Duration::from_millis(random.random_range(0..60)));
        pair.a.kill();
        (model, next) = writer.join().unwrap();
        // The replica shows a whole point in time: never a torn block, and the content its root names.
        let replica = pair.b.nbd("q/v").read_all();
        for bytes in replica.chunks(BLOCK as usize) {
            number(bytes);
        }
        pair.a.restart();
        model.check(&pair.a.nbd("p/v").read_all());
        pair.b.ok("mirror update q/v");
        assert_eq!(pair.a.nbd("p/v").read_all(), pair.b.nbd("q/v").read_all(), "round {round}");
    }
    assert_eq!(pair.a.stop(), Some(0));
    check(&pair, "p.pool");
}

#[test]
fn the_destination_dies_while_an_update_runs() {
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let mut pair = Pair::start();
    const BYTES: usize = 16 << 20;
    pair.mirror(BYTES as u64);
    let mut write = |pair: &Pair, share: usize| {
        let mut host = pair.a.nbd("p/v");
        for chunk in 0..share {
            let mut bytes = vec![0; 1 << 20];
            random.fill(&mut bytes[..]);
            host.write((chunk << 20) as u64, &bytes).unwrap();
        }
        host.flush().unwrap();
        host.read_all()
    };
    let mut before = write(&pair, 16);
    pair.b.ok("mirror initialize q/v");
    let mut moments = StdRng::seed_from_u64(seed ^ 1);
    for round in 0..KILLS {
        let after = write(&pair, 12);
        pair.b.ok("mirror update q/v --no-wait");
        std::thread::sleep(Duration::from_millis(moments.random_range(0..400)));
        pair.b.kill();
        pair.b.restart();
        let replica = pair.b.nbd("q/v").read_all();
        assert!(replica == before || replica == after, "round {round}: the replica is no point in time");
        pair.b.ok("mirror update q/v");
        assert!(pair.b.nbd("q/v").read_all() == after, "round {round}: the update did not bring the newest");
        before = after;
    }
    assert_eq!(pair.b.stop(), Some(0));
    check(&pair, "q.pool");
}

/// The offline check finds nothing wrong.
fn check(pair: &Pair, pool: &str) {
    let path = pair.root.path().join(pool);
    let output = std::process::Command::new(support::FARSIDE)
        .args(["pool", "check", "--json"])
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}{}", support::text(&output.stdout), support::text(&output.stderr));
}
