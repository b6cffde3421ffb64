//! A database on a file system on a volume, as a user has it: PostgreSQL on ext4 or XFS on a loop device on nbdfuse. The daemon is killed
//! under load again and again: nothing that was committed is lost, and the books balance. Then the replica takes over, and its
//! books balance, too.
//!
//! Mounts are in a namespace of the test's own. It needs root, FUSE, loop devices, and a PostgreSQL.

use std::time::Duration;

use crate::support::mounted::FileSystem;
use crate::support::postgres::{self, Machine, NOBODY};
use crate::support::{Pair, check_pool, seed};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Kills without `FARSIDE_KILLS`.
const KILLS: u32 = 10;
const CLIENTS: u64 = 8;
#[test]
#[ignore = "minutes, root, and a PostgreSQL; FARSIDE_KILLS says how often the daemon dies"]
fn a_database_on_ext4_loses_nothing_that_it_committed_and_its_replica_takes_over() {
    a_database_loses_nothing(FileSystem::Ext4);
}

#[test]
#[ignore = "minutes, root, and a PostgreSQL; FARSIDE_KILLS says how often the daemon dies"]
fn a_database_on_xfs_loses_nothing_that_it_committed_and_its_replica_takes_over() {
    a_database_loses_nothing(FileSystem::Xfs);
}

fn a_database_loses_nothing(file_system: FileSystem) {
    let mut random = StdRng::seed_from_u64(seed());
    let kills = std::env::var("FARSIDE_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let Some(namespace) = postgres::namespace(file_system) else { return };
    let mut pair = Pair::with_pools(3 << 30, 3 << 30);
    postgres::open_the_way(pair.root.path());
    pair.mirror(768 << 20);
    let directory = pair.root.path().join("host");
    let mut machine = Machine::start(&namespace, &pair.a, "p/v", &directory, (file_system, true));
    let at = directory.display().to_string();
    machine.make_database();
    machine.start_postgres();
    namespace.ok(&format!("cd /; {NOBODY} pgbench -i -q -s 3 -h {at}/mounted postgres 2>&1"));
    pair.b.ok("mirror initialize q/v");
    pair.b.ok("mirror set q/v --every 1s");
    let logs = directory.join("logs");
    std::fs::create_dir(&logs).unwrap();
    namespace.ok(&format!("chown 65534:65534 {}", logs.display()));
    let mut in_all = 0;
    for kill in 0..kills {
        let before = machine.books_balance();
        namespace.ok(&format!("rm -f {}/*", logs.display()));
        // Its own log says which transactions it was told are committed.
        let load = format!(
            "cd {}; exec {NOBODY} pgbench -n -c {CLIENTS} -j 2 -T 600 -l -h {at}/mounted postgres >/dev/null 2>&1",
            logs.display()
        );
        let mut load = namespace.shell(&load).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(random.random_range(500..4000)));
        pair.a.kill();
        let mut is_over = false;
        for _ in 0..600 {
            is_over = load.try_wait().unwrap().is_some();
            if is_over {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if !is_over {
            // A client that waits for a server that waits for a device that is gone.
            namespace.run(&format!("pkill -INT -u 65534 -f 'pgbench -n -c {CLIENTS}'"));
            let _ = load.wait();
        }
        machine.clear();
        let committed: usize = std::fs::read_dir(&logs)
            .unwrap()
            .map(|log| std::fs::read_to_string(log.unwrap().path()).unwrap().lines().count())
            .sum();
        pair.a.restart();
        machine = Machine::start(&namespace, &pair.a, "p/v", &directory, (file_system, false));
        machine.start_postgres();
        let found = machine.books_balance() - before;
        println!("kill {kill}: {committed} committed, {found} found");
        let committed = committed as i64;
        assert!(
            (committed..=committed + CLIENTS as i64).contains(&found),
            "{committed} committed, {found} found"
        );
        in_all += found;
    }
    assert!(in_all > 0, "no load");
    // The source goes for good, under load.
    let load = format!(
        "cd /tmp; exec {NOBODY} pgbench -n -c {CLIENTS} -j 2 -T 600 -h {at}/mounted postgres >/dev/null 2>&1"
    );
    let mut load = namespace.shell(&load).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(5));
    pair.a.kill();
    pair.b.ok("mirror break q/v");
    // What is broken off shows the snapshot that was published last.
    let listed = pair.b.json("snapshot list q/v");
    let shown =
        listed.as_array().unwrap().iter().max_by_key(|s| s["created_at"].as_str().unwrap().to_owned());
    let shown = shown.unwrap().clone();
    machine.clear();
    let _ = load.wait();
    let far = Machine::start(&namespace, &pair.b, "q/v", &pair.root.path().join("far"), (file_system, false));
    // The data directory is where it was; the sockets are elsewhere.
    far.start_postgres();
    let replicated = far.books_balance();
    println!("{replicated} transactions at the replica, {in_all} were found at the source before");
    namespace.ok(&format!(
        "cd /; {NOBODY} pgbench -n -c 2 -t 50 -h {}/mounted postgres 2>&1",
        far.directory.display()
    ));
    assert_eq!(far.books_balance(), replicated + 100, "it goes on where the replica was");
    far.clear();
    // The instant that it showed is one of the source's, byte for byte.
    pair.a.restart();
    let listed = pair.a.json("snapshot list p/v");
    let taken = listed.as_array().unwrap().iter().find(|s| s["uuid"] == shown["uuid"]);
    assert_eq!(taken.map(|s| &s["content_root"]), Some(&shown["content_root"]), "{shown} {listed}");
    assert!(shown["content_root"].is_string(), "{shown}");
    for site in [&mut pair.a, &mut pair.b] {
        assert_eq!(site.stop(), Some(0));
    }
    for pool in ["p.pool", "q.pool"] {
        check_pool(&pair.root.path().join(pool));
    }
}
