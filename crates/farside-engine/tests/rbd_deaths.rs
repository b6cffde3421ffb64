//! Daemons of Ceph RBD that die or hang for real: processes that are killed at any moment, in the middle of librbd's requests too, and
//! ones that are stopped and woken after another took over. On a real cluster.

mod ceph;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ceph::{MIB, Space, is_there, name, record, spec, staged_for};
use farside_engine::rbd::RbdEngine;
use farside_engine::{BLOCK_BYTES, Engine, SnapshotInfo, VolumeName};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const VOLUME_BYTES: u64 = 32 * MIB;
/// Names the namespace, and what a child is to do there.
const CHILD_VARIABLE: &str = "FARSIDE_TEST_CHILD";
const KILLS: usize = 12;

/// A child and what it says, line by line.
struct Process {
    child: Child,
    said: Receiver<String>,
}

impl Process {
    fn begin(space: &Space, task: &str) -> Process {
        let mut child = Command::new(std::env::current_exe().expect("a test has a file"))
            .args(["--exact", "child", "--nocapture", "--test-threads", "1"])
            .env(CHILD_VARIABLE, format!("{} {task}", space.options.namespace))
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let stdout = child.stdout.take().expect("it is piped");
        let (send, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Process { child, said }
    }

    /// Waits until it says that.
    fn wait_for(&self, what: &str) {
        let patience = Instant::now() + Duration::from_secs(60);
        while Instant::now() < patience {
            match self.said.recv_timeout(Duration::from_secs(60)) {
                Ok(line) if line.contains(what) => return,
                Ok(_) => {}
                Err(error) => panic!("the child does not say {what:?}: {error}"),
            }
        }
        panic!("the child does not say {what:?}");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill runs").success());
    }

    /// Kills it; answers what it had said.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().expect("it is there");
        self.child.wait().expect("it ends");
        self.said.iter().collect()
    }
}

/// One that a test wants ends with it, whatever happens.
impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn volume() -> VolumeName {
    name("v")
}

fn say(what: &str) {
    println!("{what}");
    std::io::stdout().flush().expect("it is read");
}

/// Not a test: what the children of the others do.
#[test]
fn child() {
    let Ok(task) = std::env::var(CHILD_VARIABLE) else { return };
    let (namespace, task) = task.split_once(' ').expect("two words");
    let mut space = Space::unmade();
    space.options.namespace = namespace.into();
    let engine = space.engine(true);
    match task {
        "publish" => publish(&engine),
        "stage" => stage(&engine),
        task => panic!("what is {task}?"),
    }
}

/// One round after the other: a byte in every second block, published.
fn publish(engine: &RbdEngine) {
    let newest = || engine.snapshots(&volume()).expect("a list").pop();
    engine.abandon_staged(&volume()).expect("nothing is staged");
    loop {
        let base: Option<SnapshotInfo> = newest();
        let round = base.as_ref().map_or(1, |base| base.uuid.as_u128() + 1);
        let staged = engine.stage(&volume(), base.map(|base| base.uuid), VOLUME_BYTES, staged_for(round));
        let staged = staged.expect("staged");
        for block in (0..VOLUME_BYTES / BLOCK_BYTES).step_by(64) {
            staged.write(block * BLOCK_BYTES, &[round as u8; BLOCK_BYTES as usize]).expect("a write");
        }
        staged.commit(&spec(&format!("s{round}"), round)).expect("published");
        say(&format!("published {round}"));
        let snapshots = engine.snapshots(&volume()).expect("a list");
        for old in snapshots.iter().rev().skip(2) {
            engine.delete_snapshot(&volume(), old.uuid).expect("deleted");
        }
    }
}

/// Stages for ever, a checkpoint now and then; says when that fails.
fn stage(engine: &RbdEngine) {
    let base = engine.snapshots(&volume()).expect("a list").pop().expect("a base");
    let staged = engine.stage(&volume(), Some(base.uuid), VOLUME_BYTES, staged_for(100)).expect("staged");
    for round in 1.. {
        let block = round % (VOLUME_BYTES / BLOCK_BYTES);
        let written = staged.write(block * BLOCK_BYTES, &[0xaa; BLOCK_BYTES as usize]);
        let written = written.and_then(|()| staged.checkpoint());
        match written {
            Ok(()) => say(&format!("checkpoint {round}")),
            Err(error) => {
                say(&format!("refused {error}"));
                break;
            }
        }
    }
    let late = staged.commit(&spec("late", 100)).map(drop);
    let pinned = engine.pin(&volume(), base.uuid, ceph::MIRROR);
    let recorded = engine.set_replica_record(&volume(), None);
    let taken = engine.take_snapshot(&volume(), &spec("late", 101)).map(drop);
    let all_failed = [&late, &pinned, &recorded, &taken].into_iter().all(Result::is_err);
    say(&format!("woken {all_failed} {late:?} {pinned:?} {recorded:?} {taken:?}"));
    std::thread::sleep(Duration::from_secs(60));
}

/// What hosts see, whole.
fn shown(space: &Space, engine: &RbdEngine) -> Vec<u8> {
    let shown = engine.shown_snapshot(&volume()).expect("it answers");
    space.bytes(&shown.map_or("v".into(), |shown| format!("v@{shown}")))
}

fn replica(space: &Space) {
    let engine = space.engine(false);
    engine.create_volume(&volume(), VOLUME_BYTES).expect("a volume");
    engine.set_replica_record(&volume(), record(false)).expect("a replica");
}

/// Whenever a daemon is killed, what is published is whole, and no older than what it had said; the next one goes on.
#[test]
fn a_daemon_killed_at_any_moment_leaves_a_whole_version() {
    if !is_there() {
        return;
    }
    let given = std::env::var("FARSIDE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| SmallRng::from_os_rng().random());
    println!("FARSIDE_SEED={seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let space = Space::new();
    replica(&space);
    let mut last = 0;
    for kill in 0..KILLS {
        let process = Process::begin(&space, "publish");
        process.wait_for("published");
        std::thread::sleep(Duration::from_millis(rng.random_range(0..900)));
        let said = process.kill();
        let published = said.iter().filter_map(|line| line.split_once("published ")?.1.parse::<u128>().ok());
        last = published.fold(last, u128::max);

        let began = Instant::now();
        let engine = space.engine(true);
        let settled = began.elapsed();
        let snapshots = engine.snapshots(&volume()).expect("a list");
        let newest = snapshots.last().expect("something is published");
        let round = newest.uuid.as_u128();
        assert!(round >= last, "kill {kill}: {round} is older than {last}, which was acknowledged");
        println!("kill {kill}: round {round} of {last} said, next daemon ready after {settled:?}");
        last = round;
        for snapshot in &snapshots {
            let round = snapshot.uuid.as_u128() as u8;
            let mut bytes = vec![0; VOLUME_BYTES as usize];
            engine.read_snapshot(&volume(), snapshot.uuid, 0, &mut bytes).expect("it reads");
            assert!(is_round(&bytes, round), "kill {kill}: {} is not whole", snapshot.name);
            let root = engine.content_root(&volume(), snapshot.uuid).expect("a root");
            assert_eq!(root, farside_root(&bytes), "kill {kill}: {}", snapshot.name);
        }
        assert!(is_round(&shown(&space, &engine), round as u8), "kill {kill}: hosts see something else");
    }
    // Nothing of it piles up: what the dead left is cleared away.
    let engine = space.engine(true);
    engine.abandon_staged(&volume()).expect("thrown away");
    let listed = space.on(&["snap", "ls", "--format", "json"], "v");
    let in_cluster = listed.matches("\"name\"").count();
    assert!(in_cluster <= engine.snapshots(&volume()).expect("a list").len(), "{listed}");
}

fn is_round(bytes: &[u8], round: u8) -> bool {
    let expected = |block: usize| if block.is_multiple_of(64) { round } else { 0 };
    bytes
        .chunks(BLOCK_BYTES as usize)
        .enumerate()
        .all(|(at, block)| block.iter().all(|byte| *byte == expected(at)))
}

/// The content root, from the bytes alone.
fn farside_root(bytes: &[u8]) -> farside_engine::ContentRoot {
    use farside_format::Fingerprint;
    let mut below: Vec<Fingerprint> = bytes.chunks(BLOCK_BYTES as usize).map(Fingerprint::of_block).collect();
    for level in 1..=6 {
        below.resize(below.len().next_multiple_of(128), Fingerprint::HOLE);
        let (nodes, _) = below.as_chunks::<128>();
        below = nodes.iter().map(|children| Fingerprint::of_node(level, children)).collect();
    }
    farside_engine::ContentRoot::new(below[0], bytes.len() as u64)
}

/// A break in mid-transfer after a kill: hosts have the last published moment, whole, within 5 s, in the image itself, and write at once.
#[test]
fn a_break_after_a_kill_gives_hosts_the_last_moment() {
    if !is_there() {
        return;
    }
    let space = Space::new();
    let engine = space.engine(false);
    engine.create_volume(&volume(), VOLUME_BYTES).expect("a volume");
    engine.set_replica_record(&volume(), record(false)).expect("a replica");
    let staged = engine.stage(&volume(), None, VOLUME_BYTES, staged_for(1)).expect("staged");
    staged.write(0, &vec![7; VOLUME_BYTES as usize]).expect("a write");
    staged.commit(&spec("base", 1)).expect("published");
    drop((staged, engine));
    let process = Process::begin(&space, "stage");
    process.wait_for("checkpoint 40");
    let said = process.kill();
    let checkpoints = said.iter().filter_map(|line| line.split_once("checkpoint ")?.1.parse::<u64>().ok());
    let checkpoint = checkpoints.fold(40, u64::max);
    assert!(space.bytes("v").contains(&0xaa), "it is staged in the head");

    let began = Instant::now();
    let engine = space.engine(true);
    let (info, staged) = engine.staged(&volume()).expect("a list").pop().expect("it is found");
    assert_eq!((info.size_bytes, info.staged_for), (VOLUME_BYTES, staged_for(100)));
    let mut bytes = vec![0; (checkpoint * BLOCK_BYTES) as usize];
    staged.read(BLOCK_BYTES, &mut bytes).expect("it reads");
    assert!(bytes.iter().all(|byte| *byte == 0xaa), "a checkpoint is lost");
    assert!(shown(&space, &engine).iter().all(|byte| *byte == 7));
    engine.set_replica_record(&volume(), record(true)).expect("broken off");
    let broken_off = began.elapsed();
    println!("next daemon, and break: {broken_off:?}");
    assert!(broken_off < Duration::from_secs(5), "{broken_off:?}");
    assert!(space.bytes("v").iter().all(|byte| *byte == 7), "the image is not the last moment");
    space.rbd(&["bench", "--io-type", "write", "--io-size", "4K", "--io-total", "64K", &space.image("v")]);
    // And what was staged is there, for a resync.
    engine.set_replica_record(&volume(), record(false)).expect("a replica");
    let mut bytes = vec![0; BLOCK_BYTES as usize];
    staged.read(BLOCK_BYTES, &mut bytes).expect("it reads");
    assert!(bytes.iter().all(|byte| *byte == 0xaa));
}

/// A daemon that hung while another took over changes nothing when it wakes.
#[test]
fn a_daemon_that_wakes_changes_nothing() {
    if !is_there() {
        return;
    }
    let space = Space::new();
    let engine = space.engine(false);
    engine.create_volume(&volume(), VOLUME_BYTES).expect("a volume");
    engine.set_replica_record(&volume(), record(false)).expect("a replica");
    engine.take_snapshot(&volume(), &spec("base", 1)).expect("a snapshot");
    drop(engine);
    let process = Process::begin(&space, "stage");
    process.wait_for("checkpoint 20");
    process.signal("-STOP");
    let began = Instant::now();
    let engine = space.engine(true);
    println!("taken over after {:?}", began.elapsed());
    assert_eq!(engine.abandon_staged(&volume()).expect("thrown away"), 1);
    let base = spec("", 1).uuid;
    let staged = engine.stage(&volume(), Some(base), VOLUME_BYTES, staged_for(2)).expect("staged");
    staged.write(0, &[5; BLOCK_BYTES as usize]).expect("a write");
    let before = space.header("v");
    process.signal("-CONT");
    process.wait_for("woken true");
    assert_eq!(space.header("v"), before, "it changed what is known of the image");
    staged.commit(&spec("next", 2)).expect("published");
    let bytes = space.bytes("v");
    let (first, rest) = bytes.split_at(BLOCK_BYTES as usize);
    assert!(first.iter().all(|byte| *byte == 5) && rest.iter().all(|byte| *byte == 0), "it wrote");
}
