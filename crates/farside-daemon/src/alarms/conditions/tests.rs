use super::*;

const LIMITS: Limits = Limits {
    peer_gone_after: Duration::from_secs(300),
    daemon_gone_after: Duration::from_secs(300),
    no_progress_after: Duration::from_secs(900),
    failing_transfers: 3,
};

fn mirror() -> DrivenSeen {
    DrivenSeen {
        state: State::Mirrored,
        peer: "north".into(),
        source: "p/v".into(),
        group: None,
        site: "south".into(),
        is_peer_away: false,
        is_peer_removed: false,
        is_source_unaware: false,
        why: None,
        no_room: None,
        is_room_known: true,
        lag_seconds: Some(5.0),
        objective_seconds: None,
        forecast_seconds: None,
        due: None,
        transfer: None,
        failures: Failures::default(),
        signature: Signature::Normal,
        went_back: WentBackSeen::No,
    }
}

fn peer() -> PeerSeen {
    PeerSeen {
        id: PeerId([7; 32]),
        name: "north".into(),
        answers: true,
        is_removed_there: false,
        why: None,
        clock_ahead_seconds: Some(0.01),
        clocks_apart: None,
        rtt_seconds: Some(0.1),
    }
}

/// What holds, and what nobody can tell, of one mirror.
fn of_mirror(conditions: &mut Conditions, now: u64, driven: Option<DrivenSeen>) -> (Vec<Kind>, Vec<Kind>) {
    let mirrors = vec![MirrorSeen { name: "q/v".into(), driven }];
    kinds(conditions.look(Duration::from_secs(now), &Seen { mirrors, ..Seen::default() }, &LIMITS))
}

fn of_peer(conditions: &mut Conditions, now: u64, peer: PeerSeen) -> (Vec<Kind>, Vec<Kind>) {
    let seen = Seen { peers: vec![peer], ..Seen::default() };
    kinds(conditions.look(Duration::from_secs(now), &seen, &LIMITS))
}

fn kinds(found: Vec<Finding>) -> (Vec<Kind>, Vec<Kind>) {
    let found = found.into_iter().filter(|finding| finding.verdict != Verdict::Over);
    let is_unsure = |finding: &Finding| finding.verdict == Verdict::Unsure;
    let (unsure, holds): (Vec<_>, Vec<_>) = found.partition(is_unsure);
    let kinds = |findings: Vec<Finding>| findings.into_iter().map(|finding| finding.kind).collect();
    (kinds(holds), kinds(unsure))
}

/// The same for one lag and these limits.
fn at_lag(lag: f64, seen: &DrivenSeen) -> (Vec<Kind>, Vec<Kind>) {
    of_mirror(&mut Conditions::default(), 0, Some(DrivenSeen { lag_seconds: Some(lag), ..seen.clone() }))
}

use Kind::{ObjectiveAtRisk, ObjectiveBroken};

#[test]
fn a_replica_is_at_risk_and_then_too_late() {
    let due = due(&Schedule::Every(Duration::from_secs(600)), Timestamp(0), 5.0).unwrap();
    assert_eq!((due.at_risk_seconds, due.broken_seconds), (1200.0, 1800.0));
    let seen = DrivenSeen { due: Some(due), ..mirror() };
    assert_eq!(at_lag(1000.0, &seen), (vec![], vec![]));
    assert_eq!(at_lag(1100.0, &seen), (vec![], vec![ObjectiveAtRisk]));
    assert_eq!(at_lag(1201.0, &seen), (vec![ObjectiveAtRisk], vec![]));
    assert_eq!(at_lag(1700.0, &seen), (vec![ObjectiveAtRisk], vec![ObjectiveBroken]));
    assert_eq!(at_lag(1801.0, &seen), (vec![ObjectiveBroken, ObjectiveAtRisk], vec![]));
    // What a person has stopped is not late; what nobody can tell stays as it is.
    for state in [State::Quiesced, State::BrokenOff] {
        assert_eq!(at_lag(9999.0, &DrivenSeen { state, ..seen.clone() }), (vec![], vec![]));
    }
    let nothing = DrivenSeen { lag_seconds: None, ..seen.clone() };
    let (holds, unsure) = of_mirror(&mut Conditions::default(), 0, Some(nothing));
    assert_eq!((holds.len(), unsure), (0, vec![ObjectiveBroken, ObjectiveAtRisk]));
    let (holds, unsure) = of_mirror(&mut Conditions::default(), 0, None);
    assert_eq!((holds.len(), unsure), (0, OF_MIRRORS.to_vec()));
    assert_eq!(at_lag(1e9, &mirror()), (vec![], vec![]), "nobody has said when its updates come");
}

#[test]
fn an_objective_counts_before_the_schedule_and_a_forecast_before_a_part_of_it() {
    let seen = DrivenSeen {
        objective_seconds: Some(100.0),
        due: Some(Due { at_risk_seconds: 1.0, broken_seconds: 2.0 }),
        ..mirror()
    };
    assert_eq!(at_lag(70.0, &seen), (vec![], vec![]));
    assert_eq!(at_lag(81.0, &seen), (vec![ObjectiveAtRisk], vec![]));
    assert_eq!(at_lag(101.0, &seen), (vec![ObjectiveBroken, ObjectiveAtRisk], vec![]));
    let forecast = |seconds| DrivenSeen { forecast_seconds: Some(seconds), ..seen.clone() };
    assert_eq!(at_lag(10.0, &forecast(101.0)), (vec![ObjectiveAtRisk], vec![]));
    assert_eq!(at_lag(85.0, &forecast(86.0)), (vec![], vec![]), "it knows better");
    assert_eq!(at_lag(120.0, &forecast(1.0)).0, vec![ObjectiveBroken, ObjectiveAtRisk]);
}

#[test]
fn what_does_not_fit_is_told_at_once_and_instead_of_how_late_it_may_get() {
    let due = due(&Schedule::Every(Duration::from_secs(600)), Timestamp(0), 5.0);
    // What stood still before the daemon started may do so still, until an update has ended well.
    let unknown = DrivenSeen { is_room_known: false, ..mirror() };
    assert_eq!(of_mirror(&mut Conditions::default(), 0, Some(unknown)), (vec![], vec![Kind::NoRoom]));
    let seen = DrivenSeen { due, no_room: Some("s1 brings 90 MiB".into()), ..mirror() };
    assert_eq!(at_lag(5.0, &seen), (vec![Kind::NoRoom], vec![]));
    assert_eq!(at_lag(1500.0, &seen), (vec![Kind::NoRoom], vec![]));
    assert_eq!(at_lag(1900.0, &seen), (vec![Kind::NoRoom, ObjectiveBroken], vec![]));
    let mirrors = vec![MirrorSeen { name: "q/v".into(), driven: Some(seen) }];
    let found = Conditions::default().look(Duration::ZERO, &Seen { mirrors, ..Seen::default() }, &LIMITS);
    let Verdict::Holds { message, hint } = &found[0].verdict else { panic!("{found:?}") };
    assert!(
        message.contains("will not get on until there is room") && message.contains("90 MiB"),
        "{message}"
    );
    assert!(hint.contains("farside pool grow q --size SIZE,"), "{hint}");
}

#[test]
fn a_short_interval_leaves_some_minutes() {
    let due = due(&Schedule::Every(Duration::from_secs(10)), Timestamp(0), 5.0).unwrap();
    assert_eq!((due.at_risk_seconds, due.broken_seconds), (200.0, 300.0));
    assert_eq!(super::due(&Schedule::OnRequest, Timestamp(0), 5.0), None);
}

#[test]
fn by_a_timetable_more_than_one_tick_must_be_missed() {
    let at = |text: &str| {
        let time: jiff::Timestamp = text.parse().unwrap();
        Timestamp(u64::try_from(time.as_nanosecond()).unwrap())
    };
    let hourly = Schedule::cron("0 * * * *", "UTC").unwrap();
    let now = at("2027-01-15T11:30:00Z");
    // Taken at eight: missed at nine and ten, and eleven has begun. From eleven on it is too late.
    let lag = 3.5 * 3600.0;
    let due = due(&hourly, now, lag).unwrap();
    assert_eq!((due.at_risk_seconds, due.broken_seconds), (2.0 * 3600.0, 3.0 * 3600.0));
    // By the other site's clock it was taken a little before its tick: it is that tick's all the same.
    let early = super::due(&hourly, now, lag + 10.0).unwrap();
    assert_eq!(early.broken_seconds, 3.0 * 3600.0 + 10.0);
    // Only at night: three nights.
    let nightly =
        super::due(&Schedule::cron("0 2 * * *", "UTC").unwrap(), at("2027-01-15T09:00:00Z"), 7.0 * 3600.0);
    assert_eq!(nightly.unwrap().broken_seconds, 72.0 * 3600.0);
    // On weekdays only: the weekend is no miss.
    let weekdays = Schedule::cron("0 2 * * mon-fri", "UTC").unwrap();
    // Friday, 15 January 2027, at two; looked at on Monday at one.
    let due = super::due(&weekdays, at("2027-01-18T01:00:00Z"), 71.0 * 3600.0).unwrap();
    assert!(due.at_risk_seconds > 71.0 * 3600.0, "{due:?}");
}

#[test]
fn a_transfer_that_does_not_get_on_is_told_whatever_its_phase() {
    let mut conditions = Conditions::default();
    let transfer = TransferSeen {
        id: Uuid::from_u128(1),
        phase: Phase::Transfer,
        changed_bytes: Some(1000),
        done_bytes: 10,
        wire_bytes: 10,
    };
    let seen = |transfer| Some(DrivenSeen { transfer: Some(transfer), ..mirror() });
    let mut look = |now, transfer| of_mirror(&mut conditions, now, seen(transfer)).0;
    assert_eq!(look(0, transfer), []);
    assert_eq!(look(899, transfer), []);
    assert_eq!(look(900, transfer), [Kind::NoProgress]);
    let further = TransferSeen { wire_bytes: 11, ..transfer };
    assert_eq!(look(901, further), []);
    assert_eq!(look(1801, further), [Kind::NoProgress]);
    assert_eq!(look(1802, TransferSeen { phase: Phase::Verify, ..further }), []);
    assert_eq!(look(1803, TransferSeen { id: Uuid::from_u128(2), ..further }), []);
    assert_eq!(of_mirror(&mut conditions, 9000, Some(mirror())).0, []);
    assert!(conditions.moved.is_empty());
}

#[test]
fn three_failures_in_a_row_are_told_with_the_last_reason() {
    let failed = |in_a_row| {
        let failures = Failures { in_a_row, last: Some("the disk burns".into()) };
        let mirrors =
            vec![MirrorSeen { name: "q/v".into(), driven: Some(DrivenSeen { failures, ..mirror() }) }];
        Conditions::default().look(Duration::ZERO, &Seen { mirrors, ..Seen::default() }, &LIMITS)
    };
    assert_eq!(failed(2), []);
    let [Finding { kind: Kind::TransfersFailing, verdict: Verdict::Holds { message, .. }, .. }] =
        &failed(3)[..]
    else {
        panic!("one")
    };
    assert!(message.contains("3 transfers of q/v") && message.contains("the disk burns"), "{message}");
}

#[test]
fn a_peer_is_gone_after_a_while_and_a_restart_does_not_shorten_it() {
    let mut conditions = Conditions::default();
    let silent = PeerSeen { answers: false, why: Some("no route".into()), ..peer() };
    let both = vec![Kind::PeerGone, Kind::ClockWrong];
    assert_eq!(of_peer(&mut conditions, 1000, silent.clone()), (vec![], both.clone()));
    assert_eq!(of_peer(&mut conditions, 1299, silent.clone()), (vec![], both.clone()));
    assert_eq!(of_peer(&mut conditions, 1300, silent.clone()).0, [Kind::PeerGone]);
    assert_eq!(of_peer(&mut conditions, 1301, peer()), (vec![], vec![]));
    assert_eq!(of_peer(&mut conditions, 1302, silent.clone()), (vec![], both.clone()));
    // A copy of the site that meets nobody says nothing about it.
    let seen = Seen { peers: vec![silent], is_isolated: true, ..Seen::default() };
    assert_eq!(kinds(conditions.look(Duration::from_secs(9999), &seen, &LIMITS)), (vec![], both));
    // A removed one is forgotten.
    assert_eq!(conditions.look(Duration::from_secs(10_000), &Seen::default(), &LIMITS), []);
    assert!(conditions.answered.is_empty());
}

#[test]
fn what_to_do_about_a_peer_that_is_gone_depends_on_what_is_here() {
    let hint = |driven: Vec<Option<DrivenSeen>>, is_removed_there| {
        let gone = PeerSeen { answers: false, is_removed_there, ..peer() };
        let mirrors = driven.into_iter().map(|driven| MirrorSeen { name: "q/v".into(), driven }).collect();
        let seen = Seen { mirrors, peers: vec![gone], ..Seen::default() };
        let mut conditions = Conditions::default();
        conditions.look(Duration::ZERO, &seen, &LIMITS);
        let found = conditions.look(Duration::from_secs(300), &seen, &LIMITS);
        let of_peer = found.into_iter().find_map(|finding| match finding.verdict {
            Verdict::Holds { hint, .. } if finding.kind == Kind::PeerGone => Some(hint),
            _ => None,
        });
        of_peer.unwrap()
    };
    let breaks = |text: &str| text.contains("farside mirror break makes its replicas here writable");
    assert!(breaks(&hint(vec![Some(mirror())], false)));
    assert!(breaks(&hint(vec![None], false)), "it may be one of its");
    assert!(!breaks(&hint(vec![], false)));
    let other = DrivenSeen { peer: "west".into(), ..mirror() };
    let broken = DrivenSeen { state: State::BrokenOff, ..mirror() };
    assert!(!breaks(&hint(vec![Some(other), Some(broken)], false)));
    let removed = hint(vec![], true);
    assert!(
        removed.contains("farside peer invite there") && !removed.contains("farsided running"),
        "{removed}"
    );
}

#[test]
fn what_ends_soon_is_an_alarm_of_its_own() {
    let what = ending::Ending::Token { name: "watch".into(), life_seconds: 90.0 * 86_400.0 };
    let ending = vec![ending::EndingSeen { what, left_seconds: 86_400.0 }];
    let found = Conditions::default().look(Duration::ZERO, &Seen { ending, ..Seen::default() }, &LIMITS);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].kind, found[0].subject.as_str()), (Kind::EndsSoon, "token watch"));
}

#[test]
fn a_clock_is_wrong_until_it_is_clearly_right() {
    let mut conditions = Conditions::default();
    let mut look = |ahead: f64, apart: bool| {
        let clocks_apart = apart.then_some(ahead);
        of_peer(&mut conditions, 0, PeerSeen { clock_ahead_seconds: Some(ahead), clocks_apart, ..peer() })
    };
    assert_eq!(look(0.5, false), (vec![], vec![]));
    assert_eq!(look(-40.0, true), (vec![Kind::ClockWrong], vec![]));
    assert_eq!(look(1.5, false), (vec![], vec![Kind::ClockWrong]));
    assert_eq!(look(1.05, false), (vec![], vec![]));
    let unknown = PeerSeen { clock_ahead_seconds: None, ..peer() };
    assert_eq!(of_peer(&mut Conditions::default(), 0, unknown), (vec![], vec![Kind::ClockWrong]));
}

#[test]
fn pools_are_nearly_full_full_or_ill() {
    let of = |room, error: Option<&str>| {
        let known = PoolKnown {
            room,
            warning: Some("97 % of it are taken".into()),
            error: error.map(str::to_owned),
            advice: None,
            set_back: None,
            to_make_room: "farside pool grow tank --size SIZE".into(),
        };
        let pools = vec![PoolSeen { name: "tank".into(), known: Some(known) }];
        kinds(Conditions::default().look(Duration::ZERO, &Seen { pools, ..Seen::default() }, &LIMITS))
    };
    assert_eq!(of(Some(PoolRoom::Filling), None), (vec![], vec![]));
    assert_eq!(of(Some(PoolRoom::NearlyFull), None), (vec![Kind::PoolNearlyFull], vec![]));
    assert_eq!(of(Some(PoolRoom::Full), None), (vec![Kind::PoolNearlyFull, Kind::PoolFull], vec![]));
    let ill = (vec![Kind::PoolFailed], vec![Kind::PoolNearlyFull, Kind::PoolFull]);
    assert_eq!(of(None, Some("the device is gone")), ill);
    let opening = Seen { pools: vec![PoolSeen { name: "tank".into(), known: None }], ..Seen::default() };
    let found = kinds(Conditions::default().look(Duration::ZERO, &opening, &LIMITS));
    assert_eq!(found, (vec![], OF_POOLS.to_vec()));
}

#[test]
fn a_pool_that_is_older_than_it_was_is_told_until_somebody_knows() {
    let had_more_at = "2027-01-15T08:00:00Z".parse().ok();
    let known = PoolKnown {
        room: Some(PoolRoom::Enough),
        warning: None,
        error: None,
        advice: None,
        set_back: had_more_at,
        to_make_room: String::new(),
    };
    let pools = vec![PoolSeen { name: "tank".into(), known: Some(known) }];
    let found = Conditions::default().look(Duration::ZERO, &Seen { pools, ..Seen::default() }, &LIMITS);
    assert_eq!(kinds(found.clone()), (vec![Kind::PoolSetBack], vec![]));
    let Verdict::Holds { message, .. } = &found[0].verdict else { panic!("{found:?}") };
    assert!(message.contains("at 2027-01-15T08:00:00Z it had more"), "{message}");
}

#[test]
fn a_source_that_went_back_is_told_until_a_person_has_asked_for_something() {
    let of = |went_back| {
        let driven = Some(DrivenSeen { went_back, ..mirror() });
        let mirrors = vec![MirrorSeen { name: "vault/v".into(), driven }];
        Conditions::default().look(Duration::ZERO, &Seen { mirrors, ..Seen::default() }, &LIMITS)
    };
    assert_eq!(kinds(of(WentBackSeen::Yes("back".into()))), (vec![Kind::SourceWentBack], vec![]));
    assert_eq!(kinds(of(WentBackSeen::StillRaised)), (vec![], vec![Kind::SourceWentBack]));
    let over = of(WentBackSeen::Settled);
    assert!(over.iter().any(|f| f.kind == Kind::SourceWentBack && f.verdict == Verdict::Over), "{over:?}");
    assert_eq!(kinds(of(WentBackSeen::No)), (vec![], vec![]));
}

#[test]
fn what_helps_a_pool_of_ceph_is_no_growth_of_its_own() {
    let known = PoolKnown {
        room: Some(PoolRoom::Full),
        warning: Some("0.0 GiB are left. What to do: more OSDs".into()),
        error: None,
        advice: None,
        set_back: None,
        to_make_room: crate::pools::cluster_room::TO_MAKE_ROOM.into(),
    };
    let seen = Seen {
        pools: vec![PoolSeen { name: "ceph".into(), known: Some(known) }],
        mirrors: vec![MirrorSeen {
            name: "ceph/v".into(),
            driven: Some(DrivenSeen { no_room: Some("s1 brings 90 MiB".into()), ..mirror() }),
        }],
        ..Seen::default()
    };
    let found = Conditions::default().look(Duration::ZERO, &seen, &LIMITS);
    for kind in [Kind::NoRoom, Kind::PoolNearlyFull, Kind::PoolFull] {
        let told = found.iter().find(|finding| finding.kind == kind).expect("it is told");
        let Verdict::Holds { hint, message } = &told.verdict else { panic!("{told:?}") };
        assert!(hint.contains("set-quota") && !hint.contains("pool grow"), "{hint}");
        assert!(!message.contains("What to do"), "the hint says it: {message}");
    }
}

#[test]
fn a_daemon_is_told_of_when_it_has_been_gone_for_minutes() {
    let mut conditions = Conditions::default();
    let mut at = |now: u64, daemons: DaemonsSeen| {
        let seen = Seen { daemons, ..Seen::default() };
        kinds(conditions.look(Duration::from_secs(now), &seen, &LIMITS))
    };
    let gone = |names: &[&str]| DaemonsSeen::Known { gone: names.iter().map(ToString::to_string).collect() };
    let unsure = || (vec![], vec![Kind::DaemonGone]);
    // One that begins to lead does not know yet, and takes nothing back that another has raised.
    assert_eq!(at(0, DaemonsSeen::Unknown { raised: vec!["n2".into()] }), unsure());
    assert_eq!(at(0, DaemonsSeen::Unknown { raised: vec![] }), (vec![], vec![]));
    assert_eq!(at(1, gone(&["n2"])), unsure());
    assert_eq!(at(300, gone(&["n2"])), unsure());
    assert_eq!(at(301, gone(&["n2"])), (vec![Kind::DaemonGone], vec![]));
    assert_eq!(at(302, gone(&["n2", "n3"])), (vec![Kind::DaemonGone], vec![Kind::DaemonGone]));
    assert_eq!(at(303, gone(&[])), (vec![], vec![]), "back, or removed");
    assert_eq!(at(304, gone(&["n2"])), unsure(), "it counts anew");
    assert_eq!(at(305, DaemonsSeen::None), (vec![], vec![]));
}

#[test]
fn a_signature_is_told_until_a_person_says_otherwise() {
    let of = |signature| of_mirror(&mut Conditions::default(), 0, Some(DrivenSeen { signature, ..mirror() }));
    assert_eq!(of(Signature::Normal), (vec![], vec![]));
    assert_eq!(of(Signature::StillSuspected), (vec![], vec![Kind::Ransomware]));
    assert_eq!(of(Signature::Suspected { message: "m".into() }), (vec![Kind::Ransomware], vec![]));
}

#[test]
fn what_was_broken_off_or_deleted_is_not_late_any_more() {
    let over = |found: Vec<Finding>| {
        let of_updates = found.into_iter().filter(|finding| finding.verdict == Verdict::Over);
        of_updates.map(|finding| finding.kind).collect::<Vec<_>>()
    };
    let seen = |driven: DrivenSeen| Seen {
        mirrors: vec![MirrorSeen { name: "q/v".into(), driven: Some(driven) }],
        ..Seen::default()
    };
    let failures = Failures { in_a_row: 9, last: None };
    let broken = DrivenSeen { state: State::BrokenOff, failures, ..mirror() };
    let mut conditions = Conditions::default();
    assert_eq!(over(conditions.look(Duration::ZERO, &seen(broken.clone()), &LIMITS)), OF_UPDATES);
    assert_eq!(at_lag(9999.0, &broken), (vec![], vec![]));
    // Deleted: the second look that misses it is sure.
    assert_eq!(over(conditions.look(Duration::ZERO, &Seen::default(), &LIMITS)), []);
    assert_eq!(over(conditions.look(Duration::ZERO, &Seen::default(), &LIMITS)), OF_UPDATES);
    assert_eq!(over(conditions.look(Duration::ZERO, &Seen::default(), &LIMITS)), []);
}

#[test]
fn nothing_is_wrong_with_a_pool_that_was_deleted() {
    let over = |found: Vec<Finding>| {
        let of_pools = found.into_iter().filter(|finding| finding.verdict == Verdict::Over);
        of_pools.map(|finding| finding.kind).collect::<Vec<_>>()
    };
    let there = Seen { pools: vec![PoolSeen { name: "p".into(), known: None }], ..Seen::default() };
    let mut conditions = Conditions::default();
    let mut look = |seen: &Seen| over(conditions.look(Duration::ZERO, seen, &LIMITS));
    assert_eq!(look(&there), []);
    // It was closed and opened again between two looks, or deleted: the second look that misses it is sure.
    assert_eq!(look(&Seen::default()), []);
    assert_eq!(look(&there), []);
    assert_eq!(look(&Seen::default()), []);
    assert_eq!(look(&Seen::default()), OF_POOLS);
    assert_eq!(look(&Seen::default()), []);
}

#[test]
fn two_originals_are_told_at_both_sites() {
    let message = |seen: Seen| {
        let found = Conditions::default().look(Duration::ZERO, &seen, &LIMITS);
        found.into_iter().find_map(|finding| match finding.verdict {
            Verdict::Holds { message, hint } if finding.kind == Kind::TwoOriginals => Some((message, hint)),
            _ => None,
        })
    };
    let overtaken = OvertakenSeen {
        name: "p/v".into(),
        peer: "south".into(),
        replica: "q/v".into(),
        beyond: None,
        ended: false,
        group: None,
        is_fenced: false,
        site: "north".into(),
    };
    let of_group = OvertakenSeen { group: Some("shop".into()), ..overtaken.clone() };
    let (_, hint) = message(Seen { overtaken: vec![of_group.clone()], ..Seen::default() }).unwrap();
    assert!(hint.contains("follow: farside mirror resync --group shop. To have that at south"), "{hint}");
    // The group ended with the mirror.
    let of_group = OvertakenSeen { ended: true, ..of_group };
    let (_, hint) = message(Seen { overtaken: vec![of_group], ..Seen::default() }).unwrap();
    assert!(!hint.contains("--group"), "{hint}");
    let fenced = OvertakenSeen { is_fenced: true, ..overtaken.clone() };
    let (text, hint) = message(Seen { overtaken: vec![fenced], ..Seen::default() }).unwrap();
    assert!(text.contains("hosts may be writing there, and may not write to p/v here"), "{text}");
    assert!(hint.contains("farside mirror release p/v south"), "{hint}");
    let ended = OvertakenSeen { ended: true, ..overtaken.clone() };
    let (text, hint) = message(Seen { overtaken: vec![overtaken], ..Seen::default() }).unwrap();
    assert!(text.contains("q/v at south was broken off") && text.contains("p/v here"), "{text}");
    assert!(hint.contains("farside mirror resync p/v --from south:q/v"), "{hint}");
    assert!(hint.contains("farside mirror release p/v south"), "{hint}");
    assert!(hint.contains("farside mirror resync q/v at south"), "{hint}");
    let (_, hint) = message(Seen { overtaken: vec![ended], ..Seen::default() }).unwrap();
    assert!(hint.contains("farside mirror resync q/v --from north:p/v at south"), "{hint}");
    let broken = |is_source_unaware| {
        let driven = DrivenSeen { state: State::BrokenOff, is_source_unaware, ..mirror() };
        let mirrors = vec![MirrorSeen { name: "q/v".into(), driven: Some(driven) }];
        message(Seen { mirrors, ..Seen::default() })
    };
    assert!(broken(true).unwrap().0.contains("north has not heard of it"));
    assert_eq!(broken(false), None);
    let driven =
        DrivenSeen { state: State::BrokenOff, is_source_unaware: true, is_peer_removed: true, ..mirror() };
    let mirrors = vec![MirrorSeen { name: "q/v".into(), driven: Some(driven) }];
    let (_, hint) = message(Seen { mirrors, ..Seen::default() }).unwrap();
    assert!(hint.contains("not paired any more") && !hint.contains("peer status"), "{hint}");
}

#[test]
fn a_hook_that_fails_is_told() {
    let failing_snapshots = vec![("p/v".to_owned(), "its hook freeze has ended with status 1".to_owned())];
    let seen = Seen { failing_snapshots, ..Seen::default() };
    let found = Conditions::default().look(Duration::ZERO, &seen, &LIMITS);
    let [Finding { kind: Kind::SnapshotsFailing, subject, verdict: Verdict::Holds { message, .. } }] =
        &found[..]
    else {
        panic!("{found:?}")
    };
    assert!(subject == "p/v" && message.contains("status 1"), "{message}");
}

#[test]
fn without_a_session_no_forecast_is_made() {
    let seen = DrivenSeen {
        objective_seconds: Some(100.0),
        forecast_seconds: Some(200.0),
        is_peer_away: true,
        ..mirror()
    };
    assert_eq!(at_lag(50.0, &seen), (vec![], vec![]));
    let mirrors =
        vec![MirrorSeen { name: "q/v".into(), driven: Some(DrivenSeen { lag_seconds: Some(85.0), ..seen }) }];
    let found = Conditions::default().look(Duration::ZERO, &Seen { mirrors, ..Seen::default() }, &LIMITS);
    let [Finding { kind: ObjectiveAtRisk, verdict: Verdict::Holds { message, hint }, .. }] = &found[..]
    else {
        panic!("{found:?}")
    };
    assert!(message.contains("more until there is a session with north"), "{message}");
    assert!(hint.contains("farside peer status north") && !hint.contains("mirror update"), "{hint}");
}
