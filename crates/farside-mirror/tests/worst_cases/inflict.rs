//! How each fault is done to the sites, at one moment, and how the world goes on afterwards.

use std::sync::Arc;
use std::time::Duration;

use farside_engine::EngineError;
use farside_mirror::MemoryStore;
use farside_peer::limits::{PING_EVERY, SILENCE_MAX};
use farside_store::StoreError;
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::site::Storage;
use crate::table::Fault;
use crate::watch::{Protocol, Side, Watch, Watched};
use crate::world::{SIZE, World};

const A_DAY_SECONDS: i64 = 24 * 3600;

/// A fault that waits for its moment.
pub(crate) struct Inflicted {
    fault: Fault,
    source: Side,
    destination: Side,
    /// How long the link is away.
    away: Duration,
    crash_seed: u64,
    /// What the killed site's database held at that moment.
    frozen: Arc<Mutex<Option<Arc<MemoryStore>>>>,
}

/// What must not go on while the fault happens, and not after it: hosts that write.
pub(crate) type Hosts = Arc<Mutex<bool>>;

impl Inflicted {
    /// Prepares `fault`; the closure does it.
    pub(crate) fn prepare(
        world: &mut World,
        fault: Fault,
        source: Side,
        destination: Side,
        hosts: &Hosts,
    ) -> (Inflicted, Box<dyn FnOnce() + Send>) {
        let rng = &mut world.rng;
        let (crash_seed, coin, which) = (rng.random(), rng.random_bool(0.5), rng.random_range(0..3));
        let away = Duration::from_secs(rng.random_range(1..40));
        let frozen = Arc::<Mutex<Option<Arc<MemoryStore>>>>::default();
        let inflicted = Inflicted { fault, source, destination, away, crash_seed, frozen: frozen.clone() };
        let network = world.pair.network.clone();
        let watch = world.watch.clone();
        let storage = |side| world.site(side).disk.engine.clone();
        let (at_source, at_destination) = (storage(source), storage(destination));
        let kill = |side: Side, keeps_database: bool| -> Box<dyn FnOnce() + Send> {
            let (network, disk) = (network.clone(), storage(side).inner.disk);
            let store = world.site(side).disk.store.clone();
            Box::new(move || {
                network.kill(side.host());
                // The disk first: what the dead process would still save after a change of the pool must not be saved.
                disk.fail_after(Some(0));
                let left = if keeps_database { MemoryStore::clone(&store) } else { MemoryStore::default() };
                *frozen.lock() = Some(Arc::new(left));
            })
        };
        let fails = |storage: Watched| -> Box<dyn FnOnce() + Send> {
            Box::new(move || storage.inner.disk.fail_after(Some(0)))
        };
        let set_protocol = |protocol| -> Box<dyn FnOnce() + Send> {
            let (network, watch) = (network.clone(), watch.clone());
            Box::new(move || {
                watch.set_protocol(source, protocol);
                network.cut("a", "b");
            })
        };
        let volumes = (world.volume(source), world.volume(destination));
        let act: Box<dyn FnOnce() + Send> = match fault {
            Fault::KillSource => kill(source, true),
            Fault::KillDestination => kill(destination, true),
            Fault::LoseSourceDatabase => kill(source, false),
            Fault::LoseDestinationDatabase => kill(destination, false),
            Fault::CutLink => Box::new(move || match which {
                0 => network.cut("a", "b"),
                1 => network.black_hole("a", "b"),
                _ => network.reset("a", "b"),
            }),
            Fault::FullSource => Box::new(move || fill(&at_source)),
            Fault::FullDestination => Box::new(move || fill(&at_destination)),
            Fault::IoSource => fails(at_source),
            Fault::IoDestination => fails(at_destination),
            Fault::ClockStep => {
                let clock = if coin { world.pair.clock.clone() } else { world.pair.clock_b.clone() };
                let by = if which == 0 { -A_DAY_SECONDS } else { A_DAY_SECONDS };
                Box::new(move || clock.step_wall(by))
            }
            Fault::OlderSource => set_protocol(Protocol::Older),
            Fault::NewerSource => set_protocol(Protocol::Newer),
            Fault::ResizeSource => Box::new(move || resize(&at_source, &watch, coin)),
            Fault::ResizeDestination => Box::new(move || resize(&at_destination, &watch, coin)),
            Fault::ReleaseBase => {
                let (service, volume) = (world.site(source).source.clone(), volumes.0.clone());
                let (peer, runtime) = (world.site(destination).node.id(), Handle::current());
                Box::new(move || {
                    drop(runtime.spawn(async move { service.release(&volume, peer).await.unwrap() }))
                })
            }
            Fault::DeleteBase => Box::new(move || {
                delete_bases(&at_source, &volumes.0);
                delete_bases(&at_destination, &volumes.1);
            }),
        };
        let hosts = hosts.clone();
        let act = Box::new(move || {
            // From here on no host writes: what it would be told could not be relied on.
            *hosts.lock() = false;
            act();
        });
        (inflicted, act)
    }

    /// What happens by itself while the operation may still be under way.
    pub(crate) async fn mend_at_once(&self, world: &mut World) {
        match self.fault {
            Fault::KillSource | Fault::LoseSourceDatabase => self.restart(world, self.source).await,
            Fault::KillDestination | Fault::LoseDestinationDatabase => {
                self.restart(world, self.destination).await;
            }
            Fault::CutLink => {
                sleep(self.away).await;
                world.pair.network.heal("a", "b");
            }
            // Its daemon is another one now: no session outlives that.
            Fault::NewerSource | Fault::OlderSource => {
                sleep(SILENCE_MAX + 2 * PING_EVERY).await;
                world.pair.network.heal("a", "b");
            }
            _ => {}
        }
    }

    /// What an administrator does when the operation is over.
    pub(crate) async fn mend_afterwards(&self, world: &mut World) {
        match self.fault {
            Fault::FullSource => empty(&world.site(self.source).disk.engine),
            Fault::FullDestination => empty(&world.site(self.destination).disk.engine),
            Fault::IoSource => self.restart(world, self.source).await,
            Fault::IoDestination => self.restart(world, self.destination).await,
            Fault::NewerSource | Fault::OlderSource => world.watch.set_protocol(self.source, Protocol::Ours),
            _ => {}
        }
    }

    /// Whether whoever waits for the operation at the destination dies with its daemon.
    pub(crate) fn takes_client(&self) -> bool {
        matches!(self.fault, Fault::KillDestination | Fault::LoseDestinationDatabase)
    }

    async fn restart(&self, world: &mut World, side: Side) {
        sleep(Duration::from_secs(3)).await;
        let frozen = self.frozen.lock().take();
        world.restart(side, frozen, self.crash_seed).await;
    }

    /// Whether what an operation said on failing fits the fault.
    pub(crate) fn explains(&self, reason: &str) -> bool {
        match self.fault {
            Fault::FullSource | Fault::FullDestination => reason.contains("full"),
            Fault::NewerSource | Fault::OlderSource => reason.contains("version"),
            Fault::IoSource | Fault::IoDestination => {
                reason.contains("Input/output error") || reason.contains("accepts")
            }
            _ => !reason.is_empty(),
        }
    }
}

const BALLAST: &str = "ballast";

/// Hosts write until nothing more is accepted.
fn fill(storage: &Watched) {
    let pool = storage.inner.pool();
    pool.create_volume(BALLAST, 256 << 20).unwrap();
    let ballast = pool.open_volume(BALLAST).unwrap();
    let mut at = 0;
    for length in [1 << 20, 64 << 10, 4096] {
        let bytes = vec![0xba; length];
        loop {
            match ballast.write(at, &bytes) {
                Ok(()) => at += length as u64,
                Err(StoreError::NoSpace { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    pool.flush().unwrap();
}

fn empty(storage: &Watched) {
    let pool = storage.inner.pool();
    pool.delete_volume(BALLAST).unwrap();
    pool.reap_all().unwrap();
}

/// Larger or smaller, where that is allowed: a replica is its source's size.
fn resize(storage: &Watched, watch: &Watch, grows: bool) {
    let pool = storage.inner.pool();
    let Ok(volume) = pool.volume("v") else { return };
    let size = if grows { 2 * SIZE } else { SIZE / 2 };
    if volume.replica.is_none() && !watch.live.lock().contains_key(&storage.side) {
        // The volume of a mirror that is being created, an instant old: nobody's yet.
        return;
    }
    let is_replica = volume.replica.is_some_and(|r| !r.broken_off);
    match pool.resize_volume("v", size) {
        Ok(()) => {
            assert!(!is_replica, "a replica was resized");
            if let Some(live) = watch.live.lock().get_mut(&storage.side) {
                live.resize(size as usize, 0);
            }
        }
        Err(StoreError::Refused(_)) => assert!(is_replica, "not resized"),
        Err(error) => panic!("{error}"),
    }
}

/// No base goes that a mirror relies on, whoever asks.
fn delete_bases(storage: &Watched, volume: &farside_engine::VolumeName) {
    let engine = storage.inner.engine();
    for snapshot in engine.all_snapshots(volume).unwrap_or_default() {
        if !snapshot.pinned_by.is_empty() {
            let refused = engine.delete_snapshot(volume, snapshot.uuid);
            assert!(matches!(refused, Err(EngineError::Refused(_))), "{}: {refused:?}", snapshot.name);
        }
    }
}

/// What hosts do meanwhile, at any step: now and then a flushed write at a site whose volume is theirs.
pub(crate) fn write_meanwhile(rng: &Mutex<SmallRng>, hosts: &Hosts, storage: &Watched, watch: &Watch) {
    let hosts = hosts.lock();
    let mut rng = rng.lock();
    let volume = "p/v".parse().unwrap();
    let is_theirs = storage.inner.pool().volume("v").is_ok_and(|v| v.replica.is_none_or(|r| r.broken_off));
    if *hosts && is_theirs && rng.random_bool(0.1) {
        crate::world::host_writes(&mut rng, storage, &volume, watch);
        storage.inner.pool().flush().unwrap();
    }
}
