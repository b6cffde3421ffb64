//! Both directions of a mirror on real daemons: rollback, break at an earlier point, failover, what the former source sees
//! when it comes back, resync, roles that change and return, fences. Hosts are real NBD connections.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{Pair, Site, eventually, status};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// Writes `count` blocks that do not compress, from block `first` on.
fn put(site: &Site, export: &str, first: u64, count: u64, seed: u64) {
    use rand::{Rng, SeedableRng};
    let mut bytes = vec![0; (count * BLOCK) as usize];
    rand::rngs::StdRng::seed_from_u64(seed).fill(&mut bytes[..]);
    let mut host = site.nbd(export);
    for (index, part) in bytes.chunks(MIB as usize).enumerate() {
        host.write(first * BLOCK + index as u64 * MIB, part).unwrap();
    }
    host.flush().unwrap();
    drop(host);
    no_writers(site, export);
}

/// The server sees the end of a connection in its own time.
fn no_writers(site: &Site, volume: &str) {
    eventually("the hosts are gone", || site.json(&format!("volume status {volume}"))["writers"] == 0);
}

/// All of an export, read by `nbdcopy` where there is one.
fn image(site: &Site, export: &str) -> Vec<u8> {
    let file = site.dir.join("image");
    let uri = format!("nbd+unix:///{export}?socket={}", site.nbd_socket().display());
    match Command::new("nbdcopy").arg(uri).arg(&file).status() {
        Ok(copied) => {
            assert!(copied.success(), "nbdcopy of {export}");
            let bytes = std::fs::read(&file).unwrap();
            std::fs::remove_file(&file).unwrap();
            bytes
        }
        Err(error) if std::env::var_os("FARSIDE_REQUIRE_TOOLS").is_none() => {
            eprintln!("**** nbdcopy is not used: {error}");
            site.nbd(export).read_all()
        }
        Err(error) => panic!("nbdcopy: {error}"),
    }
}

/// A host that may write and stays: `qemu-io` where there is one.
enum Writer {
    Qemu(std::process::Child),
    Own(crate::support::nbd::Client),
}

impl Writer {
    fn start(site: &Site, volume: &str) -> Writer {
        let uri = format!("nbd+unix:///{volume}?socket={}", site.nbd_socket().display());
        let mut command = Command::new("qemu-io");
        command
            .args(["-f", "raw", &uri])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null());
        let writer = match command.spawn() {
            Ok(child) => Writer::Qemu(child),
            Err(error) if std::env::var_os("FARSIDE_REQUIRE_TOOLS").is_none() => {
                eprintln!("**** qemu-io is not used: {error}");
                Writer::Own(site.nbd(volume))
            }
            Err(error) => panic!("qemu-io: {error}"),
        };
        eventually("the host is there", || site.json(&format!("volume status {volume}"))["writers"] == 1);
        writer
    }

    fn end(self) {
        match self {
            // The end of its input ends it.
            Writer::Qemu(mut child) => {
                drop(child.stdin.take());
                assert!(child.wait().unwrap().success(), "qemu-io");
            }
            Writer::Own(client) => drop(client),
        }
    }
}

fn plan(site: &Site, arguments: &str) -> Value {
    site.json(&format!("{arguments} --plan"))
}

/// The snapshot with this property.
#[track_caller]
fn snapshot(site: &Site, volume: &str, which: impl Fn(&Value) -> bool) -> Value {
    let listed = site.json(&format!("snapshot list {volume}"));
    let found = listed.as_array().unwrap().iter().find(|s| which(s)).cloned();
    found.unwrap_or_else(|| panic!("no such snapshot: {listed}"))
}

/// `p/v` of 16 MiB at `a`, mirrored both ways as `q/v` at `b`, and initialized.
fn mirrored(allow: &str) -> Pair {
    let pair = Pair::start();
    pair.a.ok("volume create p/v --size 16M");
    pair.a.ok(&format!("peer allow b p/v {allow}"));
    pair.b.ok("mirror create a:p/v q/v");
    put(&pair.a, "p/v", 0, 512, 1);
    pair.b.ok("mirror initialize q/v");
    pair
}

#[test]
fn the_right_to_the_way_back_that_came_with_a_mirror_ends_with_it() {
    let pair = mirrored("--reverse");
    let (a, b) = (&pair.a, &pair.b);
    let right = |volume: &str, recorded: bool| json!([{"volume": volume, "reverse": true, "fence": false, "recorded": recorded}]);
    assert_eq!(b.json("peer status a")["rights"], right("q/v", true));
    assert!(b.ok("peer status a").contains("ends with the mirror"));
    b.ok("mirror delete q/v --yes");
    assert_eq!(b.json("peer status a")["rights"], json!([]));
    // A person's stays until a person takes it.
    assert_eq!(a.json("peer status b")["rights"], right("p/v", false));

    b.ok("peer allow a q/w --reverse");
    b.ok("mirror create a:p/v q/w");
    b.ok("mirror delete q/w --yes");
    assert_eq!(b.json("peer status a")["rights"], right("q/w", false));
}

#[test]
fn a_volume_is_rolled_back_and_forward_and_nothing_is_lost() {
    let pair = mirrored("");
    let (a, b) = (&pair.a, &pair.b);
    let monday = image(a, "p/v");
    a.ok("snapshot create p/v@monday");
    put(a, "p/v", 100, 10, 2);
    let damaged = image(a, "p/v");
    a.ok("snapshot list");

    // With a host that may write, nobody changes what it sees.
    let host = Writer::start(a, "p/v");
    for arguments in ["snapshot rollback p/v@monday --yes", "snapshot rollback p/v@monday"] {
        let said = a.fails(4, arguments);
        assert!(said.contains("1 NBD connection") && said.contains("disconnect"), "{said}");
    }
    assert!(plan(a, "snapshot rollback p/v@monday")["refused"].as_str().unwrap().contains("1 NBD"));
    assert_eq!(a.json("volume status p/v")["writers"], 1);
    host.end();
    no_writers(a, "p/v");
    a.fails(3, "snapshot rollback p/v@tuesday --yes");

    let planned = plan(a, "snapshot rollback p/v@monday");
    assert_eq!(
        (&planned["refused"], &planned["lost_blocks"], &planned["lost_bytes"], &planned["lost_seconds"]),
        (&Value::Null, &json!(0), &json!(0), &json!(0.0))
    );
    assert_eq!((&planned["kept_blocks"], &planned["kept_bytes"]), (&json!(10), &json!(10 * BLOCK)));
    assert!(planned["kept_as"].as_str().unwrap().contains("p/v@rescue"), "{planned}");
    let text = a.ok("snapshot rollback p/v@monday --plan");
    assert!(text.contains("lost:  nothing") && text.contains("10 blocks of 4 KiB (40.0 KiB)"), "{text}");
    assert_eq!(image(a, "p/v"), damaged, "a plan changes nothing");

    let done = a.json("snapshot rollback p/v@monday");
    let rescue = done["kept_as"].as_str().unwrap().to_owned();
    assert_eq!(image(a, "p/v"), monday);
    assert_eq!(image(a, &rescue), damaged);
    let name = rescue.split_once('@').unwrap().1;
    assert_eq!(snapshot(a, "p/v", |s| s["name"] == name)["on_main_line"], false);
    assert_eq!(a.json("volume status p/v")["side_branches"], 1);
    assert!(a.ok("snapshot list p/v").contains("side"));
    // The mirror follows, there and back again.
    b.ok("mirror update q/v");
    assert_eq!(image(b, "q/v"), monday);
    put(a, "p/v", 200, 1, 3);
    a.ok(&format!("snapshot rollback {rescue}"));
    assert_eq!(image(a, "p/v"), damaged);
    b.ok("mirror update q/v");
    assert_eq!(image(b, "q/v"), damaged);

    // A replica follows its source and nothing else; one that is taken over may choose its point.
    let said = b.fails(4, "snapshot rollback q/v@monday --yes");
    assert!(said.contains("farside mirror break q/v --at monday"), "{said}");
    b.fails(3, "mirror break q/v --at tuesday --yes");
    let mut reader = b.nbd("q/v");
    let planned = plan(b, "mirror break q/v --at monday");
    assert_eq!((&planned["kept_blocks"], &planned["lost_blocks"]), (&json!(10), &Value::Null), "{planned}");
    assert!(planned["lost_seconds"].as_f64().unwrap() > 0.0);
    let other = b.fails(2, "mirror break q/v --at q/other@monday --yes");
    assert!(other.contains("q/other"), "{other}");
    b.ok("mirror break q/v --at q/v@monday");
    eventually("readers of the replica are dropped", || reader.read(0, &mut [0; 4096]).is_err());
    assert_eq!(status(b, "q/v")["state"], "broken-off");
    assert_eq!(image(b, "q/v"), monday);
    // What the mirror had taken has a name that says what it is.
    let newer = snapshot(b, "q/v", |s| s["name"].as_str().unwrap().starts_with("rescue-"));
    assert_eq!(image(b, &format!("q/v@{}", newer["name"].as_str().unwrap())), damaged);
    assert_eq!(newer["on_main_line"], false);
    // Its mirror shows where it goes on from, whichever way it was moved there.
    let newer = newer["name"].as_str().unwrap();
    for point in [newer, "monday"] {
        no_writers(b, "q/v");
        b.ok(&format!("snapshot rollback q/v@{point} --yes"));
        assert_eq!(status(b, "q/v")["current_snapshot"], point);
    }
    put(b, "q/v", 0, 1, 4);

    // What a dormant mirror stands on stays, and the refusal says what to do.
    for arguments in ["volume delete q/v --yes", "volume rename q/v q/w"] {
        let said = b.fails(4, arguments);
        assert!(said.contains("farside mirror delete q/v"), "{said}");
    }
}

#[test]
fn sites_fail_over_come_back_and_change_roles() {
    let mut pair = mirrored("--reverse");
    assert_eq!(pair.b.json("peer status a")["rights"][0]["volume"], "q/v", "the way back is recorded");
    put(&pair.a, "p/v", 0, 7, 2);
    let lost = image(&pair.a, "p/v");

    // A dies with seven blocks that never arrived. Hosts go on at B.
    pair.a.kill();
    let planned = plan(&pair.b, "mirror break q/v");
    assert_eq!((&planned["lost_blocks"], &planned["lost_bytes"]), (&Value::Null, &Value::Null));
    assert!(planned["lost_seconds"].as_f64().unwrap() > 0.0);
    pair.b.ok("mirror break q/v");
    put(&pair.b, "q/v", 300, 5, 3);
    let taken_over = image(&pair.b, "q/v");

    // A comes back and hears of it: what differs here, and what can be done.
    pair.a.restart();
    let (a, b) = (&pair.a, &pair.b);
    eventually("the former source hears of it", || status(a, "p/v")["overtaken"] != Value::Null);
    let overtaken = status(a, "p/v");
    assert_eq!((&overtaken["state"], &overtaken["role"]), (&json!("broken-off"), &json!("source")));
    let figures = &overtaken["overtaken"];
    assert_eq!((&figures["diverged_blocks"], &figures["diverged_bytes"]), (&json!(7), &json!(7 * BLOCK)));
    assert!(figures["since"].is_string() && figures["reported_at"].is_string() && figures["fenced"] == false);
    let why = overtaken["why"].as_str().unwrap();
    for part in [
        "overtaken: b broke off q/v",
        "farside mirror resync p/v --from b:q/v",
        "farside mirror release p/v b",
    ] {
        assert!(why.contains(part), "{why}");
    }
    a.has_logged("OVERTAKEN");
    assert!(a.ok("mirror destinations p/v").contains("overtaken"));
    assert!(b.fails(4, "mirror update q/v").contains("broken off"));

    // A becomes the replica: refused while a host may write, then only the differences travel.
    let host = a.nbd("p/v");
    let said = a.fails(4, "mirror resync p/v --from b:q/v");
    assert!(said.contains("1 NBD connection"), "{said}");
    drop(host);
    no_writers(a, "p/v");
    let planned = plan(a, "mirror resync p/v --from b:q/v");
    assert_eq!((&planned["lost_blocks"], &planned["kept_blocks"]), (&json!(0), &json!(7)), "{planned}");
    assert_eq!(image(a, "p/v"), lost, "a plan changes nothing");
    let operation = a.json("mirror resync p/v --from b:q/v");
    assert_eq!((&operation["kind"], &operation["state"]), (&json!("resync"), &json!("done")));
    let changed = operation["record"]["changed_bytes"].as_u64().unwrap();
    assert!(changed <= 12 * BLOCK, "{operation}");
    assert_eq!(image(a, "p/v"), taken_over);
    assert!(a.nbd("p/v").read_only);
    let rescue = snapshot(a, "p/v", |s| s["name"].as_str().unwrap().starts_with("rescue"));
    assert_eq!(rescue["on_main_line"], false);
    assert_eq!(operation["record"]["set_aside"], json!([rescue["name"]]), "{operation}");
    assert_eq!(a.json("mirror history p/v")[0]["set_aside"], json!([rescue["name"]]));
    assert_eq!(image(a, &format!("p/v@{}", rescue["name"].as_str().unwrap())), lost);
    assert_eq!(status(a, "p/v")["role"], "destination", "the old side of the mirror is gone");
    put(b, "q/v", 310, 3, 4);
    a.ok("mirror update p/v");
    assert_eq!(image(a, "p/v"), image(b, "q/v"));

    // Back to the old roles by break and resync, without naming anything.
    a.ok("mirror break p/v");
    // Whoever asks anything of the one that was overtaken in its turn is told that first: not that it is the good one.
    eventually("b hears of it", || {
        b.fails(4, "mirror update q/v").contains("q/v is overtaken: a broke off p/v")
    });
    for verb in ["initialize q/v", "break q/v --yes", "swap q/v --yes", "quiesce q/v"] {
        let said = b.fails(4, &format!("mirror {verb}"));
        assert!(said.contains("q/v is overtaken: a broke off p/v"), "{verb}: {said}");
        assert!(!said.contains("hosts may write to the volume"), "{verb}: {said}");
    }
    put(a, "p/v", 20, 2, 5);
    put(b, "q/v", 330, 1, 9);
    no_writers(b, "q/v");
    let said = b.ok("mirror resync q/v");
    let rescue = snapshot(b, "q/v", |s| s["name"].as_str().unwrap().starts_with("rescue"));
    assert!(said.contains(&format!("q/v@{}", rescue["name"].as_str().unwrap())), "{said}");
    assert_eq!(image(b, "q/v"), image(a, "p/v"));
    put(a, "p/v", 30, 2, 6);
    b.ok("mirror update q/v");
    assert_eq!(image(b, "q/v"), image(a, "p/v"));

    // A planned change: refused while a host may write at the source, and then nothing has changed.
    let mut host = a.nbd("p/v");
    let said = b.fails(4, "mirror swap q/v --yes");
    assert!(said.contains("1 NBD connection"), "{said}");
    host.write(0, &[9; 4096]).unwrap();
    host.flush().unwrap();
    drop(host);
    no_writers(a, "p/v");
    let planned = plan(b, "mirror swap q/v");
    assert_eq!((&planned["lost_blocks"], &planned["lost_seconds"]), (&json!(0), &json!(0.0)));
    let before = image(a, "p/v");
    assert_eq!(b.json("mirror swap q/v")["kind"], "swap");
    assert_eq!(image(b, "q/v"), before);
    assert!(!b.nbd("q/v").read_only);
    no_writers(b, "q/v");
    put(b, "q/v", 40, 2, 7);
    eventually("the former source follows", || status(a, "p/v")["role"] == "destination");
    assert!(a.nbd("p/v").read_only);
    a.ok("mirror update p/v");
    assert_eq!(image(a, "p/v"), image(b, "q/v"));
    // And back by the other side.
    a.ok("mirror swap p/v --yes");
    put(a, "p/v", 50, 2, 8);
    eventually("it follows", || status(b, "q/v")["state"] == "mirrored");
    b.ok("mirror update q/v");
    assert_eq!(image(b, "q/v"), image(a, "p/v"));
}

/// After a change of roles and back the original keeps the other direction: what asks for that is told where its mirror is, and nothing
/// of it is called wrong, also when hosts have gone on at the other side.
#[test]
fn a_direction_that_sleeps_is_neither_changed_nor_called_wrong() {
    let pair = mirrored("--reverse");
    let (a, b) = (&pair.a, &pair.b);
    b.ok("mirror swap q/v --yes");
    eventually("the former source follows", || status(a, "p/v")["role"] == "destination");
    a.ok("mirror update p/v");
    a.ok("mirror swap p/v --yes");
    eventually("it follows", || status(b, "q/v")["state"] == "mirrored");
    b.ok("mirror update q/v");
    let row = |role: &str| {
        let rows = a.json("mirror status p/v");
        let found = rows.as_array().unwrap().iter().find(|row| row["role"] == role).cloned();
        found.unwrap_or_else(|| panic!("no {role}: {rows}"))
    };
    let before = row("destination")["schedule"].clone();
    for arguments in ["set p/v --every 5s", "resume p/v", "swap p/v --yes", "drill p/v"] {
        let said = a.fails(4, &format!("mirror {arguments}"));
        assert!(said.contains("p/v is the source here; its replica is b:q/v"), "{arguments}: {said}");
    }
    assert_eq!(row("destination")["schedule"], before);
    let said = a.fails(4, "mirror create b:q/v p/v --if-absent");
    assert!(said.contains("p/v is the original of b:q/v"), "{said}");
    let said = a.ok("volume delete p/v --plan");
    assert!(said.contains("p/v is the original of b:q/v, and the way back is kept here"), "{said}");
    assert!(said.contains("Besides: p/v is mirrored by b as q/v"), "{said}");
    let said = a.ok("mirror status --all");
    assert!(said.contains("sleeps: p/v is the original of b:q/v now"), "{said}");
    let said = a.ok("peer remove b --plan");
    assert!(
        said.contains("b:q/v gets no more updates of p/v") && !said.contains("p/v gets no more"),
        "{said}"
    );

    b.ok("mirror break q/v --yes");
    let again = plan(b, "mirror break q/v");
    assert!(again["refused"].as_str().unwrap().contains("broken off already"), "{again}");
    assert_eq!((&again["would"], &again["lost"]), (&json!([]), &json!([])), "{again}");
    eventually("the source hears of it", || row("source")["overtaken"] != Value::Null);
    let why = || row("destination")["why"].as_str().unwrap_or_default().to_owned();
    eventually("the direction sleeps on", || why().contains("was overtaken since"));
    assert_eq!(row("destination")["source_heard"], Value::Null);
    let refused = plan(a, "mirror swap p/v")["refused"].as_str().unwrap().to_owned();
    assert!(refused.contains("p/v is overtaken: b broke off q/v"), "{refused}");
    assert!(refused.contains("farside mirror resync p/v --from b:q/v"), "{refused}");
    let said = a.fails(1, "mirror check");
    assert!(said.contains("p/v is overtaken") && !said.contains("broken off, and nothing"), "{said}");
}

/// Who had the roles last and was overtaken since claims nothing when its own side of the mirror is deleted: the original stays
/// the one there is.
#[test]
fn whoever_was_overtaken_claims_nothing_with_the_end_of_its_mirror() {
    let pair = mirrored("--reverse --fence");
    let (a, b) = (&pair.a, &pair.b);
    b.ok("peer allow a q/v --reverse --fence");
    b.ok("mirror swap q/v --yes");
    a.ok("mirror break p/v --yes");
    let source = || {
        let all = b.json("mirror status q/v");
        all.as_array().unwrap().iter().find(|row| row["role"] == "source").cloned().unwrap()
    };
    eventually("b has heard of it", || !source()["overtaken"].is_null());
    b.ok("mirror delete q/v --yes");
    // The word of an end is told at once where there is a session.
    std::thread::sleep(Duration::from_secs(3));
    assert!(!a.nbd("p/v").read_only, "{}", a.ok("mirror status --all"));
    let rows = a.json("mirror status --all");
    assert!(rows.as_array().unwrap().iter().all(|row| row["overtaken"].is_null()), "{rows}");
}

#[test]
fn a_fence_keeps_hosts_from_an_overtaken_volume_until_it_is_decided() {
    let mut pair = mirrored("--reverse --fence");
    pair.b.ok("mirror create a:p/v q/w --no-reverse");
    let rights = pair.b.json("peer status a")["rights"].clone();
    assert_eq!(rights.as_array().map(Vec::len), Some(1), "only the way back to q/v is allowed: {rights}");
    let mut host = pair.a.nbd("p/v");
    host.write(0, &[1; 4096]).unwrap();
    host.flush().unwrap();
    pair.b.ok("mirror break q/v");
    // While A lives, too: the writer is dropped, whoever comes next can only read.
    eventually("the writer is dropped", || host.write(0, &[2; 4096]).is_err());
    let fenced = |a: &Site| {
        assert!(a.nbd("p/v").read_only);
        let volume = a.json("volume status p/v");
        assert_eq!((&volume["writable"], &volume["replica"]), (&json!(false), &json!(false)));
        assert!(volume["why"].as_str().unwrap().contains("b has overtaken it with q/v"), "{volume}");
        assert_eq!(status(a, "p/v")["overtaken"]["fenced"], true);
    };
    fenced(&pair.a);
    pair.a.has_logged("FENCED");
    assert_eq!(pair.a.stop(), Some(0));
    pair.a.restart();
    fenced(&pair.a);

    // Both shall live.
    let mut reader = pair.a.nbd("p/v");
    assert!(pair.a.ok("mirror release p/v b --plan").contains("lost:  nothing"));
    pair.a.ok("mirror release p/v b");
    eventually("the readers of the fenced volume are dropped", || reader.read(0, &mut [0; 4096]).is_err());
    assert!(!pair.a.nbd("p/v").read_only);
    assert_eq!(pair.a.json("volume status p/v")["writable"], true);
}

#[test]
fn pins_that_nobody_explains_are_shown_and_released() {
    let mut pair = mirrored("");
    assert_eq!(pair.a.stop(), Some(0));
    for file in ["farside.db", "farside.db-wal", "farside.db-shm"] {
        let _ = std::fs::remove_file(pair.a.dir.join(file));
    }
    pair.a.restart();
    let pool: &Path = &pair.root.path().join("p.pool");
    pair.a.ok(&format!("pool import p --path {}", pool.display()));
    let listed = pair.a.json("mirror destinations p/v");
    assert_eq!((&listed[0]["known"], &listed[0]["peer"]), (&json!(false), &json!("")), "{listed}");
    let id = listed[0]["id"].as_str().unwrap();
    assert_eq!(status(&pair.b, "q/v")["id"], id);
    assert!(pair.a.ok("mirror destinations").contains(id));
    pair.a.fails(4, "volume delete p/v --yes");
    assert!(pair.a.ok(&format!("mirror release p/v {id} --plan")).contains("does not know"));
    pair.a.ok(&format!("mirror release p/v {id}"));
    assert_eq!(pair.a.json("mirror destinations"), json!([]));
    pair.a.ok("volume delete p/v --yes");
}
