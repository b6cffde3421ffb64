//! Groups whose volumes are on both sides, or on none yet: what was begun at one site and is asked for at the other, what hosts have
//! written to one part, and what was to follow when its source died.

use std::process::{Output, Stdio};

use crate::groups::{VOLUMES, grouped, stamps, write};
use crate::support::{Pair, Site, eventually, seed, status, text};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use serde_json::Value;

/// So slow that nothing large arrives in a test.
const SLOW: &str = "8kB/s";

/// What cannot be compressed, and takes long on a slow line.
fn fill(site: &Site, volume: &str, random: &mut StdRng) {
    let mut piece = vec![0; 1 << 20];
    random.fill_bytes(&mut piece);
    let mut host = site.nbd(volume);
    host.write(1 << 20, &piece).and_then(|()| host.flush()).unwrap();
    drop(host);
    eventually("the host is gone", || writers(site, volume) == 0);
}

fn writers(site: &Site, volume: &str) -> u64 {
    site.json(&format!("volume status {volume}"))["writers"].as_u64().unwrap()
}

/// The mirror of which a volume is the replica, or was.
pub(super) fn replica(site: &Site, volume: &str) -> Value {
    let all = site.json(&format!("mirror status {volume}"));
    all.as_array().unwrap().iter().find(|m| m["role"] == "destination").cloned().unwrap_or_default()
}

/// The word that follows in a text.
pub(super) fn after<'a>(text: &'a str, what: &str) -> &'a str {
    let at = text.find(what).unwrap_or_else(|| panic!("no {what:?} in {text}"));
    text[at + what.len()..].split([' ', ';', ',', '\n']).next().unwrap()
}

#[test]
fn an_original_that_hosts_have_written_to_keeps_the_others_of_its_group() {
    let mut pair = Pair::start();
    grouped(&pair, " --keep last=4");
    write(&pair.a, "p", 2);
    pair.b.ok("mirror update q/data");
    eventually("the log is updated with it", || stamps(&pair.b, "q") == [2, 2]);
    pair.b.ok("mirror swap q/data --yes");
    pair.a.kill();
    let b = &pair.b;
    // As it was at that moment it fits.
    let plan = b.ok("mirror break --group shop --plan");
    assert!(plan.contains("q/data is the original here already"), "{plan}");

    let mut host = b.nbd("q/data");
    host.write(0, &[9; 4096]).and_then(|()| host.flush()).unwrap();
    drop(host);
    eventually("the host is gone", || writers(b, "q/data") == 0);
    let mut said = String::new();
    for command in ["mirror break --group shop --plan", "mirror break --group shop --yes"] {
        said = b.fails(4, command);
        assert!(
            said.contains("q/data is the original here already, and hosts have written to it since"),
            "{said}"
        );
        assert!(said.contains("q/log as of then would not fit. Nothing was changed"), "{said}");
    }
    assert_eq!(status(b, "q/log")["state"], "mirrored");
    let (of_log, of_all) =
        (after(&said, "farside mirror break q/log --at "), after(&said, "rollback --group shop --at "));

    // By itself: then it is said that the two do not fit, until they do.
    b.ok("mirror break q/log --yes");
    let differ = "the volumes of group shop went on from different points";
    for command in ["mirror status", "status", "mirror status q/log"] {
        let said = b.ok(command);
        assert!(said.contains(differ), "{command}: {said}");
    }
    assert!(b.fails(1, "mirror check").contains(differ));
    assert!(b.ok("snapshot list q/log").contains(of_log));
    b.ok(&format!("snapshot rollback --group shop --at {of_all} --yes"));
    assert_eq!(stamps(b, "q"), [2, 2]);
    let said = b.ok("mirror status --all");
    assert!(!said.contains(differ), "{said}");
    // What each takes by itself from then on is nothing that it went on from.
    b.ok("snapshot create q/data@later");
    pair.b.stop();
    pair.b.restart();
    let said = pair.b.ok("mirror status --all");
    assert!(!said.contains(differ), "{said}");
}

#[test]
fn one_of_a_group_that_was_rolled_back_alone_shows_in_status_and_check() {
    let mut pair = Pair::start();
    grouped(&pair, " --keep last=4");
    let (a, b) = (&pair.a, &pair.b);
    for stamp in [2, 3] {
        write(a, "p", stamp);
        b.ok("mirror update q/data");
        eventually("the log is updated with it", || stamps(b, "q") == [stamp; 2]);
    }
    b.ok("mirror break --group shop --yes");
    let differ = "the volumes of group shop went on from different points";
    assert!(!b.ok("mirror status").contains(differ));
    let current = status(b, "q/data")["current_snapshot"].clone();
    let all = b.json("snapshot list q/data");
    let older = all.as_array().unwrap().iter().rev().find(|s| s["name"] != current).unwrap();
    let older = older["name"].as_str().unwrap();
    b.ok(&format!("snapshot rollback q/data@{older} --yes"));
    assert_eq!(stamps(b, "q"), [2, 3]);
    assert!(b.ok("mirror status").contains(differ) && b.fails(1, "mirror check").contains(differ));
    // Whoever types a break wants none of them to follow when the source is back, also where it is refused.
    pair.a.kill();
    let b = &pair.b;
    eventually("the session is gone", || b.json("peer status a")["state"] != "connected");
    b.ok("mirror resync q/data --no-wait --timeout 10m");
    let waits = "a resync that was asked for waits";
    assert!(b.ok("mirror status").contains(waits));
    let plan = b.fails(4, "mirror break --group shop --plan");
    assert!(
        plan.contains("at different points") && plan.contains("farside mirror abort q/data gives it up"),
        "{plan}"
    );
    assert!(b.ok("mirror status").contains(waits), "a plan changes nothing");
    let said = b.fails(4, "mirror break --group shop --yes");
    assert!(said.contains("Nothing was changed; q/data: the resync that waited is given up"), "{said}");
    eventually("none waits", || !b.ok("mirror status").contains(waits));
    b.ok(&format!("snapshot rollback --group shop --at {older} --yes"));
    assert_eq!(stamps(b, "q"), [2, 2]);
    assert!(!b.ok("mirror status").contains(differ) && !b.fails(1, "mirror check").contains(differ));
}

/// A command that goes on beside the test.
fn beside(site: &Site, command: &str) -> std::thread::JoinHandle<Output> {
    let mut command = site.command(command);
    std::thread::spawn(move || command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap())
}

#[test]
fn a_swap_of_a_group_at_both_sites_is_refused_at_the_second_and_told_truly_at_the_first() {
    let mut random = StdRng::seed_from_u64(seed());
    let pair = Pair::start();
    grouped(&pair, "");
    let (a, b) = (&pair.a, &pair.b);
    // Both sites know the group, and the way back.
    b.ok("mirror swap --group shop --yes");
    a.ok("mirror swap --group shop --yes");
    fill(a, "p/log", &mut random);

    b.ok(&format!("mirror set q/log --throttle {SLOW}"));
    let first = beside(b, "mirror swap --group shop --yes");
    eventually("one has changed its role, and the other is under way", || {
        replica(a, "p/data")["state"] == "mirrored" && replica(b, "q/log")["changes_roles"] == true
    });
    let fetches = "b:q/log fetches an update of p/log";
    eventually("it is fetched", || a.ok("mirror status").contains(fetches));
    assert!(b.ok("mirror status").contains("q/log changes roles with a:p/log at this moment"));
    let said = b.fails(4, "mirror swap --group shop --yes");
    assert!(said.contains("q/log changes roles with a:p/log at this moment"), "{said}");
    // What it is fetched for is not known here, unless the other site may be asked.
    let said = a.fails(4, "mirror swap --group shop --yes");
    assert!(said.contains(fetches) && said.contains("No role was changed"), "{said}");
    b.ok("peer set a --role operator");
    for command in ["mirror swap --group shop --plan", "mirror swap --group shop --yes"] {
        let said = a.fails(4, command);
        assert!(said.contains("at b a change of roles is under way"), "{said}");
        assert!(said.contains("No role was changed"), "{said}");
    }
    assert_eq!(replica(a, "p/data")["state"], "mirrored", "nothing was taken back");

    // By itself it goes back all the same: what the first command says at its end is so.
    a.ok("mirror swap p/data --yes");
    b.ok("mirror set q/log --throttle unlimited");
    let ended = first.join().unwrap();
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}{}", text(&ended.stdout));
    assert!(said.contains("q/data changed roles, and is not the original here any more"), "{said}");
    assert!(said.contains("q/log is the original here"), "{said}");

    // What follows again in a group that is split shows no one moment with the rest, and no update makes it.
    b.ok("mirror break q/data --yes");
    let plan = b.ok("mirror resync --group shop --plan");
    assert!(plan.contains("the group stays split"), "{plan}");
    let said = b.ok("mirror resync --group shop --yes");
    let split = "group shop is split: q/log is the original here, q/data is the replica of a:p/data";
    assert!(said.contains(split), "{said}");
    assert!(!said.contains("update --group") && !said.contains("is broken off"), "{said}");
    assert_eq!(replica(b, "q/data")["state"], "mirrored");
}

/// What tells that a group is of two histories, and refuses to make one of it.
fn of_two_histories(site: &Site) -> [String; 5] {
    let swap = site.fails(4, "mirror swap --group shop --yes");
    let breaks =
        [site.fails(4, "mirror break --group shop --plan"), site.fails(4, "mirror break --group shop --yes")];
    let told =
        [vec![site.ok("mirror status"), site.fails(1, "mirror check"), swap], breaks.to_vec()].concat();
    let told: [String; 5] = told.try_into().unwrap();
    for said in &told {
        assert!(said.contains("these are of two histories"), "{said}");
    }
    told
}

/// Who was followed once may have been taken over since, and cannot know that without a session.
#[test]
fn what_may_have_been_taken_over_meanwhile_is_not_called_the_original() {
    let mut pair = Pair::start();
    grouped(&pair, "");
    for volume in VOLUMES {
        pair.b.ok(&format!("peer allow a q/{volume} --reverse"));
    }
    pair.b.ok("mirror swap --group shop --yes");
    let said = pair.b.fails(4, "mirror resync --group shop --yes");
    assert!(said.contains("q/data is the original here"), "{said}");
    pair.a.kill();
    eventually("it is away", || pair.b.json("peer list")[0]["state"] != "connected");
    for command in
        ["mirror resync --group shop --timeout 2s --plan", "mirror resync --group shop --timeout 2s --yes"]
    {
        let said = pair.b.fails(1, command);
        assert!(said.contains("there is no session with a since"), "{said}");
        assert!(!said.contains("is the original here") && !said.contains("mirror swap"), "{said}");
    }
}

/// Whoever types it as soon as the site is there, as the other one says, does not hear that there is no such group.
#[test]
fn a_former_source_waits_until_it_is_told_what_was_taken_over() {
    let mut pair = Pair::start();
    grouped(&pair, "");
    for volume in VOLUMES {
        pair.b.ok(&format!("peer allow a q/{volume} --reverse"));
    }
    pair.b.ok("mirror update --group shop");
    pair.a.kill();
    pair.b.ok("mirror break --group shop --yes");
    write(&pair.b, "q", 7);
    // With nobody there it says so.
    let mut b = pair.b;
    b.kill();
    pair.a.restart();
    let said = pair.a.fails(1, "mirror resync --group shop --timeout 1s --yes");
    assert!(said.contains("there is no session with b"), "{said}");
    pair.a.kill();
    b.restart();
    pair.a.restart();
    let said = pair.a.ok("mirror resync --group shop --timeout 60s --yes");
    assert!(said.contains("p/data, p/log show one moment since"), "{said}");
    assert_eq!(stamps(&pair.a, "p"), [7, 7]);
    // A name that is none is not waited for.
    assert!(pair.a.fails(3, "mirror resync --group shpo --yes").contains("in a group shpo"));
}

/// Who has broken off one volume by mistake, and has it follow again, has a group of one moment.
#[test]
fn a_volume_that_follows_again_by_itself_comes_with_the_rest_of_its_group() {
    let pair = Pair::start();
    grouped(&pair, "");
    let (a, b) = (&pair.a, &pair.b);
    b.ok("mirror update --group shop");
    write(a, "p", 3);
    b.ok("mirror break q/data --yes");
    write(a, "p", 4);
    b.ok("mirror resync q/data --yes");
    assert_eq!(stamps(b, "q"), [4, 4]);
    let said = b.ok("mirror check");
    assert!(!said.contains("different moments") && !said.contains("is broken off"), "{said}");
    // Beside another that is broken off it follows as before.
    b.ok("mirror break --group shop --yes");
    write(a, "p", 5);
    b.ok("mirror resync q/data --yes");
    assert_eq!(stamps(b, "q"), [5, 4]);
}

/// Nobody has to ask for the moment that makes a group one again, at a site that may not be looked at from here.
#[test]
fn after_first_copies_and_after_a_swap_a_group_has_a_moment_at_which_it_can_be_taken_over() {
    let mut pair = Pair::start();
    for volume in VOLUMES {
        pair.a.ok(&format!("volume create p/{volume} --size 4M"));
        pair.a.ok(&format!("peer allow b p/{volume} --reverse"));
        let said = pair.b.ok(&format!("mirror create a:p/{volume} q/{volume} --group shop"));
        assert!(said.contains("farside mirror initialize --group shop"), "{said}");
        pair.b.ok(&format!("peer allow a q/{volume} --reverse"));
    }
    // One by one they have none.
    for volume in VOLUMES {
        pair.b.ok(&format!("mirror initialize q/{volume}"));
    }
    assert!(pair.b.fails(1, "mirror check").contains("they have no moment in common"));
    pair.b.fails(4, "mirror break --group shop --plan");
    for volume in VOLUMES {
        pair.b.ok(&format!("mirror delete q/{volume} --yes"));
        pair.b.ok(&format!("volume delete q/{volume} --yes"));
        pair.b.ok(&format!("mirror create a:p/{volume} q/{volume} --group shop"));
    }
    let said = pair.b.ok("mirror initialize --group shop");
    assert!(said.contains("all of group shop show one moment since"), "{said}");
    pair.b.ok("mirror check");
    pair.b.ok("mirror break --group shop --plan");
    let said = pair.b.ok("mirror swap --group shop --yes");
    assert!(said.contains("a does that by itself within some seconds"), "{said}");
    // Until then what they last had in common as sources may be there for a moment.
    eventually("a has brought its replicas to one moment", || {
        let is_well = |command| pair.a.farside(command).status.success();
        is_well("mirror check") && is_well("mirror break --group shop --plan")
    });
    pair.b.kill();
    pair.a.ok("mirror break --group shop --yes");
}

/// A group that was taken over, of which each site may follow the other.
fn taken_over() -> Pair {
    let pair = Pair::start();
    grouped(&pair, " --every 1s --keep last=4");
    let b = &pair.b;
    for volume in VOLUMES {
        b.ok(&format!("peer allow a q/{volume} --reverse"));
    }
    eventually("they follow", || stamps(b, "q") == [1, 1]);
    b.ok("mirror update --group shop");
    b.ok("mirror break --group shop --yes");
    pair
}

/// One volume of a group is given back by the one site and the other by the other: data of two histories, which no swap makes one.
#[test]
fn a_group_that_was_resynced_in_both_directions_is_told_and_taken_back() {
    let pair = taken_over();
    let (a, b) = (&pair.a, &pair.b);
    write(b, "q", 7);
    write(a, "p", 8);
    // Each site's administrator takes one of them.
    eventually("the source has heard", || status(a, "p/data")["overtaken"].is_object());
    a.ok("mirror resync p/data --from b:q/data --yes");
    let said = b.ok("mirror resync --group shop --yes");
    assert!(said.contains("these are of two histories"), "{said}");
    let rescue = status(b, "q/log")["set_aside"]["name"].as_str().unwrap().to_owned();
    for said in of_two_histories(b) {
        assert!(said.contains(&format!("farside mirror break q/log --at {rescue} here")), "{said}");
        assert!(!said.contains("farside mirror swap"), "{said}");
    }
    // What was written here counts, as it says.
    b.ok(&format!("mirror break q/log --at {rescue} --yes"));
    assert_eq!(stamps(b, "q"), [7, 7]);
    let said = b.ok("mirror status");
    assert!(!said.contains("different points") && !said.contains("is split"), "{said}");
    eventually("the source has heard", || status(a, "p/log")["overtaken"].is_object());
    a.ok("mirror resync p/log --from b:q/log --yes");
    eventually("both follow", || stamps(a, "p") == [7, 7]);
}

/// After a failover the former source knows the group by what it was told: one command has all of it follow, and one takes that back.
#[test]
fn a_group_follows_whoever_has_taken_it_over_by_one_command() {
    let pair = Pair::start();
    grouped(&pair, "");
    let (a, b) = (&pair.a, &pair.b);
    b.ok("mirror update --group shop");
    b.ok("mirror break --group shop --yes");
    write(b, "q", 7);
    write(a, "p", 8);
    eventually("both are told", || {
        VOLUMES.iter().all(|v| status(a, &format!("p/{v}"))["overtaken"]["group"] == "shop")
    });
    let said = a.ok("mirror status");
    assert!(
        said.contains("GROUP") && said.contains("farside mirror resync --group shop takes over"),
        "{said}"
    );
    let plan = a.ok("mirror resync p/data --from b:q/data --plan");
    assert!(plan.contains("p/data is in group shop, of which p/log stays in use here"), "{plan}");
    let plan = a.ok("mirror resync --group shop --plan");
    assert!(plan.contains("2 of 2 volumes follow again"), "{plan}");
    assert!(
        plan.contains("resync p/data from b:q/data") && plan.contains("resync p/log from b:q/log"),
        "{plan}"
    );
    assert_eq!(stamps(a, "p"), [8, 8], "nothing is changed");
    let said = a.ok("mirror resync --group shop --yes");
    assert_eq!(stamps(a, "p"), [7, 7]);
    assert!(said.contains("p/data, p/log show one moment since"), "{said}");
    for volume in VOLUMES {
        assert_eq!(status(a, &format!("p/{volume}"))["group"], "shop");
    }
    assert!(a.ok("mirror resync --group shop --yes").contains("nothing is broken off"));
    // What it says takes it back.
    let back = said.lines().find_map(|line| Some(line.split_once("farside ")?.1)).unwrap_or_default();
    assert!(back.starts_with("mirror break --group shop --at rescue-"), "{said}");
    a.ok(&format!("{back} --yes"));
    assert_eq!(stamps(a, "p"), [8, 8]);
}

/// One of it was given back by itself: the rest is named, and the same command goes on with it.
#[test]
fn a_group_of_which_one_follows_who_has_taken_it_over_is_gone_on_with() {
    let pair = Pair::start();
    grouped(&pair, "");
    let (a, b) = (&pair.a, &pair.b);
    b.ok("mirror update --group shop");
    b.ok("mirror break --group shop --yes");
    write(b, "q", 7);
    eventually("both are told", || {
        VOLUMES.iter().all(|v| status(a, &format!("p/{v}"))["overtaken"]["group"] == "shop")
    });
    a.ok("mirror resync p/data --from b:q/data --yes");
    assert_eq!(status(a, "p/data")["group"], "shop");
    let said = a.ok("mirror resync --group shop --yes");
    assert!(said.contains("p/data follows b:q/data already"), "{said}");
    assert_eq!(stamps(a, "p"), [7, 7]);
    assert!(!a.ok("mirror status").contains("is split"));
}

fn write_to(site: &Site, volume: &str, stamp: u8) {
    let mut host = site.nbd(volume);
    host.write(0, &[stamp; 4096]).and_then(|()| host.flush()).unwrap();
    drop(host);
    eventually("the host is gone", || writers(site, volume) == 0);
}

/// The same where hosts had not written to what was given back: nothing was set aside of it here, and at the other site no group is known.
#[test]
fn no_change_of_roles_mixes_two_histories_of_a_group_at_either_site() {
    let pair = taken_over();
    let (a, b) = (&pair.a, &pair.b);
    write_to(b, "q/data", 7);
    write_to(a, "p/log", 8);
    eventually("the source has heard", || status(a, "p/data")["overtaken"].is_object());
    a.ok("mirror resync p/data --from b:q/data --yes");
    let plan = b.ok("mirror resync q/log --plan");
    assert!(plan.contains("q/log is in group shop, of which q/data stays in use here"), "{plan}");
    let said = b.ok("mirror resync q/log --yes");
    assert!(said.contains("q/data is in use here, and q/log of the same group (shop) follows"), "{said}");
    eventually("it follows", || status(b, "q/log")["state"] == "mirrored");
    assert_eq!(status(b, "q/log")["set_aside"], Value::Null);
    let left = status(b, "q/log")["was_in_use"]["left_as"]
        .as_str()
        .expect("what it showed is here still")
        .to_owned();
    for said in of_two_histories(b) {
        assert!(said.contains(&format!("farside mirror break q/log --at {left} here")), "{said}");
    }
    // Only this site knows that the two are of one group.
    for (site, command) in [(b, "mirror swap q/log"), (a, "mirror swap p/data")] {
        assert!(site.ok(&format!("{command} --plan")).contains("these are of two histories"));
        let said = site.fails(4, &format!("{command} --yes"));
        assert!(said.contains("these are of two histories") && said.contains("--group none"), "{said}");
    }
    let said = b.ok("mirror break q/log --plan");
    assert!(said.contains("these are of two histories") && !said.contains("mirror swap"), "{said}");
    let said = b.ok(&format!("mirror break q/log --at {left} --plan"));
    assert!(
        said.contains("it fits to what hosts have written here") && !said.contains("two histories"),
        "{said}"
    );
    // What was written here counts, as it says.
    b.ok(&format!("mirror break q/log --at {left} --yes"));
    assert_eq!(stamps(b, "q"), [7, 1]);
    let said = b.ok("mirror status");
    assert!(!said.contains("two histories") && !said.contains("different points"), "{said}");
}

/// One volume of a group was taken over by itself, and its former source follows that: the other never parted from its own.
#[test]
fn a_part_of_a_group_that_was_taken_over_alone_is_mixed_with_nothing() {
    let pair = Pair::start();
    grouped(&pair, "");
    let (a, b) = (&pair.a, &pair.b);
    for volume in VOLUMES {
        b.ok(&format!("peer allow a q/{volume} --reverse"));
    }
    b.ok("mirror update --group shop");
    b.ok("mirror break q/log --yes");
    write_to(b, "q/log", 50);
    write_to(a, "p/data", 43);
    eventually("it is told", || status(a, "p/log")["overtaken"]["group_rest"] == 1);
    let said = a.ok("mirror status");
    assert!(said.contains("of which b did not take over one volume"), "{said}");
    for command in ["mirror resync --group shop --plan", "mirror resync --group shop --yes"] {
        let said = a.fails(4, command);
        assert!(
            said.contains("b has taken over p/log alone") && said.contains("Nothing was changed"),
            "{said}"
        );
    }
    a.ok("mirror resync p/log --from b:q/log --yes");
    eventually("it is followed", || replica(b, "q/log")["source_heard"] == "follows");
    for said in of_two_histories(b) {
        assert!(said.contains("q/data was not taken over with it"), "{said}");
    }
    let said = a.fails(4, "mirror swap p/log --yes");
    assert!(said.contains("these are of two histories"), "{said}");
    // All of it at the other site, as it says.
    b.ok("mirror break q/data --yes");
    eventually("both are told", || status(a, "p/data")["overtaken"]["group_rest"] == 0);
    a.ok("mirror resync --group shop --yes");
    assert!(!b.ok("mirror status").contains("two histories"));
}

/// What was set aside of one volume fits to the other for as long as both are there, whatever has rotated away meanwhile.
#[test]
fn a_side_branch_knows_what_it_went_on_from_when_that_point_is_gone() {
    let pair = Pair::start();
    grouped(&pair, " --every 1s --keep last=2");
    let (a, b) = (&pair.a, &pair.b);
    eventually("they follow", || stamps(b, "q") == [1, 1]);
    b.ok("mirror update --group shop");
    b.ok("mirror break --group shop --yes");
    write(b, "q", 7);
    b.ok("mirror resync q/log --yes");
    let rescue = status(b, "q/log")["set_aside"]["name"].as_str().unwrap().to_owned();
    b.ok("mirror set q/log --group none");
    for stamp in 20..26 {
        write_to(a, "p/log", stamp);
        b.ok("mirror update q/log");
    }
    b.ok("mirror set q/log --group shop");
    b.ok(&format!("mirror break q/log --at {rescue} --yes"));
    assert_eq!(stamps(b, "q"), [7, 7]);
    let said = b.ok("mirror status");
    assert!(!said.contains("different points") && !said.contains("may not fit"), "{said}");
}

#[test]
fn what_is_to_be_resynced_is_no_replica_yet_and_is_given_back_as_it_was() {
    let mut random = StdRng::seed_from_u64(seed());
    let mut pair = Pair::start();
    grouped(&pair, " --every 2s");
    let (a, b) = (&pair.a, &pair.b);
    write(a, "p", 2);
    eventually("they follow", || stamps(b, "q") == [2, 2]);
    b.ok("mirror break --group shop --yes");
    write(b, "q", 7);
    b.ok("snapshot create q/data@g q/log@g");
    write(b, "q", 8);
    for volume in VOLUMES {
        fill(a, &format!("p/{volume}"), &mut random);
        b.ok(&format!("mirror set q/{volume} --throttle {SLOW}"));
        eventually("the host is gone", || writers(b, &format!("q/{volume}")) == 0);
        b.ok(&format!("mirror resync q/{volume} --yes --no-wait"));
    }
    let own =
        |site: &Site| VOLUMES.iter().all(|v| status(site, &format!("q/{v}"))["shows_own_state"] == true);
    eventually("they are to be resynced", || own(b));
    eventually("it is under way", || status(b, "q/log")["state"] == "transferring");
    pair.a.kill();
    pair.b.kill();
    pair.b.restart();
    let b = &pair.b;
    eventually("so they are after a restart", || own(b));

    for volume in VOLUMES {
        let shown = status(b, &format!("q/{volume}"));
        assert_eq!(shown["current_snapshot"], Value::Null, "{shown}");
        eventually("what it shows is said", || {
            let why = status(b, &format!("q/{volume}"))["why"].as_str().unwrap_or_default().to_owned();
            why.contains(&format!("q/{volume} shows its own state")) && !why.contains("replica is unchanged")
        });
    }
    let said = b.fails(1, "mirror check");
    assert!(said.contains("q/data is to be resynced first: it shows its own state"), "{said}");
    let plan = b.ok("mirror break q/data --plan");
    assert!(plan.contains("holds its own state, as hosts here left it"), "{plan}");
    let drill = b.ok("mirror drill --group shop");
    assert!(drill.contains("a resync is pending of q/data, q/log"), "{drill}");
    assert!(drill.contains("and not what a has now"), "{drill}");

    let plan = b.ok("mirror break --group shop --plan");
    assert!(plan.contains("each stays as hosts here left it"), "{plan}");
    let said = b.ok("mirror break --group shop --yes");
    assert!(said.contains("q/data, q/log are writable, as hosts here left them"), "{said}");
    assert!(!said.contains("as of "), "{said}");
    assert_eq!(stamps(b, "q"), [8, 8]);
    for volume in VOLUMES {
        let shown = status(b, &format!("q/{volume}"));
        assert_eq!((&shown["state"], &shown["shows_own_state"]), (&"broken-off".into(), &Value::Null));
    }
}
