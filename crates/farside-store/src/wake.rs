//! What wakes and stops the pool's own thread.

use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Wakes and stops the thread.
#[derive(Default)]
pub(crate) struct Wake {
    signal: Mutex<Signal>,
    condvar: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Signal {
    signalled: bool,
    stopping: bool,
}

/// How long the thread sleeps when nobody wakes it: it then looks for deleted versions whose last reader has gone.
const IDLE: Duration = Duration::from_millis(500);

impl Wake {
    /// There is something to do.
    pub(crate) fn signal(&self) {
        self.signal.lock().signalled = true;
        self.condvar.notify_all();
    }

    /// Asks the thread to stop and waits for it, unless it is the caller itself.
    pub(crate) fn stop(&self) {
        self.signal.lock().stopping = true;
        self.condvar.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!(
                "internal error (bug): the background thread of the pool panicked. Flushed data is safe. \
                 If the pool refuses changes, farside pool reopen opens it again"
            );
        }
    }

    /// This is the thread that signals wake.
    pub(crate) fn set_thread(&self, thread: JoinHandle<()>) {
        *self.thread.lock() = Some(thread);
    }

    /// Waits for a signal or for [`IDLE`]; false when it is time to stop.
    pub(crate) fn wait(&self) -> bool {
        let mut signal = self.signal.lock();
        if !signal.signalled && !signal.stopping {
            self.condvar.wait_for(&mut signal, IDLE);
        }
        signal.signalled = false;
        !signal.stopping
    }
}
