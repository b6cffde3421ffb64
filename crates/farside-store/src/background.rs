//! The pool's own thread: consistency points when they are due, reaping of what was deleted, and learning what the pool
//! holds while transfers ask for it.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::pool::Pool;

/// Wakes and stops the thread.
#[derive(Default)]
pub(crate) struct Wake {
    signal: Mutex<Signal>,
    condvar: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Signal {
    rung: bool,
    stopping: bool,
}

/// How long the thread sleeps when nobody wakes it: it then looks for deleted versions whose last reader has gone.
const IDLE: Duration = Duration::from_millis(500);

impl Wake {
    /// There is something to do.
    pub(crate) fn ring(&self) {
        self.signal.lock().rung = true;
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
            tracing::error!("the pool's background thread had panicked");
        }
    }

    /// Waits for a ring or for [`IDLE`]; false when it is time to stop.
    fn wait(&self) -> bool {
        let mut signal = self.signal.lock();
        if !signal.rung && !signal.stopping {
            self.condvar.wait_for(&mut signal, IDLE);
        }
        signal.rung = false;
        !signal.stopping
    }
}

/// Starts the thread. It holds the pool only while it works: dropping the last handle closes the device.
pub(crate) fn start(pool: &Arc<Pool>) -> std::io::Result<()> {
    let (weak, wake) = (Arc::downgrade(pool), pool.wake.clone());
    let thread = std::thread::Builder::new().name("farside-pool".into()).spawn(move || {
        while wake.wait() {
            if !work(&weak, &wake) {
                return;
            }
        }
    })?;
    *pool.wake.thread.lock() = Some(thread);
    Ok(())
}

/// One round; false once the pool is gone.
fn work(weak: &Weak<Pool>, wake: &Wake) -> bool {
    let Some(pool) = weak.upgrade() else { return false };
    if pool.check_usable().is_err() {
        return true;
    }
    let result = if pool.point_is_due() {
        pool.consistency_point()
    } else {
        pool.reap_step().map(|more| {
            if pool.learn_in_background() || more {
                wake.ring();
            }
        })
    };
    if let Err(error) = result {
        tracing::error!(pool = %pool.id(), "background work failed: {error}");
    }
    true
}
