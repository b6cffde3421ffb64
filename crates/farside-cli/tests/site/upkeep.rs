//! What a site's administrator lives with: schedules, and what outlives a restart.

use crate::support::{Pair, Site, eventually, status, text};
use serde_json::{Value, json};

/// `farside` with a timetable, which has blanks of its own.
fn scheduled(site: &Site, arguments: &str, timetable: &str) -> std::process::Output {
    site.command(arguments).args(["--schedule", timetable, "--json"]).output().unwrap()
}

#[test]
fn a_timetable_is_kept_with_its_zone() {
    let mut pair = Pair::start();
    pair.a.ok("volume create p/v --size 4M");
    pair.a.ok("peer allow b p/v");
    assert_eq!(pair.b.stop(), Some(0));
    pair.b.environment = vec![("TZ".into(), "America/Havana".into())];
    pair.b.restart();
    eventually("the session is back", || pair.b.json("peer list")[0]["state"] == "connected");
    let b = &pair.b;
    let made = scheduled(b, "mirror create a:p/v q/v", "*/15  * * * *");
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(made["schedule"], "*/15 * * * * America/Havana", "the system's zone, by name");
    b.ok("mirror initialize q/v");
    for (arguments, timetable) in [
        ("mirror set q/v", "0 0 30 2 *"),
        ("mirror set q/v", "*/70 * * * *"),
        ("mirror set q/v", "@daily"),
        ("mirror set q/v", "0 0 * * * *"),
        ("mirror set q/v --time-zone Nowhere", "0 0 * * *"),
    ] {
        let output = scheduled(b, arguments, timetable);
        assert_eq!(output.status.code(), Some(2), "{timetable}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["error"]["code"], "wrong-usage", "{}", text(&output.stderr));
    }
    assert_eq!(
        status(b, "q/v")["schedule"],
        "*/15 * * * * America/Havana",
        "what was refused changed nothing"
    );
    let set = scheduled(b, "mirror set q/v --time-zone europe/berlin", "30 2 * * MON-FRI");
    assert!(set.status.success(), "{}", text(&set.stderr));

    // Another zone of the system is not the mirror's; and a restart looks at once.
    let before = b.json("mirror history q/v").as_array().unwrap().len();
    assert_eq!(pair.b.stop(), Some(0));
    pair.b.environment = vec![("TZ".into(), "UTC".into())];
    pair.b.restart();
    assert_eq!(status(&pair.b, "q/v")["schedule"], "30 2 * * MON-FRI Europe/Berlin");
    eventually("a restart looks for news", || {
        pair.b.json("mirror history q/v").as_array().unwrap().len() > before
    });
    assert_eq!(pair.b.json("mirror set q/v --every off")["schedule"], Value::Null);
    assert_eq!(pair.b.json("mirror set q/v --every 90s")["schedule"], json!("every 1m 30s"));
}

/// The files of a bundle, by name.
fn unpack(path: &std::path::Path) -> std::collections::BTreeMap<String, Vec<u8>> {
    use std::io::Read;
    let file = std::fs::File::open(path).unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().strip_prefix("farside-support").unwrap().display().to_string();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (name, content)
    });
    entries.collect()
}

fn holds(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

#[test]
fn a_support_bundle_holds_everything_and_no_secret() {
    let mut pair = Pair::start();
    pair.mirror(4 << 20);
    pair.b.ok("mirror initialize q/v");
    let used = std::fs::read_to_string(pair.root.path().join("code")).unwrap();
    let open = pair.a.ok("peer invite");
    let path = pair.root.path().join("a.tar.gz");
    let arguments = format!("support-bundle --output {}", path.display());
    let document = pair.a.json(&arguments);
    assert_eq!(document["problems"], json!([]));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(pair.a.fails(1, &arguments).contains("--output"), "what is there is not overwritten");

    let files = unpack(&path);
    let read = |name: &str| -> Value {
        serde_json::from_slice(files.get(name).unwrap_or_else(|| panic!("{name} is missing"))).unwrap()
    };
    let versions = read("versions.json");
    assert_eq!(versions["farside"], env!("CARGO_PKG_VERSION"));
    assert!(versions["format"].is_u64() && versions["schema"].is_i64(), "{versions}");
    assert_eq!(read("configuration.json")["name"], "a");
    assert_eq!(read("pools.json")[0]["name"], "p");
    assert_eq!(read("volumes.json")[0]["name"], "p/v");
    assert_eq!(read("mirrors.json")[0]["role"], "source");
    assert_eq!(read("destinations.json")[0]["destination"], "q/v");
    assert_eq!(read("peers.json")[0]["name"], "b");
    assert_eq!(read("rights.json")[0]["rights"][0]["volume"], "p/v");
    assert!(read("machine.json")["kernel"].is_string());
    assert_eq!(read("accelerator.json")["state"], "off");
    for name in [
        "alarms.json",
        "snapshots.json",
        "history.json",
        "log.json",
        "operations.json",
        "accelerator-connections.json",
        "accelerator-policies.json",
        "accelerator-forwards.json",
    ] {
        assert!(read(name).is_array(), "{name}");
    }
    assert!(holds(&files["metrics.txt"], b"farside_pool_open"));
    assert!(holds(&files["health.json"], b"ok"));
    assert!(holds(&files["daemon.log"], b"listening for peers"), "the newest log lines");
    assert!(!holds(&files["daemon.log"], b"\x1b"), "and no colours");
    let of_b = pair.root.path().join("b.tar.gz");
    pair.b.ok(&format!("support-bundle --output {}", of_b.display()));
    let history: Value = serde_json::from_slice(&unpack(&of_b)["history.json"]).unwrap();
    assert_eq!(history[0]["kind"], "initialize");

    // Neither the private key nor the token of an invitation, nor a part of either that would help.
    let key = std::fs::read_to_string(pair.a.dir.join("identity.pem")).unwrap();
    let (_, private) = key.split_once("-----BEGIN PRIVATE KEY-----").unwrap();
    let (private, _) = private.split_once("-----END").unwrap();
    let mut secrets: Vec<String> = private.lines().map(str::to_owned).filter(|l| !l.is_empty()).collect();
    // `farside1_KEYHASH_TOKEN_CHECK`
    secrets.extend([&used, &open].map(|code| code.trim().split('_').nth(2).unwrap().to_owned()));
    assert!(secrets.len() >= 4, "{}", secrets.len());
    let no_secret = |files: &std::collections::BTreeMap<String, Vec<u8>>| {
        for (name, content) in files {
            for part in secrets.iter().flat_map(|secret| secret.as_bytes().chunks(16)) {
                assert!(part.len() < 16 || !holds(content, part), "a secret is in {name}");
            }
            assert!(!holds(content, b"PRIVATE KEY"), "{name}");
        }
    };
    no_secret(&files);

    // Without a daemon: what lies there, and it says so.
    pair.a.kill();
    std::fs::write(pair.a.dir.join("farside.toml"), "log = \"info\"\n# password: hunter2\n").unwrap();
    let path = pair.root.path().join("offline.tar.gz");
    let output = pair.a.farside(&format!("support-bundle --output {}", path.display()));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("does not answer"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("journalctl"), "{}", text(&output.stdout));
    let files = unpack(&path);
    assert!(files["farside.db"].starts_with(b"SQLite format 3"));
    assert!(!holds(&files["farside.toml"], b"hunter2") && holds(&files["farside.toml"], b"log"));
    assert!(holds(&files["files.txt"], b"identity.pem"), "that it is there, not what is in it");
    assert!(holds(&files["problems.txt"], b"was not asked"));
    no_secret(&files);
    // Nothing there either.
    let nowhere = pair.root.path().join("nowhere");
    let output = std::process::Command::new(crate::support::FARSIDE)
        .args(["--data-dir", nowhere.to_str().unwrap(), "support-bundle"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5));
}

#[test]
fn a_log_has_a_line_for_everything() {
    let pair = Pair::start();
    pair.mirror(4 << 20);
    let b = &pair.b;
    let events = |arguments: &str| -> Vec<String> {
        let lines = b.json(arguments);
        lines.as_array().unwrap().iter().map(|line| line["event"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(events("mirror log q/v"), [""; 0]);
    b.ok("mirror initialize q/v");
    assert_eq!(events("mirror log q/v"), ["request", "start", "end"]);
    let lines = b.json("mirror log q/v");
    let transfer = b.json("mirror history q/v")[0].clone();
    assert_eq!((&lines[0]["requested_by"], &lines[0]["kind"]), (&json!("person"), &json!("initialize")));
    assert_eq!(lines[2]["transfer"], transfer["id"]);
    assert_eq!(lines[2]["bytes"], transfer["wire_bytes_received"]);
    assert!(lines[0]["at"].as_str() <= lines[2]["at"].as_str(), "newest last: {lines}");

    // An end for every start, a reason for every abort.
    b.ok("mirror quiesce q/v");
    b.ok("mirror resume q/v");
    pair.a.ok("peer deny b p/v");
    // The site that has taken it back says so by itself.
    let said = pair.a.fails(1, "mirror check");
    assert!(said.contains("b may not read p/v") && said.contains("farside peer allow b p/v"), "{said}");
    b.fails(1, "mirror update q/v");
    b.ok("mirror break q/v");
    let newest = events("mirror log q/v --limit 6");
    assert_eq!(newest, ["quiesce", "resume", "request", "start", "abort", "break"]);
    let lines = b.json("mirror log --limit 2");
    assert!(lines[0]["reason"].as_str().unwrap().contains("peer allow"), "{lines}");
    let table = b.ok("mirror log q/v");
    assert!(table.starts_with("TIME ") && table.contains("asked for by a person"), "{table}");
    assert!(table.trim_end().lines().last().unwrap().contains("break"), "{table}");
    b.ok("mirror delete q/v");
    assert_eq!(events("mirror log q/v").last().unwrap(), "delete", "the log outlives its mirror");
    // Whatever the daemon logged on the mirror's behalf says which one.
    b.has_logged("transfer done");
    assert!(b.log().lines().filter(|line| line.contains("transfer done")).all(|line| line.contains("q/v")));

    pair.b.fails(3, "mirror log q/nowhere");
    pair.b.fails(2, "mirror log --limit 0");
    pair.b.fails(2, "mirror log --limit 30001");
}

/// Writes `length` bytes that do not compress.
fn fill(site: &Site, export: &str, offset: u64, length: usize, seed: u64) {
    use rand::{Rng, SeedableRng};
    let mut bytes = vec![0; length];
    rand::rngs::StdRng::seed_from_u64(seed).fill(&mut bytes[..]);
    let mut host = site.nbd(export);
    for (index, part) in bytes.chunks(1 << 20).enumerate() {
        host.write(offset + ((index as u64) << 20), part).unwrap();
    }
    host.flush().unwrap();
}

#[test]
fn a_lost_state_database_costs_pairings_and_schedules_and_no_data() {
    let mut pair = Pair::start();
    pair.mirror(16 << 20);
    fill(&pair.a, "p/v", 0, 8 << 20, 1);
    pair.b.ok("mirror initialize q/v");
    pair.b.ok("mirror set q/v --every 1h");
    let wanted = pair.a.nbd("p/v").read_all();

    // Damaged: the daemon says what to do, and does not start with nothing. (After a kill its WAL would mend it.)
    assert_eq!(pair.b.stop(), Some(0));
    let database = pair.b.dir.join("farside.db");
    let whole = std::fs::read(&database).unwrap();
    std::fs::write(&database, vec![0x5a; whole.len()]).unwrap();
    let output = std::process::Command::new(crate::support::FARSIDED)
        .arg("--data-dir")
        .arg(&pair.b.dir)
        .args(["--name", "b", "--peer-listen", "off", "--http", "off"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("farside.db-wal away") && said.contains("farside pool import"), "{said}");

    // Moved away, though not the whole of it: somebody is tired.
    std::fs::remove_file(&database).unwrap();
    pair.b.restart();
    assert_eq!(pair.b.json("pool list"), json!([]));
    // A restart makes no loss unseen that nobody has done anything about.
    for _ in 0..2 {
        let health = pair.b.http("/readyz");
        assert!(health.contains("503") && health.contains("was made anew"), "{health}");
        assert_eq!(pair.b.stop(), Some(0));
        pair.b.restart();
    }
    let q = pair.root.path().join("q.pool");
    pair.b.ok(&format!("pool import q --path {}", q.display()));
    let found = status(&pair.b, "q/v");
    assert_eq!((&found["state"], &found["schedule"]), (&json!("mirrored"), &Value::Null));
    assert_eq!(found["schedule_lost"], true);
    let ready = pair.b.http("/readyz");
    assert!(ready.contains("503") && ready.contains("q/v is updated only when somebody asks"), "{ready}");
    assert!(!ready.contains("was made anew"), "a pool is there: {ready}");
    pair.b.has_logged("unknown to the state database");
    assert_eq!(pair.b.nbd("q/v").read_all(), wanted);
    // The source's too. With the sites paired again updates go on from the base that both pools hold.
    pair.a.kill();
    for file in ["farside.db", "farside.db-wal", "farside.db-shm"] {
        let _ = std::fs::remove_file(pair.a.dir.join(file));
    }
    pair.a.restart();
    let p = pair.root.path().join("p.pool");
    pair.a.ok(&format!("pool import p --path {}", p.display()));
    assert_eq!(pair.a.nbd("p/v").read_all(), wanted);
    pair.pair_at(&pair.a.published("peer.addr"));
    pair.b.fails(1, "mirror update q/v");
    // The script that set it up sets it up again: what the pool does not have is not left to another command.
    pair.a.ok("peer allow b p/v --reverse");
    let made = "mirror create a:p/v q/v --every 1h --if-absent";
    let said = pair.b.ok(made);
    assert!(said.contains("found in its pool") && said.contains("updated every 1h"), "{said}");
    assert!(said.contains("its source's site may mirror it back"), "{said}");
    assert!(!said.contains("mirror initialize"), "{said}");
    let set = status(&pair.b, "q/v");
    assert_eq!((&set["schedule"], &set["schedule_lost"]), (&json!("every 1h"), &Value::Null));
    assert_eq!(pair.b.json("peer status a")["rights"][0]["volume"], "q/v");
    assert!(pair.b.ok(made).contains("is there, as asked for"));
    // Where only the schedule was set again after the loss, the right is missing: the same line brings it back.
    pair.b.ok("peer deny a q/v");
    assert!(pair.b.ok(made).contains("is there, as asked for"));
    assert_eq!(pair.b.json("peer status a")["rights"][0]["volume"], "q/v");
    pair.b.ok("peer deny a q/v");
    pair.b.ok(&format!("{made} --no-reverse"));
    assert_eq!(pair.b.json("peer status a")["rights"], json!([]), "it was withheld on purpose");
    pair.b.ok(made);
    fill(&pair.a, "p/v", 4 << 20, 1 << 20, 2);
    let record = &pair.b.json("mirror update q/v")["record"];
    assert_eq!((&record["kind"], &record["changed_bytes"]), (&json!("update"), &json!(1 << 20)));
    let wanted = pair.a.nbd("p/v").read_all();

    // Lost once more, with the source dead: found and broken off.
    pair.a.kill();
    pair.b.kill();
    std::fs::remove_file(&database).unwrap();
    pair.b.restart();
    pair.b.ok(&format!("pool import q --path {}", q.display()));
    pair.b.ok("mirror break q/v --yes");
    let mut host = pair.b.nbd("q/v");
    assert!(!host.read_only);
    assert_eq!(host.read_all(), wanted);
}

#[test]
fn updates_that_bring_nothing_are_not_in_the_log() {
    let pair = Pair::start();
    pair.mirror(4 << 20);
    pair.b.ok("mirror initialize q/v");
    let lines = |site: &Site| site.log().lines().count();
    // What a session and a first copy say may come a moment later.
    let ends = |site: &Site, what: &str| site.log().matches(what).count();
    eventually("the first copy is told", || {
        ends(&pair.b, "transfer done") == 1 && ends(&pair.a, "transfer ends: the destination has it") <= 1
    });
    let before = [&pair.a, &pair.b].map(lines);
    for _ in 0..10 {
        pair.b.ok("mirror update q/v");
    }
    let after = [&pair.a, &pair.b].map(lines);
    for (before, after) in before.into_iter().zip(after) {
        assert!(after - before < 10, "{} lines for 10 updates that brought nothing", after - before);
    }
    let mut host = pair.a.nbd("p/v");
    host.write(0, &[7; 4096]).unwrap();
    host.flush().unwrap();
    pair.b.ok("mirror update q/v");
    eventually("one that brought something has a line at both sites", || {
        ends(&pair.b, "transfer done") == 2 && ends(&pair.a, "transfer ends: the destination has it") >= 1
    });
}

/// A script that says again what is set already is asked nothing, whatever the next tick lets go.
#[test]
fn the_same_retention_said_again_asks_nothing() {
    let root = tempfile::tempdir().unwrap();
    let site = Site::start(root.path(), "a");
    site.ok(&format!("pool create p --path {} --size 64M", site.dir.join("p.pool").display()));
    for volume in ["p/v", "p/w"] {
        site.ok(&format!("volume create {volume} --size 1M"));
    }
    site.ok("snapshot schedule p/v p/w --every 1s --keep last=5");
    eventually("points are there", || site.json("snapshot list p/v").as_array().unwrap().len() >= 4);
    site.ok("snapshot schedule p/v p/w --every 1h --keep last=1 --yes");
    let again = site.farside("snapshot schedule p/v p/w --every 1h --keep last=1");
    assert!(again.status.success(), "{}", text(&again.stderr));
    let ended = site.ok("snapshot schedule p/w --off");
    assert!(ended.contains("p/v and p/w have no timetable"), "both are named: {ended}");
}
