//! Groups of which a part has gone another way: half swapped, half forgotten, written to before the rest was taken over.

use crate::group_sides::after;
use crate::groups::{VOLUMES, grouped, stamps, write};
use crate::support::{Pair, eventually, status};

#[test]
fn a_group_that_is_half_swapped_is_told_of_and_not_tried_by_halves() {
    let pair = Pair::start();
    grouped(&pair, "");
    let (a, b) = (&pair.a, &pair.b);
    write(a, "p", 2);
    b.ok("mirror update q/data");
    eventually("the log is updated with it", || stamps(b, "q") == [2, 2]);
    assert!(!b.ok("mirror status").contains("is split"));
    let said = b.ok("mirror swap q/data --yes");
    assert!(said.contains("the roles have changed"), "{said}");
    eventually("its former source follows", || {
        let all = b.json("mirror status q/data");
        all.as_array().unwrap().iter().any(|m| m["source_heard"] == "follows")
    });

    // To which side it shall go is for a person to say: each way has its line.
    let split = "group shop is split: q/data is the original here, q/log is the replica of a:p/log; to have all originals at this site: \
                 farside mirror swap --group shop here; to have them at a: farside mirror swap p/data there";
    for command in ["mirror status", "mirror status q/log", "mirror status q/data --all", "status"] {
        let said = b.ok(command);
        assert!(said.contains(split), "{command}: {said}");
    }
    // Each of the two may be near: together they are of no use.
    for command in ["mirror check", "mirror check q/data", "mirror check q/log"] {
        let said = b.fails(1, command);
        assert!(said.contains(split), "{command}: {said}");
    }
    let volumes = b.json("volume list");
    for command in ["mirror drill --group shop", "mirror drill --group shop --run true"] {
        let said = b.fails(4, command);
        assert!(
            said.contains("group shop is split") && said.contains("Nothing was made"),
            "{command}: {said}"
        );
        assert!(said.contains("farside mirror swap --group shop here"), "{command}: {said}");
    }
    assert_eq!(b.json("volume list").as_array().unwrap().len(), volumes.as_array().unwrap().len());
    // An update of the group would come to the replica alone.
    let shown = status(b, "q/log")["current_snapshot"].clone();
    let said = b.fails(4, "mirror update --group shop");
    assert!(said.contains(split) && said.contains("Nothing was updated"), "{said}");
    assert_eq!(status(b, "q/log")["current_snapshot"], shown);
    // At the site of the new replica only that one is in the group: the other site says what is missing, if it may be asked.
    b.ok("peer set a --role operator");
    for command in ["mirror update --group shop", "mirror drill --group shop"] {
        let said = a.fails(4, command);
        assert!(said.contains("b says, and \"here\" is b in this: group shop is split"), "{command}: {said}");
    }
    assert_eq!(a.json("volume list").as_array().unwrap().len(), 2, "no clone was made");
    // One replica may be tried by itself.
    let drill = b.json("mirror drill q/log");
    b.ok(&format!("volume delete {} --yes", drill["name"].as_str().unwrap()));

    b.ok("mirror swap --group shop --yes");
    eventually("both are the originals here", || {
        !b.ok("mirror status --all").contains("is split") && b.farside("mirror check").status.success()
    });
    write(b, "q", 3);
    assert_eq!(stamps(b, "q"), [3, 3]);
}

#[test]
fn a_volume_that_was_taken_over_with_its_group_is_not_forgotten_by_a_swap() {
    let pair = Pair::start();
    grouped(&pair, "");
    let (a, b) = (&pair.a, &pair.b);
    write(a, "p", 2);
    b.ok("mirror update q/data");
    eventually("the log is updated with it", || stamps(b, "q") == [2, 2]);
    b.ok("mirror break --group shop --yes");
    for volume in VOLUMES {
        eventually("its source hears of it", || !status(a, &format!("p/{volume}"))["overtaken"].is_null());
    }
    write(b, "q", 3);
    // One of them follows, and is in the group here; the other was not thought of.
    a.ok("mirror resync p/data --from b:q/data --yes");
    let line = "farside mirror resync --group shop";
    for command in ["mirror swap --group shop --plan", "mirror swap --group shop --yes"] {
        let said = a.fails(4, command);
        assert!(said.contains("p/log here was taken over by b:q/log, which is of the group there"), "{said}");
        assert!(said.contains("No role was changed") && said.contains(line), "{said}");
    }

    // As it says.
    let said = a.ok("mirror resync --group shop --yes");
    assert!(said.contains("p/data follows b:q/data already"), "{said}");
    let said = a.ok("mirror swap --group shop --yes");
    assert!(said.contains("the roles have changed: hosts may write to"), "{said}");
    assert_eq!(stamps(a, "p"), [3, 3]);
    write(a, "p", 4);
    b.ok("mirror update q/log");
    eventually("the others follow, as a group", || stamps(b, "q") == [4, 4]);
}

#[test]
fn what_hosts_wrote_to_one_of_a_group_keeps_the_others_until_somebody_decides() {
    let pair = Pair::start();
    grouped(&pair, "");
    let (a, b) = (&pair.a, &pair.b);
    write(a, "p", 2);
    b.ok("mirror update q/data");
    eventually("the log is updated with it", || stamps(b, "q") == [2, 2]);
    b.ok("mirror break q/log --yes");
    let shown = status(b, "q/log")["current_snapshot"].as_str().unwrap().to_owned();
    let mut host = b.nbd("q/log");
    host.write(0, &[9; 4096]).and_then(|()| host.flush()).unwrap();
    drop(host);
    eventually("the host is gone", || b.json("volume status q/log")["writers"] == 0);
    for command in ["mirror break --group shop --plan", "mirror break --group shop --yes"] {
        let said = b.fails(4, command);
        assert!(
            said.contains("q/log was broken off already") && said.contains("Nothing was changed"),
            "{said}"
        );
        assert!(
            said.contains(&format!("farside snapshot rollback q/log@{shown}, then this again")),
            "{said}"
        );
    }
    assert_eq!(status(b, "q/data")["state"], "mirrored");
    b.ok(&format!("snapshot rollback q/log@{shown} --yes"));
    b.ok("mirror break --group shop --yes");
    assert_eq!(stamps(b, "q"), [2, 2]);
}

#[test]
fn a_group_that_follows_again_in_two_steps_is_taken_back_as_one() {
    let pair = Pair::start();
    grouped(&pair, " --keep last=4");
    let (a, b) = (&pair.a, &pair.b);
    b.ok("mirror update q/data");
    b.ok("mirror break --group shop --yes");
    write(b, "q", 3);
    write(a, "p", 4);
    eventually("the source is told", || a.ok("mirror status --all").contains("mirror resync --group shop"));

    // One by itself, and while the other does not follow no role changes.
    let said = a.ok("mirror resync p/data --from b:q/data --yes");
    let first = after(&said, "farside mirror break p/data --at ");
    let refused = a.fails(4, "mirror swap p/data --yes");
    assert!(
        refused.contains("p/log of group shop was taken over by b, and does not follow there yet"),
        "{refused}"
    );

    // Half of it is given up.
    b.ok("peer deny a q/log");
    let half = a.fails(1, "mirror resync --group shop --yes");
    assert!(half.contains("p/log"), "{half}");
    let said = a.fails(4, "mirror break --group shop --yes");
    assert!(said.contains("p/log of group shop was taken over by b, does not follow there"), "{said}");
    assert!(
        said.contains(&format!(
            "to have all as hosts here left them: farside mirror break p/data --at {first}"
        )),
        "{said}"
    );
    b.ok("peer allow a q/log --reverse");

    // The rest, by the name of what was first.
    let said = a.ok("mirror resync --group shop --yes");
    let back = after(
        &said,
        "to take this back, with what hosts wrote here: farside mirror break --group shop --at ",
    );
    assert_eq!(back, first);
    assert_eq!(stamps(a, "p"), [3, 3]);
    a.ok(&format!("mirror break --group shop --at {back} --yes"));
    assert_eq!(stamps(a, "p"), [4, 4]);
}
