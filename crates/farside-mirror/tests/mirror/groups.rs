//! Groups: several volumes show one moment of their source, whatever fails, and change together.

use std::time::Duration;

use farside_engine::{BLOCK_BYTES, Engine, VolumeName};
use farside_link::LinkSettings;
use farside_mirror::{Mirror, MirrorError, MirrorOptions, NewMirror, Retention, Schedule, State};
use farside_transfer::protocol::group::Reservation;
use farside_transfer::protocol::{Body, PROTOCOL_VERSION, Request, ReserveTogether};
use farside_transfer::{TransferReport, TransferResult};
use prost::Message;
use rand::Rng;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::directions::until;
use crate::embedded_storage::Embedded;
use crate::site::{PATIENCE, Pair, Storage, assert_ok, seeds, slow, volume};

const SIZE: u64 = 2 << 20;
const VOLUMES: [&str; 3] = ["a", "b", "c"];

type Sites = Pair<Embedded>;

fn original(name: &str) -> VolumeName {
    volume(&format!("p/{name}"))
}

fn replica(name: &str) -> VolumeName {
    volume(&format!("q/{name}"))
}

/// Sites with three volumes, and a mirror of each in the group `shop`.
async fn grouped(seed: u64, link: LinkSettings, schedule: Schedule) -> (Sites, Vec<Mirror>) {
    let pair = Sites::with_storage(seed, 4096, link).await;
    let mut mirrors = Vec::new();
    for name in VOLUMES {
        pair.a.disk.engine.engine().create_volume(&original(name), SIZE).unwrap();
        let wanted = NewMirror {
            peer: pair.a.node.id(),
            source: original(name),
            destination: replica(name),
            schedule: schedule.clone(),
            options: MirrorOptions::default(),
            retention: Retention::default(),
            group: Some("shop".into()),
            allow_reverse: true,
            allow_copy_of_own: false,
        };
        mirrors.push(pair.b.destination.make(wanted, PATIENCE).await.unwrap().mirror);
    }
    stamp_all(&pair, 1);
    for mirror in &mirrors {
        assert_ok(&mirror.initialize(PATIENCE).await.unwrap().ended().await.unwrap());
    }
    (pair, mirrors)
}

fn stamp(pair: &Sites, name: &str, stamp: u64) {
    pair.a.disk.engine.host_writes(&original(name), 0, &stamp.to_le_bytes().repeat(512));
}

fn stamp_all(pair: &Sites, number: u64) {
    VOLUMES.iter().for_each(|name| stamp(pair, name, number));
}

fn stamp_of(engine: &dyn Engine, of: &VolumeName) -> u64 {
    let newest = engine.snapshots(of).unwrap().pop().expect("it shows something");
    let mut block = vec![0; BLOCK_BYTES as usize];
    engine.read_snapshot(of, newest.uuid, 0, &mut block).unwrap();
    u64::from_le_bytes(block[..8].try_into().unwrap())
}

/// What the replicas show at this very moment.
fn shown(pair: &Sites) -> [u64; 3] {
    let engine = pair.b.disk.engine.engine();
    VOLUMES.map(|name| stamp_of(&*engine, &replica(name)))
}

/// Hosts write the volumes one after the other: of a moment the first is never behind, nor ahead by more than one.
fn is_one_moment([a, b, c]: [u64; 3]) -> bool {
    a >= b && b >= c && a - c <= 1
}

async fn update(mirror: &Mirror) -> TransferReport {
    mirror.update(PATIENCE).await.unwrap().ended().await.unwrap()
}

/// Hosts that write the volumes in turn, for ever.
fn hosts(pair: &Sites, stop: CancellationToken) -> tokio::task::JoinHandle<()> {
    let engine = pair.a.disk.engine.clone();
    tokio::spawn(async move {
        let mut number = 1_u64;
        while !stop.is_cancelled() {
            number += 1;
            for name in VOLUMES {
                engine.host_writes(&original(name), 0, &number.to_le_bytes().repeat(512));
                tokio::time::sleep(Duration::from_millis(7)).await;
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn an_update_of_the_group_counts_as_the_interval_of_each_member() {
    let (pair, mirrors) = grouped(720, slow(), Schedule::OnRequest).await;
    for mirror in &mirrors {
        mirror.set_schedule(Schedule::Every(Duration::from_secs(10))).await.unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let mut moments = std::collections::BTreeSet::new();
    for second in 0..60 {
        stamp_all(&pair, second + 2);
        tokio::time::sleep(Duration::from_secs(1)).await;
        moments.insert(mirrors[0].status().current.unwrap().created_at.0);
    }
    // Not three times as many, one for each member.
    assert!((5..=8).contains(&moments.len()), "{} updates in a minute", moments.len());
}

#[tokio::test(start_paused = true)]
async fn an_update_of_one_updates_all_and_they_show_one_moment_at_any_time() {
    for seed in seeds(700, 2) {
        let (pair, mirrors) = grouped(seed, slow(), Schedule::OnRequest).await;
        let stop = CancellationToken::new();
        let hosts = hosts(&pair, stop.clone());
        // First copies are of different moments; from the first update on there is one.
        assert_ok(&update(&mirrors[0]).await);
        let mut seen = 0;
        for round in 0..6 {
            let asked = mirrors[round % 3].update(PATIENCE).await.unwrap();
            let mut ended = std::pin::pin!(asked.ended());
            loop {
                let shows = shown(&pair);
                assert!(is_one_moment(shows), "{shows:?}");
                seen += 1;
                tokio::select! {
                    report = &mut ended => break assert_ok(&report.unwrap()),
                    () = tokio::time::sleep(Duration::from_millis(3)) => {}
                }
            }
            let published = mirrors.iter().map(|m| m.status().current.unwrap().created_at);
            let moments: std::collections::BTreeSet<_> = published.map(|at| at.0).collect();
            // Others may hear of it a moment later.
            assert!(moments.len() <= 2);
        }
        assert!(seen > 100, "looked {seen} times");
        stop.cancel();
        hosts.await.unwrap();
        // All that is kept is a base of each, at both sides.
        for mirror in &mirrors {
            until("it goes on", || mirror.status().state == State::Mirrored).await;
        }
        assert_ok(&update(&mirrors[1]).await);
        for (mirror, name) in mirrors.iter().zip(VOLUMES) {
            until("it goes on", || mirror.status().state == State::Mirrored).await;
            let id = mirror.status().relationship.id;
            for (site, volume) in [(&pair.a, original(name)), (&pair.b, replica(name))] {
                let snapshots = site.disk.engine.engine().all_snapshots(&volume).unwrap();
                assert_eq!(snapshots.iter().filter(|s| s.pinned_by.contains(&id)).count(), 1, "{volume}");
            }
        }
    }
}

/// Schedules, lost sessions and power failures of the destination; the model is what a reader sees.
#[tokio::test(start_paused = true)]
async fn random_histories_of_a_group() {
    for seed in seeds(720, 4) {
        let every = Schedule::Every(Duration::from_secs(2));
        let (mut pair, mirrors) = grouped(seed, slow(), every).await;
        let stop = CancellationToken::new();
        let hosts = hosts(&pair, stop.clone());
        assert_ok(&update(&mirrors[0]).await);
        drop(mirrors);
        let mut newest = shown(&pair)[2];
        for step in 0..25 {
            match pair.rng.random_range(0..8) {
                0 => pair.lose_session().await,
                1 => {
                    let crash = pair.rng.random_range(0..1 << 32);
                    pair.crash_b(crash).await;
                }
                2 => {
                    let at = pair.rng.random_range(0..3);
                    // Refused if nothing runs.
                    let _ = pair.b.destination.mirror(&replica(VOLUMES[at])).unwrap().abort().await;
                }
                3 => {
                    // One volume has far more to bring than the others.
                    let bytes: Vec<u8> = (0..1 << 18).map(|_| pair.rng.random()).collect();
                    pair.a.disk.engine.host_writes(&original("b"), 1 << 20, &bytes);
                }
                _ => {}
            }
            for _ in 0..pair.rng.random_range(1..400) {
                let shows = shown(&pair);
                assert!(is_one_moment(shows), "seed {seed}, step {step}: {shows:?}");
                assert!(shows[2] >= newest, "seed {seed}, step {step}: {shows:?} after {newest}");
                newest = shows[2];
                tokio::time::sleep(Duration::from_millis(11)).await;
            }
        }
        stop.cancel();
        hosts.await.unwrap();
        stamp_all(&pair, 1 << 40);
        // It gets on by itself.
        until("it goes on", || shown(&pair) == [1 << 40; 3]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_may_have_more_members_than_transfers_run() {
    let (pair, mirrors) = grouped(740, slow(), Schedule::OnRequest).await;
    pair.b.queue.set_size(1);
    let mut budgets = pair.a.source.budgets();
    budgets.transfers = 1;
    pair.a.source.set_budgets(budgets);
    for round in 2..5 {
        stamp_all(&pair, round);
        assert_ok(&update(&mirrors[2]).await);
        assert_eq!(shown(&pair), [round; 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn where_one_cannot_be_brought_nothing_is_published_and_each_says_why() {
    let (pair, mirrors) = grouped(741, slow(), Schedule::OnRequest).await;
    stamp_all(&pair, 2);
    let bytes: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    pair.a.disk.engine.host_writes(&original("b"), 1 << 20, &bytes);
    let stalled = pair.a.fault_injector.stall().await;
    let asked = mirrors[0].update(PATIENCE).await.unwrap();
    until("it goes on", || mirrors[1].status().state == State::Transferring).await;
    mirrors[1].abort().await.unwrap();
    drop(stalled);
    let report = asked.ended().await.unwrap();
    assert_eq!(report.result, TransferResult::Failed);
    let why = report.reason.unwrap();
    assert!(why.contains("q/b of the same group (shop) was not updated") && why.contains("aborted"), "{why}");
    assert_eq!(shown(&pair), [1; 3]);
    until("it goes on", || mirrors.iter().all(|m| m.status().state == State::Mirrored)).await;
    // What had arrived is there: only what the aborted one had not brought travels.
    let wire = |name: &str| {
        let mirror = pair.b.destination.mirror(&replica(name)).unwrap();
        async move { update(&mirror).await }
    };
    let report = wire("a").await;
    assert_ok(&report);
    assert!(report.resumed && report.changed_bytes == 0, "{report:?}");
    assert_eq!(shown(&pair), [2; 3]);
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_says_for_whom() {
    let (pair, mirrors) = grouped(742, slow(), Schedule::OnRequest).await;
    stamp_all(&pair, 2);
    let gate = pair.a.fault_injector.hold(|body| matches!(body, Body::Begin(begin) if begin.volume == "p/c"));
    let asked = mirrors[0].update(PATIENCE).await.unwrap();
    gate.held().await;
    let waits = "has arrived, and waits to be published with q/c of group shop";
    until("it goes on", || [0, 1].iter().all(|at| mirrors[*at].status().why.as_deref() == Some(waits))).await;
    assert_eq!(shown(&pair), [1; 3]);
    gate.open();
    assert_ok(&asked.ended().await.unwrap());
    assert_eq!(shown(&pair), [2; 3]);
}

#[tokio::test(start_paused = true)]
async fn when_one_is_broken_off_the_others_stay_where_they_are() {
    let every = Schedule::Every(Duration::from_secs(2));
    let (pair, mirrors) = grouped(743, slow(), every).await;
    stamp_all(&pair, 2);
    until("it goes on", || shown(&pair) == [2; 3]).await;
    mirrors[1].break_off(None).await.unwrap();
    stamp_all(&pair, 3);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(shown(&pair), [2; 3]);
    let why = mirrors[0].status().why.unwrap();
    assert!(why.contains("q/b is broken off") && why.contains("farside mirror resync q/b"), "{why}");
    // Taken out, the others go on.
    mirrors[1].set_group(None).await.unwrap();
    until("it goes on", || shown(&pair) == [3, 2, 3]).await;
    mirrors[1].set_group(Some("shop".into())).await.unwrap();
    stamp_all(&pair, 4);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(shown(&pair), [3, 2, 3]);
    let (peer, of) = (pair.a.node.id(), original("b"));
    let resynced =
        pair.b.destination.resync_from(peer, of, replica("b"), Schedule::OnRequest, PATIENCE).await;
    resynced.unwrap().1.ended().await.unwrap();
    until("it goes on", || shown(&pair) == [4; 3]).await;
    // A quiesced one keeps the others, too.
    mirrors[2].quiesce().await.unwrap();
    stamp_all(&pair, 5);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(shown(&pair), [4; 3]);
    let refused = mirrors[0].update(PATIENCE).await.unwrap().ended().await;
    let Err(MirrorError::State(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("q/c is quiesced") && why.contains("farside mirror resume q/c"), "{why}");
    mirrors[2].resume().await.unwrap();
    until("it goes on", || shown(&pair) == [5; 3]).await;
    // One that is no more is not waited for.
    pair.b.destination.delete(&replica("c")).await.unwrap();
    stamp_all(&pair, 6);
    until("it goes on", || shown(&pair) == [6, 6, 5]).await;
}

#[tokio::test(start_paused = true)]
async fn a_moment_that_is_gone_at_the_source_is_given_up() {
    let (pair, mirrors) = grouped(744, slow(), Schedule::OnRequest).await;
    stamp_all(&pair, 2);
    let gate = pair.a.fault_injector.hold(|body| matches!(body, Body::Begin(begin) if begin.volume == "p/c"));
    let asked = mirrors[0].update(PATIENCE).await.unwrap();
    gate.held().await;
    // It makes room there.
    let (engine, of) = (pair.a.disk.engine.engine(), original("c"));
    let id = mirrors[2].status().relationship.id;
    let taken = engine.snapshots(&of).unwrap().pop().unwrap();
    engine.unpin(&of, taken.uuid, id).unwrap();
    engine.delete_snapshot(&of, taken.uuid).unwrap();
    gate.open();
    let report = asked.ended().await.unwrap();
    assert!(report.reason.as_ref().is_some_and(|why| why.contains("is gone there")), "{report:?}");
    assert_eq!(shown(&pair), [1; 3]);
    until("it goes on", || mirrors.iter().all(|m| m.status().state == State::Mirrored)).await;
    assert_ok(&update(&mirrors[0]).await);
    assert_eq!(shown(&pair), [2; 3]);
}

/// What a destination may have of a source this way: one snapshot for each mirror beside its bases, and of its own mirrors only.
#[tokio::test(start_paused = true)]
async fn a_greedy_or_hostile_destination_gets_no_more_than_its_due() {
    let (pair, mirrors) = grouped(745, slow(), Schedule::OnRequest).await;
    stamp_all(&pair, 2);
    assert_ok(&update(&mirrors[0]).await);
    until("it goes on", || mirrors.iter().all(|m| m.status().state == State::Mirrored)).await;
    let link = pair.b.node.wait_link(pair.a.node.id(), PATIENCE).await.unwrap();
    let ask = |members: Vec<Reservation>| {
        let members = members.iter().map(Reservation::to_message).collect();
        let body = Some(Body::ReserveTogether(ReserveTogether { members }));
        let request = Request { version: PROTOCOL_VERSION, body }.encode_to_vec();
        let link = link.clone();
        async move { link.call(request.into(), None).await.map(drop).map_err(|e| e.to_string()) }
    };
    let mut number = 0;
    let mut members = || {
        let member = |(mirror, name): (&Mirror, &str)| {
            number += 1;
            Reservation {
                relationship: mirror.status().relationship.id,
                transfer: Uuid::from_u128(0xabc0 + number),
                volume: original(name),
                role_change: mirror.status().relationship.role_change,
                shows: mirror.status().current.map(|c| c.uuid),
            }
        };
        mirrors.iter().zip(VOLUMES).map(member).collect::<Vec<_>>()
    };
    for _ in 0..30 {
        // A source limits how often it is asked for snapshots.
        tokio::time::sleep(Duration::from_secs(20)).await;
        ask(members()).await.unwrap();
    }
    for (mirror, name) in mirrors.iter().zip(VOLUMES) {
        let id = mirror.status().relationship.id;
        let all = pair.a.disk.engine.engine().all_snapshots(&original(name)).unwrap();
        assert_eq!(
            all.iter().filter(|s| s.pinned_by.contains(&id)).count(),
            2,
            "the base, and one that was asked for"
        );
        assert_eq!(all.len(), 2);
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    let mut twice = members();
    twice[1] = Reservation { transfer: Uuid::from_u128(9), ..twice[0].clone() };
    assert!(ask(twice).await.unwrap_err().contains("twice"));
    assert!(ask(Vec::new()).await.unwrap_err().contains("0 mirrors"));
    let mut foreign = members();
    foreign[0].volume = volume("p/secret");
    assert!(ask(foreign).await.unwrap_err().contains("does not allow"));
    let mut unknown = members();
    unknown[2].relationship = Uuid::from_u128(77);
    let before = pair.a.disk.engine.engine().all_snapshots(&original("a")).unwrap().len();
    assert!(ask(unknown).await.unwrap_err().contains("no base"));
    let mut crossed = members();
    crossed[0].volume = original("b");
    crossed[1].volume = original("a");
    assert!(ask(crossed).await.unwrap_err().contains("belongs to another"));
    assert_eq!(pair.a.disk.engine.engine().all_snapshots(&original("a")).unwrap().len(), before);
    // The mirrors go on as if nothing had been.
    stamp_all(&pair, 3);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_ok(&update(&mirrors[1]).await);
    assert_eq!(shown(&pair), [3; 3]);
}

/// What the pool at the source has kept is the base still: nobody has to make the group anew.
#[tokio::test(start_paused = true)]
async fn a_source_that_lost_its_database_goes_on_with_the_group() {
    let (mut pair, mirrors) = grouped(746, slow(), Schedule::OnRequest).await;
    for number in 2..5 {
        stamp_all(&pair, number);
        assert_ok(&update(&mirrors[0]).await);
        until("it goes on", || mirrors.iter().all(|m| m.status().state == State::Mirrored)).await;
        assert_eq!(shown(&pair), [number; 3]);
        if number == 2 {
            pair.lose_database_a().await;
            // The session of before is given up meanwhile.
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    }
}

/// Where one has changed roles, the others are updated: what is left of it in the group is the way back.
#[tokio::test(start_paused = true)]
async fn the_others_are_updated_when_one_has_changed_roles() {
    let (pair, mirrors) = grouped(747, slow(), Schedule::OnRequest).await;
    pair.b.destination.swap(&replica("a"), PATIENCE).await.unwrap();
    assert_eq!(mirrors[0].status().state, State::BrokenOff);
    for number in 2..4 {
        VOLUMES[1..].iter().for_each(|name| stamp(&pair, name, number));
        assert_ok(&update(&mirrors[1]).await);
        until("it goes on", || mirrors[1..].iter().all(|m| m.status().state == State::Mirrored)).await;
        assert_eq!(shown(&pair)[1..], [number; 2]);
    }
}

/// Two have arrived when the site is stopped: what they brought is not published without the third.
#[tokio::test(start_paused = true)]
async fn a_site_that_stops_publishes_no_part() {
    for seed in seeds(760, 6) {
        let (mut pair, mirrors) = grouped(seed, slow(), Schedule::OnRequest).await;
        stamp_all(&pair, 2);
        let gate =
            pair.a.fault_injector.hold(|body| matches!(body, Body::Begin(begin) if begin.volume == "p/b"));
        let asked = mirrors[0].update(PATIENCE).await.unwrap();
        gate.held().await;
        until("two wait", || [0, 2].iter().all(|at| mirrors[*at].status().why.is_some())).await;
        pair.b.destination.shut_down().await;
        assert_eq!(shown(&pair), [1; 3]);
        drop((asked, mirrors));
        gate.open();
        pair.crash_b(seed).await;
        assert_eq!(shown(&pair), [1; 3]);
        let mirror = pair.b.destination.mirror(&replica("c")).unwrap();
        assert_ok(&update(&mirror).await);
        assert_eq!(shown(&pair), [2; 3]);
    }
}

/// A member that cannot begin now is not waited for: the update ends at once and says why.
#[tokio::test(start_paused = true)]
async fn nobody_waits_for_one_that_cannot_begin() {
    let (pair, mirrors) = grouped(770, slow(), Schedule::OnRequest).await;
    stamp_all(&pair, 2);
    // Quiesced while the source is asked for the moment.
    let gate = pair.a.fault_injector.hold_answer(|body| matches!(body, Body::ReserveTogether(_)));
    let asked = mirrors[0].update(PATIENCE).await.unwrap();
    gate.held().await;
    mirrors[1].quiesce().await.unwrap();
    gate.open();
    let refused = tokio::time::timeout(Duration::from_secs(30), asked.ended()).await.expect("nobody waits");
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("q/b is quiesced"), "{why}");
    mirrors[1].resume().await.unwrap();
    // Quiesced while it runs: its retry is refused.
    let gate = pair.a.fault_injector.hold(|body| matches!(body, Body::Begin(begin) if begin.volume == "p/b"));
    let asked = mirrors[0].update(PATIENCE).await.unwrap();
    gate.held().await;
    mirrors[1].quiesce().await.unwrap();
    pair.lose_session().await;
    gate.open();
    let ended = tokio::time::timeout(Duration::from_secs(600), asked.ended()).await.expect("nobody waits");
    let is_published = ended.as_ref().is_ok_and(|report| report.result == TransferResult::Ok);
    assert!(!is_published, "{ended:?}");
    mirrors[1].resume().await.unwrap();
    until("all rest", || mirrors.iter().all(|m| m.status().state == State::Mirrored)).await;
    assert_eq!(shown(&pair), [1; 3]);
    assert_ok(&update(&mirrors[2]).await);
    assert_eq!(shown(&pair), [2; 3]);
}

/// Whoever asks while the moment is taken already gets a newer one.
#[tokio::test(start_paused = true)]
async fn an_update_covers_the_moment_of_asking() {
    let (pair, mirrors) = grouped(771, slow(), Schedule::OnRequest).await;
    stamp_all(&pair, 2);
    let gate = pair.a.fault_injector.hold(|body| matches!(body, Body::Begin(begin) if begin.volume == "p/b"));
    let first = mirrors[0].update(PATIENCE).await.unwrap();
    gate.held().await;
    stamp_all(&pair, 3);
    let second = mirrors[1].update(PATIENCE).await.unwrap();
    let third = mirrors[2].update(PATIENCE).await.unwrap();
    gate.open();
    assert_ok(&first.ended().await.unwrap());
    assert_ok(&second.ended().await.unwrap());
    assert_eq!(shown(&pair), [3; 3]);
    assert_ok(&third.ended().await.unwrap());
}

/// The acknowledgement of one comes after the next moment was taken: that stays.
#[tokio::test(start_paused = true)]
async fn a_late_acknowledgement_takes_no_moment_away() {
    let (pair, mirrors) = grouped(772, slow(), Schedule::OnRequest).await;
    stamp_all(&pair, 2);
    let gate =
        pair.a.fault_injector.hold(|body| matches!(body, Body::Acknowledge(told) if told.volume == "p/b"));
    let asked = mirrors[0].update(PATIENCE).await.unwrap();
    gate.held().await;
    assert_ok(&asked.ended().await.unwrap());
    stamp_all(&pair, 3);
    let begins =
        pair.a.fault_injector.hold(|body| matches!(body, Body::Begin(begin) if begin.volume == "p/a"));
    let asked = mirrors[0].update(PATIENCE).await.unwrap();
    begins.held().await;
    gate.release().await;
    begins.open();
    assert_ok(&asked.ended().await.unwrap());
    assert_eq!(shown(&pair), [3; 3]);
}

/// The site `b` dies when all has arrived and nothing is published, or while it is: the next update goes on with what is staged.
#[tokio::test(start_paused = true)]
async fn a_crash_of_the_destination_costs_little() {
    let (mut pair, mirrors) = grouped(746, slow(), Schedule::OnRequest).await;
    stamp_all(&pair, 2);
    let bytes: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    pair.a.disk.engine.host_writes(&original("a"), 1 << 20, &bytes);
    let gate = pair.a.fault_injector.hold(|body| matches!(body, Body::Begin(begin) if begin.volume == "p/c"));
    let asked = mirrors[0].update(PATIENCE).await.unwrap();
    gate.held().await;
    until("it goes on", || mirrors[0].status().why.is_some_and(|why| why.contains("q/c"))).await;
    drop((asked, mirrors));
    pair.crash_b(5).await;
    gate.open();
    assert_eq!(shown(&pair), [1; 3]);
    let mirror = pair.b.destination.mirror(&replica("a")).unwrap();
    let report = update(&mirror).await;
    assert_ok(&report);
    assert!(report.wire_bytes_received < 300_000, "what was staged does not travel again: {report:?}");
    assert_eq!(shown(&pair), [2; 3]);
}
