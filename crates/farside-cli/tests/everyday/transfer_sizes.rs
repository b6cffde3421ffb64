//! What hosts and mirrors have of a smaller transfer size: 18 volumes that have changed are updated while hosts work at the source, with
//! 16, 9, 3 and 1 transfers at a time. For figures build with `--release`, and see that
//! `kernel.sched_autogroup_enabled` is 0.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use crate::figures::{now, text};
use crate::support::mounted::has_tool;
use crate::support::{Pair, Site, seed};

const VOLUMES: usize = 18;
const MIB: u64 = 1 << 20;
/// What hosts work on: a volume beside the mirrored ones.
const LOAD_BYTES: u64 = 256 * MIB;
/// A run that takes longer is ended, and says how far it was.
const RUN_MAX: Duration = Duration::from_secs(180);
/// What hosts do without a mirror, before each run.
const ALONE: Duration = Duration::from_secs(10);

/// 8 KiB at random, 70 % reads, 30 at a time, until it is told to end.
struct Hosts {
    fio: std::process::Child,
    began: Instant,
}

impl Hosts {
    fn start(site: &Site, into: &Path) -> Hosts {
        let uri = format!("nbd+unix:///p/load?socket={}", site.nbd_socket().display());
        let mut fio = Command::new("fio");
        fio.args([
            "--name=load",
            "--ioengine=nbd",
            "--rw=randrw",
            "--rwmixread=70",
            "--bs=8k",
            "--iodepth=30",
        ])
        .args(["--time_based", "--runtime=3600", "--output-format=json"])
        .arg(format!("--uri={uri}"))
        .arg(format!("--size={LOAD_BYTES}"))
        .arg(format!("--output={}", into.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
        Hosts { fio: fio.spawn().unwrap(), began: Instant::now() }
    }

    /// Operations in a second until now.
    fn end(mut self, from: &Path) -> f64 {
        assert!(self.fio.try_wait().unwrap().is_none(), "fio ended after {:?}", self.began.elapsed());
        let pid = rustix::process::Pid::from_raw(self.fio.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        // It ends in order, and says by its status that it was told to.
        let _ = self.fio.wait();
        let said = std::fs::read_to_string(from).unwrap();
        // Words about a signal may stand before the document.
        let document: Value = serde_json::from_str(&said[said.find('{').unwrap()..]).unwrap();
        let job = &document["jobs"][0];
        job["read"]["iops"].as_f64().unwrap() + job["write"]["iops"].as_f64().unwrap()
    }
}

/// How many of the mirrors show what their sources were at this moment, and how much of the rest has come.
fn progress(b: &Site, since: f64) -> (usize, u64) {
    let all = b.json("mirror status");
    let is_done = |mirror: &&Value| now() - mirror["lag_seconds"].as_f64().unwrap() >= since;
    let done = all.as_array().unwrap().iter().filter(is_done).count();
    let coming = all.as_array().unwrap().iter().filter_map(|m| m["transfer"]["done_bytes"].as_u64()).sum();
    (done, coming)
}

#[test]
#[ignore = "minutes: up to four for each transfer size; FARSIDE_SIZES, FARSIDE_PRECEDENCES and FARSIDE_CHANGED_MIB say otherwise"]
fn hosts_have_the_more_the_smaller_the_transfer_size_is() {
    let mut random = StdRng::seed_from_u64(seed());
    if !has_tool("fio") {
        assert!(std::env::var_os("FARSIDE_REQUIRE_TOOLS").is_none(), "fio is missing");
        eprintln!("**** SKIPPED: fio is missing");
        return;
    }
    let list = |name: &str, usual: &str| std::env::var(name).unwrap_or_else(|_| usual.into());
    let sizes = list("FARSIDE_SIZES", "16,9,3,1");
    let precedences = list("FARSIDE_PRECEDENCES", "high");
    let changed_mib: u64 = list("FARSIDE_CHANGED_MIB", "8").parse().unwrap();
    let group = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled").unwrap_or_default();
    println!(
        "sched_autogroup_enabled {}, {changed_mib} MiB changed in each of {VOLUMES} volumes",
        group.trim()
    );
    let pair = Pair::with_pools(8 << 30, 8 << 30);
    let (a, b) = (&pair.a, &pair.b);
    a.ok(&format!("volume create p/load --size {LOAD_BYTES}"));
    let mut load = a.nbd("p/load");
    for at in 0..LOAD_BYTES / MIB {
        load.write(at * MIB, &text(&mut random, MIB as usize)).unwrap();
    }
    load.flush().unwrap();
    drop(load);
    let write_all = |random: &mut StdRng| {
        for volume in 0..VOLUMES {
            let mut host = a.nbd(&format!("p/v{volume}"));
            for at in 0..changed_mib {
                host.write(at * MIB, &text(random, MIB as usize)).unwrap();
            }
            host.flush().unwrap();
        }
    };
    for volume in 0..VOLUMES {
        a.ok(&format!("volume create p/v{volume} --size 64M"));
        a.ok(&format!("peer allow b p/v{volume}"));
        b.ok(&format!("mirror create a:p/v{volume} q/v{volume}"));
        b.ok(&format!("mirror initialize q/v{volume}"));
    }
    let mut in_order: Vec<(String, f64, f64)> = Vec::new();
    for precedence in precedences.split(',') {
        for site in [a, b] {
            site.ok(&format!("site set --host-precedence {precedence}"));
        }
        for size in sizes.split(',') {
            b.ok(&format!("site set --transfer-size {size}"));
            write_all(&mut random);
            let hosts = Hosts::start(a, &pair.root.path().join("alone.json"));
            std::thread::sleep(ALONE);
            let alone = hosts.end(&pair.root.path().join("alone.json"));
            let hosts = Hosts::start(a, &pair.root.path().join("beside.json"));
            std::thread::sleep(Duration::from_secs(2));
            let (since, began) = (now(), Instant::now());
            for volume in 0..VOLUMES {
                b.ok(&format!("mirror update q/v{volume} --no-wait"));
            }
            let (mut done, mut coming) = (0, 0);
            while done < VOLUMES && began.elapsed() < RUN_MAX {
                std::thread::sleep(Duration::from_millis(250));
                (done, coming) = progress(b, since);
            }
            let took = began.elapsed().as_secs_f64();
            let beside = hosts.end(&pair.root.path().join("beside.json"));
            let how_far = done as f64 * changed_mib as f64 + coming as f64 / MIB as f64;
            println!(
                "precedence {precedence}, transfer size {size}: hosts {beside:.0} operations a second, alone {alone:.0} ({:.2}); \
                 {done} of {VOLUMES} volumes after {took:.1} s, {:.0} % of the bytes",
                beside / alone,
                100.0 * how_far / (VOLUMES as f64 * changed_mib as f64)
            );
            in_order.push((format!("{precedence} {size}"), beside / alone, took));
            // Without hosts the rest is soon there.
            for volume in 0..VOLUMES {
                b.ok(&format!("mirror update q/v{volume}"));
            }
            for volume in [0, random.random_range(0..VOLUMES)] {
                let same =
                    a.nbd(&format!("p/v{volume}")).read_all() == b.nbd(&format!("q/v{volume}")).read_all();
                assert!(same, "q/v{volume} is not what p/v{volume} is");
            }
        }
    }
    println!("{in_order:?}");
}
