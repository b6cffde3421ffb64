//! The device fails at every single request of short histories that use everything a pool can do: once, or from then on; reads,
//! writes and syncs; with the kernel's error, with half a request done, and as a disk does that forgets what was not synced.
//!
//! What must hold: whoever was told that an operation succeeded finds it when the pool is opened again, after a power failure as
//! well if it was durable. One that failed is there as a whole or not at all. After a failed sync nothing is accepted, and no sync
//! is tried. A failure that does not doom the pool goes by: the same operation works when the device does. What lies on the medium
//! is sound by the format alone, and when the device is well again the pool opens and goes on to the end of the history.

mod histories;
mod model;

use std::sync::Arc;

use farside_platform::{CrashFate, Failing, Failure, Requests, SimulatedDisk};
use farside_store::{Pool, StoreError};
use histories::{Golden, HISTORIES, Hands, History, Lasts};
use model::{Observation, options, try_observe};

/// One run of a history with failures.
struct Run<'a> {
    golden: &'a Golden,
    hands: Hands,
    what: String,
    /// Of each operation so far: events before it began, and events when it had succeeded durably.
    spans: Vec<(usize, Option<usize>)>,
}

impl Run<'_> {
    /// Golden states that may be there after a power failure after `events` events.
    fn bounds(&self, events: usize) -> (usize, usize) {
        let is_there = |(_, durable): &(usize, Option<usize>)| durable.is_some_and(|end| end <= events);
        let lower = self.spans.iter().rposition(is_there).map_or(0, |at| at + 1);
        let upper = self.spans.iter().rposition(|(begun, _)| *begun < events).map_or(0, |at| at + 1);
        (lower, upper.max(lower))
    }

    /// The last of these states that this is.
    fn state_of(&self, seen: &Observation, (lower, upper): (usize, usize), when: &str) -> usize {
        let found = (lower..=upper).rev().find(|at| self.golden.states[*at] == *seen);
        found.unwrap_or_else(|| {
            let is = self.golden.states.iter().position(|state| state == seen);
            panic!("{}: {when}: shows none of the states {lower}..={upper}, but {is:?}: {seen:?}", self.what)
        })
    }

    fn check(&self, disk: &SimulatedDisk, when: &str) {
        let report = farside_check::check(disk, &farside_check::CheckOptions::default())
            .unwrap_or_else(|e| panic!("{}: {when}: the checker failed: {e}", self.what));
        assert!(report.is_clean(), "{}: {when}: {report}", self.what);
    }

    /// What a power failure after so many events leaves.
    fn crash(&self, events: usize, fate: CrashFate) {
        let when = format!("event {events}, {fate:?}");
        let disk = self.hands.disk.crash_at(events, fate);
        self.check(&disk, &when);
        let pool = Pool::open(Arc::new(disk.clone()), options(99));
        let pool = pool.unwrap_or_else(|e| panic!("{}: {when}: {e}", self.what));
        let seen = try_observe(&pool).unwrap_or_else(|e| panic!("{}: {when}: {e}", self.what));
        self.state_of(&seen, self.bounds(events), &when);
    }
}

/// What a pool that has met a failed write of its journal, or a failed sync, does: it reads, and accepts nothing.
fn refuses(run: &Run<'_>, disk: &SimulatedDisk) {
    let pool = run.hands.pool();
    if pool.status().failed.is_none() {
        return;
    }
    let begun = disk.syncs_begun();
    let volume = pool.volumes().into_iter().find(|v| v.replica.is_none()).expect("there is one").name;
    let handle = pool.open_volume(&volume).expect("it opens");
    let outcomes = [
        ("a write", handle.write(0, &[1; 4096])),
        ("a trim", handle.trim(0, 4096)),
        ("a flush", pool.flush()),
        ("a point", pool.consistency_point()),
        ("a volume", pool.create_volume("new", 1 << 20).map(|_| ())),
        ("growth", pool.grow(64 << 20).map(|_| ())),
        ("a scrub", pool.begin_scrub().map(|_| ())),
    ];
    for (name, outcome) in outcomes {
        assert!(matches!(outcome, Err(StoreError::Failed { .. })), "{}: {name}: {outcome:?}", run.what);
    }
    assert_eq!(disk.syncs_begun(), begun, "{}: a sync of a pool that refuses", run.what);
}

/// Whether an error is one of a device that fails, not one that says that something is damaged or contradicts itself.
fn is_of_device(error: &StoreError) -> bool {
    matches!(error, StoreError::Device(_) | StoreError::Failed { .. })
}

/// Runs a history whose requests fail by `plan`, from the beginning of operation `from` on. Whether any failed: the history is over
/// before that at last.
fn survives(history: &History, golden: &Golden, plan: Failing) -> bool {
    let what = format!("{}: {plan:?}", history.name);
    let mut hands = Hands::of(golden.disk.image());
    hands.open().expect("it opens");
    hands.believes_scrubs = plan.times == 1;
    let disk = hands.disk.clone();
    disk.fail(Some(plan));
    let mut run = Run { golden, hands, what, spans: Vec::new() };
    let mut failed_at = None;
    let mut at = 0;
    while at < history.operations.len() {
        let operation = &history.operations[at];
        let begun = disk.events();
        let failures = disk.failures();
        let mut outcome = (operation.run)(&mut run.hands);
        let has_failed = disk.failures() > failures;
        if let Err(error) = &outcome {
            assert!(has_failed, "{}: {}: {error}, and no request failed", run.what, operation.name);
            let forgot = matches!(plan.failure, Failure::Forgets(_)) && plan.requests == Requests::Syncs;
            assert!(is_of_device(error) || forgot, "{}: {}: {error}", run.what, operation.name);
        }
        if has_failed {
            failed_at = Some(begun);
        }
        let is_latched = |run: &Run<'_>| run.hands.has_pool() && run.hands.pool().status().failed.is_some();
        let mut is_over = plan.times == u64::MAX && has_failed;
        if has_failed && plan.requests == Requests::Syncs && run.hands.has_pool() {
            assert!(is_latched(&run), "{}: {}: a failed sync is not latched", run.what, operation.name);
            assert_eq!(
                disk.syncs_since_one_failed(),
                Some(0),
                "{}: {}: a sync after one",
                run.what,
                operation.name
            );
        }
        is_over |= is_latched(&run);
        if outcome.is_err() && !is_over {
            // One request failed, and nothing is in doubt: it is as it was, or done; and if it is not, it can be done.
            if !run.hands.has_pool() {
                run.hands.open().unwrap_or_else(|e| panic!("{}: opened again: {e}", run.what));
                outcome = Ok(());
            }
            let seen = run.hands.observe().unwrap_or_else(|e| panic!("{}: {e}", run.what));
            run.state_of(&seen, (at, at + 1), operation.name);
            // What is there as a whole lasts with the next flush, like any write.
            let again = match outcome {
                Err(_) if seen == golden.states[at] => (operation.run)(&mut run.hands),
                Err(_) => run.hands.pool().flush(),
                Ok(()) => Ok(()),
            };
            again.unwrap_or_else(|e| panic!("{}: {}: tried again: {e}", run.what, operation.name));
            outcome = Ok(());
        }
        let is_durable = outcome.is_ok() && operation.lasts != Lasts::Later;
        run.spans.push((begun, is_durable.then(|| disk.events())));
        if is_over {
            break;
        }
        at += 1;
    }
    disk.fail(None);
    let Some(failed_at) = failed_at else {
        assert_eq!(run.hands.observe().expect("it reads"), golden.states[at], "{}", run.what);
        return false;
    };
    if run.hands.has_pool() {
        refuses(&run, &disk);
    }
    // The power fails: at the end, and while the operation that failed was under way.
    let events = disk.events();
    let turn = plan.after as usize;
    let fates = [CrashFate::DropUnsynced, CrashFate::KeepUnsynced, CrashFate::Random(plan.after)];
    run.crash(events, fates[turn % 3]);
    if events > failed_at {
        run.crash(failed_at + turn % (events - failed_at), fates[(turn + 1) % 3]);
    }
    // Or the process is started again on a device that is well, and goes on.
    run.hands.open().unwrap_or_else(|e| panic!("{}: opened on a device that is well: {e}", run.what));
    let seen = run.hands.observe().unwrap_or_else(|e| panic!("{}: opened again: {e}", run.what));
    let found = run.state_of(&seen, run.bounds(disk.events()), "opened again");
    for operation in &history.operations[found..] {
        (operation.run)(&mut run.hands)
            .unwrap_or_else(|e| panic!("{}: {} after it was opened again: {e}", run.what, operation.name));
    }
    let seen = run.hands.observe().expect("it reads");
    assert_eq!(&seen, golden.states.last().expect("there are some"), "{}: the end", run.what);
    run.hands.drop_pool();
    run.check(&disk, "the end");
    true
}

/// How requests fail.
struct Way {
    requests: Requests,
    times: u64,
    failures: &'static [Failure],
}

const WAYS: &[Way] = &[
    Way { requests: Requests::Reads, times: 1, failures: &[Failure::Io, Failure::Short] },
    Way { requests: Requests::Reads, times: u64::MAX, failures: &[Failure::Io] },
    Way { requests: Requests::Writes, times: 1, failures: &[Failure::Io, Failure::Short, Failure::NoSpace] },
    Way { requests: Requests::Writes, times: u64::MAX, failures: &[Failure::NoSpace, Failure::Io] },
    Way { requests: Requests::Syncs, times: 1, failures: &[Failure::Io, Failure::Forgets(7)] },
    Way { requests: Requests::Syncs, times: u64::MAX, failures: &[Failure::Forgets(8), Failure::Io] },
    Way { requests: Requests::All, times: u64::MAX, failures: &[Failure::Io, Failure::Short] },
];

/// Each request of each history, in each of the ways; of the kinds of failure one, or all. How many runs failed.
fn fail_everywhere(every_kind: bool) -> u64 {
    let mut runs = 0;
    for history in HISTORIES {
        let golden = history.golden(history.begin(|_| ()));
        for way in WAYS {
            let before = runs;
            for after in 0.. {
                let failing = |failure: Failure| {
                    let failure = match failure {
                        Failure::Forgets(seed) => Failure::Forgets(seed << 32 | after),
                        other => other,
                    };
                    Failing { requests: way.requests, after, times: way.times, failure }
                };
                let turn = after as usize % way.failures.len();
                let kinds = if every_kind { way.failures } else { &way.failures[turn..=turn] };
                let reached = kinds.iter().filter(|kind| survives(history, &golden, failing(**kind)));
                let reached = reached.count() as u64;
                runs += reached;
                if reached == 0 {
                    break;
                }
            }
            println!("{}: {:?}, {} times: {} runs", history.name, way.requests, way.times, runs - before);
            assert!(runs > before, "{}: {:?}: nothing of that kind", history.name, way.requests);
        }
    }
    runs
}

#[test]
fn every_request_fails_once_and_from_then_on() {
    let runs = fail_everywhere(false);
    assert!(runs > 500, "{runs}");
}

#[test]
#[ignore = "minutes"]
fn every_request_fails_in_every_way() {
    fail_everywhere(true);
}
