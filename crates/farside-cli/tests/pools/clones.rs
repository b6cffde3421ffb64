//! Clones and recovery drills on real daemons: the replica is tried while it is mirrored, and neither notices.

use std::process::Command;

use crate::support::{Pair, Site, check_pool, eventually, status, text};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

fn put(site: &Site, export: &str, offset: u64, byte: u8) {
    let mut host = site.nbd(export);
    host.write(offset, &[byte; 64 << 10]).unwrap();
    host.flush().unwrap();
    drop(host);
    no_writers(site, export);
}

/// The server sees the end of a connection in its own time.
fn no_writers(site: &Site, volume: &str) {
    eventually("the hosts are gone", || site.json(&format!("volume status {volume}"))["writers"] == 0);
}

/// Writes by the URI that a drill names, with `qemu-io` where there is one.
fn put_by_uri(site: &Site, drill: &Value, offset: u64, byte: u8) {
    let (uri, name) = (drill["uri"].as_str().unwrap(), drill["name"].as_str().unwrap());
    let write = format!("write -P {byte} {offset} 64k");
    match Command::new("qemu-io").args(["-f", "raw", "-c", &write, "-c", "flush", uri]).output() {
        Ok(wrote) => {
            let said = text(&wrote.stdout) + &text(&wrote.stderr);
            assert!(wrote.status.success() && said.contains("wrote 65536/65536"), "{said}");
            no_writers(site, name);
        }
        Err(error) if std::env::var_os("FARSIDE_REQUIRE_TOOLS").is_none() => {
            eprintln!("**** qemu-io is not used: {error}");
            put(site, name, offset, byte);
        }
        Err(error) => panic!("qemu-io: {error}"),
    }
}

fn byte_at(site: &Site, export: &str, offset: u64) -> u8 {
    site.nbd(export).read_all()[offset as usize]
}

/// Deletes a volume, once the server has seen the end of all connections to it.
fn delete(site: &Site, volume: &str) {
    eventually("it can be deleted", || {
        site.farside(&format!("volume delete {volume} --yes")).status.success()
    });
}

fn names(volumes: &Value) -> Vec<&str> {
    volumes.as_array().unwrap().iter().map(|volume| volume["name"].as_str().unwrap()).collect()
}

#[test]
fn a_replica_is_drilled_while_it_is_mirrored() {
    let mut pair = Pair::start();
    let (a, b) = (&pair.a, &pair.b);
    pair.mirror(16 * MIB);
    assert!(b.fails(4, "mirror drill q/v").contains("holds nothing yet"));
    put(a, "p/v", 0, 1);
    put(a, "p/v", 8 * MIB, 2);
    b.ok("mirror initialize q/v");
    a.ok("snapshot create p/v@monday");
    put(a, "p/v", 0, 3);
    b.ok("mirror update q/v");
    let shown = status(b, "q/v");
    let before = b.nbd("q/v").read_all();

    // What it is of is what the replica shows, and nothing is copied.
    let drill = b.json("mirror drill q/v");
    assert_eq!(
        (&drill["replica"], &drill["snapshot"], &drill["run"]),
        (&json!("q/v"), &shown["current_snapshot"], &Value::Null)
    );
    let name = drill["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("q/v-drill-2"), "{name}");
    let clone = b.json(&format!("volume status {name}"));
    assert_eq!(
        (&clone["occupied_bytes"], &clone["size_bytes"], &clone["snapshots"]),
        (&json!(0), &json!(16 * MIB), &json!(0))
    );
    assert_eq!((&clone["writable"], &clone["replica"]), (&json!(true), &json!(false)));
    assert_eq!(clone["origin"], json!(format!("q/v@{}", shown["current_snapshot"].as_str().unwrap())));
    assert_eq!((&clone["origin_exists"], &clone["origin_created_at"]), (&json!(true), &drill["point"]));
    assert!(b.ok(&format!("volume status {name}")).contains("clone of q/v@"));
    assert!(
        drill["age_seconds"].as_f64().unwrap() >= 0.0 && drill["duration_seconds"].as_f64().unwrap() > 0.0
    );
    assert_eq!(b.nbd(&name).read_all(), before);

    // A host of the drill writes; the mirror goes on below it, and the replica is its source's.
    put_by_uri(b, &drill, 0, 90);
    put(a, "p/v", 4 * MIB, 4);
    b.ok("mirror update q/v");
    b.ok("mirror update q/v");
    assert_eq!(b.nbd("q/v").read_all(), a.nbd("p/v").read_all());
    assert_eq!([0, 4 * MIB, 8 * MIB].map(|at| byte_at(b, &name, at)), [90, 0, 2]);
    assert!(b.json(&format!("volume status {name}"))["occupied_bytes"].as_u64().unwrap() >= 64 << 10);

    // At an earlier point, under a name; and a clone of a clone.
    let earlier = b.json("mirror drill q/v early --at monday");
    assert_eq!((&earlier["name"], &earlier["snapshot"]), (&json!("q/early"), &json!("monday")));
    assert_eq!(byte_at(b, "q/early", 0), 1);
    b.ok("snapshot create q/early@own");
    let second = b.json("clone q/early@own q/second");
    assert_eq!((&second["name"], &second["origin"]), (&json!("q/second"), &json!("q/early@own")));
    assert!(b.ok("volume list").contains("q/early@own"));

    // Exit codes of the contract.
    b.fails(3, "clone q/v@absent q/x");
    b.fails(3, "clone q/absent@monday q/x");
    b.fails(3, "mirror drill q/early");
    b.fails(3, "mirror drill q/v --at absent");
    assert!(b.fails(4, "clone q/v@monday q/early").contains("q/early exists already"));
    b.fails(4, "mirror drill q/v early");
    assert!(b.fails(2, "clone q/v@monday other/x").contains("stays in the pool"));
    b.fails(2, "mirror drill q/v --timeout 1m");
    assert!(a.fails(3, "mirror drill p/v").contains("no replica"));

    // Its origin may go, and so may the clones, in any order.
    let plan = b.json("snapshot delete q/v@monday --plan");
    assert!(plan["would"].to_string().contains("q/early"), "{plan}");
    b.ok("snapshot delete q/v@monday --yes");
    assert_eq!(b.json("volume status q/early")["origin_exists"], false);
    assert_eq!(b.json("volume delete q/early --plan")["lost_bytes"], 0, "all of it is its origin's too");
    delete(b, "q/early");
    assert_eq!(byte_at(b, "q/second", 0), 1);
    delete(b, &name);
    delete(b, "q/second");
    assert_eq!(names(&b.json("volume list")), ["q/v"]);
    put(a, "p/v", 12 * MIB, 5);
    b.ok("mirror update q/v");
    assert_eq!(b.nbd("q/v").read_all(), a.nbd("p/v").read_all());

    // A replica that was broken off shows what hosts write: only a snapshot of it can be cloned.
    b.ok("mirror break q/v --yes");
    assert!(b.fails(4, "mirror drill q/v").contains("broken off"));
    b.ok("snapshot create q/v@now");
    b.ok("mirror drill q/v after --at now");
    assert_eq!(pair.b.stop(), Some(0));
    check_pool(&pair.root.path().join("q.pool"));
}

#[test]
fn a_drill_runs_a_command_and_leaves_nothing() {
    let mut pair = Pair::start();
    let b = &pair.b;
    pair.mirror(4 * MIB);
    put(&pair.a, "p/v", 0, 7);
    b.ok("mirror initialize q/v");
    let point = b.json("snapshot list q/v").as_array().unwrap().last().unwrap()["created_at"].clone();
    let seen = pair.root.path().join("seen");
    let run = |arguments: &str, script: &str| {
        b.command(&format!("mirror drill q/v {arguments}"))
            .args(["--json", "--run", script])
            .output()
            .unwrap()
    };
    let only_the_replica = || assert_eq!(names(&b.json("volume list")), ["q/v"]);

    let script = format!(
        "echo to stdout; echo \"$FARSIDE_DRILL_VOLUME $FARSIDE_DRILL_POINT $FARSIDE_DRILL_EXPORT\" > {}",
        seen.display()
    );
    let output = run("tried", &script);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("to stdout"), "the document alone is printed to stdout");
    let drill: Value = serde_json::from_slice(&output.stdout).unwrap();
    let told = format!("q/tried {} {}\n", point.as_str().unwrap(), drill["uri"].as_str().unwrap());
    assert_eq!(std::fs::read_to_string(&seen).unwrap(), told);
    assert_eq!(drill["point"], point);
    let ran = &drill["run"];
    assert_eq!(
        (&ran["result"], &ran["exit_status"], &ran["deleted"]),
        (&json!("ok"), &json!(0), &json!(true))
    );
    assert!(ran["recovery_seconds"].as_f64().unwrap() >= ran["duration_seconds"].as_f64().unwrap());
    only_the_replica();

    let outcome = |output: &std::process::Output| {
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let drill: Value = serde_json::from_slice(&output.stdout).unwrap();
        (drill["run"]["result"].clone(), drill["run"]["exit_status"].clone(), drill["run"]["deleted"].clone())
    };
    assert_eq!(outcome(&run("", "exit 3")), (json!("failed"), json!(3), json!(true)));
    only_the_replica();
    // What it started is ended with it.
    let slow = format!("sleep 600 & echo $! > {}; wait", seen.display());
    assert_eq!(outcome(&run("--timeout 1s", &slow)), (json!("timed-out"), Value::Null, json!(true)));
    only_the_replica();
    let left: i32 = std::fs::read_to_string(&seen).unwrap().trim().parse().unwrap();
    eventually("what it started has ended", || is_dead(left));

    // Somebody deletes the clone meanwhile, and its name is another volume's: that one stays. A clone that was renamed goes.
    let farside = format!("{} --data-dir {}", crate::support::FARSIDE, b.dir.display());
    let volume = "\"$FARSIDE_DRILL_VOLUME\"";
    let again =
        format!("{farside} volume delete {volume} --yes && {farside} volume create {volume} --size 1M");
    let output = run("again", &again);
    assert_eq!(outcome(&output), (json!("ok"), json!(0), json!(false)));
    assert!(text(&output.stderr).contains("q/again was gone"), "{}", text(&output.stderr));
    assert_eq!(b.json("volume status q/again")["size_bytes"], json!(MIB));
    delete(b, "q/again");
    let output = run("named", &format!("{farside} volume rename {volume} q/other"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    only_the_replica();

    // Somebody ends the client: first its command, then its clone.
    std::fs::remove_file(&seen).unwrap();
    let waiting = format!("echo here > {}; sleep 600", seen.display());
    let mut command = b.command("mirror drill q/v --json");
    command.args(["--run", &waiting]).stdout(std::process::Stdio::piped());
    let client = command.spawn().unwrap();
    eventually("the command runs", || seen.exists());
    let pid = rustix::process::Pid::from_raw(client.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let output = client.wait_with_output().unwrap();
    assert_eq!(outcome(&output), (json!("interrupted"), Value::Null, json!(true)));
    only_the_replica();
    // Killed, the client deletes nothing: the daemon does, once nobody has it open, and also after it was killed itself.
    for kills_daemon in [false, true] {
        let _ = std::fs::remove_file(&seen);
        let holding = format!("echo $$ > {}; exec sleep 600", seen.display());
        let mut command = pair.b.command("mirror drill q/v left --lease 2s");
        let mut client = command.args(["--run", &holding]).spawn().unwrap();
        eventually("the command runs", || seen.exists());
        // Renewed for longer than the lease.
        std::thread::sleep(std::time::Duration::from_millis(3500));
        assert!(names(&pair.b.json("volume list")).contains(&"q/left"));
        client.kill().unwrap();
        client.wait().unwrap();
        let of_command: i32 = std::fs::read_to_string(&seen).unwrap().trim().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(of_command).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        if kills_daemon {
            pair.b.kill();
            pair.b.restart();
            // It has a minute again; that it is remembered is enough here.
            let name = &pair.b.json("volume status q/left")["name"];
            assert_eq!(name, "q/left");
            pair.b.ok("volume delete q/left --yes");
        } else {
            eventually("the volume is deleted", || names(&pair.b.json("volume list")) == ["q/v"]);
        }
    }
    let log = pair.b.json("mirror log q/v");
    let drills: Vec<&Value> =
        log.as_array().unwrap().iter().filter(|line| line["event"] == "drill").collect();
    assert_eq!(drills.len(), 6, "each that came to its end: {log}");
    assert!(drills[0]["reason"].as_str().unwrap().contains("recovery point"), "{log}");
    assert_eq!(pair.b.stop(), Some(0));
    check_pool(&pair.root.path().join("q.pool"));
}

/// Whether a process has ended, though nobody may have waited for it yet.
fn is_dead(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |stat| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}
