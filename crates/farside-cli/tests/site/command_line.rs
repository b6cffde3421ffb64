//! What the client does with arguments alone, and with one daemon: exit codes, JSON, plans, refusals.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{FARSIDE, FARSIDED, POOL_BYTES, Site, text};
use serde_json::{Value, json};

fn alone(arguments: &[&str]) -> std::process::Output {
    Command::new(FARSIDE).args(arguments).env_remove("FARSIDE_SOCKET").stdin(Stdio::null()).output().unwrap()
}

fn document(output: &std::process::Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stdout)))
}

#[test]
fn wrong_words_end_with_2() {
    for arguments in [
        &["volume", "create", "p/v"][..],
        &["volume", "create", "pv", "--size", "4096"],
        &["volume", "create", "p/v", "--size", "10GB"],
        &["mirror", "create", "p/v", "q/v"],
        &["mirror", "set", "q/v", "--every", "0s"],
        &["mirror", "set", "q/v"],
        &["mirror", "set", "q/v", "--every", "1m", "--schedule", "* * * * *"],
        &["mirror", "set", "q/v", "--every", "1m", "--time-zone", "UTC"],
        &["mirror", "create", "a:p/v", "q/v", "--time-zone", "UTC"],
        &["snapshot", "create", "p/v"],
        &["nonsense"],
        &[],
    ] {
        let output = alone(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    let output = alone(&["volume", "create", "p/v", "--size", "10GB", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let error = &document(&output)["error"];
    assert_eq!(error["code"], "wrong-usage");
    assert!(error["message"].as_str().unwrap().contains("10G"), "{error}");
    assert!(error["hint"].is_string());
}

#[test]
fn without_a_daemon_it_is_5() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().to_str().unwrap();
    let output = alone(&["--data-dir", dir, "volume", "list", "--json"]);
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(document(&output)["error"]["code"], "daemon-unreachable");
    assert!(text(&output.stderr).contains("hint: "));
    // A check is for days without a daemon: a path that leads nowhere is not found, whatever it looks like.
    for wrong in ["wrong.pool", "no/such.pool", "/no/such.pool", "/etc/passwd/such.pool"] {
        let output = alone(&["--data-dir", dir, "pool", "check", wrong]);
        assert_eq!(output.status.code(), Some(3), "{wrong}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(wrong), "{}", text(&output.stderr));
    }
    // A pool's name is known to the daemon alone: where that keeps the path is said.
    let said = text(&alone(&["--data-dir", dir, "pool", "check", "tank"]).stderr);
    assert!(said.contains("farside pool check PATH") && said.contains("grep 'pool opened'"), "{said}");
    std::fs::write(directory.path().join("farside.db"), "").unwrap();
    let said = text(&alone(&["--data-dir", dir, "pool", "check", "tank"]).stderr);
    assert!(
        said.contains(&format!("sqlite3 -readonly {dir}/farside.db 'SELECT name, path FROM pools'")),
        "{said}"
    );
    // Whoever watches can tell a replica that is late (1) from one of which nothing is known.
    let output = alone(&["--data-dir", dir, "mirror", "check", "--json"]);
    assert_eq!(output.status.code(), Some(5));
    assert_eq!((&document(&output)["checked"], &document(&output)["problems"]), (&json!(false), &json!([])));
    assert_eq!(document(&output)["error"]["code"], "daemon-unreachable");
    // FARSIDE_SOCKET counts, and arguments count more.
    let output = Command::new(FARSIDE)
        .args(["pool", "list"])
        .env("FARSIDE_SOCKET", "/nonexistent.sock")
        .output()
        .unwrap();
    assert!(text(&output.stderr).contains("/nonexistent.sock"));
    let output = Command::new(FARSIDE)
        .args(["--data-dir", dir, "pool", "list"])
        .env("FARSIDE_SOCKET", "/nonexistent.sock")
        .output()
        .unwrap();
    assert!(text(&output.stderr).contains(dir));
}

#[test]
fn pages_and_completions_come_from_the_definition() {
    let man = text(&alone(&["man"]).stdout);
    assert!(man.contains(".TH farside 1"), "{man}");
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&alone(&["completions", shell]).stdout).contains("farside"), "{shell}");
    }
    let directory = tempfile::tempdir().unwrap();
    assert!(alone(&["man", "--to", directory.path().to_str().unwrap()]).status.success());
    for page in ["farside.1", "farside-mirror-break.1", "farsided.1"] {
        assert!(directory.path().join(page).exists(), "{page}");
    }
}

#[test]
fn a_daemon_that_cannot_start_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = |arguments: &[&str]| {
        Command::new(FARSIDED).arg("--data-dir").arg(directory.path()).args(arguments).output().unwrap()
    };
    std::fs::write(directory.path().join("farside.toml"), "name = \"x\"\nlisten = 7\n").unwrap();
    let output = daemon(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("line 2") && text(&output.stderr).contains("listen"),
        "{}",
        text(&output.stderr)
    );
    std::fs::remove_file(directory.path().join("farside.toml")).unwrap();
    assert_eq!(daemon(&["--http", "7441"]).status.code(), Some(2));

    let site = Site::start(directory.path(), "a");
    let output = Command::new(FARSIDED).arg("--data-dir").arg(&site.dir).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    let taken = site.published("http.addr");
    let output = daemon(&["--http", &taken, "--peer-listen", "off"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--http"), "{}", text(&output.stderr));
    std::fs::write(directory.path().join("farside.db"), [0x5a; 4096]).unwrap();
    let output = daemon(&["--http", "off", "--peer-listen", "off"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("farside pool import"), "{}", text(&output.stderr));
}

#[test]
fn control_is_not_served_over_tcp() {
    let root = tempfile::tempdir().unwrap();
    let mut site = Site::start(root.path(), "a");
    assert!(site.http("/healthz").starts_with("HTTP/1.1 200"));
    assert!(
        site.http("/metrics").contains("farside_flush_seconds")
            || site.http("/metrics").starts_with("HTTP/1.1 200")
    );
    for path in ["/api/v1/site", "/api/v1/pools", "/"] {
        assert!(site.http(path).starts_with("HTTP/1.1 404"), "{path}");
    }
    use std::os::unix::fs::PermissionsExt;
    for (file, mode) in
        [("farside.sock", 0o660), ("nbd.sock", 0o660), ("farside.db", 0o600), ("identity.pem", 0o600)]
    {
        let found = std::fs::metadata(site.dir.join(file)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{file} has mode {found:o}");
    }
    assert_eq!(site.stop(), Some(0));
    assert!(!site.dir.join("farside.sock").exists());
}

#[test]
fn a_pool_its_volumes_and_its_snapshots() {
    let root = tempfile::tempdir().unwrap();
    let mut site = Site::start(root.path(), "a");
    let path = root.path().join("p.pool");
    let create = format!("pool create p --path {} --size {POOL_BYTES}", path.display());
    assert_eq!(site.json("pool list"), json!([]));
    assert_eq!(site.json(&create)["state"], "open");
    site.fails(4, &create);
    site.fails(3, "pool status nowhere");
    site.fails(2, &format!("pool create r --path {}", root.path().join("r.pool").display()));

    // Volumes: sizes are multiples of 4096.
    site.fails(2, "volume create p/v --size 4097");
    site.fails(2, "volume create p/v --size 0");
    site.fails(3, "volume create nowhere/v --size 4096");
    let made = site.json("volume create p/v --size 10M");
    assert_eq!(
        (&made["name"], &made["size_bytes"], &made["replica"]),
        (&json!("p/v"), &json!(10 << 20), &json!(false))
    );
    assert!(site.fails(4, "volume create p/v --size 10M").contains("volume p/v already exists"));
    site.fails(3, "volume status p/w");
    // More than there is may be promised, and is said to be more.
    let said = site.ok("volume create p/big --size 10T");
    assert!(said.contains("larger (10.0 TiB) than its whole pool p"), "{said}");
    let said = text(&site.farside("volume resize p/big --size 11T --json").stderr);
    assert!(said.contains("larger (11.0 TiB) than its whole pool p"), "{said}");
    site.ok("volume delete p/big --yes");
    assert!(!site.ok("volume create p/small --size 4K").contains("note"));
    site.ok("volume delete p/small --yes");
    assert_eq!(site.json("volume resize p/v --size 20M")["size_bytes"], 20 << 20);
    site.fails(2, "volume resize p/v --size 10M");
    assert!(site.ok("volume resize p/v --size 10M --plan").contains("lost:"));
    for verb in ["snapshot create p/v@", "snapshot rename p/v@one "] {
        let said = site.fails(2, &format!("{verb}rescue-2999-01-10T00:00:00Z"));
        assert!(said.contains("side branches"), "nobody plants what counts as a rescue: {said}");
    }
    for size in ["17P", "0", "10001"] {
        let said = site.fails(2, &format!("volume resize p/v --size {size} --plan"));
        let is_told = said.contains("16 PiB") || said.contains("multiples of 4096");
        assert!(is_told, "a plan promises nothing that is refused: {said}");
    }
    assert_eq!(site.json("volume status p/v")["size_bytes"], 20 << 20, "a plan changes nothing");
    assert_eq!(site.json("volume resize p/v --size 10M --yes")["size_bytes"], 10 << 20);
    assert_eq!(site.json("volume rename p/v p/w")["name"], "p/w");
    site.fails(2, "volume rename p/w q/w");
    site.ok("volume create p/x --size 4K");
    assert!(site.fails(4, "volume rename p/x p/w").contains("volume p/w already exists"));
    site.ok("volume delete p/x --yes");
    site.ok("volume rename p/w p/v");
    site.ok("volume create p/log --size 1M");

    // One instant over two volumes; what differs between two.
    let mut host = site.nbd("p/v");
    assert_eq!((host.size_bytes, host.read_only), (10 << 20, false));
    host.write(4096, &[1; 4096]).unwrap();
    let made = site.json("snapshot create p/v@one p/log@one");
    assert_eq!(made.as_array().unwrap().len(), 2);
    host.write(8192, &[2; 4096]).unwrap();
    host.write(4096, &[0; 4096]).unwrap();
    host.flush().unwrap();
    assert!(site.http("/metrics").contains("farside_flush_seconds_count 1"));
    site.ok("snapshot create p/v@two");
    assert_eq!(
        site.json("snapshot diff p/v@one p/v@two"),
        json!([{"offset": 4096, "length": 4096, "kind": "hole"}, {"offset": 8192, "length": 4096, "kind": "data"}])
    );
    site.fails(3, "snapshot diff p/v@one p/v@three");
    site.fails(2, "snapshot diff p/v@one p/log@one");
    assert!(site.fails(4, "snapshot create p/v@one").contains("snapshot p/v@one already exists"));
    site.fails(2, "snapshot create p/v@x p/v@y");
    let listed = site.json("snapshot list p/v");
    let first = listed[0].as_object().unwrap();
    for field in ["name", "uuid", "content_root", "created_at", "held", "referenced_bytes", "unique_bytes"] {
        assert!(first.contains_key(field), "{field} is missing: {listed}");
    }
    assert_eq!((&first["name"], first["content_root"].as_str().unwrap().len()), (&json!("one"), 32));
    assert!(first["created_at"].as_str().unwrap().ends_with('Z'));
    assert!(site.nbd("p/v@one").read_only);

    // Held ones stay; deleting asks, or wants --yes.
    assert_eq!(site.json("snapshot hold p/v@one")["held"], true);
    site.fails(4, "snapshot delete p/v@one --yes");
    site.ok("snapshot unhold p/v@one");
    site.fails(2, "snapshot delete p/v@one");
    assert!(site.ok("snapshot delete p/v@one --plan").contains("lost:"));
    assert_eq!(site.json("snapshot list p/v").as_array().unwrap().len(), 2);
    site.ok("snapshot rename p/v@one p-one");
    site.ok("snapshot delete p/v@p-one --yes");
    assert_eq!(site.json("snapshot list p/v").as_array().unwrap().len(), 1);

    // What is in use is not taken away.
    assert!(site.fails(4, "volume delete p/v --yes").contains("NBD"));
    drop(host);
    // The server sees the end of the connection in its own time.
    crate::support::eventually("the volume is free", || {
        site.farside("volume delete p/v --yes").status.success()
    });
    site.fails(3, "volume delete p/v --yes");
    assert_eq!(site.json("volume list").as_array().unwrap().len(), 1);

    // The pool outlives the daemon, and is found again without its database.
    for named in ["p", path.to_str().unwrap()] {
        let said = site.fails(4, &format!("pool check {named}"));
        assert!(said.contains("pool p is in use: the daemon serves it"), "{said}");
        assert!(said.contains("farside pool scrub p") && said.contains(path.to_str().unwrap()), "{said}");
    }
    assert!(site.fails(3, "pool check q").contains("q is neither a file nor a pool"));
    // What the daemon is about to let go is waited for.
    let mut checking = site.command(&format!("pool check {} --json", path.display()));
    let mut checking = checking.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(checking.try_wait().unwrap().is_none(), "it did not wait");
    assert_eq!(site.stop(), Some(0));
    let check = checking.wait_with_output().unwrap();
    assert!(check.status.success(), "{}", text(&check.stderr));
    let check = alone(&["pool", "check", path.to_str().unwrap(), "--json"]);
    assert!(check.status.success(), "{}", text(&check.stderr));
    assert_eq!(document(&check)["findings"], json!([]));
    std::fs::remove_file(site.dir.join("farside.db")).unwrap();
    site.restart();
    assert_eq!(site.json("pool list"), json!([]));
    site.ok(&format!("pool import p --path {}", path.display()));
    assert_eq!(site.json("volume list")[0]["name"], "p/log");
    site.fails(2, "pool delete p");
    site.ok("pool delete p --yes");
    assert!(!path.exists());
    site.fails(3, "pool delete p --yes");
}

#[test]
fn a_request_runs_to_its_end_without_its_client() {
    use std::io::Write;
    let root = tempfile::tempdir().unwrap();
    let mut site = Site::start(root.path(), "a");
    let path = root.path().join("p.pool");
    let body = json!({"name": "p", "path": path, "size_bytes": POOL_BYTES}).to_string();
    let mut client = std::os::unix::net::UnixStream::connect(site.dir.join("farside.sock")).unwrap();
    write!(
        client,
        "POST /api/v1/pools HTTP/1.1\r\nHost: farside\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    crate::support::eventually("it has begun", || path.exists());
    drop(client);
    crate::support::eventually("it is done", || site.json("pool list")[0]["state"] == "open");
    assert_eq!(site.stop(), Some(0));
    site.restart();
    assert_eq!(site.json("pool list")[0]["state"], "open", "the pool is remembered");
}

#[test]
fn a_damaged_pool_does_not_stop_the_daemon() {
    let root = tempfile::tempdir().unwrap();
    let mut site = Site::start(root.path(), "a");
    for pool in ["good", "bad"] {
        let path = root.path().join(pool);
        site.ok(&format!("pool create {pool} --path {} --size {POOL_BYTES}", path.display()));
        site.ok(&format!("volume create {pool}/v --size 1M"));
    }
    assert_eq!(site.stop(), Some(0));
    // Both superblocks lie in the first 2 MiB.
    let path = root.path().join("bad");
    let whole = std::fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[..2 << 20].fill(0x5a);
    std::fs::write(&path, &damaged).unwrap();
    site.restart();
    let pools = site.json("pool list");
    assert_eq!((&pools[0]["name"], &pools[0]["state"]), (&json!("bad"), &json!("failed")));
    assert!(pools[0]["error"].as_str().unwrap().contains("superblock"), "{pools}");
    assert_eq!(pools[1]["state"], "open");
    site.nbd("good/v").write(0, &[1; 4096]).unwrap();
    assert!(site.http("/healthz").starts_with("HTTP/1.1 503"));
    let check = alone(&["pool", "check", path.to_str().unwrap(), "--json"]);
    assert_eq!(check.status.code(), Some(1));
    assert_eq!(document(&check)["error"]["code"], "corrupt");
    // Restored, it is imported under its own name without a restart.
    std::fs::write(&path, &whole).unwrap();
    site.ok(&format!("pool import bad --path {}", path.display()));
    assert!(site.http("/healthz").starts_with("HTTP/1.1 200"));
}

#[test]
fn systemd_is_notified_and_logs_are_json_if_wanted() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("notify");
    let notified = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    notified.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let read_notifications = move || {
        let mut buffer = [0; 4096];
        let length = notified.recv(&mut buffer).unwrap();
        text(&buffer[..length])
    };
    let mut site = Site::new(&root.path().join("a"), "a");
    site.environment = vec![
        ("NOTIFY_SOCKET".into(), path.to_str().unwrap().into()),
        ("WATCHDOG_USEC".into(), "300000".into()),
    ];
    std::fs::create_dir(&site.dir).unwrap();
    std::fs::write(site.dir.join("farside.toml"), "log_format = \"json\"\n").unwrap();
    site.restart();
    let mut notifications = read_notifications();
    while !notifications.contains("READY=1") {
        notifications = read_notifications();
    }
    assert!(notifications.contains("STATUS=farsided a ready"), "{notifications}");
    while !read_notifications().contains("WATCHDOG=1") {}
    assert_eq!(site.stop(), Some(0));
    while !read_notifications().contains("STOPPING=1") {}
    for line in site.log().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["timestamp"].is_string() && line["level"].is_string(), "{line}");
    }
}
