//! Hundreds of mirrors on one pair of daemons, all changing, over a T3: what the line can carry is within its objective, and where it
//! cannot the forecast said so before.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

use crate::figures::quantile;
use crate::support::{Pair, Site, eventually, seed};

/// Mirrors without `FARSIDE_MIRRORS`.
const MIRRORS: usize = 256;
const OBJECTIVE: f64 = 60.0;
/// A T3, bytes a second.
const LINE: f64 = 45e6 / 8.0;
/// What hosts change, as a part of the line: what it carries well, and what it does not.
const LOAD: f64 = 0.5;
const OVERLOAD: f64 = 1.5;
/// Seconds of each, without `FARSIDE_SECONDS`. The first objective of the first has gone by before anything is judged.
const SECONDS: u64 = 240;
const VOLUME_BYTES: u64 = 8 << 20;
const BLOCK: u64 = 4096;

/// Memory of a process, MiB: now, and at most.
fn memory(site: &Site) -> [f64; 2] {
    let status = std::fs::read_to_string(format!("/proc/{}/status", site.pid())).unwrap();
    ["VmRSS:", "VmHWM:"].map(|key| {
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
    })
}

/// Writes blocks of noise, in turns to all volumes, at a rate that can be changed.
fn write_on(
    a: &Site,
    count: usize,
    rate: &Arc<AtomicU64>,
    stop: &Arc<AtomicBool>,
    seed: u64,
) -> std::thread::JoinHandle<u64> {
    let mut hosts: Vec<_> = (0..count).map(|number| a.nbd(&format!("p/v{number}"))).collect();
    let (rate, stop) = (Arc::clone(rate), Arc::clone(stop));
    let mut random = StdRng::seed_from_u64(seed);
    std::thread::spawn(move || {
        let (mut bytes, mut written, mut debt) = (vec![0; BLOCK as usize], 0, 0.0);
        let mut last = Instant::now();
        while !stop.load(Ordering::SeqCst) {
            for host in &mut hosts {
                random.fill_bytes(&mut bytes);
                host.write(random.random_range(0..VOLUME_BYTES / BLOCK) * BLOCK, &bytes).unwrap();
                (written, debt) = (written + BLOCK, debt + BLOCK as f64);
                let pause = debt / rate.load(Ordering::SeqCst).max(1) as f64 - last.elapsed().as_secs_f64();
                if pause > 0.01 {
                    std::thread::sleep(Duration::from_secs_f64(pause));
                }
                if last.elapsed() > Duration::from_secs(1) {
                    (debt, last) = (0.0, Instant::now());
                }
            }
        }
        written
    })
}

/// What is seen of all mirrors in a time.
#[derive(Default)]
struct Looks {
    /// The longest lag of each look.
    worst: Vec<f64>,
    /// All lags of the last look.
    last: Vec<f64>,
    /// Of mirrors that were late: whether they had said before that they would be.
    foretold: HashMap<String, bool>,
    /// Of those that said it: when first, and of those that were late: when first.
    said: HashMap<String, f64>,
    late: HashMap<String, f64>,
    /// Time that `farside status` took.
    status: Vec<f64>,
    waiting: usize,
}

fn watch(b: &Site, seconds: u64) -> Looks {
    let (began, mut looks) = (Instant::now(), Looks::default());
    while began.elapsed() < Duration::from_secs(seconds) {
        let asked = Instant::now();
        let output = b.command("status").stdout(std::process::Stdio::null()).status().unwrap();
        assert!(output.success());
        looks.status.push(asked.elapsed().as_secs_f64());
        let all = b.json("mirror status");
        let at = began.elapsed().as_secs_f64();
        looks.last.clear();
        looks.waiting = 0;
        for mirror in all.as_array().unwrap() {
            let name = mirror["name"].as_str().unwrap().to_owned();
            let lag = mirror["lag_seconds"].as_f64().unwrap();
            looks.last.push(lag);
            looks.waiting += usize::from(mirror["state"] == "queued");
            let is_foretold = mirror["why"].as_str().is_some_and(|why| why.contains("will not be met"));
            if is_foretold {
                looks.said.entry(name.clone()).or_insert(at);
            }
            if lag > OBJECTIVE && !looks.late.contains_key(&name) {
                looks.foretold.insert(name.clone(), looks.said.contains_key(&name));
                looks.late.insert(name, at);
            }
        }
        looks.worst.push(looks.last.iter().copied().fold(0.0, f64::max));
        std::thread::sleep(Duration::from_secs(1));
    }
    looks
}

#[test]
#[ignore = "minutes: ten of them; FARSIDE_MIRRORS and FARSIDE_SECONDS say otherwise"]
fn hundreds_of_mirrors_on_one_line_are_within_their_objective_or_say_before_that_they_will_not_be() {
    let number = |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let count = number("FARSIDE_MIRRORS", MIRRORS as u64) as usize;
    let seconds = number("FARSIDE_SECONDS", SECONDS);
    let mut random = StdRng::seed_from_u64(seed());
    let mut pair = Pair::with_pools(6 << 30, 6 << 30);
    let (a, b) = (&pair.a, &pair.b);
    for number in 0..count {
        a.ok(&format!("volume create p/v{number} --size {VOLUME_BYTES}"));
        a.ok(&format!("peer allow b p/v{number}"));
        b.ok(&format!("mirror create a:p/v{number} q/v{number} --rpo {OBJECTIVE}s"));
    }
    println!("{count} mirrors made; memory of A {:.0?} MiB, of B {:.0?} MiB", memory(a), memory(b));
    let began = Instant::now();
    for number in 0..count {
        b.ok(&format!("mirror initialize q/v{number} --no-wait"));
    }
    let are_there = || {
        let all = b.json("mirror status");
        all.as_array().unwrap().iter().all(|mirror| mirror["current_snapshot"].is_string())
    };
    eventually("all have their first copy", are_there);
    println!("first copies of empty volumes: {:.1} s", began.elapsed().as_secs_f64());
    a.ok("site set --throttle-out 45Mbit/s");
    let (rate, stop) = (Arc::new(AtomicU64::new((LOAD * LINE) as u64)), Arc::new(AtomicBool::new(false)));
    let hosts = write_on(a, count, &rate, &stop, random.random());
    // Until each has learnt how long its updates take.
    let learning = watch(b, 2 * OBJECTIVE as u64);
    let say = |what: &str, looks: &Looks| {
        println!(
            "{what}: longest lag {:.1} s (median of looks), {:.1} s (at most), last look {:.1} s (median), {:.1} s (at most); {} late at any \
             time, {} of these foretold; {} waiting; status {:.0} ms (median), {:.0} ms (at most) of {}; A {:.0?} MiB, B {:.0?} MiB",
            quantile(&looks.worst, 0.5),
            quantile(&looks.worst, 1.0),
            quantile(&looks.last, 0.5),
            quantile(&looks.last, 1.0),
            looks.late.len(),
            looks.foretold.values().filter(|foretold| **foretold).count(),
            looks.waiting,
            1000.0 * quantile(&looks.status, 0.5),
            1000.0 * quantile(&looks.status, 1.0),
            looks.status.len(),
            memory(a),
            memory(b),
        );
    };
    say("learning", &learning);
    let within = watch(b, seconds);
    say("what the line carries", &within);
    rate.store((OVERLOAD * LINE) as u64, Ordering::SeqCst);
    let over = watch(b, seconds);
    say("more than it carries", &over);
    let ahead: Vec<f64> = over
        .late
        .iter()
        .filter_map(|(name, late)| Some(late - over.said.get(name)?))
        .filter(|ahead| *ahead > 0.0)
        .collect();
    println!(
        "said {:.0} s before (median of {}), {:.0} s at least",
        quantile(&ahead, 0.5),
        ahead.len(),
        quantile(&ahead, 0.0)
    );
    stop.store(true, Ordering::SeqCst);
    let written = hosts.join().unwrap();
    println!("{} MiB were written", written >> 20);
    assert!(within.late.is_empty(), "late: {:?}", within.late);
    let unforetold = over.foretold.values().filter(|foretold| !**foretold).count();
    assert!(unforetold * 5 <= over.late.len(), "{unforetold} of {} were not foretold", over.late.len());
    for site in [&mut pair.a, &mut pair.b] {
        assert_eq!(site.stop(), Some(0));
    }
}
