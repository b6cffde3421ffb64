//! Readers of a replica: each connection sees one point in time, whole, for as long as it lasts, whatever updates, breaks
//! and resyncs do meanwhile; and what would change the data under a client that writes is refused.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::model::{BLOCK, Model};
use crate::support::relay::Relay;
use crate::support::{Pair, Site, eventually, nbd, status};

const BYTES: u64 = 8 << 20;
const BLOCKS: u64 = BYTES / BLOCK;

/// Fills the source in ascending order with the number of the round, in pieces of 256 KiB.
fn stamp(host: &mut crate::support::nbd::Client, round: u64) {
    let piece: Vec<u8> = round.to_le_bytes().repeat((256 << 10) / 8);
    for offset in (0..BYTES).step_by(piece.len()) {
        host.write(offset, &piece).unwrap();
    }
    host.flush().unwrap();
}

/// Whether the bytes are what the source held at one moment: some blocks of a round, then the rest of the round
/// before. Answers the newer one.
fn one_moment(bytes: &[u8]) -> u64 {
    let stamps: Vec<u64> = bytes
        .chunks(BLOCK as usize)
        .map(|block| {
            let (words, _) = block.as_chunks::<8>();
            assert!(words.iter().all(|w| *w == words[0]), "a block holds two rounds");
            u64::from_le_bytes(words[0])
        })
        .collect();
    let newest = stamps[0];
    let change = stamps.iter().position(|s| *s != newest).unwrap_or(stamps.len());
    assert!(
        stamps[change..].iter().all(|s| *s + 1 == newest),
        "blocks of more than two rounds, or out of order"
    );
    newest
}

/// A mirror exchanges its own snapshots with each update: a list that is made in that moment has the one or the other.
#[test]
fn a_replica_that_is_updated_is_never_listed_without_a_snapshot() {
    let pair = Pair::start();
    pair.mirror(BYTES);
    let (a, b) = (&pair.a, &pair.b);
    let mut host = a.nbd("p/v");
    stamp(&mut host, 1);
    b.ok("mirror initialize q/v");
    let is_over = AtomicBool::new(false);
    let look = || {
        let (mut lists, mut empty) = (0, 0);
        while !is_over.load(Ordering::SeqCst) {
            lists += 1;
            empty += u32::from(b.json("snapshot list q/v").as_array().unwrap().is_empty());
        }
        (lists, empty)
    };
    std::thread::scope(|scope| {
        let looking = [scope.spawn(look), scope.spawn(look), scope.spawn(look)];
        for round in 2..30 {
            stamp(&mut host, round);
            b.ok("mirror update q/v");
        }
        is_over.store(true, Ordering::SeqCst);
        for (lists, empty) in looking.map(|looking| looking.join().unwrap()) {
            println!("{lists} lists, {empty} of them empty");
            assert_eq!(empty, 0);
        }
    });
}

#[test]
fn every_reader_sees_one_point_in_time_while_updates_run() {
    let pair = Pair::start();
    pair.mirror(BYTES);
    let (a, b) = (&pair.a, &pair.b);
    let mut host = a.nbd("p/v");
    stamp(&mut host, 1);
    a.ok("snapshot create p/v@first");
    b.ok("mirror initialize q/v");
    let first = b.nbd("q/v@first").read_all();
    assert_eq!(one_moment(&first), 1);

    let done = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = std::collections::BTreeSet::new();
            let mut reads = 0;
            while !done.load(Ordering::Relaxed) || reads < 4 {
                let mut replica = b.nbd("q/v");
                let bytes = replica.read_all();
                seen.insert(one_moment(&bytes));
                assert!(replica.read_all() == bytes, "the replica changed under a connection");
                assert!(b.nbd("q/v@first").read_all() == first, "a snapshot changed");
                reads += 1;
            }
            seen
        });
        let writer = scope.spawn(|| (2..40).for_each(|round| stamp(&mut host, round)));
        while !writer.is_finished() {
            b.ok("mirror update q/v");
        }
        writer.join().unwrap();
        b.ok("mirror update q/v");
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(seen.len() > 1, "no update was published while the reader looked: {seen:?}");
    assert_eq!(one_moment(&b.nbd("q/v").read_all()), 39);
}

/// A replica mounted as a file by libnbd's FUSE client, as another project's NBD client sees it.
struct Mounted {
    child: Child,
    directory: PathBuf,
}

impl Mounted {
    /// None, loudly, where FUSE or the client is not to be had.
    fn start(root: &Path, site: &Site, export: &str) -> Option<Mounted> {
        let directory = root.join("mounted");
        std::fs::create_dir(&directory).unwrap();
        let uri = format!("nbd+unix:///{export}?socket={}", site.nbd_socket().display());
        let started = Command::new("nbdfuse")
            .arg("--readonly")
            .arg(directory.join("disk"))
            .arg(uri)
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = started else {
            eprintln!("**** SKIPPED in part: no nbdfuse here");
            return None;
        };
        let mut mounted = Mounted { child, directory };
        let began = Instant::now();
        while !mounted.directory.join("disk").exists() {
            if mounted.child.try_wait().unwrap().is_some() || began.elapsed() > Duration::from_secs(10) {
                eprintln!("**** SKIPPED in part: nbdfuse cannot mount here");
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(mounted)
    }

    /// What is there, past the kernel's cache.
    fn read(&self) -> std::io::Result<Vec<u8>> {
        const O_DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;
        let mut file = File::options().read(true).custom_flags(O_DIRECT).open(self.directory.join("disk"))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map(|_| bytes)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Its end unmounts.
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
        let _ = Command::new("umount").arg(&self.directory).stderr(Stdio::null()).status();
    }
}

/// Lets an update begin that is in its middle when this returns.
fn begin_update(site: &Site, relay: &Relay, volume: &str) {
    relay.limit(Some(2 << 20));
    let passed = relay.passed();
    site.ok(&format!("mirror update {volume} --no-wait"));
    assert!(relay.wait_for(passed + (1 << 20), Duration::from_secs(20)), "the update does not run");
    assert_eq!(status(site, volume)["state"], "transferring");
}

#[test]
fn no_block_changes_under_a_client_of_a_replica() {
    let (pair, relay) = Pair::through_relay();
    let (a, b) = (&pair.a, &pair.b);
    a.ok(&format!("volume create p/v --size {BYTES}"));
    a.ok("peer allow b p/v");
    b.ok("mirror create a:p/v q/v");
    let mut model = Model::new(BLOCKS);
    model.fill(&mut a.nbd("p/v"), 0, BLOCKS).unwrap();
    a.ok("snapshot create p/v@monday");
    b.ok("mirror initialize q/v");
    let monday = b.nbd("q/v").read_all();

    // Clients of the replica and of a snapshot of it: what they see before, during and after an update.
    let mut clients = [b.nbd("q/v"), b.nbd("q/v@monday")];
    let mounted = Mounted::start(pair.root.path(), b, "q/v");
    let unchanged = |clients: &mut [nbd::Client], when: &str| {
        for client in clients {
            assert!(client.read_only && client.read_all() == monday, "a block changed {when}");
        }
        if let Some(mounted) = &mounted {
            assert!(mounted.read().unwrap() == monday, "a block changed under a mounted replica {when}");
        }
    };
    unchanged(&mut clients, "before an update");
    model.fill(&mut a.nbd("p/v"), 0, BLOCKS).unwrap();
    begin_update(b, &relay, "q/v");
    unchanged(&mut clients, "during an update");
    relay.limit(None);
    b.ok("mirror update q/v");
    unchanged(&mut clients, "after an update");
    let tuesday = b.nbd("q/v").read_all();
    assert!(tuesday == a.nbd("p/v").read_all() && tuesday != monday);

    // A break drops those of the replica, in the middle of an update too; a snapshot is what it was.
    let [mut replica, mut snapshot] = clients;
    model.fill(&mut a.nbd("p/v"), 0, BLOCKS).unwrap();
    begin_update(b, &relay, "q/v");
    b.ok("mirror break q/v --yes");
    eventually("the client is dropped", || replica.read(0, &mut [0; 4096]).is_err());
    if let Some(mounted) = &mounted {
        eventually("the mounted replica is dropped", || mounted.read().is_err());
    }
    assert!(snapshot.read_all() == monday, "a snapshot changed at the break");
    assert!(b.nbd("q/v").read_all() == tuesday);
}

#[test]
fn a_resync_waits_for_no_writer_and_changes_nothing_under_a_reader() {
    let (pair, relay) = Pair::through_relay();
    let (a, b) = (&pair.a, &pair.b);
    pair.mirror(BYTES);
    let mut model = Model::new(BLOCKS);
    model.fill(&mut a.nbd("p/v"), 0, BLOCKS).unwrap();
    a.ok("snapshot create p/v@monday");
    b.ok("mirror initialize q/v");
    let mut snapshot = b.nbd("q/v@monday");
    let monday = snapshot.read_all();
    b.ok("mirror break q/v --yes");
    model.fill(&mut a.nbd("p/v"), 0, BLOCKS).unwrap();

    // While a host may write, it is refused, and nothing has happened.
    let mut host = b.nbd("q/v");
    let mut at_b = Model::new(BLOCKS);
    at_b.fill(&mut host, 0, 16).unwrap();
    let said = b.fails(4, "mirror resync q/v --yes");
    assert!(said.contains("NBD"), "{said}");
    assert_eq!(status(b, "q/v")["state"], "broken-off");
    at_b.fill(&mut host, 16, 1).unwrap();
    let written = host.read_all();
    drop(host);

    // It shows what hosts last wrote until it commits, and after that to those who came before.
    relay.limit(Some(2 << 20));
    let passed = relay.passed();
    eventually("the host is gone", || b.farside("mirror resync q/v --yes --no-wait").status.success());
    assert!(relay.wait_for(passed + (1 << 20), Duration::from_secs(20)), "the resync does not run");
    let mut reader = b.nbd("q/v");
    assert!(reader.read_only, "a host may write while a resync runs");
    assert!(reader.read_all() == written, "other content during a resync");
    relay.limit(None);
    b.ok("mirror update q/v");
    assert!(reader.read_all() == written, "a block changed under a client at a resync");
    assert!(snapshot.read_all() == monday, "a snapshot changed at a resync");
    assert!(b.nbd("q/v").read_all() == a.nbd("p/v").read_all());
}
