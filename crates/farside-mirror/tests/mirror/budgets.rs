//! A source against destinations that take too much: hostile ones, and ones that are only gone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use farside_engine::{Engine, SnapshotOwner, SnapshotSpec};
use farside_link::LinkSettings;
use farside_mirror::{Budgets, Mirror, Schedule};
use farside_peer::{PeerLink, SessionError};
use farside_platform::Clock;
use farside_transfer::protocol::{Begin, Body, Describe, Overtaken, PROTOCOL_VERSION, Request, convert};
use farside_transfer::{TransferKind, TransferResult};
use prost::Message;
use rand::RngCore;
use uuid::Uuid;

use crate::embedded_storage::Embedded;
use crate::site::{PATIENCE, Pair, Storage, assert_ok, slow};

const SIZE: u64 = 2 << 20;
const DAYS: i64 = 86_400;

async fn mirrored(seed: u64) -> (Pair, Mirror) {
    let mut pair = Pair::new(seed, SIZE, LinkSettings::default()).await;
    pair.scribble(40);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    (pair, mirror)
}

async fn hostile<S: Storage>(pair: &Pair<S>) -> Arc<dyn PeerLink> {
    pair.b.node.wait_link(pair.a.node.id(), PATIENCE).await.unwrap()
}

fn asked(body: Body) -> Bytes {
    Request { version: PROTOCOL_VERSION, body: Some(body) }.encode_to_vec().into()
}

/// The beginning of a first copy that nobody means to end.
fn begin(relationship: u128, transfer: u128) -> Bytes {
    asked(Body::Begin(Begin {
        relationship: Uuid::from_u128(relationship).as_bytes().to_vec(),
        transfer: Uuid::from_u128(transfer).as_bytes().to_vec(),
        volume: "p/v".into(),
        destination: "x/y".into(),
        kind: convert::kind_number(TransferKind::Initialize),
        candidates: Vec::new(),
        staged: None,
        role_change: 1,
        whole: false,
        named_max: None,
        keeps_common: false,
        left: Vec::new(),
        further: Vec::new(),
        until: Vec::new(),
    }))
}

/// The budget that a refusal names; none if it was granted.
fn refused(answer: Result<Bytes, SessionError>) -> Option<String> {
    match answer {
        Ok(_) => None,
        Err(SessionError::Refused(refusal)) if refusal.code == "budget" => Some(refusal.message),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn transfers_that_begin_and_never_end_take_what_is_allowed_and_no_more() {
    let (mut pair, mirror) = mirrored(400).await;
    let budgets =
        Budgets { snapshots_per_minute: 60, transfers: 4, mirrors: 6, pins: 10, ..Budgets::default() };
    pair.a.source.set_budgets(budgets);
    let link = hostile(&pair).await;
    let started = pair.clock.monotonic();
    let (mut granted, mut named) = (0_u32, [0; 4]);
    for n in 0..1500_u128 {
        match refused(link.call(begin(1 + n % 9, 1000 + n), None).await) {
            None => granted += 1,
            Some(said) => {
                let budget = ["snapshots_per_minute", "transfers", "mirrors", "pins"]
                    .iter()
                    .position(|budget| said.contains(&format!("budgets.{budget} ")));
                named[budget.unwrap_or_else(|| panic!("no budget is named: {said}"))] += 1;
            }
        }
        assert!(pair.a.source.serving().len() <= budgets.transfers);
        let kept = pair.a.disk.engine.all_snapshots(&pair.original).unwrap();
        let kept = kept.iter().filter(|s| matches!(s.owner, SnapshotOwner::Relationship(_))).count();
        assert!(kept <= budgets.pins, "{kept} snapshots");
        assert!(pair.a.source.destinations().len() <= budgets.mirrors);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let minutes = (pair.clock.monotonic() - started).as_secs_f64() / 60.0;
    assert!(f64::from(granted) <= 60.0 * (minutes + 1.0) + 1.0, "{granted} in {minutes} minutes");
    assert!(granted >= 60 && named[0] > 0 && named[1] > 0, "{granted} granted, refused {named:?}");
    let used = pair.a.source.budget_use(pair.b.node.id());
    assert!(used.pins <= budgets.pins && used.transfers <= budgets.transfers, "{used:?}");
    // With the budgets as they were, its honest mirror goes on.
    pair.a.source.set_budgets(Budgets::default());
    pair.scribble(3);
    assert_ok(&pair.update(&mirror).await);
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn questions_have_a_rate_and_the_answer_says_so() {
    let (mut pair, mirror) = mirrored(401).await;
    pair.a.source.set_budgets(Budgets { calls_per_minute: 100, ..Budgets::default() });
    let link = hostile(&pair).await;
    let started = pair.clock.monotonic();
    let describe = asked(Body::Describe(Describe { volume: "p/v".into(), ..Describe::default() }));
    let mut granted = 0;
    for _ in 0..5000 {
        match refused(link.call(describe.clone(), None).await) {
            None => granted += 1,
            Some(said) => assert!(said.contains("budgets.calls_per_minute"), "{said}"),
        }
    }
    let minutes = (pair.clock.monotonic() - started).as_secs_f64() / 60.0;
    assert!(
        granted >= 80 && f64::from(granted) <= 100.0 * (minutes + 1.0) + 1.0,
        "{granted} in {minutes} minutes"
    );
    // A mirror of the same peer is told too, and goes on when the minute is over.
    pair.scribble(3);
    let report = pair.update(&mirror).await;
    assert!(report.reason.is_some_and(|why| why.contains("budgets.calls_per_minute")));
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_ok(&pair.update(&mirror).await);
    pair.check_replica();
}

/// Time passes while the site `a` is off, and then a day while it is on: what it has not seen pass does not count.
async fn later<S: Storage>(pair: &mut Pair<S>, seconds: i64) {
    pair.clock.step_wall(seconds);
    pair.crash_a(7).await;
    pair.a.source.check_budgets().await;
    pair.clock.pass(24 * 3600 + 61);
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_jumps_lets_go_of_no_base() {
    let (mut pair, mirror) = mirrored(410).await;
    pair.scribble(10);
    assert!(pair.a.source.check_budgets().await.is_empty());
    // Wrong by more than a year for two days, and then right again.
    pair.clock.step_wall(400 * DAYS);
    for _ in 0..3 {
        assert!(pair.a.source.check_budgets().await.is_empty(), "it has jumped");
        pair.clock.pass(16 * 3600);
    }
    // The site starts with a wrong clock, that is put right within the day.
    pair.crash_a(1).await;
    assert!(pair.a.source.check_budgets().await.is_empty(), "it may be wrong");
    pair.clock.pass(20 * 3600);
    pair.clock.step_wall(-400 * DAYS);
    assert!(pair.a.source.check_budgets().await.is_empty());
    pair.clock.pass(20 * 3600);
    assert!(pair.a.source.check_budgets().await.is_empty());
    let report = pair.update(&mirror).await;
    assert_ok(&report);
    assert!(report.base.is_some(), "the base is there as before");
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_was_gone_for_too_long_goes_on_by_itself() {
    let (mut pair, mirror) = mirrored(402).await;
    pair.scribble(10);
    later(&mut pair, 365 * DAYS).await;
    assert!(pair.a.source.check_budgets().await.is_empty(), "not yet");
    later(&mut pair, DAYS).await;
    let id = mirror.status().relationship.id;
    assert_eq!(pair.a.source.check_budgets().await, [id]);
    assert!(pair.a.disk.engine.all_snapshots(&pair.original).unwrap().is_empty());
    let listed = &pair.a.source.destinations()[0];
    assert_eq!((listed.base, listed.since), (None, None));
    let why = listed.released.clone().unwrap().why;
    assert!(why.contains("budgets.pin_age_days = 366"), "{why}");
    // It survives a restart, and the next update brings what changed and nothing else.
    pair.crash_a(1).await;
    pair.b.node.wait_link(pair.a.node.id(), PATIENCE).await.unwrap();
    assert!(pair.a.source.destinations()[0].released.is_some());
    pair.scribble(3);
    let report = pair.update(&mirror).await;
    assert_ok(&report);
    pair.check_replica();
    let listed = &pair.a.source.destinations()[0];
    assert!(listed.released.is_none() && listed.base.is_some());
    assert_ok(&pair.update(&mirror).await);
    pair.check_replica();
}

/// Says that a mirror was broken off, as only its destination may; true or not, nothing but ownership is asked.
async fn send_overtaken<S: Storage>(pair: &Pair<S>, mirror: &Mirror) {
    let overtaken = Overtaken {
        relationship: mirror.status().relationship.id.as_bytes().to_vec(),
        volume: pair.original.to_string(),
        broken_off_at: 1,
        snapshot: None,
        destination: pair.replica.to_string(),
        role_change: 1,
        ..Overtaken::default()
    };
    hostile(pair).await.call(asked(Body::Overtaken(overtaken)), None).await.unwrap();
    assert_eq!(pair.a.source.overtaken().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_destination_is_not_out_of_the_budgets_by_its_own_claim() {
    const YEARS: i64 = 2 * 365;
    let by_size = Budgets { pinned_bytes: Some(0), ..Budgets::default() };
    for (seed, budgets, days) in [(407, by_size, 0), (408, Budgets::default(), YEARS)] {
        for may_reverse in [false, true] {
            let (mut pair, mirror) = mirrored(seed).await;
            *pair.a.rights.no_way_back.lock() = !may_reverse;
            pair.scribble(10);
            send_overtaken(&pair, &mirror).await;
            pair.a.source.set_budgets(budgets);
            if days > 0 {
                later(&mut pair, days * DAYS).await;
                *pair.a.rights.no_way_back.lock() = !may_reverse;
            }
            let id = mirror.status().relationship.id;
            if may_reverse {
                assert!(pair.a.source.check_budgets().await.is_empty(), "the way back is kept");
                // The right is asked each time: taken back, it spares nothing any more.
                *pair.a.rights.no_way_back.lock() = true;
                tokio::time::sleep(Duration::from_secs(61)).await;
            }
            assert_eq!(pair.a.source.check_budgets().await, [id]);
            assert!(pair.a.disk.engine.all_snapshots(&pair.original).unwrap().is_empty());
            assert_eq!(pair.a.source.overtaken().len(), 1, "what was said is known as before");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn snapshots_that_keep_different_bytes_count_each() {
    const PIECE: u64 = 512 << 10;
    let mut pair = Pair::<Embedded>::with_storage(409, SIZE, LinkSettings::default()).await;
    let mut piece = vec![0; PIECE as usize];
    let mut overwrite = |pair: &mut Pair<Embedded>| {
        pair.rng.fill_bytes(&mut piece);
        pair.write(0, &piece);
    };
    overwrite(&mut pair);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    let id = mirror.status().relationship.id;
    // As a transfer leaves them that is begun again: the base, what has half arrived, and the newest.
    for uuid in [0xa1, 0xa2] {
        overwrite(&mut pair);
        let spec = SnapshotSpec {
            name: format!("transfer-{uuid}"),
            uuid: Uuid::from_u128(uuid),
            created_at: pair.clock.now(),
            owner: SnapshotOwner::Relationship(id),
            pin_for: Some(id),
        };
        pair.a.disk.engine.engine().take_snapshot(&pair.original, &spec).unwrap();
    }
    overwrite(&mut pair);
    let look_with = async |pinned_bytes| {
        pair.a.source.set_budgets(Budgets { pinned_bytes: Some(pinned_bytes), ..Budgets::default() });
        tokio::time::sleep(Duration::from_secs(61)).await;
        pair.a.source.check_budgets().await
    };
    assert!(look_with(3 * PIECE).await.is_empty(), "each once");
    assert_eq!(look_with(3 * PIECE - 1).await, [id]);
    let why = pair.a.source.destinations()[0].released.clone().unwrap().why;
    assert!(why.contains("up to 1.5 MiB"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_base_that_goes_under_a_running_transfer_costs_a_comparison_and_nothing_else() {
    let mut pair = Pair::<Embedded>::with_storage(403, 8 << 20, slow()).await;
    pair.scribble(60);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    // More than is on its way at any time, and nothing that compresses.
    let mut news = vec![0; 6 << 20];
    pair.rng.fill_bytes(&mut news);
    pair.write(0, &news);
    let asked = mirror.update(PATIENCE).await.unwrap();
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(pair.a.source.serving().len(), 1, "it runs");
    pair.a.source.set_budgets(Budgets { pinned_bytes: Some(0), ..Budgets::default() });
    assert_eq!(pair.a.source.check_budgets().await, [mirror.status().relationship.id]);
    // The transfer is begun again by itself, and brings what the destination lacks: what it had does not travel.
    let report = asked.ended().await.unwrap();
    assert_ok(&report);
    pair.model.insert(report.id, pair.live.clone());
    pair.check_replica();
    assert_eq!((report.base.clone(), report.changed_bytes), (None, news.len() as u64), "{report:?}");
    assert!(report.referenced_bytes > Some(0), "{report:?}");
    pair.a.source.set_budgets(Budgets::default());
    assert!(pair.a.source.destinations()[0].released.is_none());
    pair.scribble(3);
    assert_ok(&pair.update(&mirror).await);
    pair.check_replica();
}

/// Fills a pool of 96 MiB by overwriting a volume, while a destination begins a first copy of every state of it and ends
/// none. Answers whether all writes were taken.
async fn overwrite(seed: u64, budgets: Budgets) -> bool {
    const VOLUME: u64 = 16 << 20;
    const PIECE: usize = 1 << 20;
    let mut pair = Pair::<Embedded>::with_storage(seed, VOLUME, LinkSettings::default()).await;
    pair.a.source.set_budgets(budgets);
    let link = hostile(&pair).await;
    let pool = pair.a.disk.engine.pool();
    let mut piece = vec![0; PIECE];
    for round in 0..8_u128 {
        assert_eq!(refused(link.call(begin(1 + round, 1000 + round), None).await), None);
        for at in 0..VOLUME / PIECE as u64 {
            pair.rng.fill_bytes(&mut piece);
            let volume = pair.a.disk.engine.open(&pair.original);
            if volume.write(at * PIECE as u64, &piece).is_err() {
                return false;
            }
            drop(volume);
            pair.a.source.check_budgets().await;
            // The store's own background work.
            while pool.reap_step().unwrap() {}
            pool.consistency_point().unwrap();
            pool.consistency_point().unwrap();
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }
    true
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_for_destinations_goes_before_writes_of_hosts_fail() {
    assert!(overwrite(404, Budgets { reserve_percent: 20, ..Budgets::default() }).await);
    assert!(
        !overwrite(404, Budgets { reserve_percent: 0, ..Budgets::default() }).await,
        "it would have filled the pool"
    );
}

#[tokio::test(start_paused = true)]
async fn an_honest_mirror_every_ten_seconds_meets_no_budget() {
    let mut pair = Pair::new(405, SIZE, LinkSettings::default()).await;
    pair.scribble(40);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    for _ in 0..100 {
        pair.scribble(2);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(pair.a.source.check_budgets().await.is_empty());
        assert_ok(&pair.update(&mirror).await);
    }
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn a_first_copy_that_was_given_up_leaves_a_person_s_snapshots_free() {
    let mut pair = Pair::new(406, SIZE, slow()).await;
    for name in ["monday", "tuesday", "wednesday"] {
        pair.scribble(40);
        pair.snapshot(name);
    }
    let mirror = pair.mirror(Schedule::OnRequest).await;
    let asked = mirror.initialize(PATIENCE).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(pair.a.source.serving().len(), 1, "it runs");
    mirror.abort().await.unwrap();
    let report = asked.ended().await.unwrap();
    assert_eq!(report.result, TransferResult::Aborted);
    let engine = pair.a.disk.engine.engine();
    let pinned = |engine: &dyn Engine| {
        let all = engine.all_snapshots(&pair.original).unwrap().into_iter();
        all.filter(|s| !s.pinned_by.is_empty()).map(|s| s.name).collect::<Vec<_>>()
    };
    // The source hears of it after the person does.
    let is_free = async {
        while !pinned(&*engine).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_free).await.unwrap_or_else(|_| panic!("{:?}", pinned(&*engine)));
    // The rest travels as before.
    assert_ok(&pair.initialize(&mirror).await);
    assert_eq!(pair.check_replica().len(), 4);
}
