//! A database under load at the source, and drills at the far side: each starts a PostgreSQL from a clone of the replica, which goes on
//! following, and checks its books. The lag must be as without drills.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use crate::figures::quantile;
use crate::support::mounted::{FileSystem, Namespace};
use crate::support::postgres::{self, Machine, NOBODY};
use crate::support::{Pair, Site, check_pool, seed, status, text};

/// How many drills, and how far apart, without `FARSIDE_DRILLS` and `FARSIDE_DRILL_SECONDS`.
const DRILLS: u64 = 3;
const APART: u64 = 10;
/// Lag without drills is looked at for so long, or as long as with them.
const QUIET_MAX: Duration = Duration::from_secs(180);
/// Lag is read this often.
const LOOK: Duration = Duration::from_millis(250);

fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |text| text.parse().unwrap())
}

/// What a drill runs: the clone is a file by FUSE, that is mounted, and the database on it recovers as after a power failure. It
/// prints what the bank's books say; everything is away again when it ends.
const DRILL: &str = r#"
set -e
mkdir -p device mounted
nbdfuse device/disk "$FARSIDE_DRILL_EXPORT" & fuse=$!
gone() {
    cd /
    cp "$AT/mounted/drill.log" "$AT" || true
    $NOBODY pg_ctl -D "$AT/mounted/data" -m immediate stop >>"$AT/pg_ctl.log" 2>&1 || true
    umount "$AT/mounted" || umount -l "$AT/mounted" || true
    umount "$AT/device" || umount -l "$AT/device" || true
    wait $fuse || true
}
trap gone EXIT
for i in $(seq 200); do [ -e device/disk ] && break; sleep 0.05; done
mount -o loop device/disk mounted
cd /
# The one at the source runs on this machine, too: its locks say so, and mean nothing here.
rm -f "$AT/mounted/data/postmaster.pid" "$AT"/mounted/.s.PGSQL.*
$NOBODY pg_ctl -D "$AT/mounted/data" -w -t 99 -l "$AT/mounted/drill.log" \
    -o "-k $AT/mounted -c listen_addresses= -c logging_collector=off" start >>"$AT/pg_ctl.log" 2>&1
$NOBODY psql -X -q -A -t -h "$AT/mounted" -d postgres -c "select (select sum(abalance) from pgbench_accounts),
    (select sum(tbalance) from pgbench_tellers), (select sum(bbalance) from pgbench_branches),
    (select coalesce(sum(delta), 0) from pgbench_history), (select count(*) from pgbench_history)" >"$AT/books"
"#;

/// One drill, that must succeed and find the books balanced; its document, and how many transactions it found.
fn drill(namespace: &Namespace, b: &Site, pair: &Pair) -> (Value, i64) {
    let at = pair.root.path().join("drill");
    std::fs::create_dir_all(&at).unwrap();
    std::fs::write(at.join("run"), DRILL).unwrap();
    // The client runs where mounts are seen, and so does what it starts.
    let farside = format!(
        "cd {at}; export AT={at} NOBODY='{NOBODY}'; exec {} --data-dir {} mirror drill q/v --json --timeout 2m --run 'sh ./run'",
        crate::support::FARSIDE,
        b.dir.display(),
        at = at.display(),
    );
    let output = namespace.shell(&farside).output().unwrap();
    let log = std::fs::read_to_string(at.join("drill.log")).unwrap_or_default();
    assert!(output.status.success(), "{}{}{log}", text(&output.stdout), text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["run"]["result"], &document["run"]["deleted"]), (&"ok".into(), &true.into()));
    let books = std::fs::read_to_string(at.join("books")).unwrap();
    let books: Vec<i64> = books.trim().split('|').map(|sum| sum.parse().unwrap()).collect();
    assert!(books[..4].iter().all(|sum| *sum == books[0]), "{books:?}");
    (document, books[4])
}

/// The lag, read again and again for so long.
fn lags(b: &Site, during: Duration) -> Vec<f64> {
    let (began, mut lags) = (Instant::now(), Vec::new());
    while began.elapsed() < during {
        lags.push(status(b, "q/v")["lag_seconds"].as_f64().unwrap());
        std::thread::sleep(LOOK);
    }
    lags
}

fn say(what: &str, lags: &[f64], transactions: i64) {
    let [median, most_of, at_most] = [0.5, 0.9, 1.0].map(|part| quantile(lags, part));
    println!(
        "{what}: lag {median:.2} s (median), {most_of:.2} s (9 of 10), {at_most:.2} s (at most) of {} looks; {transactions} transactions",
        lags.len()
    );
}

#[test]
#[ignore = "minutes, root, and a PostgreSQL; FARSIDE_DRILLS and FARSIDE_DRILL_SECONDS say how many drills, and how far apart"]
fn a_database_is_drilled_again_and_again_and_the_mirror_does_not_notice() {
    let mut random = StdRng::seed_from_u64(seed());
    let (drills, apart) = (number("FARSIDE_DRILLS", DRILLS), number("FARSIDE_DRILL_SECONDS", APART));
    let Some(namespace) = postgres::namespace(FileSystem::Ext4) else { return };
    let mut pair = Pair::with_pools(6 << 30, 6 << 30);
    postgres::open_the_way(pair.root.path());
    pair.mirror(1 << 30);
    let directory = pair.root.path().join("host");
    let machine = Machine::start(&namespace, &pair.a, "p/v", &directory, (FileSystem::Ext4, true));
    machine.make_database();
    // What a crash leaves to be redone is what a drill redoes.
    machine.start_postgres_with("-c max_wal_size=48MB");
    let at = directory.display().to_string();
    namespace.ok(&format!("cd /; {NOBODY} pgbench -i -q -s 5 -h {at}/mounted postgres 2>&1"));
    pair.b.ok("mirror initialize q/v");
    pair.b.ok("mirror set q/v --every 2s");
    let phase = Duration::from_secs(drills * apart);
    // A load that leaves the machine time for the drills.
    let seed: u32 = random.random();
    let load = format!(
        "cd /; exec {NOBODY} pgbench -n -c 4 -j 2 -R 50 -T 36000 --random-seed={seed} -h {at}/mounted postgres"
    );
    let mut load: std::process::Child =
        namespace.shell(&load).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(5));

    let done = |machine: &Machine<'_>| machine.ask("select count(*) from pgbench_history");
    let before = done(&machine);
    let quiet = lags(&pair.b, phase.min(QUIET_MAX));
    let between = done(&machine);
    let mut found = Vec::new();
    let drilled = std::thread::scope(|scope| {
        let looking = scope.spawn(|| lags(&pair.b, phase));
        let began = Instant::now();
        for number in 0..drills {
            let due = Duration::from_secs(number * apart);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
            let (document, transactions) = drill(&namespace, &pair.b, &pair);
            println!(
                "drill {number}: {transactions} transactions, data {:.1} s old, clone after {:.3} s, recovered after {:.1} s",
                document["age_seconds"].as_f64().unwrap(),
                document["duration_seconds"].as_f64().unwrap(),
                document["run"]["recovery_seconds"].as_f64().unwrap()
            );
            found.push(transactions);
        }
        looking.join().unwrap()
    });
    let after = done(&machine);
    say("without drills", &quiet, between - before);
    say("with drills", &drilled, after - between);
    assert!(found.is_sorted() && found[0] >= before && *found.last().unwrap() <= after, "{found:?}");
    let _ = load.kill();
    let _ = load.wait();
    assert_eq!(pair.b.json("volume list").as_array().unwrap().len(), 1, "clones are left");
    // Twice as far behind, or two intervals more, would be felt. A busy machine is not.
    let [without, with] = [&quiet, &drilled].map(|lags| quantile(lags, 0.5));
    assert!(with <= (2.0 * without).max(without + 4.0), "{without} {with}");
    machine.clear();
    for site in [&mut pair.a, &mut pair.b] {
        assert_eq!(site.stop(), Some(0));
    }
    for pool in ["p.pool", "q.pool"] {
        check_pool(&pair.root.path().join(pool));
    }
}
