//! A PostgreSQL under load on an ext4 file system is what is mirrored, from every kind of pool to every kind. What a break shows is a sound
//! file system, on which PostgreSQL starts and its books balance.
//!
//! What travels is another each time, as the load is: wire bytes are compared in `matrix.rs`, where every cell has the same changes.
//! Mounts are in a namespace of the test's own. It needs root, FUSE, loop devices, a PostgreSQL, and for images QEMU's driver for RBD.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::cluster;
use crate::keeper::{Keeper, Kind, MIB, pair};
use crate::support::mounted::{FileSystem, Namespace, look_at_image};
use crate::support::postgres::{self, Machine, NOBODY};
use crate::support::{Site, eventually, status};

const SIZE: u64 = 192 * MIB;
const UPDATES: usize = 5;
const CLIENTS: u32 = 4;
/// Transactions a second: each changes some pages, and a slow machine is to come after.
const RATE: u32 = 60;
/// What else is written before a transfer that is to be cut: it does not shrink.
const NOISE: u64 = 6 * MIB;
const CUT_AT: u64 = MIB;
/// A break is over within this, whatever is staged.
const BREAK_WITHIN: Duration = Duration::from_secs(5);
/// The log of a database of 60 MB stays in the volume.
const SMALL: &str = "-c max_wal_size=48MB -c min_wal_size=32MB -c shared_buffers=16MB";
const NEW: (FileSystem, bool) = (FileSystem::Ext4, true);
const OLD: (FileSystem, bool) = (FileSystem::Ext4, false);

/// A server of NBD for a volume: farside's own, or QEMU's for an image, which is a client of the cluster like any other.
struct Door {
    socket: PathBuf,
    export: String,
    qemu: Option<Child>,
}

impl Door {
    fn open(keeper: &Keeper, site: &Site, root: &Path) -> Door {
        if keeper.kind == Kind::Embedded {
            return Door { socket: site.nbd_socket(), export: format!("{}/v", keeper.pool), qemu: None };
        }
        let socket = root.join(format!("qemu-{}.sock", site.name));
        let _ = std::fs::remove_file(&socket);
        let mut qemu = Command::new("qemu-nbd");
        qemu.args([
            "--persistent",
            "--format=raw",
            "--shared=4",
            "--cache=writeback",
            "--export-name=v",
            "--socket",
        ])
        .arg(&socket);
        let qemu = qemu.arg(keeper.qemu_address("v")).stdout(Stdio::null()).spawn().expect("qemu-nbd runs");
        eventually("QEMU serves the image", || socket.exists());
        Door { socket, export: "v".into(), qemu: Some(qemu) }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let Some(qemu) = &mut self.qemu else { return };
        // In order: it gives the image's lock free.
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(qemu),
            rustix::process::Signal::TERM,
        );
        let until = Instant::now() + Duration::from_secs(10);
        while qemu.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = qemu.kill();
        let _ = qemu.wait();
    }
}

fn has_drivers() -> bool {
    let libraries = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let has = libraries.map(|folder| folder.path().join("qemu/block-rbd.so")).any(|driver| driver.exists());
    if !has {
        assert!(std::env::var_os("FARSIDE_REQUIRE_LAB_DATA").is_none(), "QEMU's driver for RBD is missing");
        eprintln!("**** SKIPPED: QEMU's driver for RBD is missing (scripts/install-test-tools ceph)");
    }
    has
}

/// Sound by its own checker, once its journal is replayed.
fn is_sound(namespace: &Namespace, bytes: &[u8], root: &Path) {
    let image = root.join("image");
    std::fs::write(&image, bytes).unwrap();
    look_at_image(namespace, &image, &root.join("looked-at"), FileSystem::Ext4, |_| {});
    std::fs::remove_file(&image).unwrap();
}

fn load(machine: &Machine<'_>) -> Child {
    let at = machine.directory.display();
    let load = format!(
        "cd /; exec {NOBODY} pgbench -n -c {CLIENTS} -R {RATE} -T 3600 -h {at}/mounted postgres >/dev/null 2>&1"
    );
    machine.namespace.shell(&load).spawn().unwrap()
}

fn life(namespace: &Namespace, conf: &str, from: Kind, to: Kind) {
    println!("{from:?} to {to:?}");
    let began = Instant::now();
    let step = |what: &str| println!("  {:6.1} s  {what}", began.elapsed().as_secs_f64());
    let root = tempfile::tempdir().unwrap();
    postgres::open_the_way(root.path());
    let (mut a, mut b) = (Site::start(root.path(), "a"), Site::start(root.path(), "b"));
    let (p, q) = (Keeper::make(&a, from, "p", conf), Keeper::make(&b, to, "q", conf));
    pair(root.path(), &a, &b);
    a.ok(&format!("volume create p/v --size {SIZE}"));
    let door = Door::open(&p, &a, root.path());
    let machine = Machine::start_on(namespace, &door.socket, &door.export, &root.path().join("host"), NEW);
    machine.make_database();
    machine.start_postgres_with(SMALL);
    let at = machine.directory.display().to_string();
    namespace.ok(&format!("cd /; {NOBODY} pgbench -i -q -s 1 -h {at}/mounted postgres 2>&1"));
    let mut pgbench = load(&machine);
    let committed = || machine.ask("select count(*) from pgbench_history");
    step("a database under load");

    a.ok("peer allow b p/v --reverse");
    b.ok("mirror create a:p/v q/v");
    b.ok("mirror initialize q/v");
    let mut there = 0;
    for _ in 0..UPDATES {
        std::thread::sleep(Duration::from_secs(1));
        there = committed();
        b.ok("mirror update q/v");
    }
    step(&format!("the first copy and {UPDATES} updates; {there} transactions"));
    assert!(there > 0, "no load");

    // An update under way, slow enough to be met in its middle.
    let come = |site: &Site| status(site, "q/v")["transfer"]["done_bytes"].as_u64().unwrap_or(0);
    let slow_update = |b: &Site| {
        namespace.ok(&format!("head -c {NOISE} /dev/urandom >{at}/mounted/noise && sync -f {at}/mounted"));
        b.ok("mirror set q/v --throttle 1MiB/s");
        b.ok("mirror update q/v --no-wait");
        eventually("some of it has come", || come(b) >= CUT_AT);
    };
    slow_update(&b);
    b.kill();
    b.restart();
    b.ok("mirror set q/v --throttle unlimited");
    // It goes on by itself; what is asked for now has what was committed before.
    there = committed();
    b.ok("mirror update q/v");
    step("a cut, and on from there");

    slow_update(&b);
    let asked = Instant::now();
    b.ok("mirror break q/v --yes");
    let took = asked.elapsed();
    assert!(took < BREAK_WITHIN, "the break took {took:?}");
    let last = committed();
    // What the source's side has meanwhile is lost with it.
    let _ = pgbench.kill();
    let _ = pgbench.wait();
    machine.clear();
    drop(door);
    is_sound(namespace, &q.bytes(&b, "v"), root.path());
    let far_door = Door::open(&q, &b, root.path());
    let far = Machine::start_on(namespace, &far_door.socket, &far_door.export, &root.path().join("far"), OLD);
    far.start_postgres_with(SMALL);
    let found = far.books_balance();
    far.each_balance_is_its_history();
    assert!((there..=last).contains(&found), "{found} transactions, and {there} to {last} are to be there");
    step(&format!(
        "broken off in {:.2} s under load: {found} transactions, of {there} to {last}",
        took.as_secs_f64()
    ));
    let far_at = far.directory.display().to_string();
    namespace.ok(&format!("cd /; {NOBODY} pgbench -n -c 2 -t 50 -h {far_at}/mounted postgres 2>&1"));
    assert_eq!(far.books_balance(), found + 100, "it goes on where the replica was");
    assert!(far.postgres("-m fast stop").status.success());
    far.mounted.stop();
    drop(far_door);

    // The way back: the source follows what was its replica, and is taken over in its turn.
    b.ok("mirror set q/v --throttle unlimited");
    a.ok("mirror resync p/v --from b:q/v --yes");
    assert!(p.bytes(&a, "v") == q.bytes(&b, "v"), "both sides show the same");
    a.ok("mirror break p/v --yes");
    let door = Door::open(&p, &a, root.path());
    let back = Machine::start_on(namespace, &door.socket, &door.export, &root.path().join("back"), OLD);
    back.start_postgres_with(SMALL);
    assert_eq!(back.books_balance(), found + 100, "what was written at the other side");
    back.each_balance_is_its_history();
    assert!(back.postgres("-m fast stop").status.success());
    back.mounted.stop();
    drop(door);
    is_sound(namespace, &p.bytes(&a, "v"), root.path());
    step("and back");
    for site in [&mut a, &mut b] {
        assert_eq!(site.stop(), Some(0));
    }
}

#[test]
#[ignore = "minutes, a cluster, root, and a PostgreSQL: make test-full"]
fn a_database_under_load_is_mirrored_from_every_kind_of_pool_to_every_kind() {
    let Some(conf) = cluster() else { return };
    let Some(namespace) = postgres::namespace(FileSystem::Ext4) else { return };
    if !has_drivers() {
        return;
    }
    for from in [Kind::Embedded, Kind::Rbd] {
        for to in [Kind::Embedded, Kind::Rbd] {
            life(&namespace, &conf, from, to);
        }
    }
}
