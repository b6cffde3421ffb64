use farside_api::{ErrorBody, ErrorCode, Plan, Timestamp};
use farside_engine::VolumeName;

use super::*;
use crate::exports::Clients;

fn volume() -> VolumeName {
    "p/db".parse().unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The plan as text, in the order in which it is read; figures as (blocks, bytes, seconds).
fn shown(plan: &Plan) -> String {
    let mut text = format!("{}\n", plan.action);
    plan.would.iter().for_each(|line| text += &format!("would: {line}\n"));
    plan.lost.iter().for_each(|line| text += &format!("lost: {line}\n"));
    text += &format!("lost: {:?} {:?} {:?}\n", plan.lost_blocks, plan.lost_bytes, plan.lost_seconds);
    if let Some(kept) = &plan.kept_as {
        text += &format!("kept: {kept}\n");
        text += &format!("kept: {:?} {:?} {:?}\n", plan.kept_blocks, plan.kept_bytes, plan.kept_seconds);
    }
    text
}

#[track_caller]
fn golden(plan: &Plan, wanted: &str) {
    let wanted: String = wanted.lines().map(|line| format!("{}\n", line.trim_start())).collect();
    assert_eq!(shown(plan), wanted.trim_start_matches('\n'));
}

fn rollback_facts<'a>(volume: &'a VolumeName, by: &'a [String]) -> RollbackFacts<'a> {
    RollbackFacts {
        volume,
        snapshot: "monday",
        created_at: at("2026-11-16T03:00:00Z"),
        on_main_line: true,
        size_bytes: 1 << 20,
        snapshot_size_bytes: 1 << 20,
        changed_bytes: Some(3 * 4096),
        held_by: None,
        age_seconds: 90.0,
        followed_by: by,
        broken_off: &[],
        fence: None,
        group: None,
        lets_go: &[],
    }
}

#[test]
fn a_rollback_loses_nothing() {
    let (volume, by) = (volume(), vec![String::from("b:q/db")]);
    golden(
        &rollback(&rollback_facts(&volume, &by)),
        "roll p/db back to monday
         would: hosts find p/db as it was at 2026-11-16T03:00:00Z, when monday was taken
         would: b:q/db follows at its next update. What is newer there stays as a side branch, and the alarm source-went-back \
         is raised there, as nobody at b knows that it is meant: farside mirror update q/db there ends it
         lost: Some(0) Some(0) Some(0.0)
         kept: a side branch p/db@rescue-TIME (its name is printed when it is done); it opens read-only over NBD under that name, and farside snapshot rollback goes back to it
         kept: Some(3) Some(12288) Some(90.0)",
    );
    let saved = RollbackFacts {
        held_by: Some("tuesday"),
        on_main_line: false,
        snapshot_size_bytes: 4096,
        ..rollback_facts(&volume, &[])
    };
    golden(
        &rollback(&saved),
        "roll p/db back to monday
         would: hosts find p/db as it was at 2026-11-16T03:00:00Z, when monday was taken
         would: its size becomes 4096 bytes instead of 1048576
         would: monday lies on a side branch, which becomes the main line
         lost: Some(0) Some(0) Some(0.0)
         kept: p/db@tuesday; it opens read-only over NBD under that name, and farside snapshot rollback goes back to it
         kept: Some(3) Some(12288) Some(90.0)",
    );
    let overtaken = RollbackFacts {
        followed_by: &[],
        broken_off: &by,
        fence: Some("it is fenced: b has overtaken it"),
        ..rollback_facts(&volume, &[])
    };
    golden(
        &rollback(&overtaken),
        "roll p/db back to monday
         would: hosts find p/db as it was at 2026-11-16T03:00:00Z, when monday was taken
         would: hosts may read it, and not write, as before: it is fenced: b has overtaken it
         would: b:q/db stays as it is: it was broken off from p/db, and follows nothing
         lost: Some(0) Some(0) Some(0.0)
         kept: a side branch p/db@rescue-TIME (its name is printed when it is done); it opens read-only over NBD under that name, and farside snapshot rollback goes back to it
         kept: Some(3) Some(12288) Some(90.0)",
    );
    let old = [String::from("rescue-2026-11-01T08:00:00Z")];
    let pushed = rollback(&RollbackFacts { lets_go: &old, ..rollback_facts(&volume, &[]) });
    assert!(
        pushed.lost[0].contains("farside snapshot hold p/db@rescue-2026-11-01T08:00:00Z"),
        "{}",
        shown(&pushed)
    );
    assert!(pushed.lost_bytes.is_none());
    let of_group = rollback(&RollbackFacts { group: Some("shop"), ..rollback_facts(&volume, &[]) });
    assert_eq!(
        of_group.would[1],
        "the other volumes of group shop stay where they are: unless they show that moment too, the group shows no moment in common \
         then; farside snapshot rollback --group shop --at monday takes all of them to it, if all have it"
    );
    let same = RollbackFacts { changed_bytes: Some(0), ..rollback_facts(&volume, &[]) };
    assert_eq!(rollback(&same).kept_as, None);
}

#[test]
fn what_deletes_says_that_clones_stay() {
    let clones = ["p/drill".to_owned(), "p/test".to_owned()];
    let plans = [
        delete_snapshot(
            &volume(),
            "monday",
            at("2026-11-16T03:00:00Z"),
            true,
            Some(8192),
            main_line(12288),
            &clones,
        ),
        delete_volume(&volume(), 2, Some(8192), &clones, &[], &[]),
    ];
    for plan in plans {
        let stay = plan
            .would
            .iter()
            .any(|line| line.starts_with("clones of it stay") && line.ends_with(": p/drill, p/test"));
        assert!(stay, "{plan:?}");
    }
}

#[test]
fn a_smaller_retention_says_which_points_go() {
    let point = |name: &str, at_text: &str| (name.to_owned(), at(at_text));
    let gone = [point("p/db@one", "2026-11-16T03:00:00Z"), point("p/db@two", "2026-11-17T03:00:00Z")];
    let plan = rotate_otherwise(&volume(), Some("last=3"), &gone, 5);
    assert_eq!(plan.would, ["3 of 5 points stay"]);
    assert_eq!(
        plan.lost,
        [
            "2 points go for good; the oldest is p/db@one of 2026-11-16T03:00:00Z, the newest is p/db@two of 2026-11-17T03:00:00Z. \
          farside snapshot hold keeps one"
        ]
    );
    assert!(plan.lost_blocks.is_none() && plan.lost_bytes.is_none(), "it is not known here");
    let one = rotate_otherwise(&volume(), Some("last=3"), &gone[..1], 4);
    assert!(one.lost[0].starts_with("1 point goes for good; the oldest is p/db@one"), "{one:?}");
    // Of one that is broken off they go later, and all at once.
    let then = rotate_otherwise_then(&volume(), "last=3", &gone, 5);
    assert_eq!(then.would, ["p/db is broken off: all 5 points stay until it follows again"]);
    assert!(
        then.lost[0].starts_with(
            "once p/db follows again (farside mirror resync), 2 of 5 go for good: p/db@one of 2026"
        ) && then.lost[0].contains("p/db@two"),
        "{then:?}"
    );
    assert!(rotate_otherwise_then(&volume(), "last=9", &[], 5).lost.is_empty());
    let same = rotate_otherwise(&volume(), Some("last=9"), &[], 5);
    assert!(same.lost.is_empty() && same.lost_bytes == Some(0));
}

#[test]
fn a_pool_whose_file_is_gone_is_not_said_to_leave_one() {
    let there = forget_pool("q", "/srv/q.pool", false, &[]);
    assert!(there.would[0].contains("/srv/q.pool stays as it is"), "{there:?}");
    let gone = forget_pool("q", "/srv/q.pool", true, &["q/v".into()]);
    assert!(
        gone.would[0].contains("Nothing is at /srv/q.pool") && !gone.would[0].contains("stays as it is"),
        "{gone:?}"
    );
    assert_eq!(gone.lost.len(), 1);
}

fn main_line(bytes: u64) -> Frees<'static> {
    Frees { bytes: Some(bytes), heirs: 1, branches: &[] }
}

#[test]
fn a_snapshot_that_more_goes_on_from_gives_nothing_back() {
    let would = |on_main_line, frees| {
        let created_at = at("2026-11-16T03:00:00Z");
        delete_snapshot(&volume(), "monday", created_at, on_main_line, Some(8192), frees, &[]).would[1]
            .clone()
    };
    let branches = ["base-1".to_owned()];
    let forked = would(true, Frees { heirs: 2, branches: &branches, ..main_line(8192) });
    assert!(
        forked.starts_with(
            "nothing comes back in the pool while a side branch that begins at it is there (base-1)"
        ),
        "{forked}"
    );
    assert!(would(false, main_line(0)).starts_with("nothing comes back in the pool: "));
    assert!(would(false, main_line(4096)).starts_with("about 4096 bytes come back in the pool;"));
}

#[test]
fn what_deletes_says_how_much() {
    golden(
        &delete_snapshot(
            &volume(),
            "monday",
            at("2026-11-16T03:00:00Z"),
            true,
            Some(8192),
            main_line(12288),
            &[],
        ),
        "delete snapshot p/db@monday
         would: p/db@monday is deleted; the volume and its other snapshots stay as they are
         would: about 12288 bytes come back in the pool; what deduplication shares stays in use
         lost: the state of p/db at 2026-11-16T03:00:00Z; at most the data that no other version of it holds:
         lost: Some(2) Some(8192) None",
    );
    // What a side branch alone still shows of the past goes with what was written on it.
    let aside = |only_here| {
        let last = Frees { heirs: 0, ..main_line(4096) };
        delete_snapshot(&volume(), "rescue", at("2026-11-16T03:00:00Z"), false, only_here, last, &[])
    };
    assert!(aside(Some(16384)).would[1].contains("about 16384 bytes come back"), "{:?}", aside(Some(16384)));
    assert!(aside(None).would[1].contains("about 4096 bytes come back"));
    golden(
        &delete_volume(&volume(), 2, Some(8192), &[], &["b".into(), "c".into()], &[]),
        "delete volume p/db
         would: p/db and its 2 snapshots are deleted
         would: peers lose their right to mirror it: b, c
         lost: everything in p/db and in its snapshots
         lost: Some(2) Some(8192) None",
    );
    golden(
        &resize(&volume(), 8192, 4096, Some(4096)),
        "resize volume p/db
         would: p/db has 4096 bytes instead of 8192
         would: snapshots that people made keep what they hold past the new end; those of mirrors here go with their next update, those of a timetable when it is their turn, and what a replica has kept as its retention says
         lost: what lies past byte 4096 of p/db, and is not in the newest snapshot that stays
         lost: Some(1) Some(4096) None",
    );
    assert_eq!(resize(&volume(), 8192, 4096, Some(0)).lost, Vec::<String>::new());
    assert_eq!(resize(&volume(), 4096, 8192, None).lost_bytes, Some(0), "growing loses nothing");
    golden(
        &create_pool("p", "/dev/sdb", &["swap space".into()], false),
        "create pool p in /dev/sdb
         would: /dev/sdb becomes an empty pool
         lost: what /dev/sdb holds: swap space
         lost: None None None",
    );
    let refused = |overwrite| create_pool("p", "/dev/sdb", &["swap space".into()], overwrite).refused;
    assert!(refused(false).is_some_and(|why| why.contains("--overwrite")) && refused(true).is_none());
    assert_eq!(create_pool("p", "/dev/sdb", &[], false).lost_bytes, Some(0));
    golden(
        &delete_pool("p", "/srv/p", 3, 1 << 20, &[]),
        "delete pool p
         would: pool p is closed, and /srv/p removed (a raw device: overwritten at its head and end)
         lost: all 3 volumes of the pool with their snapshots; metadata is counted too
         lost: Some(256) Some(1048576) None",
    );
}

#[test]
fn a_break_shows_what_never_arrived_and_what_becomes_a_side_branch() {
    let volume = volume();
    let facts = || BreakFacts {
        volume: &volume,
        source: "a:p/db",
        current: Some(("s9", 12.5)),
        current_rotates: false,
        shows_own_state: false,
        at: None,
        fence: FenceAfter::None,
        arrived_bytes: None,
        answering: None,
        is_swapping: false,
        heard: None,
        readers: 0,
        group: None,
        others_follow: false,
        two_histories: None,
        hosts_refused: None,
        lets_go: &[],
    };
    golden(
        &break_off(&BreakFacts { readers: 2, arrived_bytes: Some(7), ..facts() }),
        "break mirror p/db
         would: hosts may write to p/db, which holds s9 of a:p/db
         would: no more updates come; the source is not asked, and is told at once if there is a session with it, else as soon as there is one: its hosts are stopped then if it was allowed with --fence, and else write on
         would: NBD connections that read the replica are dropped; 2 connections are open
         would: the running transfer ends; the 7 bytes of it that have arrived are dropped
         lost: what was written at a:p/db after s9 and has not arrived; that site still has it, if it is alive
         lost: None None Some(12.5)",
    );
    let at = BreakAt { snapshot: "monday", age_seconds: 3612.5, newer_bytes: Some(4096) };
    golden(
        &break_off(&BreakFacts { at: Some(at), ..facts() }),
        "break mirror p/db at monday
         would: hosts may write to p/db, which holds monday of a:p/db
         would: no more updates come; the source is not asked, and is told at once if there is a session with it, else as soon as there is one: its hosts are stopped then if it was allowed with --fence, and else write on
         lost: what was written at a:p/db after s9 and has not arrived; that site still has it, if it is alive
         lost: None None Some(12.5)
         kept: p/db@s9 (and what lies between), a side branch; it opens read-only over NBD under that name, and farside snapshot rollback goes back to it
         kept: Some(1) Some(4096) Some(3600.0)",
    );
    // Who breaks off a living source at an earlier point wants it no less often by mistake; and a swap does not go on.
    let at = BreakAt { snapshot: "monday", age_seconds: 3612.5, newer_bytes: Some(4096) };
    let alive = break_off(&BreakFacts { at: Some(at), answering: Some("a"), is_swapping: true, ..facts() });
    assert!(alive.would[2].starts_with("the swap of p/db that is under way is ended"), "{}", shown(&alive));
    assert!(alive.would[3].starts_with("a was heard a moment ago: if both sites run"), "{}", shown(&alive));
    // A site that has died wrote nothing since: what was lost may be much less than the time until somebody decides.
    let heard = Heard { peer: "a", at: "2026-11-21T21:00:00Z".parse().unwrap(), after_seconds: 4.0 };
    let away = break_off(&BreakFacts { heard: Some(heard), ..facts() });
    assert!(
        away.lost[1].starts_with("a was last heard at 2026-11-21T21:00:00Z, 4 s after that point"),
        "{}",
        shown(&away)
    );
    assert_eq!(away.lost_seconds, Some(12.5));
    let at = BreakAt { snapshot: "monday", age_seconds: 3612.5, newer_bytes: Some(4096) };
    let of_a_mirror = BreakFacts { at: Some(at), current: Some(("mirror-1-2", 12.5)), ..facts() };
    assert!(break_off(&of_a_mirror).kept_as.unwrap().contains("p/db@rescue-TIME"));
    // What retention lets go one day keeps nothing for good.
    let at = BreakAt { snapshot: "monday", age_seconds: 3612.5, newer_bytes: Some(4096) };
    let rotating = BreakFacts { at: Some(at), current_rotates: true, ..facts() };
    assert!(break_off(&rotating).kept_as.unwrap().contains("p/db@rescue-TIME"));
    assert!(
        break_off(&BreakFacts { current: None, ..facts() }).lost[0].contains("nothing of it has arrived")
    );
    // Before a resync has brought anything the volume is what hosts here made of it.
    let own = || BreakFacts { current: None, shows_own_state: true, ..facts() };
    let said = break_off(&own());
    assert!(
        said.would[0].contains("holds its own state, as hosts here left it: the resync"),
        "{}",
        shown(&said)
    );
    assert!(!shown(&said).contains("nothing is taken over") && said.kept_as.is_none(), "{}", shown(&said));
    let at = BreakAt { snapshot: "monday", age_seconds: 3612.5, newer_bytes: Some(4096) };
    assert!(break_off(&BreakFacts { at: Some(at), ..own() }).kept_as.unwrap().contains("p/db@rescue-TIME"));
    let old = [String::from("rescue-2026-11-01T08:00:00Z")];
    let pushed = break_off(&BreakFacts { lets_go: &old, ..facts() });
    assert!(
        pushed.lost[0].contains("the old side branch p/db@rescue-2026-11-01T08:00:00Z"),
        "{}",
        shown(&pushed)
    );
    assert!(pushed.lost[1].starts_with("what was written at a:p/db"), "{}", shown(&pushed));
    assert_eq!(pushed.lost_seconds, Some(12.5), "the time is that of what did not arrive");
    let full = break_off(&BreakFacts { hosts_refused: Some("no room. Free 4 MiB"), ..facts() });
    assert!(
        full.would[1].contains("hosts' writes to p/db fail for now: no room. Free 4 MiB"),
        "{}",
        shown(&full)
    );
    assert_eq!(full.refused, None);
}

#[test]
fn a_resync_that_failed_says_that_the_role_has_changed() {
    let failed = || ErrorBody::new(ErrorCode::Failed, "resync of p/db: no space");
    let hint = after_role_change(failed(), &volume(), true).hint.unwrap();
    assert!(
        hint.contains("p/db is a read-only replica again") && hint.contains("farside mirror break p/db"),
        "{hint}"
    );
    let hint = after_role_change(failed().hint("see the log"), &volume(), true).hint.unwrap();
    assert!(hint.ends_with("tries again. see the log"), "{hint}");
    assert!(after_role_change(failed(), &volume(), false).hint.is_none(), "hosts may write there");
    assert!(has_crossed("p/v was asked at the same time to follow it, and does"));
    assert!(has_crossed("p/v at the source was asked at the same time to follow q/v. q/v gives way"));
    assert!(!has_crossed("no session with the peer"));
}

#[test]
fn resync_and_swap_lose_nothing() {
    let volume = volume();
    let facts = ResyncFacts {
        volume: &volume,
        from: "b:q/db",
        base: Some("s9"),
        incoming_bytes: Some(3 * 4096),
        emptied_bytes: 0,
        diverged_bytes: Some(8192),
        diverged_seconds: Some(600.0),
        ends: Some("b:q/db"),
        replaces: None,
        taken_over_by: &[],
        compares: false,
        is_left: false,
        in_use: None,
        held_by: None,
        follows: None,
        lets_go: &[],
        with_group: None,
        retention_lets_go: &[],
    };
    golden(
        &resync(&facts),
        "resync p/db from b:q/db
         would: p/db becomes the replica of b:q/db: hosts may not write to it from then on
         would: what b:q/db wrote since s9 (3 blocks of 4 KiB) travels; until all of it is here, p/db shows what it shows now
         would: the mirror of p/db at b:q/db is over, or stays broken off, until that side is resynced again
         lost: Some(0) Some(0) Some(0.0)
         kept: a side branch p/db@rescue-TIME (its name is printed when it is done); it opens read-only over NBD under that name, and farside mirror break p/db --at that name goes back to it
         kept: Some(2) Some(8192) Some(600.0)",
    );
    let another = resync(&ResyncFacts { ends: None, replaces: Some("c:w/db"), compares: true, ..facts });
    assert!(another.would[1].contains("all of p/db is compared with b:q/db"), "{another:?}");
    assert!(another.would[1].contains("stays as p/db@rescue-TIME"), "{another:?}");
    assert!(another.would[2].contains("where b:q/db is empty, p/db is empty too"), "{another:?}");
    assert!(another.would[3].contains("the mirror of p/db with c:w/db is over"), "{another:?}");
    let kept = another.kept_as.unwrap();
    assert!(kept.contains("p/db@rescue-TIME") && another.kept_bytes.is_none(), "{kept}");
    let facts = ResyncFacts { compares: false, ..facts };
    // A source that was taken back has what is here on a side branch.
    let left = resync(&ResyncFacts { is_left: true, diverged_bytes: Some(0), ..facts }).kept_as.unwrap();
    assert!(left.contains("p/db@rescue-TIME"), "{left}");
    let used = ["p/log".to_owned()];
    let of_group = resync(&ResyncFacts { in_use: Some(("shop", &used)), ..facts });
    assert!(of_group.would[2].contains("in group shop, of which p/log stays in use here"), "{of_group:?}");
    let emptied = resync(&ResyncFacts { emptied_bytes: 2 * 4096, ..facts });
    assert!(emptied.would[2].contains("2 blocks of 4 KiB held data at s9 and are empty"), "{emptied:?}");
    // Another's volume by mistake.
    let by = ["b:q/other".to_owned()];
    let mistaken = resync(&ResyncFacts { taken_over_by: &by, ..facts });
    assert_eq!(mistaken.would[0], "p/db was taken over by b:q/other, and this follows b:q/db instead");
    assert!(mistaken.lost[0].contains("farside mirror resync p/db --from b:q/other"), "{mistaken:?}");
    assert!(waits_for_session("b", std::time::Duration::from_secs(60)).contains("and then begin"));
    // The side branch that is made pushes an old one out.
    let old = ["rescue-2027-01-15T08:00:00Z".to_owned()];
    let pushed = resync(&ResyncFacts { lets_go: &old, ..facts });
    assert!(pushed.lost[0].contains("p/db@rescue-2027-01-15T08:00:00Z"), "{pushed:?}");
    assert!(pushed.lost[0].contains("farside snapshot hold"), "{pushed:?}");
    // So do the points that retention has kept while nothing rotated.
    let points: Vec<_> = (0..12).map(|n| (format!("p/db@point-{n}"), at("2027-01-15T08:00:00Z"))).collect();
    let lost = resync(&ResyncFacts { retention_lets_go: &points, ..facts }).lost.remove(0);
    assert!(lost.contains("p/db@point-9 of 2027-01-15T08:00:00Z and 2 newer ones"), "{lost}");
    assert!(lost.contains("once p/db follows again") && lost.contains("farside snapshot hold"), "{lost}");
    // What a person's snapshot holds already gets no other name.
    let held = resync(&ResyncFacts { held_by: Some("base-1"), ..facts }).kept_as.unwrap();
    assert!(held.contains("p/db@base-1") && !held.contains("rescue"), "{held}");
    let unknown = resync(&ResyncFacts { base: None, diverged_bytes: None, ends: None, ..facts });
    assert!(unknown.would[1].contains("is asked for the newest point that both hold"));
    assert!(unknown.kept_as.is_some() && unknown.kept_bytes.is_none());
    golden(
        &swap(&volume, "a:p/v", Some(3.0)),
        "swap p/db and a:p/v
         would: an update brings p/db, which is 3 s old, up to date while hosts go on at a:p/v
         would: a:p/v refuses host writes, and its last state comes here; disconnect its hosts first
         would: hosts may write to p/db, and a:p/v becomes its replica
         would: if anything fails before the roles change, a:p/v takes writes again, and p/db stays its replica
         lost: Some(0) Some(0) Some(0.0)",
    );
}

#[test]
fn a_swap_says_what_it_leaves_behind() {
    // The command that swaps all leaves the line out, which it finds by its own name.
    assert!(beside_swap("shop").contains("farside mirror swap --group shop changes"));
    assert_eq!(left_by_swap("a:p/v", None), None);
    assert_eq!(
        left_by_swap("a:p/v", Some("last=3")).unwrap(),
        "retention does not go along: afterwards, at a: farside mirror status p/v says what it has there from before; if nothing: farside \
         mirror set p/v --keep last=3"
    );
}

fn delete_facts<'a>(volume: &'a VolumeName, fence: &'a FenceAfter) -> DeleteFacts<'a> {
    DeleteFacts {
        volume,
        source: "a:p/v",
        has_copy: true,
        is_paired: true,
        has_ended_there: false,
        is_broken_off: false,
        is_followed: false,
        is_overtaken_back: false,
        arrived_bytes: None,
        is_swapping: false,
        fence,
    }
}

#[test]
fn what_ends_relationships_loses_no_data() {
    golden(
        &delete_mirror(&delete_facts(&volume(), &FenceAfter::None)),
        "delete mirror p/db
         would: p/db stays, as a volume that hosts may write to
         would: a:p/v is told to release the base it keeps, now or at the next session
         would: the last base stays here as p/db@base-TIME, unless a named snapshot holds the same, and so does what other replicas of a:p/v hold too: whatever site holds such a point, p/db can follow with a difference; delete them when that is not wanted
         would: once a:p/v has released it, p/db can follow a:p/v with a difference only by a named snapshot that both hold, or by farside mirror resync --whole
         lost: Some(0) Some(0) Some(0.0)",
    );
    golden(
        &delete_mirror(&DeleteFacts {
            is_broken_off: true,
            is_followed: true,
            ..delete_facts(&volume(), &FenceAfter::None)
        }),
        "delete mirror p/db
         would: only the way back that is kept here is forgotten; hosts may write to p/db, as before
         would: a:p/v goes on following p/db: to end that, at its site: farside mirror delete p/v
         lost: Some(0) Some(0) Some(0.0)",
    );
    let (volume_here, none) = (volume(), FenceAfter::None);
    let facts = || DeleteFacts { is_broken_off: true, ..delete_facts(&volume_here, &none) };
    let broken_off = delete_mirror(&facts());
    assert!(
        broken_off.would[1].contains("a:p/v stays overtaken")
            && broken_off.would[1].contains("release p/v SITE")
    );
    let back = delete_mirror(&DeleteFacts { is_overtaken_back: true, ..facts() });
    assert!(back.would[1].starts_with("p/db stays overtaken by a:p/v"), "{}", shown(&back));
    assert!(!shown(&back).contains("a:p/v stays overtaken"), "{}", shown(&back));
    let over = delete_mirror(&DeleteFacts { has_ended_there: true, ..facts() });
    assert!(
        shown(&over).contains("a:p/v keeps nothing for this mirror") && !shown(&over).contains("overtaken"),
        "{}",
        shown(&over)
    );
    let alone = delete_mirror(&DeleteFacts { is_paired: false, is_followed: true, ..facts() });
    assert!(shown(&alone).contains("gets nothing now"), "{}", shown(&alone));
    let empty = delete_mirror(&DeleteFacts { has_copy: false, ..delete_facts(&volume_here, &none) });
    assert!(!shown(&empty).contains("base-TIME"), "{}", shown(&empty));
    golden(
        &release(&volume(), "b", &[String::from("b:q/db")], &[]),
        "release p/db from b
         would: the base kept here for b:q/db is released, and its space comes back
         would: no data of p/db is lost, but the common base is: the next update at b fails, unless a snapshot is left that both sides hold
         lost: Some(0) Some(0) Some(0.0)",
    );
    let by = [String::from("b:q/db")];
    let ends = release(&volume(), "b", &by, &by);
    assert!(ends.would[2].contains("p/db is no longer overtaken by b:q/db"), "{ends:?}");
    assert!(!shown(&ends).contains("next update at b fails"), "it was broken off: {ends:?}");
    let facts = RemoveFacts {
        peer: "b",
        key: "0123abcd",
        replicas: &[String::from("p/r")],
        followers: &[(String::from("p/log"), String::from("q/log"))],
        held: &[(String::from("p/db"), String::from("q/db"))],
        fenced: &[String::from("p/db")],
    };
    golden(
        &remove_peer(&facts),
        "remove peer b
         would: the session with b is cut, and the site is unknown here from then on
         would: its rights here end; what b allows this site stays until b removes this site or denies it; to undo this, both sites must pair again, and this one must give b its rights again
         would: p/r gets no more updates; it can still be broken off
         would: b:q/log gets no more updates of p/log, which goes on here as it is
         would: p/db stays fenced, because b has overtaken it; to let hosts write there again: farside mirror release p/db 0123abcd
         would: the base kept here of p/db for b:q/db stays and holds space; to free that: farside mirror release p/db 0123abcd
         lost: Some(0) Some(0) Some(0.0)",
    );
}

#[test]
fn who_was_overtaken_learns_by_how_much_and_what_to_do() {
    let (volume, destination) = (volume(), "q/db".parse().unwrap());
    let facts = || OvertakenFacts {
        volume: &volume,
        peer: "b",
        destination: &destination,
        since: Some(at("2026-11-21T21:00:00Z")),
        snapshot: Some("s9"),
        diverged_bytes: Some(8192),
        fenced: false,
        ended: false,
        beyond: None,
        follows: None,
        follows_since: None,
        set_back: false,
        group: None,
        group_rest: 0,
    };
    let part = overtaken(&OvertakenFacts { group: Some("shop"), group_rest: 1, ..facts() });
    assert!(part.contains("of which b did not take over one volume from here"), "{part}");
    assert!(!part.contains("resync --group"), "{part}");
    let of_group = overtaken(&OvertakenFacts { group: Some("shop"), ..facts() });
    assert!(
        of_group.contains("differ; it is of group shop there: farside mirror resync --group shop takes over their state of all of it"),
        "{of_group}"
    );
    assert_eq!(
        overtaken(&facts()),
        "overtaken: b broke off q/db at 2026-11-21T21:00:00Z; hosts there went on from s9, from which 2 blocks of 4 KiB (8192 bytes) here \
         differ; farside mirror resync p/db --from b:q/db takes over their state and keeps this one as a side branch; \
         farside mirror resync q/db at b has that follow again, if the break was the mistake; farside mirror release p/db b \
         keeps both"
    );
    let nothing = overtaken(&OvertakenFacts { diverged_bytes: Some(0), fenced: true, ..facts() });
    assert!(
        nothing.contains("nothing was written here since that; hosts may not write here until"),
        "{nothing}"
    );
    let unknown = overtaken(&OvertakenFacts { since: None, snapshot: None, diverged_bytes: None, ..facts() });
    assert!(unknown.starts_with("overtaken: b broke off q/db; the point that"), "{unknown}");
    assert!(fence(&volume, "b", &destination, None).contains("farside mirror resync p/db --from b:q/db"));
    let beyond = overtaken(&OvertakenFacts { beyond: Some("c:r/db"), ..facts() });
    assert!(beyond.starts_with("overtaken beyond b:q/db: c:r/db was broken off at 2026"), "{beyond}");
    let older = overtaken(&OvertakenFacts { set_back: true, ..facts() });
    assert!(
        older.contains("followed when the pool of p/db was newer") && !older.contains("by mistake"),
        "{older}"
    );
    let elsewhere = OvertakenFacts { ended: true, follows_since: Some("c:r/db"), ..facts() };
    let elsewhere = overtaken(&elsewhere);
    assert!(
        elsewhere.contains("; b:q/db follows c:r/db since")
            && elsewhere.contains("resync p/db --from c:r/db"),
        "{elsewhere}"
    );
    assert!(elsewhere.contains("it ends when c:r/db and b:q/db follow p/db"), "{elsewhere}");
    let middle = overtaken(&OvertakenFacts { follows: Some("a:p/db"), ..facts() });
    assert!(middle.contains("replica of a:p/db") && middle.contains("farside mirror break p/db"), "{middle}");
    let ended = overtaken(&OvertakenFacts { ended: true, ..facts() });
    assert!(ended.contains("deleted that mirror"), "{ended}");
}

#[test]
fn busy_names_the_number_and_what_to_do() {
    let clients =
        |of: &[(&str, usize)]| Clients(of.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect());
    assert_eq!(busy(&volume(), &clients(&[])), None);
    let one = busy(&volume(), &clients(&[("pid 4242 (nbdfuse) uid 0", 1)])).unwrap();
    assert!(
        one.starts_with("there is 1 NBD connection that may write to p/db (pid 4242 (nbdfuse) uid 0), "),
        "{one}"
    );
    assert!(one.contains("disconnect the hosts"), "{one}");
    let many = clients(&[("a", 1), ("b", 2), ("c", 1), ("d", 1), ("e", 1)]);
    let many = busy(&volume(), &many).unwrap();
    assert!(
        many.contains("6 NBD connections") && many.contains("(a; b, 2 connections; c; and 2 more)"),
        "{many}"
    );
}

#[test]
fn no_plan_promises_writes_that_a_fence_refuses() {
    let volume = volume();
    let why = "it is fenced: c has overtaken it";
    let may_write = |plan: &Plan| plan.would.iter().any(|line| line.contains("hosts may write to"));
    for broken_off in [false, true] {
        let plan = |fence| {
            let facts = delete_facts(&volume, &fence);
            delete_mirror(&DeleteFacts { source: "a:p/db", is_broken_off: broken_off, ..facts })
        };
        let stays = plan(FenceAfter::Stays(why.into()));
        assert!(!may_write(&stays) && stays.would[0].contains(why), "{}", shown(&stays));
        assert!(may_write(&plan(FenceAfter::None)));
        let lifted = plan(FenceAfter::Lifted);
        assert!(lifted.would[0].contains("there are two"), "{}", shown(&lifted));
    }
    let plan = |fence| {
        break_off(&BreakFacts {
            volume: &volume,
            source: "a:p/db",
            current: None,
            current_rotates: false,
            shows_own_state: false,
            at: None,
            fence,
            arrived_bytes: None,
            answering: None,
            is_swapping: false,
            heard: None,
            readers: 0,
            group: None,
            others_follow: false,
            two_histories: None,
            hosts_refused: None,
            lets_go: &[],
        })
    };
    let stays = plan(FenceAfter::Stays(why.into()));
    assert!(!may_write(&stays) && stays.would[0].contains(why), "{}", shown(&stays));
    let lifted = plan(FenceAfter::Lifted);
    assert!(may_write(&lifted) && lifted.would[0].contains("older copy"), "{}", shown(&lifted));
    assert!(lifted.lost[0].contains("not in this copy"), "{}", shown(&lifted));
}
