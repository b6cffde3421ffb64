//! What the encryptor's signature makes of an ordinary week, and of an encryptor: a PostgreSQL under load on a volume that is
//! mirrored every few seconds. A `VACUUM FULL`, a defragmentation, files copied anew, an upgrade, files that are compressed, and
//! backups of the database: none is an attack. Then a program replaces files by ciphertext.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use serde_json::Value;

use crate::figures::{Update, median, moment, now, updates};
use crate::support::mounted::{FileSystem, has_tool};
use crate::support::postgres::{self, Machine, NOBODY};
use crate::support::{Pair, check_pool, seed};

/// Between two updates.
const EVERY: Duration = Duration::from_secs(3);
/// Updates of the database's load alone before anything else is done.
const USUAL: usize = 20;
/// And between two things.
const QUIET: usize = 4;
/// The files that are defragmented, copied, compressed and encrypted.
const FILES_BYTES: u64 = 100 << 20;
/// What lies in pieces: a defragmentation moves each by itself, and syncs.
const PIECES_BYTES: usize = 32 << 20;
const FILE_BYTES_MAX: u64 = 4 << 20;
/// What an encryptor gets through in a second.
const ENCRYPTED_PER_SECOND: u64 = 20 << 20;

struct Trial<'a> {
    pair: &'a Pair,
    machine: &'a Machine<'a>,
    /// Whose updates are looked at.
    volume: &'a str,
    /// Updates that have been looked at.
    seen: f64,
    table: Vec<String>,
}

impl Trial<'_> {
    /// The mounted file system as the namespace knows it.
    fn at(&self) -> String {
        format!("{}/mounted", self.machine.directory.display())
    }

    /// The same as this process reaches it.
    fn reach(&self) -> PathBuf {
        self.machine.namespace.reach(&self.machine.directory.join("mounted"))
    }

    fn raised(&self) -> Vec<Value> {
        let all = self.pair.b.json("alarm list");
        all.as_array()
            .unwrap()
            .iter()
            .filter(|alarm| alarm["kind"] == "ransomware" && alarm["subject"] == self.volume)
            .cloned()
            .collect()
    }

    /// Waits until so many updates have begun and ended from now on.
    fn wait(&self, count: usize) {
        let (since, began) = (now(), Instant::now());
        while updates(&self.pair.b, self.volume).iter().filter(|update| update.started >= since).count()
            < count
        {
            assert!(began.elapsed() < Duration::from_secs(60 + 20 * count as u64), "no updates");
            std::thread::sleep(Duration::from_millis(200));
        }
        // The alarms look every second.
        std::thread::sleep(Duration::from_millis(2500));
    }

    /// Does something, and says what its updates were like beside the usual ones. Answers whether an alarm was raised.
    fn during(&mut self, what: &str, act: impl FnOnce(&Self)) -> bool {
        self.wait(QUIET);
        let before = updates(&self.pair.b, self.volume);
        let usual: Vec<&Update> = before.iter().filter(|update| update.started > self.seen).collect();
        let rates: Vec<f64> = before.iter().map(|update| update.rate).collect();
        let savings: Vec<f64> = before.iter().filter_map(|update| update.saving).collect();
        let (rate, saving) = (median(&rates), median(&savings));
        let began = now();
        act(self);
        let took = now() - began;
        self.wait(2);
        self.seen = now();
        let all = updates(&self.pair.b, self.volume);
        let of: Vec<&Update> = all.iter().filter(|update| update.ended > began).collect();
        let mib = f64::from(1 << 20);
        let changed: u64 = of.iter().map(|update| update.changed).sum();
        let fastest = of.iter().map(|update| update.rate).fold(0.0, f64::max);
        let least = of.iter().filter_map(|update| update.saving).fold(1.0, f64::min);
        let weighed: f64 = of.iter().map(|u| u.saving.unwrap_or(1.0) * u.changed as f64).sum();
        let low: Vec<&&Update> = of.iter().filter(|u| u.saving.is_some_and(|s| s < saving / 3.0)).collect();
        let unusual = low.iter().filter(|u| u.rate > 4.0 * rate).count();
        let is_raised = !self.raised().is_empty();
        let line = format!(
            "{what:<28} {took:>5.1} s  {:>3} updates {:>6.1} MiB  noise {:>5.1} MiB  fastest {:>5.1} MiB/s = {:>5.1} x usual  saved {:>3.0} % in all, {:>3.0} % at \
             least, usual {:>2.0} %  {} below a third, {unusual} of these fast  alarm: {}",
            of.len(),
            changed as f64 / mib,
            of.iter().map(|update| update.noise).sum::<u64>() as f64 / mib,
            fastest / mib,
            fastest / rate,
            100.0 * weighed / changed as f64,
            100.0 * least,
            100.0 * saving,
            low.len(),
            if is_raised { "RAISED" } else { "no" }
        );
        println!("{line} ({} usual updates before)", usual.len());
        self.table.push(line);
        is_raised
    }

    /// As the one before; that nothing was raised. A person says so if something was, so that the next one is judged, too.
    fn is_taken_for_usual(&mut self, what: &str, act: impl FnOnce(&Self)) -> bool {
        if !self.during(what, act) {
            return true;
        }
        for alarm in self.raised() {
            println!("  {}", alarm["message"]);
            self.pair.b.ok(&format!("alarm ack {}", alarm["id"].as_str().unwrap()));
        }
        false
    }
}

/// Files of this machine's programs and libraries, so many bytes, none of them large; a second call goes on behind the first.
struct Files {
    of: Vec<PathBuf>,
    next: usize,
}

impl Files {
    fn new() -> Files {
        fn collect(directory: &Path, into: &mut Vec<PathBuf>) {
            let mut entries: Vec<_> = std::fs::read_dir(directory).into_iter().flatten().flatten().collect();
            entries.sort_by_key(|entry| entry.file_name());
            for entry in entries {
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_dir() {
                    collect(&entry.path(), into);
                } else if kind.is_file()
                    && entry.metadata().is_ok_and(|m| (4096..FILE_BYTES_MAX).contains(&m.len()))
                {
                    into.push(entry.path());
                }
            }
        }
        let mut of = Vec::new();
        for directory in [
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib/aarch64-linux-gnu",
            "/usr/bin",
            "/usr/lib/python3",
            "/usr/share",
        ] {
            collect(Path::new(directory), &mut of);
        }
        Files { of, next: 0 }
    }

    /// Their contents, `FILES_BYTES` in all.
    fn take(&mut self) -> Vec<Vec<u8>> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while bytes < FILES_BYTES {
            let content = std::fs::read(&self.of[self.next % self.of.len()]).unwrap_or_default();
            self.next += 1;
            bytes += content.len() as u64;
            taken.push(content);
        }
        taken
    }
}

/// Two files that grow in turns, so that each lies in pieces.
fn write_in_pieces(directory: &Path, content: &[u8]) {
    let mut files = ["one", "two"].map(|name| std::fs::File::create(directory.join(name)).unwrap());
    for (number, piece) in content.chunks(256 << 10).enumerate() {
        let file = &mut files[number % 2];
        file.write_all(piece).unwrap();
        file.sync_data().unwrap();
    }
}

#[test]
#[ignore = "minutes: seven of them, root, and a PostgreSQL"]
fn an_ordinary_week_is_no_encryptor_and_an_encryptor_is_one() {
    let mut random = StdRng::seed_from_u64(seed());
    let Some(namespace) = postgres::namespace(FileSystem::Ext4) else { return };
    let mut pair = Pair::with_pools(8 << 30, 8 << 30);
    postgres::open_the_way(pair.root.path());
    pair.mirror(3 << 30);
    let directory = pair.root.path().join("host");
    let machine = Machine::start(&namespace, &pair.a, "p/v", &directory, (FileSystem::Ext4, true));
    machine.make_database();
    machine.start_postgres_with("-c max_wal_size=256MB -c checkpoint_timeout=30s");
    let at = directory.display().to_string();
    namespace.ok(&format!("cd /; {NOBODY} pgbench -i -q -s 5 -h {at}/mounted postgres 2>&1"));
    // Some 100 MB of notes as people leave them: words, numbers, and what no two have in common.
    machine.execute(
        "create table notes as select i as id, now() - i * interval '1 minute' as at, md5(i::text) as reference, \
         'order ' || i % 977 || ' of ' || md5((i / 7)::text) || ' was sent to customer ' || i % 4099 || ' by ' || \
         (array['rail','road','sea','air'])[1 + i % 4] || ', and paid' as note from generate_series(1, 600000) i",
    );
    let mut files = Files::new();
    let tree = namespace.reach(&directory.join("mounted")).join("files");
    std::fs::create_dir(&tree).unwrap();
    let mut names = Vec::new();
    for (number, content) in files.take().into_iter().enumerate() {
        names.push((format!("file-{number}"), content.len()));
        std::fs::write(tree.join(format!("file-{number}")), content).unwrap();
    }
    let pieces = namespace.reach(&directory.join("mounted")).join("pieces");
    std::fs::create_dir(&pieces).unwrap();
    write_in_pieces(&pieces, &files.take().concat()[..PIECES_BYTES]);
    namespace.ok(&format!("sync -f {at}/mounted"));
    pair.b.ok("mirror initialize q/v");
    pair.b.ok(&format!("mirror set q/v --every {}s --keep last=6", EVERY.as_secs()));
    let load = format!(
        "cd /; exec {NOBODY} pgbench -n -c 4 -j 2 -R 60 -T 3600 -h {at}/mounted postgres >/dev/null 2>&1"
    );
    let mut load = namespace.shell(&load).spawn().unwrap();
    let mut trial = Trial { pair: &pair, machine: &machine, volume: "q/v", seen: now(), table: Vec::new() };
    trial.wait(USUAL);
    let mut raised = Vec::new();
    let mut expect = |what: &'static str, is_usual: bool| {
        if !is_usual {
            raised.push(what);
        }
    };
    let mounted = trial.at();
    let size = trial.machine.ask("select pg_total_relation_size('notes')");
    println!("notes has {:.0} MiB", size as f64 / f64::from(1 << 20));
    let vacuum = |trial: &Trial<'_>| trial.machine.execute("vacuum full notes");
    expect("vacuum full", trial.is_taken_for_usual("VACUUM FULL", vacuum));
    // Half of the rows change, then the table is written anew: nothing is where it was.
    let update = |trial: &Trial<'_>| {
        trial.machine.execute("update notes set note = note || ' twice' where id % 2 = 0")
    };
    expect("update", trial.is_taken_for_usual("UPDATE of half of the rows", update));
    expect("vacuum full", trial.is_taken_for_usual("VACUUM FULL once more", vacuum));
    if has_tool("e4defrag") {
        let defragment = |trial: &Trial<'_>| {
            let said = trial.machine.namespace.ok(&format!("e4defrag {mounted}/pieces; sync -f {mounted}"));
            println!("{}", said.lines().rev().take(3).collect::<Vec<_>>().join("; "));
        };
        expect("defragmentation", trial.is_taken_for_usual("e4defrag", defragment));
    }
    let copy = |trial: &Trial<'_>| {
        let copy = "cp -a files files.new && rm -r files && mv files.new files && sync -f .";
        trial.machine.namespace.ok(&format!("cd {mounted} && {copy}"));
    };
    expect("copying anew", trial.is_taken_for_usual("all files copied anew", copy));
    // As a package manager does: each file is written beside the old one, made durable, and takes its place.
    let upgraded = files.take();
    let upgrade = |trial: &Trial<'_>| {
        let tree = trial.reach().join("files");
        for (number, content) in upgraded.iter().enumerate() {
            let new = tree.join("new");
            let mut file = std::fs::File::create(&new).unwrap();
            file.write_all(content).unwrap();
            if number % 16 == 0 {
                file.sync_data().unwrap();
            }
            std::fs::rename(&new, tree.join(format!("file-{number}"))).unwrap();
        }
        trial.machine.namespace.ok(&format!("sync -f {mounted}"));
    };
    expect("upgrade", trial.is_taken_for_usual("upgrade of all files", upgrade));
    let dump = |trial: &Trial<'_>| {
        let dump =
            format!("{NOBODY} pg_dump -h {mounted} postgres | gzip > {mounted}/dump.gz && sync -f {mounted}");
        trial.machine.namespace.ok(&format!("cd /; {dump}"));
    };
    expect("backup", trial.is_taken_for_usual("pg_dump | gzip", dump));
    expect("backup", trial.is_taken_for_usual("pg_dump | gzip once more", dump));
    let compress = |trial: &Trial<'_>| {
        trial.machine.namespace.ok(&format!(
            "cp -a {mounted}/files {mounted}/old && gzip -r {mounted}/old && sync -f {mounted}"
        ));
    };
    expect("compressing", trial.is_taken_for_usual("gzip of all files", compress));

    // A second mirror, that has seen nothing but the load: what the first one has seen of gzip is no measure for it.
    pair.b.ok("mirror create a:p/v q/w");
    pair.b.ok("mirror initialize q/w");
    pair.b.ok(&format!("mirror set q/w --every {}s --keep last=6", EVERY.as_secs()));
    trial.volume = "q/w";
    trial.wait(USUAL);

    // The one that is meant: each file is read, overwritten in place with what looks like noise, and renamed.
    trial.wait(QUIET);
    let (mut noise, mut done) = (StdRng::seed_from_u64(random.random()), 0);
    let began = Instant::now();
    let began_at = now();
    let is_raised = trial.during("encryptor", |trial| {
        let tree = trial.reach().join("files");
        for (number, _) in upgraded.iter().enumerate() {
            let path = tree.join(format!("file-{number}"));
            let mut content = std::fs::read(&path).unwrap();
            noise.fill_bytes(&mut content);
            let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all(&content).unwrap();
            file.sync_data().unwrap();
            std::fs::rename(&path, tree.join(format!("file-{number}.locked"))).unwrap();
            done += content.len() as u64;
            let due = Duration::from_secs_f64(done as f64 / ENCRYPTED_PER_SECOND as f64);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
    });
    println!("{} MiB were encrypted", done >> 20);
    let alarms = trial.raised();
    println!("{}", trial.table.join("\n"));
    println!("raised though nothing was wrong: {raised:?}");
    assert!(is_raised, "it was not seen");
    let message = alarms[0]["message"].as_str().unwrap();
    println!("{message}");
    let raised_at = moment(&alarms[0]["raised_at"]);
    let done: Vec<Update> =
        updates(&pair.b, "q/w").into_iter().filter(|u| u.ended > began_at && u.ended < raised_at).collect();
    println!(
        "raised {:.1} s after it began, {} updates had ended since: {done:#?}",
        raised_at - began_at,
        done.len()
    );
    let unusual = done.iter().filter(|update| update.noise > 0).count();
    assert!(unusual <= 2, "{unusual} updates had brought of it");
    let snapshots = pair.b.json("snapshot list q/w");
    let is_held = |s: &&Value| s["held"] == true && message.contains(s["name"].as_str().unwrap());
    let good = snapshots.as_array().unwrap().iter().find(is_held).unwrap();
    println!("held: {good}");
    assert!(moment(&good["created_at"]) < began_at + 0.5, "{good}");
    trial.volume = "q/v";
    let there = trial.raised();
    println!(
        "q/v, which has seen backups: {}",
        there.first().map_or("nothing".into(), |alarm| alarm["message"].to_string())
    );
    let _ = load.kill();
    let _ = load.wait();

    machine.clear();
    assert_eq!(raised, Vec::<&str>::new());
    for site in [&mut pair.a, &mut pair.b] {
        assert_eq!(site.stop(), Some(0));
    }
    for pool in ["p.pool", "q.pool"] {
        check_pool(&pair.root.path().join(pool));
    }
}
