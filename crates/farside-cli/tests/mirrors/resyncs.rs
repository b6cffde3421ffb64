//! Resyncs that come to nothing: whoever looks later finds that it was so, why, and what to type.

use crate::support::{Pair, eventually, status};

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
