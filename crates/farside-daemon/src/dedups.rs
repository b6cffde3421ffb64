//! Deduplication of volumes: begun on request, then once an hour over what has changed, at a rate, behind hosts. What was under way when
//! the daemon ended goes on with the next start.
//!
//! Each pool has one thread at a low priority that serves its volumes one after the other, while any of them wants it. Volumes share with
//! each other only if both have deduplication: who is left out shares nobody's fate. What is wanted, where it is and what it saves is kept
//! in the state database. Whoever closes a pool ends its thread first.

mod document;
mod of_pool;
mod worker;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farside_api::{Dedup as Document, ErrorBody, ErrorCode, Plan, StartDedup};
use farside_engine::VolumeName;
use farside_link::Rate;
use farside_platform::{BLOCK_BYTES, Clock};
use farside_store::Pool;
use farside_transfer::precedence::Hosts;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use uuid::Uuid;

use self::document::{Kept, Wanted};
use self::of_pool::{OfPool, refuse_replica};
use self::worker::Worker;
use crate::failure::Failure;
use crate::plans;
use crate::state::{DedupRow, State, StateError};

/// Lower than transfers, which somebody waits for.
const NICE: u8 = 10;
/// Metadata that a copy of a block may need, as a part of it: leaves have 128 blocks, and those above hardly count.
const UNDO_NODES_SHARE: u64 = 64;

/// Deduplication at this site.
pub(crate) struct Dedups {
    pools: Mutex<BTreeMap<String, Arc<OfPool>>>,
    state: State,
    clock: Arc<dyn Clock>,
    hosts: Arc<Hosts>,
}

impl std::fmt::Debug for Dedups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dedups").field("pools", &self.pools.lock().keys()).finish_non_exhaustive()
    }
}

impl Dedups {
    /// What is wanted. It goes on when the pools are open: see [`Dedups::pool_opened`].
    pub(crate) async fn load(
        state: State,
        clock: Arc<dyn Clock>,
        hosts: Arc<Hosts>,
    ) -> Result<Dedups, StateError> {
        let mut pools: BTreeMap<String, Arc<OfPool>> = BTreeMap::new();
        for DedupRow { pool, document, .. } in state.dedups().await? {
            match Kept::parse(&document) {
                Ok(kept) => {
                    let of_pool = pools.entry(pool.clone()).or_insert_with(|| OfPool::new(&pool));
                    of_pool.volumes.lock().kept.insert(kept.volume, kept);
                }
                Err(error) => tracing::warn!(
                    pool,
                    "what was kept of the deduplication of a volume cannot be read any more: {error}. farside volume dedup start begins \
                     it again"
                ),
            }
        }
        Ok(Dedups { pools: Mutex::new(pools), state, clock, hosts })
    }

    fn of_pool(&self, name: &str) -> Arc<OfPool> {
        let mut pools = self.pools.lock();
        Arc::clone(pools.entry(name.to_owned()).or_insert_with(|| OfPool::new(name)))
    }

    /// Of one volume.
    pub(crate) fn status(&self, pool_name: &str, pool: &Pool, name: &str, volume: Uuid) -> Document {
        let known = self.of_pool(pool_name).document(volume, Some(pool));
        let mut document = known.unwrap_or_else(|| Document {
            pool_saved_bytes: Some(pool.status().shared_saves_bytes),
            ..document::nothing(name)
        });
        // It may have been renamed.
        document.volume = name.to_owned();
        document
    }

    /// Of each volume that has it, or had it.
    pub(crate) fn list(&self, open: &[(String, Arc<Pool>)]) -> Vec<Document> {
        let pools: Vec<Arc<OfPool>> = self.pools.lock().values().cloned().collect();
        let mut all = Vec::new();
        for of_pool in pools {
            let pool = open.iter().find(|(name, _)| *name == of_pool.name).map(|(_, pool)| pool);
            let names: BTreeMap<Uuid, String> = pool
                .map(|pool| pool.volumes().into_iter().map(|v| (v.uuid, v.name)).collect())
                .unwrap_or_default();
            let ids: Vec<Uuid> = of_pool.volumes.lock().kept.keys().copied().collect();
            for id in ids {
                let Some(mut document) = of_pool.document(id, pool.map(|pool| &**pool)) else { continue };
                match names.get(&id) {
                    Some(name) => document.volume = format!("{}/{name}", of_pool.name),
                    None if pool.is_some() => continue,
                    None => {}
                }
                all.push(document);
            }
        }
        all.sort_by(|a, b| a.volume.cmp(&b.volume));
        all
    }

    /// Begins it, or has it look at once at what has changed. It blocks.
    pub(crate) fn start(
        &self,
        (pool_name, pool): (&str, &Arc<Pool>),
        (name, volume): (&str, Uuid),
        request: &StartDedup,
        runtime: &Handle,
    ) -> Result<Document, ErrorBody> {
        let limit = limit_of(request)?;
        refuse_replica(pool, name, volume)?;
        let of_pool = self.of_pool(pool_name);
        // Something else is wanted of it.
        let leaves = {
            let volumes = of_pool.volumes.lock();
            let wanted = volumes.kept.get(&volume).map(|kept| kept.wanted);
            wanted == Some(Wanted::Undo) || (request.anew && wanted == Some(Wanted::On))
        };
        if leaves {
            of_pool.volumes.lock().kept.entry(volume).and_modify(|kept| kept.wanted = Wanted::Off);
            of_pool.interrupt(volume);
        }
        self.want(&of_pool, pool, (name, volume), Wanted::On, limit, request.anew, runtime)?;
        Ok(self.status(pool_name, pool, name, volume))
    }

    /// Ends it; what is shared stays so. It blocks.
    pub(crate) fn stop(
        &self,
        (pool_name, pool): (&str, &Arc<Pool>),
        (name, volume): (&str, Uuid),
        runtime: &Handle,
    ) -> Result<Document, ErrorBody> {
        let of_pool = self.of_pool(pool_name);
        {
            let mut volumes = of_pool.volumes.lock();
            let found = volumes.kept.get_mut(&volume).filter(|kept| kept.wanted != Wanted::Off);
            let Some(kept) = found else {
                return Err(ErrorBody::new(ErrorCode::Refused, format!("deduplication of {name} is off"))
                    .hint(format!("farside volume dedup status {name} shows what it saves")));
            };
            kept.wanted = Wanted::Off;
            (kept.document.next_at, kept.document.why) = (None, None);
        }
        of_pool.interrupt(volume);
        self.keep((&of_pool, pool), volume, runtime)?;
        tracing::info!(volume = name, "deduplication stopped on request");
        Ok(self.status(pool_name, pool, name, volume))
    }

    /// Gives each block of the volume a place of its own, and ends it. It blocks.
    pub(crate) fn undo(
        &self,
        (pool_name, pool): (&str, &Arc<Pool>),
        (name, volume): (&str, Uuid),
        request: &StartDedup,
        runtime: &Handle,
    ) -> Result<Document, ErrorBody> {
        let limit = limit_of(request)?;
        refuse_replica(pool, name, volume)?;
        let needs = undo_needs(pool, volume)?;
        if let Some(reason) = needs.refused(name) {
            return Err(ErrorBody::new(ErrorCode::NoSpace, reason).hint(needs.hint()));
        }
        let of_pool = self.of_pool(pool_name);
        of_pool.volumes.lock().kept.entry(volume).and_modify(|kept| kept.wanted = Wanted::Off);
        of_pool.interrupt(volume);
        self.want(&of_pool, pool, (name, volume), Wanted::Undo, limit, true, runtime)?;
        Ok(self.status(pool_name, pool, name, volume))
    }

    #[allow(clippy::too_many_arguments)] // Of two callers, above.
    fn want(
        &self,
        of_pool: &Arc<OfPool>,
        pool: &Arc<Pool>,
        (name, volume): (&str, Uuid),
        wanted: Wanted,
        limit: Option<Option<u64>>,
        anew: bool,
        runtime: &Handle,
    ) -> Result<(), ErrorBody> {
        {
            let mut volumes = of_pool.volumes.lock();
            let is_current = volumes.current.is_some_and(|(current, _)| current == volume);
            let kept = volumes.kept.entry(volume).or_insert_with(|| Kept::begun(name, pool.id(), volume));
            // Of another pool of that name.
            if kept.pool != pool.id() {
                *kept = Kept::begun(name, pool.id(), volume);
            }
            kept.wanted = wanted;
            kept.document.volume = name.to_owned();
            kept.document.why = None;
            if let Some(limit) = limit {
                kept.document.limit_bytes_per_second = limit;
            }
            if anew {
                kept.begin_anew();
            }
            // Of one that runs already only the rate changes.
            if is_current {
                of_pool.limit.store(kept.document.limit_bytes_per_second.unwrap_or(0), Ordering::Relaxed);
            } else {
                kept.is_due = true;
            }
        }
        // Before it begins: a kill after the answer must not forget it.
        self.keep((of_pool, pool), volume, runtime)?;
        self.serve(of_pool, pool, runtime)
    }

    /// Has a thread look at what is wanted.
    fn serve(&self, of_pool: &Arc<OfPool>, pool: &Arc<Pool>, runtime: &Handle) -> Result<(), ErrorBody> {
        let mut thread = of_pool.thread.lock();
        {
            let mut volumes = of_pool.volumes.lock();
            if volumes.is_served {
                of_pool.changed.notify_all();
                return Ok(());
            }
            volumes.is_served = true;
        }
        // The one before has nothing left to do but to end.
        if let Some(before) = thread.take() {
            let _ = before.join();
        }
        of_pool.ends.store(false, Ordering::Relaxed);
        let worker = Worker {
            shared: Arc::clone(of_pool),
            pool: Arc::clone(pool),
            state: self.state.clone(),
            clock: Arc::clone(&self.clock),
            hosts: Arc::clone(&self.hosts),
            runtime: runtime.clone(),
        };
        let shared = Arc::clone(of_pool);
        let spawned = std::thread::Builder::new().name("dedup".to_owned()).spawn(move || {
            // Where it is refused, nothing is wrong but the order.
            let _ = farside_platform::lower_priority(NICE);
            // Whoever waits for it to leave a volume must not wait for ever.
            if catch_unwind(AssertUnwindSafe(|| worker.work())).is_err() {
                shared.panicked();
            }
        });
        match spawned {
            Ok(spawned) => *thread = Some(spawned),
            Err(error) => {
                of_pool.volumes.lock().is_served = false;
                let said = format!("no thread for the deduplication of pool {}: {error}", of_pool.name);
                return Err(ErrorBody::new(ErrorCode::Failed, said));
            }
        }
        Ok(())
    }

    /// Keeps what is wanted, and where it is, once what lies before is durable in the pool.
    fn keep(
        &self,
        (of_pool, pool): (&OfPool, &Pool),
        volume: Uuid,
        runtime: &Handle,
    ) -> Result<(), ErrorBody> {
        let row = of_pool.volumes.lock().kept.get(&volume).map(|kept| kept.row(&of_pool.name));
        let Some(row) = row else { return Ok(()) };
        pool.flush().map_err(Failure::into_error_body)?;
        runtime.block_on(self.state.keep_dedup(&row)).map_err(Failure::into_error_body)
    }

    /// Goes on with what is wanted of a pool that is open now. It blocks.
    pub(crate) fn pool_opened(&self, name: &str, pool: &Arc<Pool>, runtime: &Handle) {
        let Some(of_pool) = self.pools.lock().get(name).cloned() else { return };
        let is_wanted = {
            let mut volumes = of_pool.volumes.lock();
            let id = pool.id();
            volumes.kept.retain(|_, kept| kept.pool == id);
            for kept in volumes.kept.values_mut() {
                kept.is_due |= kept.is_under_way();
            }
            volumes.kept.values().any(|kept| kept.wanted != Wanted::Off)
        };
        if !is_wanted {
            return;
        }
        if let Err(error) = self.serve(&of_pool, pool, runtime) {
            tracing::warn!(pool = name, "deduplication does not go on: {}", error.message);
        }
    }

    /// Ends the pool's thread, and waits: nothing reads the pool afterwards. With the next opening it goes on. It blocks.
    pub(crate) fn pool_closing(&self, name: &str) {
        if let Some(of_pool) = self.pools.lock().get(name).cloned() {
            end_thread(&of_pool);
        }
    }

    /// Of all pools. It blocks.
    pub(crate) fn shut_down(&self) {
        let pools: Vec<Arc<OfPool>> = self.pools.lock().values().cloned().collect();
        // All at once: each ends with its step.
        pools.iter().for_each(|of_pool| tell_end(of_pool));
        pools.iter().for_each(|of_pool| end_thread(of_pool));
    }

    /// Forgets what was wanted, with the volume.
    pub(crate) async fn forget_volume(&self, pool: &str, volume: Uuid) -> Result<(), StateError> {
        if let Some(of_pool) = self.pools.lock().get(pool).cloned() {
            of_pool.volumes.lock().kept.remove(&volume);
        }
        self.state.forget_dedup(pool, &volume.to_string()).await
    }

    /// Forgets it, with the pool.
    pub(crate) async fn forget(&self, pool: &str) -> Result<(), StateError> {
        self.pools.lock().remove(pool);
        self.state.forget_dedups(pool).await
    }
}

fn tell_end(of_pool: &OfPool) {
    let _volumes = of_pool.volumes.lock();
    of_pool.ends.store(true, Ordering::Relaxed);
    of_pool.interrupted.store(true, Ordering::Relaxed);
    of_pool.changed.notify_all();
}

fn end_thread(of_pool: &OfPool) {
    tell_end(of_pool);
    let thread = of_pool.thread.lock().take();
    if thread.is_some_and(|thread| thread.join().is_err()) {
        tracing::error!(
            pool = of_pool.name,
            "internal error (bug) in deduplication; please report this with farside support-bundle"
        );
    }
    // Also where it panicked.
    let mut volumes = of_pool.volumes.lock();
    (volumes.current, volumes.is_served) = (None, false);
}

/// The limit asked for, if any: none for no limit.
fn limit_of(request: &StartDedup) -> Result<Option<Option<u64>>, ErrorBody> {
    let rate = request.rate.as_deref().map(str::parse::<Rate>).transpose();
    let rate = rate.map_err(|e| ErrorBody::new(ErrorCode::WrongUsage, e.to_string()))?;
    Ok(rate.map(|rate| rate.bytes_per_second()))
}

/// What an undoing needs, and what there is.
pub(crate) struct UndoNeeds {
    pub(crate) shared_blocks: u64,
    pub(crate) needed_bytes: u64,
    pub(crate) room_bytes: u64,
}

/// Counts what it would take to give each block of a volume a place of its own. It blocks, and reads the volume's metadata.
pub(crate) fn undo_needs(pool: &Arc<Pool>, volume: Uuid) -> Result<UndoNeeds, ErrorBody> {
    let mut count = pool.begin_dedup_count(volume).map_err(Failure::into_error_body)?;
    let counted = loop {
        if let Some(counted) = count.step(&mut |_| {}).map_err(Failure::into_error_body)? {
            break counted;
        }
    };
    let blocks = counted.shared_blocks + counted.shared_blocks.div_ceil(UNDO_NODES_SHARE);
    Ok(UndoNeeds {
        shared_blocks: counted.shared_blocks,
        needed_bytes: blocks * BLOCK_BYTES as u64,
        room_bytes: pool.dedup_undo_room(),
    })
}

impl UndoNeeds {
    /// Why there is no undoing now.
    pub(crate) fn refused(&self, name: &str) -> Option<String> {
        (self.shared_blocks > 0 && self.needed_bytes > self.room_bytes).then(|| {
            format!(
                "places of their own for the shared blocks of {name} take up to {} bytes, and the pool has {} left for them. Nothing was \
                 changed",
                self.needed_bytes, self.room_bytes
            )
        })
    }

    /// What an undoing would do.
    pub(crate) fn plan(&self, name: &VolumeName) -> Plan {
        let mut plan = plans::plan(format!("undo the deduplication of volume {name}"));
        let block = BLOCK_BYTES as u64;
        plan.would.push(format!(
            "{} blocks of {block} bytes are copied, so that each has a place of its own: that takes up to {} bytes of the pool, and {} are \
             left for it",
            self.shared_blocks, self.needed_bytes, self.room_bytes
        ));
        plan.would.push(String::from(
            "the volume is not deduplicated any more; its snapshots keep what they share",
        ));
        Plan { refused: self.refused(&name.to_string()), ..plan }
    }

    fn hint(&self) -> String {
        let missing = self.needed_bytes.saturating_sub(self.room_bytes);
        format!(
            "make room for {missing} bytes: delete snapshots or volumes, or make the pool larger with farside pool grow"
        )
    }
}
