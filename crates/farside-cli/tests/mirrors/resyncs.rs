//! Resyncs that come to nothing, and what resyncs and rollbacks push out: whoever looks later finds that it was so, why, and what to
//! type.

use crate::support::{Pair, Site, eventually, status};

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
    eventually("status tells", || why().contains("the resync did not begin: no session with"));
    assert!(why().contains("q/v is as it was. To try again: farside mirror resync q/v"), "{}", why());
    assert_eq!(status(b, "q/v")["state"], "broken-off");
    let history = b.json("mirror history q/v");
    assert_eq!((&history[0]["kind"], &history[0]["result"]), (&"resync".into(), &"failed".into()));
    let reason = history[0]["reason"].as_str().unwrap();
    assert!(reason.ends_with("To try again: farside mirror resync q/v"), "{reason}");
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
