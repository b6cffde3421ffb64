//! The threads on which transfers work.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::hosts::Hosts;

/// Those of the process; none: the caller's runtime has them, at its own priority, and nobody gives way (tests on a clock of their own).
static THREADS: OnceLock<Threads> = OnceLock::new();
/// Most threads: far more than pieces are under way at once, since a piece that is started holds memory of a budget.
const THREADS_MAX: usize = 256;
/// A thread without work ends.
const IDLE: Duration = Duration::from_secs(10);
/// A third of what a host gets. Lower, and a host would wait for a lock whose owner waits for the processor.
const MOVERS_NICE: u8 = 5;

/// Threads of transfers: their priority is below that of everything else.
#[derive(Debug)]
pub struct Threads {
    encoders: Runtime,
    movers: Runtime,
    hosts: Arc<Hosts>,
}

impl Threads {
    /// Has all transfers of this process work on threads of their own, and give way to `hosts`. The first call counts.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(hosts: Arc<Hosts>) -> io::Result<()> {
        let threads = Threads {
            // They hold no lock that a host waits for.
            encoders: runtime("encode", farside_platform::run_when_idle)?,
            movers: runtime("transfer", || farside_platform::lower_priority(MOVERS_NICE))?,
            hosts,
        };
        // Somebody was first: its hosts are as good. A runtime that is dropped where others are served would panic.
        if let Err(Threads { encoders, movers, .. }) = THREADS.set(threads) {
            encoders.shutdown_background();
            movers.shutdown_background();
        }
        Ok(())
    }
}

fn runtime(name: &str, begin: fn() -> io::Result<()>) -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(THREADS_MAX)
        .thread_keep_alive(IDLE)
        .thread_name(name)
        .on_thread_start(move || {
            // Where it is refused, nothing is wrong but the order.
            let _ = begin();
        })
        .build()
}

/// Does a piece of work that holds nothing that hosts wait for.
pub(crate) fn encode<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    match THREADS.get() {
        Some(threads) => threads.encoders.spawn_blocking(|| threads.hosts.piece(work)),
        None => tokio::task::spawn_blocking(work),
    }
}

/// Does a piece of work.
pub(crate) fn move_data<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    match THREADS.get() {
        Some(threads) => threads.movers.spawn_blocking(|| threads.hosts.piece(work)),
        None => tokio::task::spawn_blocking(work),
    }
}
