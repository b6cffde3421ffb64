//! Scrubs of pools: begun on request, at a rate, behind hosts; one that runs when the daemon ends goes on with the next start.
//!
//! Each has a thread of its own, at a low priority. It keeps its position and what it found in the state database, every few seconds and
//! at its end. Whoever closes a pool ends its thread first: nobody else may have its device.

mod document;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farside_api::{ErrorBody, ErrorCode, Scrub as Document, ScrubState, StartScrub};
use farside_link::Rate;
use farside_platform::Clock;
use farside_store::{Pool, Scrub};
use farside_transfer::precedence::Hosts;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use self::document::Kept;
use crate::failure::Failure;
use crate::pace::Pace;
use crate::state::{ScrubRow, State, StateError};

/// What a scrub reads in a second unless it is told otherwise: a TiB takes four and a half hours.
const RATE_DEFAULT: u64 = 64 << 20;
/// How often its position is kept: so much is read once more after a crash, besides one batch.
const KEEP_EVERY: Duration = Duration::from_secs(5);
/// Lower than transfers, which somebody waits for.
const NICE: u8 = 10;
/// Over how long its rate is measured.
const RATE_WINDOW: Duration = Duration::from_secs(5);

/// The scrubs of this site.
pub(crate) struct Scrubs {
    entries: Mutex<BTreeMap<String, Entry>>,
    state: State,
    clock: Arc<dyn Clock>,
    hosts: Arc<Hosts>,
}

impl std::fmt::Debug for Scrubs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scrubs").field("pools", &self.entries.lock().keys()).finish_non_exhaustive()
    }
}

/// The scrub of one pool, that runs or ran last.
struct Entry {
    progress: Arc<Progress>,
    thread: Option<JoinHandle<()>>,
}

impl Entry {
    fn document(&self) -> Document {
        let mut document = self.progress.document();
        if document.state == ScrubState::Running && !self.is_alive() {
            document.state = ScrubState::Waiting;
        }
        document
    }

    fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

/// What its thread and those who look at it share.
struct Progress {
    kept: Mutex<Kept>,
    /// Bytes per second; 0: no limit.
    limit: AtomicU64,
    stop: AtomicBool,
    measured: Mutex<Measured>,
}

/// How fast it is.
#[derive(Clone, Copy, Default)]
struct Measured {
    since: Option<Instant>,
    read_bytes: u64,
    rate: Option<f64>,
}

impl Progress {
    fn new(kept: Kept) -> Arc<Progress> {
        Arc::new(Progress {
            limit: kept.document.limit_bytes_per_second.unwrap_or(0).into(),
            kept: Mutex::new(kept),
            stop: AtomicBool::new(false),
            measured: Mutex::default(),
        })
    }

    fn document(&self) -> Document {
        let mut document = self.kept.lock().document.clone();
        if document.state == ScrubState::Running {
            let rate = self.measured.lock().rate.filter(|rate| *rate > 0.0);
            let left = document.total_bytes.saturating_sub(document.read_bytes);
            document.rate_bytes_per_second = rate;
            document.eta_seconds = rate.map(|rate| left as f64 / rate);
        }
        document
    }

    fn measure(&self, read_bytes: u64) {
        let mut measured = self.measured.lock();
        let now = Instant::now();
        let since = *measured.since.get_or_insert(now);
        let took = now - since;
        if took >= RATE_WINDOW || (measured.rate.is_none() && took >= RATE_WINDOW / 10) {
            let read = read_bytes.saturating_sub(measured.read_bytes);
            *measured =
                Measured { since: Some(now), read_bytes, rate: Some(read as f64 / took.as_secs_f64()) };
        }
    }
}

impl Scrubs {
    /// What is known of them. Those that ran go on when their pools are open: see [`Scrubs::pool_opened`].
    pub(crate) async fn load(
        state: State,
        clock: Arc<dyn Clock>,
        hosts: Arc<Hosts>,
    ) -> Result<Scrubs, StateError> {
        let mut entries = BTreeMap::new();
        for ScrubRow { pool, document } in state.scrubs().await? {
            match Kept::parse(&document) {
                Ok(kept) => {
                    entries.insert(pool, Entry { progress: Progress::new(kept), thread: None });
                }
                Err(error) => tracing::warn!(
                    pool,
                    "what the last scrub of the pool found cannot be read any more: {error}. farside pool scrub {pool} begins another"
                ),
            }
        }
        Ok(Scrubs { entries: Mutex::new(entries), state, clock, hosts })
    }

    /// The scrub of a pool that runs, or ran last.
    pub(crate) fn status(&self, pool: &str) -> Option<Document> {
        self.entries.lock().get(pool).map(Entry::document)
    }

    /// Of each pool that had one.
    pub(crate) fn list(&self) -> Vec<Document> {
        self.entries.lock().values().map(Entry::document).collect()
    }

    /// Begins one, goes on with one, or changes the rate of the one that runs. It blocks.
    pub(crate) fn start(
        &self,
        name: &str,
        pool: &Arc<Pool>,
        request: &StartScrub,
        runtime: &Handle,
    ) -> Result<Document, ErrorBody> {
        let asked = request.rate.as_deref().map(str::parse::<Rate>).transpose();
        let asked = asked.map_err(|e| ErrorBody::new(ErrorCode::WrongUsage, e.to_string()))?;
        // Not held while the device is waited for: whoever looks at scrubs waits for it.
        let (before, is_alive) = {
            let entries = self.entries.lock();
            let known = entries.get(name).filter(|entry| entry.progress.kept.lock().pool == pool.id());
            (known.map(|entry| Arc::clone(&entry.progress)), known.is_some_and(Entry::is_alive))
        };
        let limit_before = before.as_ref().map(|before| before.kept.lock().document.limit_bytes_per_second);
        let limit = match asked {
            Some(rate) => rate.bytes_per_second(),
            None => limit_before.unwrap_or(Some(RATE_DEFAULT)),
        };
        let is_running = |b: &&Arc<Progress>| is_alive && b.kept.lock().document.state == ScrubState::Running;
        if let Some(running) = before.as_ref().filter(is_running) {
            if request.anew {
                return Err(ErrorBody::new(ErrorCode::Refused, format!("a scrub of pool {name} is running"))
                    .hint(format!("farside pool scrub {name} --stop ends it; then this again")));
            }
            running.limit.store(limit.unwrap_or(0), Ordering::Relaxed);
            running.kept.lock().document.limit_bytes_per_second = limit;
            return Ok(running.document());
        }
        let before = before.map(|before| before.kept.lock().clone());
        let completed_at = before.as_ref().and_then(|before| before.document.completed_at);
        let goes_on = before.filter(|b| !request.anew && b.document.state != ScrubState::Done);
        let (scrub, kept) = match goes_on {
            Some(kept) => (resumed(pool, &kept)?, kept),
            None => {
                let scrub = pool.begin_scrub().map_err(Failure::into_error_body)?;
                let now = crate::convert::time(self.clock.now());
                (scrub, Kept::begun(name, pool.id(), pool.scrub_bytes(), now, completed_at))
            }
        };
        let mut kept = kept;
        kept.document.state = ScrubState::Running;
        kept.document.limit_bytes_per_second = limit;
        (kept.document.ended_at, kept.document.error) = (None, None);
        self.run(name, scrub, kept, runtime)
    }

    fn run(&self, name: &str, scrub: Scrub, kept: Kept, runtime: &Handle) -> Result<Document, ErrorBody> {
        let progress = Progress::new(kept);
        let worker = Worker {
            name: name.to_owned(),
            progress: Arc::clone(&progress),
            state: self.state.clone(),
            clock: Arc::clone(&self.clock),
            hosts: Arc::clone(&self.hosts),
            runtime: runtime.clone(),
        };
        // Before it begins: a kill after the answer must not forget it.
        worker.keep();
        let thread = std::thread::Builder::new().name("scrub".to_owned()).spawn(move || {
            // Where it is refused, nothing is wrong but the order.
            let _ = farside_platform::lower_priority(NICE);
            worker.work(scrub);
        });
        let thread = thread.map_err(|e| {
            ErrorBody::new(ErrorCode::Failed, format!("no thread for a scrub of pool {name}: {e}"))
        })?;
        let document = progress.document();
        self.entries.lock().insert(name.to_owned(), Entry { progress, thread: Some(thread) });
        Ok(document)
    }

    /// Stops the one that runs; another [`Scrubs::start`] goes on from there. It blocks.
    pub(crate) fn stop(&self, name: &str, runtime: &Handle) -> Result<Document, ErrorBody> {
        let none = || {
            ErrorBody::new(ErrorCode::Refused, format!("no scrub of pool {name} is running"))
                .hint(format!("farside pool scrub {name} --status shows the last one"))
        };
        let progress = {
            let entries = self.entries.lock();
            Arc::clone(&entries.get(name).ok_or_else(none)?.progress)
        };
        if progress.kept.lock().document.state != ScrubState::Running {
            return Err(none());
        }
        self.end_thread(name);
        {
            let mut kept = progress.kept.lock();
            // It may have come to its end by itself meanwhile.
            if kept.document.state == ScrubState::Running {
                kept.document.state = ScrubState::Stopped;
                kept.document.ended_at = Some(crate::convert::time(self.clock.now()));
            }
        }
        let row = progress.kept.lock().row(name);
        if let Err(error) = runtime.block_on(self.state.keep_scrub(&row)) {
            tracing::warn!(
                pool = name,
                "that the scrub was stopped could not be kept: {error}. It goes on with the next start"
            );
        }
        tracing::info!(pool = name, "scrub stopped on request");
        Ok(progress.document())
    }

    /// Goes on with what ran when the pool was closed. It blocks.
    pub(crate) fn pool_opened(&self, name: &str, pool: &Arc<Pool>, runtime: &Handle) {
        let kept = {
            let mut entries = self.entries.lock();
            let Some(entry) = entries.get(name) else { return };
            let kept = entry.progress.kept.lock().clone();
            if kept.pool != pool.id() {
                entries.remove(name);
                return;
            }
            if kept.document.state != ScrubState::Running || entry.is_alive() {
                return;
            }
            kept
        };
        let begun = resumed(pool, &kept).and_then(|scrub| self.run(name, scrub, kept, runtime));
        match begun {
            Ok(document) => tracing::info!(
                pool = name,
                read_bytes = document.read_bytes,
                total_bytes = document.total_bytes,
                "the scrub goes on"
            ),
            Err(error) => {
                tracing::warn!(
                    pool = name,
                    "the scrub does not go on: {}. farside pool scrub {name} tries it again",
                    error.message
                );
                if let Some(entry) = self.entries.lock().get(name) {
                    let now = crate::convert::time(self.clock.now());
                    entry.progress.kept.lock().end(Some(error.message), now);
                }
            }
        }
    }

    /// Ends its thread, and waits: nothing reads the pool afterwards. With the next opening it goes on. It blocks.
    pub(crate) fn pool_closing(&self, name: &str) {
        self.end_thread(name);
    }

    /// Of all pools. It blocks.
    pub(crate) fn shut_down(&self) {
        let names: Vec<String> = self.entries.lock().keys().cloned().collect();
        // All at once: each ends with its step.
        for entry in self.entries.lock().values() {
            entry.progress.stop.store(true, Ordering::Relaxed);
        }
        names.iter().for_each(|name| self.end_thread(name));
    }

    fn end_thread(&self, name: &str) {
        let thread = {
            let mut entries = self.entries.lock();
            let Some(entry) = entries.get_mut(name) else { return };
            entry.progress.stop.store(true, Ordering::Relaxed);
            entry.thread.take()
        };
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(
                pool = name,
                "internal error (bug) in the scrub; please report this with farside support-bundle"
            );
        }
    }

    /// Forgets it, with its pool.
    pub(crate) async fn forget(&self, name: &str) -> Result<(), StateError> {
        self.entries.lock().remove(name);
        self.state.forget_scrub(name).await
    }
}

fn resumed(pool: &Arc<Pool>, kept: &Kept) -> Result<Scrub, ErrorBody> {
    pool.resume_scrub(kept.position(), kept.findings()).map_err(Failure::into_error_body)
}

/// What a scrub's thread has.
struct Worker {
    name: String,
    progress: Arc<Progress>,
    state: State,
    clock: Arc<dyn Clock>,
    hosts: Arc<Hosts>,
    runtime: Handle,
}

impl Worker {
    fn work(&self, mut scrub: Scrub) {
        let Progress { kept, limit, stop, .. } = &*self.progress;
        let before = kept.lock().document.read_bytes;
        let mut pace = Pace::new(&self.hosts, limit, stop);
        let mut last_kept = Instant::now();
        let ended = loop {
            if stop.load(Ordering::Relaxed) {
                break None;
            }
            let stepped = scrub.step(&mut |bytes| pace.after(bytes));
            let read_bytes = before + scrub.read_bytes();
            kept.lock().note(&scrub, read_bytes);
            self.progress.measure(read_bytes);
            match stepped {
                Ok(true) => {}
                Ok(false) => break Some(Ok(())),
                Err(error) => break Some(Err(error)),
            }
            if last_kept.elapsed() >= KEEP_EVERY {
                self.keep();
                last_kept = Instant::now();
            }
        };
        // Before anybody is told: whoever closes the pool waits for its device.
        drop(scrub);
        if let Some(ended) = ended {
            let now = crate::convert::time(self.clock.now());
            kept.lock().end(ended.err().map(|error| error.to_string()), now);
            self.tell_end();
        }
        self.keep();
    }

    fn tell_end(&self) {
        let document = self.progress.document();
        let (pool, read_bytes, damaged_blocks) = (&self.name, document.read_bytes, document.damaged_blocks);
        if let Some(error) = document.error {
            tracing::error!(
                pool,
                read_bytes,
                damaged_blocks,
                "the scrub could not go on: {error}. farside pool scrub {pool} goes on from there once the cause is gone"
            );
        } else if damaged_blocks > 0 || !document.structures.is_empty() {
            tracing::error!(
                pool,
                read_bytes,
                damaged_blocks,
                rewritten_copies = document.rewritten_copies,
                "the scrub has found damage: farside pool scrub {pool} --status names it and says what to do"
            );
        } else if document.rewritten_copies > 0 {
            tracing::warn!(
                pool,
                read_bytes,
                rewritten_copies = document.rewritten_copies,
                "the scrub has rewritten damaged copies; nothing is lost, but the medium loses data"
            );
        } else {
            tracing::info!(pool, read_bytes, "scrub done: nothing is damaged");
        }
    }

    /// Keeps where it is. What cannot be kept costs what is read once more.
    fn keep(&self) {
        let row = self.progress.kept.lock().row(&self.name);
        if let Err(error) = self.runtime.block_on(self.state.keep_scrub(&row)) {
            tracing::warn!(
                pool = self.name,
                "how far the scrub is could not be kept: {error}. It goes on all the same"
            );
        }
    }
}
