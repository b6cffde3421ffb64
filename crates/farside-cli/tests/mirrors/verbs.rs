//! Two real daemons: pairing, mirroring, taking over; and what must not hurt either.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{POOL_BYTES, Pair, Site, eventually, status, text};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

/// Writes `length` bytes that do not compress.
fn fill(site: &Site, export: &str, offset: u64, length: usize, seed: u64) {
    use rand::{Rng, SeedableRng};
    let mut bytes = vec![0; length];
    rand::rngs::StdRng::seed_from_u64(seed).fill(&mut bytes[..]);
    let mut host = site.nbd(export);
    for (index, part) in bytes.chunks(MIB as usize).enumerate() {
        host.write(offset + index as u64 * MIB, part).unwrap();
    }
    host.flush().unwrap();
}

fn keys(document: &Value) -> Vec<&str> {
    document.as_object().unwrap().keys().map(String::as_str).collect()
}

/// The levels account for all that changed and all that travelled.
fn adds_up(record: &Value) {
    let of = |value: &Value| value.as_u64().unwrap();
    let levels = record["levels"].as_object().unwrap();
    assert_eq!(levels.len(), 5, "{record}");
    let sum = |which: &str| levels.values().map(|level| of(&level[which])).sum::<u64>();
    let known_bytes = of(&levels["known"]["in_bytes"]);
    assert_eq!(sum("in_bytes"), of(&record["changed_bytes"]) + known_bytes, "{record}");
    let wire_bytes = of(&record["wire_bytes_sent"]) + of(&record["wire_bytes_received"]);
    assert!(of(&record["overhead_bytes"]) > 0, "{record}");
    assert_eq!(sum("out_bytes") + of(&record["overhead_bytes"]), wire_bytes, "{record}");
}

#[test]
fn a_volume_is_mirrored_and_taken_over() {
    let mut pair = Pair::start();
    let (a, b) = (&pair.a, &pair.b);
    a.ok("volume create p/v --size 32M");

    // Nothing without a right; the words of a right need no volume.
    assert!(b.fails(1, "mirror create a:p/v q/v").contains("peer allow"));
    b.fails(3, "mirror create nobody:p/v q/v");
    assert_eq!(
        a.json("peer allow b p/v p/later --reverse")["rights"][0],
        json!({"volume": "p/later", "reverse": true, "fence": false, "recorded": false})
    );
    b.ok("volume create q/v --size 32M");
    let host = b.nbd("q/v");
    assert!(b.fails(4, "mirror create a:p/v q/v").contains("NBD"));
    drop(host);
    eventually("the host is gone", || b.farside("mirror create a:p/v q/v").status.success());
    b.fails(4, "mirror create a:p/v q/v");
    b.fails(4, "mirror update q/v");
    assert_eq!(status(b, "q/v")["state"], "uninitialized");
    assert_eq!(status(b, "q/v")["lag_seconds"], Value::Null);
    b.fails(4, "snapshot create q/v@nothing");

    // The first copy brings earlier snapshots too.
    fill(a, "p/v", 0, 8 << 20, 1);
    a.ok("snapshot create p/v@one");
    b.ok("mirror initialize q/v");
    b.fails(4, "mirror initialize q/v");
    assert_eq!(a.nbd("p/v").read_all(), b.nbd("q/v").read_all());
    assert_eq!(a.nbd("p/v@one").read_all(), b.nbd("q/v@one").read_all());
    assert!(b.nbd("q/v").read_only);

    // An update: only what changed is read; a reader keeps its point in time.
    let mut reader = b.nbd("q/v");
    let before = reader.read_all();
    fill(a, "p/v", MIB, 1 << 20, 2);
    a.ok("snapshot create p/v@two");
    let operation = b.json("mirror update q/v");
    assert_eq!((&operation["state"], &operation["record"]["changed_bytes"]), (&json!("done"), &json!(MIB)));
    assert_eq!(operation["record"]["source_read_bytes"], json!(MIB));
    assert_eq!(reader.read_all(), before);
    assert_eq!(a.nbd("p/v").read_all(), b.nbd("q/v").read_all());

    // For cron: one line, and an exit status.
    let said = text(&b.farside("mirror check").stdout);
    assert!(said.starts_with("1 replica is near enough; the furthest behind is q/v, "), "{said}");
    b.ok("mirror check --max-lag 1h q/v");
    eventually("it is later than this", || !b.farside("mirror check --max-lag 500ms").status.success());
    assert!(b.fails(1, "mirror check --max-lag 500ms q/v").contains("q/v is "));
    assert!(a.ok("mirror check").contains("the furthest behind is b:q/v"));
    assert!(b.fails(3, "mirror check q/nothing").contains("is in no mirror"));

    // Shapes of the contract.
    let mirror = status(b, "q/v");
    for key in [
        "id",
        "name",
        "role",
        "source",
        "destination",
        "state",
        "why",
        "lag_seconds",
        "objective_seconds",
        "current_snapshot",
        "content_root",
        "base_snapshot",
        "last_proven_at",
        "schedule",
        "throttle",
        "transfer",
    ] {
        assert!(keys(&mirror).contains(&key), "{key} is missing: {mirror}");
    }
    assert_eq!(
        (&mirror["role"], &mirror["source"], &mirror["state"]),
        (&json!("destination"), &json!("a:p/v"), &json!("mirrored"))
    );
    let root = a.json("snapshot list p/v").as_array().unwrap().last().unwrap()["content_root"].clone();
    assert_eq!(mirror["content_root"], root);
    let source = status(a, "p/v");
    assert_eq!(
        (&source["role"], &source["destination"], &source["id"]),
        (&json!("source"), &json!("b:q/v"), &mirror["id"])
    );
    let history = b.json("mirror history q/v");
    assert_eq!(history.as_array().unwrap().len(), 2);
    assert_eq!((&history[0]["kind"], &history[1]["kind"]), (&json!("update"), &json!("initialize")));
    for key in [
        "id",
        "kind",
        "result",
        "reason",
        "started_at",
        "ended_at",
        "duration_seconds",
        "base",
        "incremental",
        "content_root",
        "resumed",
        "snapshots",
        "changed_bytes",
        "deallocated_bytes",
        "source_read_bytes",
        "referenced_bytes",
        "delta_bytes",
        "literal_bytes",
        "wire_bytes_sent",
        "wire_bytes_received",
        "scan_seconds",
        "set_aside",
    ] {
        assert!(keys(&history[0]).contains(&key), "{key} is missing: {history}");
    }
    for record in history.as_array().unwrap() {
        adds_up(record);
    }
    assert_eq!(
        history[0]["levels"]["raw"],
        json!({"in_bytes": MIB, "out_bytes": MIB}),
        "it does not compress"
    );
    let table = b.ok("mirror history q/v --levels");
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["STARTED", "SNAPSHOT", "LEVEL", "IN", "OUT", "RATIO"]);
    assert_eq!(lines[1][2..], ["raw", "1.0", "MiB", "1.0", "MiB", "1.0x"]);
    assert_eq!(lines[2][2], "overhead");
    let metrics = b.http("/metrics");
    for name in ["in", "out"] {
        let counted =
            format!("farside_mirror_level_{name}_bytes_total{{mirror=\"q/v\",level=\"raw\"}} {}", 9 * MIB);
        assert!(metrics.contains(&counted), "{counted}: {metrics}");
    }
    let peers = b.json("peer list");
    for key in ["name", "id", "address", "state", "protocol", "rtt_seconds", "sent_bytes", "received_bytes"] {
        assert!(keys(&peers[0]).contains(&key), "{key} is missing: {peers}");
    }
    assert!(b.http("/metrics").contains("farside_mirror_lag_seconds{mirror=\"q/v\"}"));

    // The source's side.
    let held = a.json("mirror destinations p/v");
    assert_eq!((&held[0]["peer"], &held[0]["destination"]), (&json!("b"), &json!("q/v")));
    assert_eq!(held[0]["base_snapshot"], mirror["base_snapshot"]);
    a.fails(3, "mirror release p/other b");
    assert!(a.ok("mirror release p/v b --plan").contains("lost:"));
    assert_eq!(a.json("mirror destinations").as_array().unwrap().len(), 1, "a plan changes nothing");

    // A snapshot of a replica is as old as what it names; a base is not deleted.
    b.ok("snapshot create q/v@mine");
    let (listed, base) = (b.json("snapshot list q/v"), mirror["base_snapshot"].as_str().unwrap());
    let of = |name: &str| listed.as_array().unwrap().iter().find(|s| s["name"] == name).unwrap().clone();
    assert_eq!(
        (&of("mine")["created_at"], &of("mine")["content_root"]),
        (&of(base)["created_at"], &of(base)["content_root"])
    );
    assert!(b.fails(4, &format!("snapshot delete q/v@{base} --yes")).contains(&format!("q/v@{base}")));
    b.ok("snapshot delete q/v@mine --yes");

    // Quiet, and what stands on a mirror stays.
    b.ok("mirror quiesce q/v");
    b.fails(4, "mirror update q/v");
    b.ok("mirror resume q/v");
    b.fails(4, "volume delete q/v --yes");
    b.fails(4, "volume rename q/v q/w");
    a.fails(4, "volume delete p/v --yes");
    b.fails(4, "pool delete q --yes");

    // The source dies. Break asks nobody, drops the pinned reader, and what was replicated is there.
    let last = b.nbd("q/v").read_all();
    pair.a.kill();
    let b = &pair.b;
    assert!(b.ok("mirror break q/v --plan").contains("lost:"));
    assert_eq!(status(b, "q/v")["state"], "mirrored", "a plan changes nothing");
    b.ok("mirror break q/v");
    assert_eq!(status(b, "q/v")["state"], "broken-off");
    b.fails(4, "mirror break q/v");
    eventually("the pinned reader is dropped", || reader.read(0, &mut [0; 4096]).is_err());
    let mut host = b.nbd("q/v");
    assert!(!host.read_only);
    assert_eq!(host.read_all(), last);
    host.write(0, &[9; 4096]).unwrap();
    host.flush().unwrap();
    b.fails(4, "mirror update q/v");
    b.ok("mirror delete q/v");
    b.fails(3, "mirror status q/v");
    assert_eq!(b.json("mirror history q/v").as_array().unwrap().len(), 2, "history outlives its mirror");
}

#[test]
fn a_name_that_a_person_gave_on_the_replica_does_not_stop_updates() {
    let pair = Pair::start();
    pair.mirror(4 * MIB);
    let (a, b) = (&pair.a, &pair.b);
    fill(a, "p/v", 0, 1 << 20, 1);
    b.ok("mirror initialize q/v");
    b.ok("snapshot create q/v@daily");
    fill(a, "p/v", 0, 1 << 20, 2);
    b.ok("mirror update q/v");
    a.ok("snapshot create p/v@daily");
    fill(a, "p/v", 0, 1 << 20, 3);
    b.ok("mirror update q/v");
    assert_eq!(a.nbd("p/v").read_all(), b.nbd("q/v").read_all());
    let listed = b.json("snapshot list q/v");
    let dailies =
        listed.as_array().unwrap().iter().filter(|s| s["name"].as_str().unwrap().starts_with("daily"));
    assert_eq!(dailies.count(), 2, "{listed}");
}

#[test]
fn the_base_of_a_removed_peer_can_be_released() {
    let pair = Pair::start();
    pair.mirror(4 * MIB);
    let (a, b) = (&pair.a, &pair.b);
    fill(a, "p/v", 0, 1 << 20, 1);
    b.ok("mirror initialize q/v");
    assert!(a.ok("peer remove b --plan").contains("farside mirror release p/v"));
    a.ok("peer remove b --yes");
    let held = a.json("mirror destinations");
    let key = held[0]["peer"].as_str().unwrap();
    a.fails(3, "mirror release p/v b");
    a.fails(3, &format!("mirror release p/v {}", &key[..4]));
    a.fails(4, "volume delete p/v --yes");
    a.ok(&format!("mirror release p/v {key}"));
    assert_eq!(a.json("mirror destinations").as_array().unwrap().len(), 0);
    a.ok("volume delete p/v --yes");
}

#[test]
fn what_a_later_update_has_made_good_is_no_failure_to_wait_for() {
    let mut pair = Pair::start();
    pair.mirror(16 * MIB);
    pair.b.ok("mirror initialize q/v");
    pair.a.kill();
    pair.b.fails(1, "mirror update q/v --timeout 1s");
    // The first may come in time to wait for the very update that fails.
    pair.b.fails(1, "mirror wait q/v");
    let said = pair.b.fails(1, "mirror wait q/v");
    assert!(said.contains("the last update of q/v that was asked for failed"), "{said}");
    pair.a.restart();
    pair.b.ok("mirror set q/v --every 1s");
    eventually("it is made good", || pair.b.farside("mirror wait q/v").status.success());
    let said = pair.b.ok("mirror wait q/v");
    assert!(said.contains("failed, and it was updated since"), "{said}");
    // Nor is what the schedule has replaced since called what it holds.
    pair.b.ok("mirror update q/v");
    eventually("the schedule has brought another", || {
        pair.b.ok("mirror wait q/v").contains("has ended well, at ")
    });
}

#[test]
fn it_follows_a_schedule_and_waits_for_a_lost_session() {
    let mut pair = Pair::start();
    pair.mirror(16 * MIB);
    fill(&pair.a, "p/v", 0, 1 << 20, 1);
    pair.b.ok("mirror initialize q/v");
    assert_eq!(pair.b.json("mirror set q/v --every 1s")["schedule"], "every 1s");
    fill(&pair.a, "p/v", MIB, 1 << 20, 2);
    let wanted = pair.a.nbd("p/v").read_all();
    eventually("a scheduled update", || pair.b.nbd("q/v").read_all() == wanted);
    pair.b.fails(2, "mirror set q/v --every 1ms");
    assert_eq!(pair.b.json("mirror set q/v --every off")["schedule"], Value::Null);

    // Lost: --timeout bounds the wait, --no-wait does not wait at all.
    pair.a.kill();
    assert!(pair.b.fails(1, "mirror update q/v --timeout 1s").contains("session"));
    eventually("the loss is seen", || pair.b.json("peer list")[0]["state"] == "disconnected");
    // Nor does a swap outlast its own time where a schedule, which has more patience, waits already: roles do not change by themselves
    // long after somebody has given up.
    pair.b.ok("mirror set q/v --every 1s");
    eventually("the schedule waits", || status(&pair.b, "q/v")["state"] == "queued");
    let began = Instant::now();
    assert!(pair.b.fails(1, "mirror update q/v --timeout 1s").contains("session"));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let began = Instant::now();
    let said = pair.b.fails(1, "mirror swap q/v --timeout 1s --yes");
    assert!(said.contains("no role was changed"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    pair.b.ok("mirror set q/v --every off");
    // What the schedule asked for may just have given up.
    let _ = pair.b.farside("mirror abort q/v");
    let waiting =
        pair.b.command("mirror update q/v --timeout 30s --json").stdout(Stdio::piped()).spawn().unwrap();
    eventually("it waits", || status(&pair.b, "q/v")["state"] == "queued");
    pair.a.restart();
    let output = waiting.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stdout));

    // A client that is interrupted interrupts nothing.
    let before = pair.b.json("mirror history q/v").as_array().unwrap().len();
    fill(&pair.a, "p/v", 0, 8 << 20, 3);
    let mut client = pair.b.command("mirror update q/v").spawn().unwrap();
    eventually("it is asked for", || {
        status(&pair.b, "q/v")["state"] != "mirrored"
            || pair.b.json("mirror history q/v").as_array().unwrap().len() > before
    });
    client.kill().unwrap();
    client.wait().unwrap();
    let wanted = pair.a.nbd("p/v").read_all();
    eventually("it goes on", || pair.b.nbd("q/v").read_all() == wanted);
    assert_eq!(pair.b.json("mirror update q/v --no-wait")["kind"], "update");
}

#[test]
fn pairing_wants_the_right_code_once() {
    let pair = Pair::start();
    let (a, b) = (&pair.a, &pair.b);
    // Of a peer that is connected it is said that it is paired, whatever the code.
    let c = Site::start(pair.root.path(), "c");
    let join = |code: &str| {
        let mut command = c.command(&format!("peer join {} --name again", a.published("peer.addr")));
        let mut child =
            command.stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(code.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(join("").0, Some(2));
    assert_eq!(join("nonsense").0, Some(2));
    let used = std::fs::read_to_string(pair.root.path().join("code")).unwrap();
    let (code, said) = join(&used);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("used"), "{said}");
    let expired = a.ok("peer invite --valid 1ms");
    let (code, said) = join(&expired);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("expired"), "{said}");
    // The code of one site at the listener of another.
    let foreign = c.ok("peer invite");
    let (code, said) = join(&foreign);
    assert_eq!(code, Some(1), "{said}");

    assert_eq!(b.json("peer set a --name north")["name"], "north");
    b.fails(2, "peer set north --address nowhere");
    b.fails(3, "peer set a --name x");
    assert_eq!(b.json("peer set north --name a --address off")["address"], Value::Null);
    b.ok(&format!("peer set a --address {}", a.published("peer.addr")));

    // Removed, the peer is nobody; both logs tell.
    a.ok("volume create p/v --size 1M");
    a.ok("peer allow b p/v");
    assert!(a.ok("peer remove b --plan").contains("would:"));
    a.ok("peer remove b --yes");
    a.fails(3, "peer status b");
    a.fails(3, "peer allow b p/v");
    b.fails(1, "mirror create a:p/v q/v");
    eventually("both logs tell", || {
        a.log().contains("not pinned") && b.log().contains("Pair the sites again")
    });
}

#[test]
fn a_full_destination_pool_changes_nothing() {
    let pair = Pair::with_pools(POOL_BYTES, 64 * MIB);
    pair.mirror(128 * MIB);
    let (a, b) = (&pair.a, &pair.b);
    fill(a, "p/v", 0, 4 << 20, 1);
    b.ok("mirror initialize q/v");
    let before = b.nbd("q/v").read_all();
    fill(a, "p/v", 0, 100 << 20, 2);
    // Whoever asks, and however often: nothing of it travels.
    for _ in 0..2 {
        let said = b.fails(1, "mirror update q/v");
        assert!(said.contains("100.0 MiB") && said.contains("has room for"), "{said}");
        let record = &b.json("mirror history q/v")[0];
        assert_eq!(record["result"], "failed");
        assert!(record["wire_bytes_received"].as_u64().unwrap() < 32 << 10, "{record}");
    }
    assert!(status(b, "q/v")["why"].as_str().unwrap().contains("replicas.reserve_percent"));
    assert_eq!(b.nbd("q/v").read_all(), before, "the replica is as it was");
    // Hosts of that pool still have room: staging stops before they do.
    b.ok("volume create q/host --size 1M");
    fill(b, "q/host", 0, 512 << 10, 3);
    // With less to carry the next one arrives.
    let mut host = a.nbd("p/v");
    host.trim(4 << 20, 124 << 20).unwrap();
    host.flush().unwrap();
    drop(host);
    b.ok("mirror update q/v");
    assert_eq!(a.nbd("p/v").read_all(), b.nbd("q/v").read_all());
}

/// Names of the snapshots that are kept at `site` for the only mirror of `p/v`, with the reasons.
fn kept(site: &Site) -> Vec<(String, String)> {
    let kept = site.json("mirror destinations p/v")[0]["kept"].as_array().unwrap().clone();
    let of = |value: &Value| value.as_str().unwrap().to_owned();
    kept.iter().map(|k| (of(&k["name"]), of(&k["why"]))).collect()
}

#[test]
fn at_a_full_source_a_snapshot_that_has_no_room_at_the_destination_can_be_deleted() {
    let pair = Pair::with_pools(96 * MIB, 64 * MIB);
    pair.mirror(96 * MIB);
    let (a, b) = (&pair.a, &pair.b);
    fill(a, "p/v", 0, 4 << 20, 1);
    b.ok("mirror initialize q/v");
    fill(a, "p/v", 4 * MIB, 70 << 20, 2);
    a.ok("snapshot create p/v@large");
    assert!(b.fails(1, "mirror update q/v").contains("has room for"));
    let mut host = a.nbd("p/v");
    let full = (0..96).any(|at| host.write(at * MIB, &[at as u8 + 1; MIB as usize]).is_err());
    assert!(full, "the pool is full");
    drop(host);
    b.fails(1, "mirror update q/v");
    // The base may have gone as well: what is kept for mirrors goes before hosts have no room.
    eventually("it is not kept", || kept(a).iter().all(|k| k.0 != "large"));
    a.ok("snapshot delete p/v@large --yes");
    eventually("there is room again", || a.nbd("p/v").write(0, &[9; MIB as usize]).is_ok());
}

#[test]
fn destinations_shows_what_is_kept_and_why() {
    let (pair, relay) = Pair::through_relay();
    pair.mirror(16 * MIB);
    let (a, b) = (&pair.a, &pair.b);
    fill(a, "p/v", 0, 1 << 20, 1);
    b.ok("mirror initialize q/v");
    fill(a, "p/v", 0, 8 << 20, 2);
    a.ok("snapshot create p/v@monday");
    relay.limit(Some(200 << 10));
    let mut update =
        b.command("mirror update q/v").stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let is_kept = |why: &str| kept(a).iter().any(|k| k.0 == "monday" && k.1 == why);
    eventually("it travels", || is_kept("transfer"));
    let said = a.fails(4, "snapshot delete p/v@monday --yes");
    assert!(said.contains("farside mirror destinations p/v"), "{said}");
    assert!(a.ok("mirror destinations p/v").contains("monday"));
    relay.limit(None);
    assert!(update.wait().unwrap().success());
    let kept = kept(a);
    assert!(kept.len() == 1 && kept[0].1 == "base", "{kept:?}");
}

#[test]
fn unknown_peers_get_nothing_and_hurt_nobody() {
    use rand::{Rng, SeedableRng};
    let pair = Pair::start();
    pair.mirror(4 * MIB);
    let mut random = rand::rngs::StdRng::seed_from_u64(crate::support::seed());
    for round in 0..40 {
        let mut garbage = vec![0; random.random_range(1..5000)];
        random.fill(&mut garbage[..]);
        if round % 4 == 0 {
            garbage[0] = 0x16; // as TLS would begin
        }
        let mut peer = std::net::TcpStream::connect(pair.a.published("peer.addr")).unwrap();
        // Whoever is refused may find the connection closed in the middle.
        let _ = peer.write_all(&garbage);
        let _ = peer.shutdown(std::net::Shutdown::Write);
        let _ = peer.read_to_end(&mut Vec::new());
        let mut host = std::os::unix::net::UnixStream::connect(pair.a.nbd_socket()).unwrap();
        let _ = host.write_all(&garbage);
        let _ = host.shutdown(std::net::Shutdown::Write);
        let _ = host.read_to_end(&mut Vec::new());
    }
    fill(&pair.a, "p/v", 0, 1 << 20, 1);
    pair.b.ok("mirror initialize q/v");
    assert_eq!(pair.a.nbd("p/v").read_all(), pair.b.nbd("q/v").read_all());
    pair.a.has_logged("refused a connection");
}

#[test]
fn a_replica_is_found_and_broken_without_the_state_database() {
    let mut pair = Pair::start();
    pair.mirror(4 * MIB);
    fill(&pair.a, "p/v", 0, 1 << 20, 1);
    pair.b.ok("mirror initialize q/v");
    let wanted = pair.b.nbd("q/v").read_all();
    pair.a.kill();
    pair.b.kill();
    for file in ["farside.db", "farside.db-wal", "farside.db-shm"] {
        let _ = std::fs::remove_file(pair.b.dir.join(file));
    }
    pair.b.restart();
    let path = pair.root.path().join("q.pool");
    pair.b.ok(&format!("pool import vault --path {}", path.display()));
    let found = status(&pair.b, "vault/v");
    assert_eq!((&found["state"], &found["role"]), (&json!("mirrored"), &json!("destination")));
    assert!(found["source"].as_str().unwrap().ends_with(":p/v"), "{found}");
    assert!(found["why"].as_str().unwrap().contains("no schedule"), "{found}");
    pair.b.ok("mirror break vault/v --yes");
    let mut host = pair.b.nbd("vault/v");
    assert!(!host.read_only);
    assert_eq!(host.read_all(), wanted);
}

#[test]
fn a_damaged_block_is_reported_hurts_nothing_else_and_is_repaired() {
    use std::os::unix::fs::FileExt;
    let mut pair = Pair::start();
    pair.mirror(4 * MIB);
    fill(&pair.a, "p/v", 0, 1 << 20, 1);
    pair.b.ok("mirror initialize q/v");
    let before = pair.b.nbd("q/v").read_all();
    fill(&pair.a, "p/v", MIB, 1 << 20, 2);
    let mut wanted = pair.a.nbd("p/v").read_all();
    assert_eq!(pair.a.stop(), Some(0));

    // One bit of one data block, found by its content; and all of superblock A.
    let path = pair.root.path().join("p.pool");
    let image = std::fs::read(&path).unwrap();
    let at = MIB as usize + 7 * 4096;
    let place = image.chunks(4096).position(|block| *block == wanted[at..at + 4096]).unwrap() * 4096;
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[image[place + 100] ^ 1], place as u64 + 100).unwrap();
    file.write_all_at(&[0; 4096], 0).unwrap();
    drop(file);

    let check = std::process::Command::new(crate::support::FARSIDE)
        .args(["pool", "check", "--json"])
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(check.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&check.stdout).unwrap();
    assert_eq!(found["error"]["code"], "corrupt");
    assert!(found["superblock_errors"][0].is_string() && found["superblock_errors"][1].is_null(), "{found}");
    assert!(found["findings"].as_array().unwrap().iter().any(|f| f["severity"] == "error"), "{found}");

    pair.a.restart();
    let mut host = pair.a.nbd("p/v");
    assert!(host.read(at as u64, &mut [0; 4096]).is_err(), "damage is an error, never wrong data");
    let mut neighbour = vec![0; 4096];
    host.read(at as u64 + 4096, &mut neighbour).unwrap();
    assert_eq!(neighbour, wanted[at + 4096..at + 8192]);
    let said = pair.b.fails(1, "mirror update q/v");
    assert!(said.contains("corruption"), "{said}");
    assert_eq!(pair.b.nbd("q/v").read_all(), before, "the replica is as it was");
    assert_eq!(pair.b.json("mirror history q/v")[0]["result"], "failed");
    assert!(pair.a.json("pool list")[0]["corrupt_blocks"].as_u64().unwrap() > 0);

    // A whole rewrite heals the block, and the next update arrives.
    wanted[at..at + 4096].fill(5);
    host.write(at as u64, &[5; 4096]).unwrap();
    host.flush().unwrap();
    pair.b.ok("mirror update q/v");
    assert!(pair.b.nbd("q/v").read_all() == wanted);
}

/// Nobody stopped the daemon, and nothing goes on.
#[test]
fn who_waits_for_an_update_hears_that_its_mirror_was_deleted() {
    let pair = Pair::start();
    pair.mirror(16 * MIB);
    let (a, b) = (&pair.a, &pair.b);
    b.ok("mirror initialize q/v");
    b.ok("mirror set q/v --throttle 1MB/s");
    fill(a, "p/v", 0, 8 << 20, 1);
    let mut update = b.command("mirror update q/v");
    let update = std::thread::spawn(move || update.output().unwrap());
    eventually("it travels", || b.json("mirror status q/v")[0]["transfer"]["done_bytes"].as_u64() > Some(0));
    b.ok("mirror delete q/v --yes");
    let said = update.join().unwrap();
    let said = String::from_utf8_lossy(&said.stderr);
    assert!(said.contains("the mirror was deleted") && !said.contains("goes on"), "{said}");
    let said = b.fails(3, "mirror wait q/v");
    assert!(said.contains("q/v is not part of a mirror"), "{said}");
}
