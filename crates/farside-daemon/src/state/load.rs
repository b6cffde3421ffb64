//! What 10,000 mirrors and five daemons ask of PostgreSQL, by the statements that the daemon makes: `make bench-database`.
//!
//! Five desks ask for the lease as their daemons do, one of them renews it. Mirrors are rows, and an update is what its driver stores:
//! at a replica's site three lines of the log and one of history, at a source's the base that moved. No byte of a volume moves.

mod counted;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use farside_mirror::{
    LogEntry, LogEvent, Relationship, RelationshipStore, RequestedBy, Schedule, SourceRelationship,
    SourceStore,
};
use farside_peer::PeerId;
use farside_platform::Timestamp;
use farside_transfer::{TransferKind, TransferReport, TransferResult};
use tokio::task::JoinSet;
use uuid::Uuid;

use self::counted::Counted;
use super::lead::Lead;
use super::test_databases::TestDatabase;
use super::transfers::tests::report;
use super::{Card, Common, DatabaseAddress, Desk, Leading, PoolRelationships, Renewal, State, Turn};
use crate::daemons::lease::{LOOKED_EVERY, RENEWED_EVERY};

const MIRRORS: usize = 10_000;
const DAEMONS: usize = 5;
const POOL: &str = "ceph";
/// Updates under way at once, where as many are made as go.
const AT_ONCE: usize = 64;
/// Mirrors whose log and history are as long as they get.
const OLD: usize = 16;
/// How often each mirror is updated in the part that is neither idle nor as fast as it goes.
const PACE: Duration = Duration::from_secs(100);

/// The site's rows, and the daemon that writes them.
struct Load {
    state: State,
    of_pool: PoolRelationships,
    replicas: Vec<Relationship>,
    sources: Vec<SourceRelationship>,
    number: AtomicU64,
    /// The longest that a renewal of the lease has taken, microseconds.
    longest_renewal: Arc<AtomicU64>,
}

fn card(name: &str) -> Card {
    let address = Some("127.0.0.1:7440".to_owned());
    Card {
        id: Uuid::new_v4(),
        name: name.into(),
        api_address: address.clone(),
        api_fingerprint: None,
        peer_address: address,
    }
}

/// Daemons of one site: the leading one's desk and lease, and the others.
async fn site(database: &TestDatabase) -> (Desk, Leading, Vec<(Desk, Card)>) {
    let DatabaseAddress::Server(server) = database.address() else { unreachable!() };
    let mut first = Desk::new(server);
    first.prepare(false).await.unwrap();
    let own = card("first");
    let Turn::Leads(leading) = first.turn(&own, &common(), (false, false), None).await.unwrap() else {
        panic!("the first of a site leads")
    };
    let mut others = Vec::new();
    for number in 1..DAEMONS {
        let other = card(&format!("other-{number}"));
        first.invite(&other.name, b"sealed", Duration::from_secs(60)).await.unwrap();
        let mut desk = Desk::new(server);
        desk.prepare(false).await.unwrap();
        assert!(desk.join(&other.name, &other).await.unwrap().is_some());
        others.push((desk, other));
    }
    first.renew(leading.lead).await.unwrap();
    (first, leading, others)
}

fn common() -> Common {
    Common { site_id: "key".into(), site_name: "site".into() }
}

impl Load {
    /// Ten thousand mirrors each way, in one pool.
    async fn make(database: &TestDatabase, lead: Lead, longest_renewal: Arc<AtomicU64>) -> Load {
        let DatabaseAddress::Server(server) = database.address() else { unreachable!() };
        let led = DatabaseAddress::Server(Box::new((**server).clone().with_lead(lead)));
        let state = State::open_at(&led).await.unwrap();
        let of_pool = PoolRelationships::new(state.clone(), POOL);
        let (mut replicas, mut sources) = (Vec::new(), Vec::new());
        for number in 0..MIRRORS {
            let name = |what: &str| format!("{what}/volume-{number:05}").parse().unwrap();
            let id = |way: u128| Uuid::from_u128(way << 64 | number as u128);
            let every = Schedule::Every(PACE);
            let replica = Relationship::new(id(1), PeerId([3; 32]), name("vault"), name(POOL), every);
            of_pool.save(&replica).await.unwrap();
            replicas.push(replica);
            let source = SourceRelationship::new(id(2), PeerId([3; 32]), name("out"), name("vault"));
            state.save_source(&source).await.unwrap();
            sources.push(source);
        }
        let number = AtomicU64::new(0);
        Load { state, of_pool, replicas, sources, number, longest_renewal }
    }

    /// What the driver of a mirror stores of an update.
    async fn update_replica(&self, relationship: &Relationship) {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let now = Timestamp(1_800_000_000_000_000_000 + number);
        let transfer = TransferReport {
            id: Uuid::new_v4(),
            result: TransferResult::Ok,
            reason: None,
            ended_at: now,
            ..report(number)
        };
        let log = async |event: LogEvent, id: Option<Uuid>| {
            let entry = LogEntry {
                at: now,
                relationship: relationship.id,
                volume: relationship.destination.clone(),
                event,
                kind: Some(TransferKind::Update),
                transfer: id,
            };
            self.of_pool.append_log(&entry).await.unwrap();
        };
        log(LogEvent::Request { by: RequestedBy::Schedule }, None).await;
        log(LogEvent::Start, Some(transfer.id)).await;
        self.of_pool.append_history(relationship.id, &transfer).await.unwrap();
        log(LogEvent::End { bytes: transfer.wire_bytes_received }, Some(transfer.id)).await;
    }

    /// What the registry of sources stores of one.
    async fn update_source(&self, source: &SourceRelationship) {
        let changed = SourceRelationship { base: Some(Uuid::new_v4()), ..source.clone() };
        self.state.save_source(&changed).await.unwrap();
    }

    /// As many updates as go, of so many replicas and sources at once; how many of each.
    async fn as_fast_as_it_goes(
        self: &Arc<Self>,
        (replicas, sources): (usize, usize),
        mirrors: usize,
        seconds: Duration,
    ) -> (u64, u64) {
        let until = Instant::now() + seconds;
        let next = Arc::new(AtomicUsize::new(0));
        let mut workers = JoinSet::new();
        for worker in 0..replicas + sources {
            let (this, next) = (Arc::clone(self), Arc::clone(&next));
            workers.spawn(async move {
                let mut made = 0;
                while Instant::now() < until {
                    let at = next.fetch_add(1, Ordering::Relaxed) % mirrors;
                    if worker < replicas {
                        this.update_replica(&this.replicas[at]).await;
                    } else {
                        this.update_source(&this.sources[at]).await;
                    }
                    made += 1;
                }
                (worker < replicas, made)
            });
        }
        let (mut of_replicas, mut of_sources) = (0, 0);
        while let Some(made) = workers.join_next().await {
            match made.unwrap() {
                (true, made) => of_replicas += made,
                (false, made) => of_sources += made,
            }
        }
        (of_replicas, of_sources)
    }

    /// Half of the mirrors each way, each of them once in [`PACE`].
    async fn at_its_pace(self: &Arc<Self>, seconds: Duration) -> (u64, u64) {
        let mut ticks = tokio::time::interval(PACE / (MIRRORS / 2) as u32);
        let (until, mut updates, mut made) = (Instant::now() + seconds, JoinSet::new(), 0);
        while Instant::now() < until {
            ticks.tick().await;
            let (this, at) = (Arc::clone(self), made % MIRRORS);
            updates.spawn(async move {
                this.update_replica(&this.replicas[at]).await;
                this.update_source(&this.sources[at]).await;
            });
            made += 1;
        }
        while updates.join_next().await.is_some_and(|done| done.map(|()| true).unwrap()) {}
        (made as u64, made as u64)
    }
}

/// The lease and those who wait for it, until this is dropped. `longest` is the longest renewal, µs.
fn keep_lease(
    longest: Arc<AtomicU64>,
    mut desk: Desk,
    leading: Leading,
    others: Vec<(Desk, Card)>,
) -> JoinSet<()> {
    let mut daemons = JoinSet::new();
    daemons.spawn(async move {
        loop {
            tokio::time::sleep(RENEWED_EVERY).await;
            let began = Instant::now();
            let renewal = desk.renew(leading.lead).await.unwrap();
            assert!(matches!(renewal, Renewal::Holds { .. }), "{renewal:?}");
            longest.fetch_max(began.elapsed().as_micros() as u64, Ordering::Relaxed);
        }
    });
    for (mut desk, card) in others {
        daemons.spawn(async move {
            loop {
                let turn = desk.turn(&card, &common(), (true, true), None).await.unwrap();
                assert!(matches!(turn, Turn::Waits { .. }), "{turn:?}");
                tokio::time::sleep(LOOKED_EVERY).await;
            }
        });
    }
    daemons
}

/// Copies what some mirrors have of log and history until there is as much of it as is kept.
const GROWN_OLD: [&str; 2] = [
    "INSERT INTO transfers (relationship, volume, ended_at, record) SELECT relationship, volume, ended_at, record \
     FROM (SELECT DISTINCT ON (volume) * FROM transfers WHERE volume < 'ceph/volume-00016') one, generate_series(1, 10000)",
    "INSERT INTO log (relationship, volume, at, event, detail, kind, transfer) SELECT relationship, volume, at, event, detail, kind, \
     transfer FROM (SELECT DISTINCT ON (volume) * FROM log WHERE volume < 'ceph/volume-00016') one, generate_series(1, 30000)",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes: make bench-database"]
async fn what_ten_thousand_mirrors_and_five_daemons_ask_of_postgresql() {
    let Some(database) = TestDatabase::measured().await else { return };
    let seconds = std::env::var("FARSIDE_SECONDS").map_or(20, |seconds| seconds.parse().unwrap());
    let seconds = Duration::from_secs(seconds);
    let mut counted = Counted::of(&database).await;
    let (desk, leading, others) = site(&database).await;
    // Making the rows takes minutes: nobody may take the lease over meanwhile.
    let longest = Arc::new(AtomicU64::new(0));
    let lead = leading.lead;
    let daemons = keep_lease(Arc::clone(&longest), desk, leading, others);
    // Rows that are there before it begins need not wait for the disk.
    counted.sync(false).await;
    let load = Arc::new(Load::make(&database, lead, longest).await);
    counted.sync(true).await;

    let part = counted.begin(&load).await;
    tokio::time::sleep(seconds).await;
    counted.end("idle", part, (0, 0)).await;
    let part = counted.begin(&load).await;
    let made = load.as_fast_as_it_goes((AT_ONCE, 0), MIRRORS, seconds).await;
    counted.end("replicas, as fast as it goes", part, made).await;
    let part = counted.begin(&load).await;
    let made = load.as_fast_as_it_goes((0, AT_ONCE), MIRRORS, seconds).await;
    counted.end("sources, as fast as it goes", part, made).await;
    let part = counted.begin(&load).await;
    let made = load.as_fast_as_it_goes((AT_ONCE / 2, AT_ONCE / 2), MIRRORS, seconds).await;
    counted.end("both, as fast as it goes", part, made).await;
    let part = counted.begin(&load).await;
    let made = load.at_its_pace(seconds).await;
    let name = format!("{} replicas and as many sources, every {} s each", MIRRORS / 2, PACE.as_secs());
    counted.end(&name, part, made).await;
    counted.tell_sizes().await;

    counted.sync(false).await;
    for sql in GROWN_OLD {
        counted.execute(sql).await;
    }
    counted.execute("ANALYZE").await;
    counted.sync(true).await;
    let part = counted.begin(&load).await;
    let made = load.as_fast_as_it_goes((OLD, 0), OLD, seconds).await;
    counted.end("replicas whose log and history are full, as fast as it goes", part, made).await;
    drop(daemons);
}
