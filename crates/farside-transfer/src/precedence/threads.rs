//! The threads on which transfers work.

use std::io;
use std::sync::{Arc, Once, OnceLock};
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
    /// Run when nobody else wants the processor.
    idle_encoders: Runtime,
    movers: Runtime,
    hosts: Arc<Hosts>,
}

impl Threads {
    /// Has all transfers of this process work on threads of their own, and give way to `hosts`. The first call counts.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(hosts: Arc<Hosts>) -> io::Result<()> {
        if THREADS.get().is_some() {
            return Ok(());
        }
        let threads = Threads {
            // They hold no lock that a host waits for.
            idle_encoders: runtime("encode", farside_platform::run_when_idle)?,
            movers: runtime("transfer", || farside_platform::lower_priority(MOVERS_NICE))?,
            hosts,
        };
        // Somebody was first: its hosts are as good. Threads that have no work yet need not be waited for.
        if let Err(late) = THREADS.set(threads) {
            late.idle_encoders.shutdown_background();
            late.movers.shutdown_background();
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
            // Where it is refused, nothing is wrong but the order. A filter of system calls does that, and nobody would know.
            if let Err(error) = begin() {
                static SAID: Once = Once::new();
                SAID.call_once(|| {
                    tracing::warn!(
                        "the priority of transfers is not lowered, so they are in the way of this machine's hosts: {error}. If a service \
                         manager filters system calls, setpriority and sched_setscheduler are what it takes"
                    );
                });
            }
        })
        .build()
}

/// Does a piece of work that holds nothing that hosts wait for: with idle processor time alone while there are hosts. Beside other
/// programs it gets its share: without it, updates of a source that compiled beside it were ten times as large.
pub(crate) fn encode<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    match THREADS.get() {
        // A thread that runs when nobody else does may not become another one without a privilege, so these are two kinds.
        Some(threads) if threads.hosts.come_first() => {
            threads.idle_encoders.spawn_blocking(|| threads.hosts.piece(work))
        }
        _ => move_data(work),
    }
}

/// Does a piece of work.
pub(crate) fn move_data<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    match THREADS.get() {
        Some(threads) => threads.movers.spawn_blocking(|| threads.hosts.piece(work)),
        None => tokio::task::spawn_blocking(work),
    }
}
