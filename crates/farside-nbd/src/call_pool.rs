//! Threads for calls that block.
//!
//! Calls start in the order they were submitted, as many at once as there are threads. The queue has no bound of
//! its own: what is submitted holds room in a connection's limits, and those bound it. Threads are started when
//! calls wait and none is idle, and stay.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

type Call = Box<dyn FnOnce() + Send>;

/// The threads; they end when this is dropped and nothing waits.
pub(crate) struct CallPool {
    shared: Arc<Shared>,
    threads_max: usize,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
}

struct Queue {
    calls: VecDeque<Call>,
    /// Threads waiting for `work`.
    idle: usize,
    threads: usize,
    closed: bool,
}

/// The call panicked; the panic is in the log.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("internal error in the server; its log has the reason")]
pub(crate) struct CallPanicked;

impl CallPool {
    /// A pool of at most `threads_max` threads; the first is started here.
    ///
    /// # Errors
    /// The kernel gave no thread.
    pub(crate) fn new(threads_max: usize) -> io::Result<Self> {
        let queue = Queue { calls: VecDeque::new(), idle: 0, threads: 1, closed: false };
        let pool = CallPool {
            shared: Arc::new(Shared { queue: Mutex::new(queue), work: Condvar::new() }),
            threads_max,
        };
        pool.start_thread()?;
        Ok(pool)
    }

    /// Runs `call` on a thread, soon.
    pub(crate) fn submit(&self, call: impl FnOnce() + Send + 'static) {
        let start = {
            let mut queue = self.shared.queue.lock();
            queue.calls.push_back(Box::new(call));
            let start = queue.calls.len() > queue.idle && queue.threads < self.threads_max;
            queue.threads += usize::from(start);
            start
        };
        self.shared.work.notify_one();
        if start && let Err(error) = self.start_thread() {
            // There is one thread at least, which will come to the call.
            self.shared.queue.lock().threads -= 1;
            tracing::warn!(%error, "cannot start another thread for NBD requests; requests wait for the existing \
                 threads");
        }
    }

    /// Runs `call` on a thread and waits for what it returns. If the waiter goes away the call still runs.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallPanicked> {
        let (sender, receiver) = oneshot::channel();
        // A receiver that went away needs no answer.
        self.submit(move || drop(sender.send(call())));
        receiver.await.map_err(|_| CallPanicked)
    }

    fn start_thread(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        std::thread::Builder::new().name("nbd-call".into()).spawn(move || shared.work_until_closed())?;
        Ok(())
    }
}

impl Drop for CallPool {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn work_until_closed(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(call) = queue.calls.pop_front() {
                drop(queue);
                // The panic hook has told where; a thread must outlive it, for there may be no other.
                if catch_unwind(AssertUnwindSafe(call)).is_err() {
                    tracing::error!(
                        "internal error (bug): a call into an NBD export panicked. The request failed, \
                         the server goes on. Please report this with farside support-bundle"
                    );
                }
                queue = self.queue.lock();
            } else if queue.closed {
                return;
            } else {
                queue.idle += 1;
                self.work.wait(&mut queue);
                queue.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn calls_run_at_once_up_to_the_limit() {
        let pool = CallPool::new(3).unwrap();
        let together = Arc::new(Barrier::new(3));
        let (done, all_done) = mpsc::channel();
        for _ in 0..3 {
            let (together, done) = (Arc::clone(&together), done.clone());
            pool.submit(move || {
                together.wait(); // returns only if three calls are under way
                done.send(()).unwrap();
            });
        }
        (0..3).for_each(|_| all_done.recv().unwrap());
        assert_eq!(pool.shared.queue.lock().threads, 3);
    }

    #[tokio::test]
    async fn a_panic_costs_one_call_not_the_thread() {
        let pool = CallPool::new(1).unwrap();
        assert!(pool.run(|| panic!("on purpose")).await.is_err());
        assert_eq!(pool.run(|| 5).await.unwrap(), 5);
    }
}
