//! Runs operations: once undisturbed, to learn their steps; then once for each fault at each step.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use farside_store::Pool;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::inflict::{Hosts, Inflicted, write_meanwhile};
use crate::table::{Fault, Stage, Table, Then};
use crate::watch::{ClockReading, Nth, Point, Side};
use crate::world::World;

/// Longer than everything that waits: for sessions, for answers, on silent streams.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// An operation: how it is begun, and what must be so before and after its turning point.
pub(crate) trait Operation {
    const TABLE: &'static Table;
    /// Whether it is possible only with a common base.
    const NEEDS_BASE: bool = true;
    /// Whether at every moment at most one side may take writes.
    const ONE_WRITABLE: bool = false;
    /// The world just before it.
    async fn prepare(seed: u64) -> Self;
    fn world(&mut self) -> &mut World;
    /// Begins it, as one client that waits for it to complete.
    fn start(&self) -> JoinHandle<Result<(), String>>;
    /// Asserts that everything is as it must be at this stage. Nothing is under way.
    async fn check(&mut self, stage: Stage);
    /// Whether the durable state on the way is reached.
    fn is_between(&self) -> bool {
        false
    }
    /// Makes the mirror again where a lost database has forgotten it.
    async fn create_again(&mut self);
    /// Makes the source writable where nothing else does.
    async fn break_first(&mut self) {}
    /// Gives the command again (where it has not been obeyed already).
    async fn repeat(&mut self) -> Result<(), String>;
    /// What comes next after the operation, and must work.
    async fn go_on(&mut self);
}

/// The steps of an operation: for each row its points, each with how often it was passed.
type Steps = Vec<Vec<Nth>>;

/// Runs it undisturbed and sorts what it did into the rows of its table.
async fn steps<O: Operation>(seed: u64) -> Steps {
    let mut operation = O::prepare(seed).await;
    let (hosts, _) = begin(&mut operation, seed, None);
    let done = timeout(FOR_EVER, operation.start()).await.expect("it ends").unwrap();
    done.unwrap_or_else(|e| panic!("undisturbed: {e}"));
    // The closing message comes after the end.
    sleep(Duration::from_secs(1)).await;
    *hosts.lock() = false;
    let seen = operation.world().watch.end();
    operation.check(Stage::New).await;
    operation.go_on().await;
    check_all(&mut operation);

    let rows = O::TABLE.rows;
    let mut steps: Steps = rows.iter().map(|_| Vec::new()).collect();
    let (mut row, mut passed) = (0, BTreeMap::<Point, usize>::new());
    for point in seen {
        let nth = passed.entry(point).or_default();
        *nth += 1;
        let is_of = |r: &usize| rows[*r].calls.contains(&(point.side, point.call));
        row = (row..rows.len()).find(is_of).unwrap_or_else(|| {
            panic!("{point:?} (number {nth}) belongs to no step from {:?} on", rows[row].step)
        });
        steps[row].push(Nth { point, nth: *nth });
    }
    for (row, points) in rows.iter().zip(&steps) {
        assert!(!points.is_empty(), "{}: {:?} was never seen", O::TABLE.operation, row.step);
    }
    steps
}

fn begin<O: Operation>(
    operation: &mut O,
    seed: u64,
    fault: Option<(Nth, Fault)>,
) -> (Hosts, Option<Inflicted>) {
    let world = operation.world();
    let hosts: Hosts = Arc::new(Mutex::new(true));
    let (mut inflicted, mut trigger) = (None, None);
    if let Some((at, fault)) = fault {
        let (prepared, act) =
            Inflicted::prepare(world, fault, O::TABLE.source, O::TABLE.destination(), &hosts);
        inflicted = Some(prepared);
        trigger = Some((at, act));
    }
    let meanwhile = {
        let (rng, hosts) = (Mutex::new(SmallRng::seed_from_u64(seed)), hosts.clone());
        let (storage, watch) = (world.site(Side::A).disk.engine.clone(), Arc::downgrade(&world.watch));
        Arc::new(move |point: Point| {
            if O::ONE_WRITABLE
                && let Some(watch) = watch.upgrade()
            {
                let writable = watch.pools.lock().values().filter(|pool| is_writable(pool)).count();
                assert!(writable <= 1, "both sides take writes, {point:?}");
            }
            if let (Side::A, ClockReading::Before, Some(watch)) = (point.side, point.moment, watch.upgrade())
            {
                write_meanwhile(&rng, &hosts, &storage, &watch);
            }
        })
    };
    world.watch.begin(trigger, Some(meanwhile));
    (hosts, inflicted)
}

fn is_writable(pool: &Pool) -> bool {
    pool.volume("v").is_ok_and(|volume| volume.replica.is_none_or(|r| r.broken_off))
}

/// One fault at one point.
async fn suffer<O: Operation>(seed: u64, row: usize, at: Nth, fault: Fault) {
    let row = &O::TABLE.rows[row];
    let then = row.then[Fault::ALL.iter().position(|f| *f == fault).unwrap()];
    let mut stage = row.holds.at(at.point.moment);
    let mut operation = O::prepare(seed).await;
    let (_, inflicted) = begin(&mut operation, seed, Some((at, fault)));
    let inflicted = inflicted.unwrap();
    let watch = operation.world().watch.clone();
    let (client, watched) = (operation.start(), watch.clone());
    let mut client = tokio::spawn(async move { (client.await.unwrap(), watched.has_fired()) });
    let mut ended = None;
    tokio::select! {
        () = watch.fired() => {}
        done = &mut client => ended = Some(done.unwrap()),
        () = sleep(FOR_EVER) => panic!("neither the step nor the end came"),
    }
    if !watch.has_fired() {
        // The last closing message comes after the end.
        timeout(Duration::from_secs(10), watch.fired()).await.expect("the step comes");
    }
    inflicted.mend_at_once(operation.world()).await;
    let (ended, was_late) = match ended {
        Some(ended) => ended,
        None => timeout(FOR_EVER, client).await.expect("every operation ends").unwrap(),
    };
    // What a client hears of a daemon that is dead it does not hear.
    let ended =
        if was_late && inflicted.takes_client() { Err("the daemon was killed".into()) } else { ended };
    watch.end();
    inflicted.mend_afterwards(operation.world()).await;
    // What is repeated by itself, and what is only said in closing message, is over by then.
    sleep(Duration::from_secs(20)).await;

    if stage == Stage::Old && (O::TABLE.may_stay_between)(fault) && operation.is_between() {
        stage = Stage::Between;
    }
    match (&ended, then) {
        // What has published nothing yet needs no base.
        (Err(_), Then::Refused) if !O::NEEDS_BASE => {
            operation.check(stage).await;
            operation.repeat().await.unwrap_or_else(|e| panic!("the repeated command failed: {e}"));
            operation.check(Stage::New).await;
        }
        // What has turned does without.
        (Ok(()), Then::Refused) if O::ONE_WRITABLE => operation.check(Stage::New).await,
        (_, Then::Refused) => {
            let stage = if ended.is_ok() { Stage::New } else { stage };
            operation.check(stage).await;
            match operation.repeat().await {
                // The last snapshot of a fenced original may serve.
                Ok(()) if O::ONE_WRITABLE => operation.check(Stage::New).await,
                Ok(()) => panic!("there is no base any more"),
                Err(refused) => {
                    assert!(refused.contains("is also at the"), "{refused}");
                    operation.check(stage).await;
                    operation.world().start_over(O::TABLE.source).await;
                    return check_all(&mut operation);
                }
            }
        }
        // It was released at the end, and both show the same: asked for once more, it finds that.
        (Ok(()), Then::Repeat) if fault == Fault::ReleaseBase => {
            operation.repeat().await.unwrap_or_else(|e| panic!("the repeated command failed: {e}"));
            operation.check(Stage::New).await;
        }
        (Ok(()), Then::Finishes | Then::Either) => operation.check(Stage::New).await,
        (Ok(()), Then::Create) if !was_late => {
            operation.create_again().await;
            operation.repeat().await.unwrap_or_else(|e| panic!("the repeated command failed: {e}"));
            operation.check(Stage::New).await;
        }
        (Err(reason), Then::Repeat | Then::Either | Then::Create | Then::BreakFirst) => {
            assert!(inflicted.explains(reason), "it says only: {reason}");
            if then == Then::Create {
                operation.create_again().await;
            }
            operation.check(stage).await;
            if then == Then::BreakFirst {
                operation.break_first().await;
            }
            operation.repeat().await.unwrap_or_else(|e| panic!("the repeated command failed: {e}"));
            operation.check(Stage::New).await;
        }
        other => panic!("stated was {then:?}, but {other:?}"),
    }
    operation.go_on().await;
    check_all(&mut operation);
}

fn check_all<O: Operation>(operation: &mut O) {
    let world = operation.world();
    for side in [Side::A, Side::B] {
        if world.is_writable(side) && world.watch.live.lock().contains_key(&side) {
            world.check_live(side);
        }
    }
    world.check_pools();
}

/// Runs in a runtime of its own, on paused time: nothing outlives it, and a failure is answered, not spread.
fn alone<T>(run: impl Future<Output = T>) -> Result<T, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(run))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
    })
}

/// Every cell of the operation's table, with each of these seeds.
pub(crate) fn every_cell<O: Operation>(seeds: std::ops::Range<u64>) {
    let mut failures = Vec::new();
    let (mut runs, wanted) = (0, std::env::var("FARSIDE_CELL").ok());
    for seed in seeds {
        let steps = match alone(steps::<O>(seed)) {
            Ok(steps) => steps,
            Err(said) => {
                failures.push(format!("{}, undisturbed, seed {seed}: {said}", O::TABLE.operation));
                continue;
            }
        };
        let mut draw = SmallRng::seed_from_u64(seed);
        for (row, points) in steps.iter().enumerate() {
            for fault in Fault::ALL {
                let at = points[draw.random_range(0..points.len())];
                let name = format!("{} / {} / {fault:?}", O::TABLE.operation, O::TABLE.rows[row].step);
                if wanted.as_ref().is_some_and(|wanted| !name.contains(wanted.as_str())) {
                    continue;
                }
                runs += 1;
                if std::env::var_os("FARSIDE_NAME_RUNS").is_some() {
                    println!("{name}, {at:?}");
                }
                let context = format!("{name}, {at:?}, seed {seed}");
                if let Err(said) = alone(suffer::<O>(seed, row, at, fault)) {
                    failures.push(format!("{context}: {said}"));
                }
            }
        }
    }
    println!("{}: {runs} runs", O::TABLE.operation);
    assert!(failures.is_empty(), "{} of {runs} runs:\n{}", failures.len(), failures.join("\n"));
}
