//! Resyncs that come to nothing, and what resyncs and rollbacks push out: whoever looks later finds that it was so, why, and what to
//! type.

use std::process::Stdio;

use crate::support::{Pair, Site, eventually, seed, status};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

#[test]
fn a_resync_that_waited_in_vain_is_told_by_status_and_history() {
    let mut pair = Pair::start();
    pair.mirror(4 << 20);
    pair.b.ok("mirror initialize q/v");
    pair.b.ok("mirror break q/v --yes");
    pair.a.kill();
    let b = &pair.b;
    eventually("the session is gone", || b.json("peer status a")["state"] != "connected");
    b.ok("mirror resync q/v --no-wait --timeout 1s");
    let why = || status(b, "q/v")["why"].as_str().unwrap_or_default().to_owned();
    eventually("status tells", || why().contains("the resync did not begin (at "));
    assert!(why().contains("): no session with"), "{}", why());
    assert!(
        why().contains("q/v is as it was. Only if that is still wanted: farside mirror resync q/v"),
        "{}",
        why()
    );
    assert_eq!(status(b, "q/v")["state"], "broken-off");
    let history = b.json("mirror history q/v");
    assert_eq!((&history[0]["kind"], &history[0]["result"]), (&"resync".into(), &"failed".into()));
    let reason = history[0]["reason"].as_str().unwrap();
    assert!(reason.ends_with("Only if that is still wanted: farside mirror resync q/v"), "{reason}");
    for command in ["mirror history q/v", "mirror log q/v", "mirror status q/v", "mirror status"] {
        let text = b.ok(command);
        assert!(text.contains("the resync did not begin"), "{command}: {text}");
    }

    // Nothing tries it again by itself, so it is told once there is a session, too; until one begins.
    pair.a.restart();
    let b = &pair.b;
    eventually("they meet again", || b.json("peer status a")["state"] == "connected");
    let why = || status(b, "q/v")["why"].as_str().unwrap_or_default().to_owned();
    assert!(why().contains("the resync did not begin"), "{}", why());
    b.ok("mirror resync q/v --yes");
    assert!(!why().contains("the resync did not begin"), "{}", why());
    assert_eq!(b.json("mirror history q/v")[0]["result"], "ok");
}

#[test]
fn a_resync_that_waits_for_a_dead_site_is_seen_and_can_be_given_up() {
    let mut pair = Pair::start();
    pair.mirror(4 << 20);
    pair.b.ok("mirror initialize q/v");
    pair.b.ok("mirror break q/v --yes");
    write(&pair.b, "q/v", 7);
    pair.a.kill();
    let b = &pair.b;
    eventually("the session is gone", || b.json("peer status a")["state"] != "connected");
    b.ok("mirror resync q/v --no-wait --timeout 10m");
    let why = status(b, "q/v")["why"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("a resync that was asked for waits for a:"), "{why}");
    assert!(why.contains("farside mirror abort q/v gives it up"), "{why}");
    assert!(b.ok("status").contains("a resync that was asked for waits"));
    let said = b.ok("mirror abort q/v");
    assert!(said.contains("the resync that waited is given up; nothing was changed"), "{said}");
    eventually("it is not said any more", || !b.ok("mirror status q/v").contains("that was asked for waits"));
    // A command that is at its plan is not known here: it is not said that none is.
    let said = b.fails(4, "mirror abort q/v");
    assert!(said.contains("nothing of q/v runs or waits here yet: its mirror is broken off"), "{said}");
    assert!(said.contains("a command that is still at its plan") && said.contains("Ctrl-C"), "{said}");
    // A break that is refused gives it up all the same, and says so.
    let shown = status(b, "q/v")["current_snapshot"].as_str().unwrap().to_owned();
    b.ok("mirror resync q/v --no-wait --timeout 10m");
    let said = b.fails(4, &format!("mirror break q/v --at {shown} --yes"));
    assert!(said.contains("The resync of q/v that waited is given up all the same"), "{said}");
    eventually("it is not said any more", || !b.ok("mirror status q/v").contains("that was asked for waits"));
    // Whoever ends the command that waits, gives it up.
    let command = b
        .command("mirror resync q/v --yes --timeout 10m")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("it waits", || b.ok("mirror status q/v").contains("that was asked for waits"));
    let pid = rustix::process::Pid::from_raw(command.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ended = command.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("given up before it had begun; nothing of q/v was changed"), "{said}");
    assert_eq!(ended.status.code(), Some(130));

    pair.a.restart();
    let b = &pair.b;
    eventually("they meet again", || b.json("peer status a")["state"] == "connected");
    // One that waited still would begin within milliseconds: nothing tells that it does not come, so it is given its time.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let now = status(b, "q/v");
    assert_eq!(now["state"], "broken-off", "{now}");
    let mut shown = [0; 4096];
    b.nbd("q/v").read(0, &mut shown).unwrap();
    assert_eq!(shown, [7; 4096], "what hosts wrote is what it shows");
    b.ok("mirror resync q/v --yes");
    assert_eq!(status(b, "q/v")["state"], "mirrored");
}

#[test]
fn a_resync_that_does_not_fit_is_refused_before_the_volume_is_a_replica() {
    let pair = Pair::with_pools(512 << 20, 64 << 20);
    pair.mirror(48 << 20);
    let (a, b) = (&pair.a, &pair.b);
    b.ok("mirror initialize q/v");
    b.ok("mirror break q/v --yes");
    let mut host = a.nbd("p/v");
    let mut random = StdRng::seed_from_u64(seed());
    for at in 0..48 {
        let mut bytes = vec![0; 1 << 20];
        random.fill_bytes(&mut bytes);
        host.write(at << 20, &bytes).unwrap();
    }
    host.flush().unwrap();
    b.ok("volume create q/filler --size 64M");
    let mut filler = b.nbd("q/filler");
    for at in 0..24 {
        let mut bytes = vec![0; 1 << 20];
        random.fill_bytes(&mut bytes);
        filler.write(at << 20, &bytes).unwrap();
    }
    filler.flush().unwrap();
    let planned = b.ok("mirror resync q/v --plan");
    assert!(planned.contains("there is room for"), "{planned}");
    let said = b.fails(4, "mirror resync q/v --yes");
    assert!(
        said.contains("the resync of q/v brings 48.0 MiB") && said.contains("q/v is as it was"),
        "{said}"
    );
    assert_eq!(status(b, "q/v")["state"], "broken-off");
    write(b, "q/v", 3);
    b.ok("pool grow q --size 256M");
    b.ok("mirror resync q/v --yes");
    assert_eq!(status(b, "q/v")["state"], "mirrored");
}

fn write(site: &Site, volume: &str, stamp: u8) {
    let mut host = site.nbd(volume);
    host.write(0, &[stamp; 4096]).and_then(|()| host.flush()).unwrap();
    drop(host);
    eventually("the host is gone", || site.json(&format!("volume status {volume}"))["writers"] == 0);
}

#[test]
fn the_side_branch_that_a_rollback_pushes_out_is_named_before_and_after() {
    let mut pair = Pair::start();
    pair.b.stop();
    std::fs::write(pair.b.dir.join("farside.toml"), "[replicas]\nrescues = 1\n").unwrap();
    pair.b.restart();
    pair.mirror(4 << 20);
    let b = &pair.b;
    b.ok("mirror initialize q/v");
    b.ok("mirror break q/v --yes");
    b.ok("snapshot create q/v@good");
    // The newest stays, and the first of its day: the third pushes the second out.
    let back = |stamp| {
        write(b, "q/v", stamp);
        let done = b.json("snapshot rollback q/v@good");
        done["kept_as"].as_str().unwrap().split_once('@').unwrap().1.to_owned()
    };
    let (first, second) = (back(1), back(2));
    write(b, "q/v", 3);
    let plan = b.json("snapshot rollback q/v@good --plan");
    let lost = plan["lost"].as_array().unwrap();
    let hold = format!("farside snapshot hold q/v@{second}");
    assert!(lost.len() == 1 && lost[0].as_str().unwrap().contains(&hold), "{plan}");
    // Nobody can be asked here.
    let said = b.fails(2, "snapshot rollback q/v@good");
    assert!(said.contains(&second) && said.contains("--yes"), "{said}");
    let said = b.ok("snapshot rollback q/v@good --yes");
    assert!(said.contains(&format!("the old side branch q/v@{second} was deleted")), "{said}");
    let log = b.ok("mirror log q/v");
    assert!(log.contains("rescue-deleted") && log.contains(&second), "{log}");
    let left = b.ok("snapshot list q/v");
    assert!(left.contains(&first) && !left.contains(&second), "{left}");

    // What hosts wrote last is pushed out in its turn; a resync names it in history, too.
    write(b, "q/v", 4);
    let third = b.json("snapshot list q/v");
    let is_rescue = |s: &&serde_json::Value| s["taken_by"] == "rescue" && s["name"] != first.as_str();
    let third =
        third.as_array().unwrap().iter().find(is_rescue).unwrap()["name"].as_str().unwrap().to_owned();
    b.ok("mirror resync q/v --yes");
    let history = b.ok("mirror history q/v");
    assert!(history.contains(&format!("the old side branch {third} was deleted")), "{history}");
    assert!(history.contains("set aside as rescue-"), "{history}");
}

/// What retention lets go once the volume follows is known without its source: who waits for that is not to find it gone.
#[test]
fn what_a_resync_lets_go_is_named_while_its_source_is_away() {
    let mut pair = Pair::start();
    pair.mirror(4 << 20);
    pair.b.ok("mirror set q/v --keep last=2");
    for stamp in 1..=3 {
        write(&pair.a, "p/v", stamp);
        pair.b.ok(if stamp == 1 { "mirror initialize q/v" } else { "mirror update q/v" });
    }
    pair.b.ok("mirror break q/v --yes");
    pair.a.kill();
    let plan = pair.b.json("mirror resync q/v --timeout 1s --plan");
    let lost = plan["lost"].to_string();
    assert!(lost.contains("lets go what it keeps no more") && lost.contains("q/v@kept-"), "{plan}");
    assert_eq!(plan["lost_blocks"], serde_json::Value::Null, "{plan}");
    let said = pair.b.fails(2, "mirror resync q/v --timeout 1s");
    assert!(said.contains("--yes"), "{said}");
    assert_eq!(crate::support::status(&pair.b, "q/v")["state"], "broken-off");
}

#[test]
fn a_volume_whose_mirror_was_deleted_follows_again_by_what_both_still_have() {
    let pair = Pair::start();
    pair.mirror(8 << 20);
    pair.b.ok("mirror initialize q/v");
    write(&pair.a, "p/v", 7);
    pair.b.ok("mirror break q/v --yes");
    pair.b.ok("mirror delete q/v --yes");
    eventually("the source has heard of it", || {
        pair.a.json("mirror destinations p/v")[0]["overtaken"]["ended"] == true
    });
    let plan = pair.b.ok("mirror resync q/v --from a:p/v --plan");
    assert!(plan.contains("(1 block of 4 KiB)") || plan.contains("(1 blocks of 4 KiB)"), "{plan}");
    pair.b.ok("mirror resync q/v --from a:p/v --yes");
    let history = pair.b.json("mirror history q/v");
    assert_eq!(
        (&history[0]["kind"], &history[0]["changed_bytes"]),
        (&"resync".into(), &4096.into()),
        "{history}"
    );
    assert_eq!(
        pair.a.json("mirror destinations p/v").as_array().unwrap().len(),
        1,
        "what was over is let go"
    );
}
