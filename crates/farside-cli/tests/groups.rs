//! Groups on real daemons: updated together, tried together, taken over and turned round together.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod support;

use serde_json::Value;
use support::{Pair, Site, check_pool, eventually, status};

const VOLUMES: [&str; 2] = ["data", "log"];

/// Mirrors of two volumes in the group `shop`, each with a first copy.
fn grouped(pair: &Pair, schedule: &str) {
    let (a, b) = (&pair.a, &pair.b);
    for volume in VOLUMES {
        a.ok(&format!("volume create p/{volume} --size 4M"));
        a.ok(&format!("peer allow b p/{volume} --reverse"));
        b.ok(&format!("mirror create a:p/{volume} q/{volume} --group shop{schedule}"));
    }
    write(a, "p", 1);
    for volume in VOLUMES {
        b.ok(&format!("mirror initialize q/{volume}"));
    }
}

/// The log is always written before the data, so no moment has data without its log.
fn write(site: &Site, pool: &str, stamp: u8) {
    for volume in ["log", "data"] {
        let mut host = site.nbd(&format!("{pool}/{volume}"));
        host.write(0, &[stamp; 4096]).and_then(|()| host.flush()).unwrap();
    }
}

fn stamps(site: &Site, pool: &str) -> [u8; 2] {
    VOLUMES.map(|volume| site.nbd(&format!("{pool}/{volume}")).read_all()[0])
}

/// The moment that a replica shows.
fn moment(site: &Site, volume: &str) -> String {
    let current = status(site, volume)["current_snapshot"].clone();
    let snapshots = site.json(&format!("snapshot list {volume}"));
    let shown = snapshots.as_array().unwrap().iter().find(|s| s["name"] == current).cloned();
    shown.unwrap()["created_at"].as_str().unwrap().to_owned()
}

#[test]
fn a_group_is_updated_tried_and_taken_over_as_of_one_moment() {
    let mut pair = Pair::start();
    grouped(&pair, "");
    let (a, b) = (&pair.a, &pair.b);
    // First copies are of different moments.
    assert!(b.fails(4, "mirror break --group shop --yes").contains("no snapshot of one moment"));
    assert!(b.fails(3, "mirror break --group other --yes").contains("--group"));
    b.fails(2, "mirror break q/data --group shop");
    b.fails(2, "mirror swap");
    b.fails(2, "snapshot rollback --group shop");

    // Whoever is updated, all are.
    write(a, "p", 2);
    b.ok("mirror update q/data");
    eventually("the log is updated with it", || stamps(b, "q") == [2, 2]);
    assert_eq!(moment(b, "q/data"), moment(b, "q/log"));
    assert_eq!(status(b, "q/data")["group"], "shop");
    let log = b.json("mirror log q/log");
    assert!(log.as_array().unwrap().iter().any(|line| line["requested_by"] == "group"), "{log}");
    // One that is quiesced keeps the others.
    b.ok("mirror quiesce q/log");
    let why = b.fails(4, "mirror update q/data");
    assert!(why.contains("q/log is quiesced") && why.contains("farside mirror resume q/log"), "{why}");
    b.ok("mirror resume q/log");

    // Clones of one moment, which go with the command that tried them.
    let drills = b.json("mirror drill --group shop");
    let drills = drills.as_array().unwrap();
    assert_eq!((drills.len(), &drills[0]["point"]), (2, &drills[1]["point"]));
    for drill in drills {
        b.ok(&format!("volume delete {} --yes", drill["name"].as_str().unwrap()));
    }
    let look = "test $(printenv FARSIDE_DRILL_EXPORTS | grep -c '^q/.*=nbd') = 2 && test $(printenv FARSIDE_DRILL_VOLUMES | wc -l) = 2";
    let drill = |more: &[&str]| b.command("mirror drill --group shop").args(more).output().unwrap();
    let tried = drill(&["--json", "--run", look]);
    assert!(tried.status.success(), "{tried:?}");
    let tried: Value = serde_json::from_slice(&tried.stdout).unwrap();
    for drill in tried.as_array().unwrap() {
        assert_eq!(
            (&drill["run"]["result"], &drill["run"]["deleted"]),
            (&"ok".into(), &true.into()),
            "{drill}"
        );
    }
    assert!(!drill(&["--run", "false"]).status.success());
    assert_eq!(b.json("volume list").as_array().unwrap().len(), 2, "nothing of the drills is left");

    // Interrupted after the first: the others stay where they are, and the same command goes on.
    write(a, "p", 3);
    let plan = b.ok("mirror break --group shop --plan");
    assert!(plan.contains("2 mirrors to break off, all as of "), "{plan}");
    b.ok("mirror break q/data --yes");
    assert!(b.fails(4, "mirror update q/log").contains("q/data is broken off"));
    pair.b.kill();
    pair.b.restart();
    let b = &pair.b;
    b.ok("mirror break --group shop --yes");
    assert_eq!(stamps(b, "q"), [2, 2]);
    assert_eq!(moment(b, "q/data"), moment(b, "q/log"));
    for volume in ["q/data", "q/log"] {
        assert_eq!(status(b, volume)["state"], "broken-off");
    }

    // Back to a moment that all have.
    b.ok("snapshot create q/data@before q/log@before");
    write(b, "q", 9);
    assert!(b.fails(4, "snapshot rollback --group shop --at never --yes").contains("never"));
    b.ok("snapshot rollback --group shop --at before --yes");
    assert_eq!(stamps(b, "q"), [2, 2]);
    pair.b.stop();
    check_pool(&pair.root.path().join("q.pool"));
}

#[test]
fn a_group_turns_round_and_back() {
    let pair = Pair::start();
    grouped(&pair, " --every 2s");
    let (a, b) = (&pair.a, &pair.b);
    write(a, "p", 5);
    eventually("they follow", || stamps(b, "q") == [5, 5]);
    assert!(b.fails(4, "snapshot rollback --group shop --at x --yes").contains("still follows"));
    let plan = b.json("mirror swap --group shop --plan");
    assert_eq!(plan.as_array().unwrap().len(), 2, "{plan}");
    write(a, "p", 6);
    b.ok("mirror swap --group shop --yes");
    assert_eq!(stamps(b, "q"), [6, 6]);
    write(b, "q", 7);
    for volume in VOLUMES {
        a.ok(&format!("mirror set p/{volume} --group shop"));
    }
    a.ok("mirror update p/log");
    eventually("the former source follows, as a group", || stamps(a, "p") == [7, 7]);
    assert_eq!(moment(a, "p/data"), moment(a, "p/log"));
    a.ok("mirror swap --group shop --yes");
    write(a, "p", 8);
    eventually("and back", || stamps(b, "q") == [8, 8]);
}
