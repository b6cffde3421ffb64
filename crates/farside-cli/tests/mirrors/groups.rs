//! Groups on real daemons: updated together, tried together, taken over and turned round together.

use crate::support::{Pair, Site, check_pool, eventually, seed, status};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use serde_json::Value;

pub(super) const VOLUMES: [&str; 2] = ["data", "log"];

/// Mirrors of two volumes in the group `shop`, each with a first copy.
pub(super) fn grouped(pair: &Pair, schedule: &str) {
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
pub(super) fn write(site: &Site, pool: &str, stamp: u8) {
    for volume in ["log", "data"] {
        let mut host = site.nbd(&format!("{pool}/{volume}"));
        host.write(0, &[stamp; 4096]).and_then(|()| host.flush()).unwrap();
    }
}

pub(super) fn stamps(site: &Site, pool: &str) -> [u8; 2] {
    VOLUMES.map(|volume| site.nbd(&format!("{pool}/{volume}")).read_all()[0])
}

/// The moment that a replica shows. Between the two questions an update may come, and take away what the first was told of.
fn moment(site: &Site, volume: &str) -> String {
    let shown = || {
        let current = status(site, volume)["current_snapshot"].clone();
        let snapshots = site.json(&format!("snapshot list {volume}"));
        let shown = snapshots.as_array().unwrap().iter().find(|s| s["name"] == current).cloned()?;
        Some(shown["created_at"].as_str().unwrap().to_owned())
    };
    std::iter::repeat_with(shown).take(10).flatten().next().unwrap()
}

#[test]
fn a_group_is_updated_tried_and_taken_over_as_of_one_moment() {
    let mut pair = Pair::start();
    grouped(&pair, "");
    let (a, b) = (&pair.a, &pair.b);
    // First copies are of different moments.
    assert!(b.fails(4, "mirror break --group shop --yes").contains("no snapshot of one moment"));
    assert!(b.fails(3, "mirror break --group other --yes").contains("groups here: shop"));
    let said = a.fails(4, "mirror update p/data");
    assert!(said.contains("p/data is the source here; its replica is b:q/data"), "{said}");
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
    // One of them alone: that the others stay is said before and after.
    let left = "the other volumes of group shop";
    let plan = b.ok("snapshot rollback q/data@before --plan");
    assert!(
        plan.contains(left) && plan.contains("farside snapshot rollback --group shop --at before"),
        "{plan}"
    );
    let said = b.ok("snapshot rollback q/data@before --yes");
    assert!(
        said.contains(left) && said.contains("farside snapshot rollback --group shop --at before"),
        "{said}"
    );
    assert_eq!(stamps(b, "q"), [2, 9]);
    let together = b.ok("snapshot rollback --group shop --at before --plan");
    assert!(!together.contains(left), "{together}");
    b.ok("snapshot rollback --group shop --at before --yes");
    assert_eq!(stamps(b, "q"), [2, 2]);
    pair.b.stop();
    check_pool(&pair.root.path().join("q.pool"));
}

/// The name under which something was set aside of a volume, as the answer has it.
fn kept<'a>(said: &'a str, volume: &str) -> &'a str {
    let before = format!("stays as {volume}@");
    let from = said.find(&before).map(|at| &said[at + before.len()..]);
    from.unwrap_or_else(|| panic!("{volume}: {said}")).split(';').next().unwrap()
}

/// One command makes the first copies of a group; what has one is left as it is.
#[test]
fn the_first_copies_of_a_group_are_made_by_one_command() {
    let pair = Pair::start();
    let (a, b) = (&pair.a, &pair.b);
    for volume in VOLUMES {
        a.ok(&format!("volume create p/{volume} --size 4M"));
        a.ok(&format!("peer allow b p/{volume}"));
        b.ok(&format!("mirror create a:p/{volume} q/{volume} --group shop"));
    }
    write(a, "p", 7);
    assert!(b.fails(3, "mirror initialize --group shp").contains("no mirror here is in a group shp"));
    let said = b.fails(4, "mirror update --group shop");
    assert!(said.contains("farside mirror initialize --group shop makes"), "{said}");
    let plan = b.ok("mirror initialize --group shop --plan");
    assert!(
        plan.contains("the first copy of 2 volumes") && plan.contains("q/data") && plan.contains("q/log"),
        "{plan}"
    );
    assert_eq!(status(b, "q/data")["state"], "uninitialized");

    b.ok("mirror initialize q/data");
    let said = b.ok("mirror initialize --group shop");
    assert!(said.contains("the first copy of q/data is there\nq/log holds "), "{said}");
    assert_eq!(stamps(b, "q"), [7; 2]);
    assert!(
        b.fails(4, "mirror initialize --group shop").contains("the first copies of q/data, q/log are there")
    );
    let done = b.json("mirror initialize --group shop --if-absent");
    assert_eq!(done["existed"], serde_json::json!(["q/data", "q/log"]));

    // A script need not wait.
    b.ok("mirror delete q/log --yes");
    b.ok("volume delete q/log --yes");
    b.ok("mirror create a:p/log q/log --group shop");
    let started = b.json("mirror initialize --group shop --no-wait");
    assert_eq!(
        (started["operations"].as_array().unwrap().len(), &started["existed"][0]),
        (1, &"q/data".into())
    );
    eventually("it arrives", || status(b, "q/log")["state"] == "mirrored");
}

#[test]
fn what_a_group_sets_aside_has_one_name_and_is_gone_back_to() {
    let pair = Pair::start();
    let (a, b) = (&pair.a, &pair.b);
    for volume in VOLUMES {
        a.ok(&format!("volume create p/{volume} --size 4M"));
        a.ok(&format!("peer allow b p/{volume}"));
        b.ok(&format!("mirror create a:p/{volume} q/{volume} --group shop --keep last=4"));
    }
    // Who holds nothing is named, and nothing of it is used.
    let said = b.fails(4, "mirror break --group shop --plan");
    assert!(said.contains("group shop: none of its 2 mirrors has a whole copy yet"), "{said}");
    b.ok("mirror initialize q/data");
    for command in ["mirror break --group shop --plan", "mirror drill --group shop"] {
        let said = b.ok(command);
        assert!(said.contains("q/log is in group shop and holds nothing yet: it is left out"), "{said}");
    }
    b.ok("mirror initialize q/log");
    let alone = b.ok("mirror break q/data --plan");
    assert!(alone.contains("the other volumes of group shop stay replicas"), "{alone}");
    let said = b.fails(4, "mirror break --group shop --at typo --plan");
    assert!(said.contains("no replica of group shop has a snapshot typo"), "{said}");
    for stamp in [2, 3] {
        write(a, "p", stamp);
        b.ok("mirror update q/data");
        eventually("the log is updated with it", || stamps(b, "q") == [stamp; 2]);
    }
    let together = b.ok("mirror break --group shop --plan");
    assert!(!together.contains("stay replicas"), "{together}");
    let all = b.json("snapshot list q/data");
    let current = status(b, "q/data")["current_snapshot"].clone();
    let older = all.as_array().unwrap().iter().rev().find(|s| s["name"] != current).unwrap();
    let at = older["name"].as_str().unwrap();
    let said = b.ok(&format!("mirror break --group shop --at {at} --yes"));
    assert_eq!(stamps(b, "q"), [2, 2]);
    let newer = kept(&said, "q/data").to_owned();
    assert_eq!(newer, kept(&said, "q/log"), "{said}");

    // Whoever wants another moment of what is broken off is led to the right command.
    let said = b.fails(4, &format!("mirror break --group shop --at {newer} --plan"));
    assert!(said.contains("broken off already"), "{said}");
    assert!(said.contains(&format!("farside snapshot rollback --group shop --at {newer}")), "{said}");
    b.ok(&format!("snapshot rollback --group shop --at {newer} --yes"));
    assert_eq!(stamps(b, "q"), [3, 3]);
    write(b, "q", 9);
    let back = b.json(&format!("snapshot rollback --group shop --at {newer} --yes"));
    let names = [0, 1].map(|at: usize| {
        let kept_as = back["volumes"][at]["kept_as"].as_str().unwrap();
        kept_as.split_once('@').unwrap().1.to_owned()
    });
    assert_eq!(names[0], names[1], "{back}");
    b.ok(&format!("snapshot rollback --group shop --at {} --yes", names[0]));
    assert_eq!(stamps(b, "q"), [9, 9]);

    // A person has broken it off: that is no role change.
    for command in ["mirror swap --group shop --plan", "mirror swap --group shop --yes"] {
        let said = b.fails(4, command);
        for volume in ["q/data", "q/log"] {
            assert!(said.contains(&format!("{volume} is broken off: it is the original already")), "{said}");
        }
    }

    write(b, "q", 8);
    // It follows again as a group: a host that still writes is found before the first of them is changed.
    let host = b.nbd("q/log");
    let said = b.fails(4, "mirror resync --group shop --yes");
    assert!(said.contains("hosts that may write have q/log open. Nothing was changed"), "{said}");
    drop(host);
    eventually("nobody has it open", || b.json("volume status q/log")["writers"] == 0);
    assert_eq!(status(b, "q/data")["state"], "broken-off");
    let plan = b.json("mirror resync --group shop --plan");
    assert_eq!(plan.as_array().unwrap().len(), 2, "{plan}");
    let said = b.ok("mirror resync --group shop --yes");
    assert!(said.contains("q/data, q/log show one moment since"), "{said}");
    // What both had of hosts has one name, wherever it is told; what was set aside before is not told of again.
    let asides = VOLUMES.map(|volume| {
        let history = b.json(&format!("mirror history q/{volume}"));
        let resync = history.as_array().unwrap().iter().find(|record| record["kind"] == "resync").unwrap();
        let all = resync["set_aside"].as_array().unwrap().clone();
        all.iter().map(|name| name.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    });
    assert_eq!(asides[0], asides[1], "{said}");
    for volume in VOLUMES {
        let shows = |name: &&String| b.nbd(&format!("q/{volume}@{name}")).read_all()[0];
        let new: Vec<&String> = asides[0].iter().filter(|name| shows(name) == 8).collect();
        assert!(
            new.len() == 1 && said.contains(&format!("stays as q/{volume}@{}", new[0])),
            "{new:?}: {said}"
        );
        assert!(b.ok(&format!("mirror log q/{volume}")).contains(new[0]));
        assert_eq!(shows(&&names[0]), 9);
    }
    eventually("both follow", || stamps(b, "q") == [3, 3]);
    eventually("as of one moment", || moment(b, "q/data") == moment(b, "q/log"));
    let again = b.ok("mirror resync --group shop --yes");
    assert!(again.contains("nothing is broken off") && again.contains("follows a:p/data already"), "{again}");
    write(a, "p", 4);
    b.ok("mirror update --group shop");
    eventually("all of the group are updated", || stamps(b, "q") == [4, 4]);
    assert!(b.fails(3, "mirror resync --group other").contains("no mirror here is in a group other"));
    b.fails(2, "mirror resync --group shop --from a:p/data");
}

#[test]
fn a_member_that_had_nothing_newer_goes_back_with_the_others_as_it_was() {
    let pair = Pair::start();
    grouped(&pair, " --keep last=4");
    let (a, b) = (&pair.a, &pair.b);
    write(a, "p", 2);
    b.ok("mirror update q/data");
    eventually("the log is updated with it", || stamps(b, "q") == [2, 2]);
    // One of them has a newer version when they are taken over.
    b.ok("mirror set q/log --group none");
    write(a, "p", 3);
    b.ok("mirror update q/data");
    b.ok("mirror set q/log --group shop");
    let said = b.ok("mirror break --group shop --yes");
    assert_eq!(stamps(b, "q"), [2, 2]);
    let newer = kept(&said, "q/data").to_owned();
    assert!(!said.contains("stays as q/log@"), "{said}");
    let taken = "q/log had nothing newer then: it is taken as ";
    let plan = b.ok(&format!("snapshot rollback --group shop --at {newer} --plan"));
    assert!(plan.contains(taken), "{plan}");
    let said = b.ok(&format!("snapshot rollback --group shop --at {newer} --yes"));
    assert!(said.contains(taken), "{said}");
    assert_eq!(stamps(b, "q"), [3, 2]);

    // A rollback keeps all by one name, also what was not written to.
    let mut host = b.nbd("q/data");
    host.write(0, &[9; 4096]).and_then(|()| host.flush()).unwrap();
    drop(host);
    eventually("the host is gone", || b.json("volume status q/data")["writers"] == 0);
    let before = status(b, "q/log")["current_snapshot"].as_str().unwrap().to_owned();
    let said = b.ok(&format!("snapshot rollback --group shop --at {before} --yes"));
    let written = back_by(&said, "farside snapshot rollback --group shop --at ");
    assert_eq!(stamps(b, "q"), [2, 2]);
    b.ok(&format!("snapshot rollback --group shop --at {written} --yes"));
    assert_eq!(stamps(b, "q"), [9, 2]);
}

/// The name that a line ends with which takes back what was done.
fn back_by(said: &str, line: &str) -> String {
    let from = said.find(line).map(|at| &said[at + line.len()..]);
    from.unwrap_or_else(|| panic!("{line}: {said}")).split_whitespace().next().unwrap().to_owned()
}

#[test]
fn a_resync_by_mistake_is_taken_back_of_all_though_hosts_wrote_to_one_only() {
    const BACK: &str = "farside mirror break --group shop --at ";
    let pair = Pair::start();
    grouped(&pair, " --keep last=4");
    let (a, b) = (&pair.a, &pair.b);
    let write_to = |volume: &str, stamp: u8| {
        let mut host = b.nbd(volume);
        host.write(0, &[stamp; 4096]).and_then(|()| host.flush()).unwrap();
        drop(host);
        eventually("the host is gone", || b.json(&format!("volume status {volume}"))["writers"] == 0);
    };
    let fits = || {
        let said = b.ok("mirror status");
        assert!(!said.contains("different points") && !said.contains("may not fit"), "{said}");
    };
    b.ok("mirror update --group shop");
    eventually("as of one moment", || moment(b, "q/data") == moment(b, "q/log"));
    b.ok("mirror break --group shop --yes");
    // A database between two checkpoints writes to its log alone.
    write_to("q/log", 7);
    write(a, "p", 5);
    let said = b.fails(4, "mirror update --group shop");
    assert!(said.contains("all of group shop (q/data, q/log) is broken off"), "{said}");
    assert!(said.contains("farside mirror resync --group shop has them"), "{said}");
    let plan = b.ok("mirror resync --group shop --plan");
    assert!(plan.contains("a side branch q/log@rescue-TIME"), "{plan}");
    let said = b.ok("mirror resync --group shop --yes");
    assert_eq!(stamps(b, "q"), [5, 5]);
    let first = back_by(&said, BACK);
    for volume in VOLUMES {
        assert!(said.contains(&format!("stays as q/{volume}@{first}")), "{said}");
    }
    b.ok(&format!("mirror break --group shop --at {first} --plan"));
    b.ok(&format!("mirror break --group shop --at {first} --yes"));
    assert_eq!(stamps(b, "q"), [1, 7]);
    fits();

    // Once more, after another mistake: the new name is that of what was there now, in both.
    write_to("q/data", 8);
    let said = b.ok("mirror resync --group shop --yes");
    let second = back_by(&said, BACK);
    assert!(second != first && !said.contains(&first), "{said}");
    assert_eq!(stamps(b, "q"), [5, 5]);
    // The longer way there.
    b.ok("mirror break --group shop --yes");
    b.ok(&format!("snapshot rollback --group shop --at {second} --yes"));
    assert_eq!(stamps(b, "q"), [8, 7]);
    fits();

    // Nobody wrote anything, neither here nor there: there is a name for that, too, and no update takes it for what its source lost.
    b.ok("mirror resync --group shop --yes");
    b.ok("mirror break --group shop --yes");
    let said = b.ok("mirror resync --group shop --yes");
    let nothing = back_by(&said, BACK);
    write(a, "p", 6);
    b.ok("mirror update --group shop");
    eventually("both are updated", || stamps(b, "q") == [6, 6]);
    let alarms = b.json("alarm list").to_string();
    assert!(!alarms.contains("source-went-back"), "{alarms}");
    b.ok(&format!("mirror break --group shop --at {nothing} --yes"));
    assert_eq!(stamps(b, "q"), [5, 5]);
}

#[test]
fn a_group_of_which_one_volume_was_broken_off_is_called_split_until_it_is_whole() {
    let pair = Pair::start();
    grouped(&pair, "");
    let b = &pair.b;
    b.ok("mirror update q/data");
    assert!(b.ok("mirror status").contains("GROUP"));
    assert!(b.ok("mirror break q/log --yes").contains("farside mirror break --group shop"));
    let split = "group shop is split: q/log was broken off, and hosts may write to it here, q/data is the replica of a:p/data";
    for command in ["status", "mirror status", "mirror status q/data"] {
        let said = b.ok(command);
        assert!(said.contains(split), "{command}: {said}");
    }
    let said = b.fails(1, "mirror check");
    assert!(said.contains(split) && said.contains("farside mirror break --group shop"), "{said}");
    let said = b.fails(4, "mirror update --group shop");
    assert!(said.contains(split) && said.contains("farside mirror set q/log --group none"), "{said}");
    // It is told by itself, too: after half a minute, as one command may be under way.
    let alarm = || {
        let open = b.json("alarm list");
        open.as_array().unwrap().iter().find(|alarm| alarm["kind"] == "group-split").cloned()
    };
    eventually("an alarm is raised", || alarm().is_some());
    assert_eq!(
        (&alarm().unwrap()["subject"], &alarm().unwrap()["severity"]),
        (&"shop".into(), &"critical".into())
    );
    b.ok("mirror break --group shop --yes");
    assert!(!b.ok("mirror status").contains("is split"));
    eventually("the alarm is over", || alarm().is_none());
    assert!(!b.ok("status").contains("is split"));
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
    // One of them has a host: none changes its role.
    let host = a.nbd("p/log");
    let said = b.fails(4, "mirror swap --group shop --yes");
    assert!(said.contains("no role was changed, as q/log cannot change its own now"), "{said}");
    for volume in VOLUMES {
        assert_ne!(status(b, &format!("q/{volume}"))["state"], "broken-off");
    }
    drop(host);
    eventually("the host is gone", || {
        let plans = b.json("mirror swap --group shop --plan");
        plans.as_array().unwrap().iter().all(|plan| plan["refused"].is_null())
    });
    let said = b.ok("mirror swap --group shop --yes");
    assert!(said.contains("at a: farside mirror update p/data brings all of group shop"), "{said}");
    let again = b.ok("mirror swap --group shop --yes");
    assert!(again.contains("the roles have changed already"), "{again}");
    let said = b.fails(4, "mirror resync --group shop --yes");
    assert!(said.contains("at a: farside mirror swap p/data; farside mirror swap p/log"), "{said}");
    assert_eq!(stamps(b, "q"), [6, 6]);
    write(b, "q", 7);
    for volume in VOLUMES {
        assert_eq!(super::group_sides::replica(a, &format!("p/{volume}"))["group"], "shop", "it goes along");
    }
    a.ok("mirror update p/log");
    eventually("the former source follows, as a group", || stamps(a, "p") == [7, 7]);
    eventually("as of one moment", || moment(a, "p/data") == moment(a, "p/log"));
    b.ok("peer set a --role operator");
    // One of them alone has changed its role: the plan says where each is, and the rest follows.
    a.ok("mirror swap p/data --yes");
    let plan = a.ok("mirror swap --group shop --plan");
    assert!(plan.contains("1 of 2 mirrors change roles"), "{plan}");
    assert!(
        plan.contains("p/data is the original here: hosts may write to it, and b:q/data follows"),
        "{plan}"
    );
    assert!(plan.contains("p/log is the replica of b:q/log"), "{plan}");
    let said = a.ok("mirror swap --group shop --yes");
    assert!(said.contains("b:q/data, b:q/log show one moment since"), "{said}");
    // An update may come between two looks.
    eventually("as of one moment", || moment(b, "q/data") == moment(b, "q/log"));
    write(a, "p", 8);
    eventually("and back", || stamps(b, "q") == [8, 8]);
    // The direction that sleeps at the source is nobody's business now.
    let said = a.fails(4, "mirror update p/log");
    assert!(
        said.contains("p/log is the source here; its replica is b:q/log") && said.contains("at b"),
        "{said}"
    );
    assert!(
        !a.ok("mirror status").contains("broken-off") && a.ok("mirror status --all").contains("broken-off")
    );
    assert!(!a.ok("mirror status p/log").contains("broken-off") && !a.ok("status").contains("broken-off"));
}

#[test]
fn a_group_goes_on_without_the_member_that_has_no_room_and_catches_up() {
    let pair = Pair::with_pools(256 << 20, 64 << 20);
    grouped(&pair, " --every 2s");
    let (a, b) = (&pair.a, &pair.b);
    write(a, "p", 2);
    eventually("they follow", || stamps(b, "q") == [2, 2]);
    // One of them may not grow any more; hosts write more of it than that.
    a.ok("volume resize p/data --size 48M");
    let mut host = a.nbd("p/data");
    let mut random = StdRng::seed_from_u64(seed());
    let mut piece = vec![0; 1 << 20];
    b.ok("volume create q/other --size 30M");
    let mut other = b.nbd("q/other");
    for at in 0..30 {
        random.fill_bytes(&mut piece);
        other.write(at << 20, &piece).unwrap();
    }
    other.flush().unwrap();
    drop(other);
    for at in 4..44 {
        random.fill_bytes(&mut piece);
        host.write(at << 20, &piece).unwrap();
    }
    host.flush().unwrap();
    drop(host);
    write(a, "p", 3);
    let failed = |volume: &str| {
        let newest = b.json(&format!("mirror history {volume}"))[0].clone();
        (newest["result"] == "failed").then(|| newest["reason"].to_string())
    };
    eventually("it is told", || failed("q/data").is_some_and(|why| why.contains("has room for")));
    eventually("of the other one, too", || {
        failed("q/log").is_some_and(|why| why.contains("q/data of the same group"))
    });
    // Nothing of the moment is shown by one alone: a break gives the last one that both have.
    assert_eq!(moment(b, "q/data"), moment(b, "q/log"));
    assert_eq!(stamps(b, "q"), [2, 2]);

    b.ok("volume delete q/other --yes");
    eventually("both follow again", || stamps(b, "q") == [3, 3]);
    eventually("as of one moment", || moment(b, "q/data") == moment(b, "q/log"));
}

#[test]
fn a_group_that_nobody_looked_at_since_a_restart_is_taken_over_as_one() {
    let mut pair = Pair::start();
    grouped(&pair, "");
    write(&pair.a, "p", 2);
    pair.b.ok("mirror update q/data");
    eventually("the log is updated with it", || stamps(&pair.b, "q") == [2, 2]);
    let shown = moment(&pair.b, "q/log");
    // The source is gone, and the replica's site starts without it.
    pair.a.kill();
    pair.b.kill();
    pair.b.restart();
    let b = &pair.b;
    let plan = b.ok("mirror break --group shop --plan");
    assert!(plan.contains("2 mirrors to break off, all as of "), "{plan}");
    b.ok("mirror break --group shop --yes");
    assert_eq!(stamps(b, "q"), [2, 2]);
    for volume in ["q/data", "q/log"] {
        assert_eq!(status(b, volume)["state"], "broken-off");
        let mut host = b.nbd(volume);
        host.write(0, &[3; 4096]).and_then(|()| host.flush()).unwrap();
    }
    assert_eq!(stamps(b, "q"), [3, 3]);
    assert!(shown.ends_with('Z'), "{shown}");
    // Whoever was removed is told nothing any more.
    b.ok("peer remove a --yes");
    let why = status(b, "q/log")["why"].as_str().unwrap().to_owned();
    assert!(
        why.contains("is not paired any more") && !why.contains("it is told when there is a session"),
        "{why}"
    );
}

#[test]
fn a_group_is_copied_on_from_its_replica_as_of_one_moment() {
    let pair = Pair::start();
    grouped(&pair, "");
    let (a, b) = (&pair.a, &pair.b);
    let c = Site::start(pair.root.path(), "c");
    c.ok(&format!("pool create w --path {} --size 64M", pair.root.path().join("w.pool").display()));
    let code = pair.root.path().join("code-c");
    std::fs::write(&code, b.ok("peer invite")).unwrap();
    c.ok(&format!("peer join {} --code-file {}", b.published("peer.addr"), code.display()));
    write(a, "p", 2);
    b.ok("mirror update q/data");
    eventually("the first replica has it", || stamps(b, "q") == [2, 2]);
    for volume in VOLUMES {
        b.ok(&format!("peer allow c q/{volume}"));
        let said = c.ok(&format!("mirror create b:q/{volume} w/{volume} --group shop"));
        assert!(said.contains(&format!("b:q/{volume} is a replica itself, of")), "{said}");
        c.ok(&format!("mirror initialize w/{volume}"));
    }
    for stamp in 3..6 {
        write(a, "p", stamp);
        b.ok("mirror update q/log");
        eventually("the first replica has it", || stamps(b, "q") == [stamp; 2]);
        c.ok("mirror update w/data");
        eventually("the second one, too", || stamps(&c, "w") == [stamp; 2]);
    }
    // Written to in the middle of it: what comes is the moment between two writes, or the one after them.
    write(a, "p", 6);
    b.ok("mirror update q/data --no-wait");
    c.ok("mirror update w/log");
    let [data, log] = stamps(&c, "w");
    assert!(data <= log, "data {data} without its log {log}");
    // The site between is lost with the original.
    let mut pair = pair;
    pair.a.kill();
    pair.b.kill();
    c.ok("mirror break --group shop --yes");
    let [data, log] = stamps(&c, "w");
    assert_eq!(data, log, "one moment");
    assert!(data >= 5, "{data}");
}
