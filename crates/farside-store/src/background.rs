//! The pool's own thread: writing out what waits for it, consistency points when they are due, reaping of what was deleted, and
//! learning what the pool holds while transfers ask for it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::error::StoreError;
use crate::pool::Pool;
use crate::wake::Wake;

/// Starts the thread. It holds the pool only while it works: dropping the last handle closes the device.
pub(crate) fn start(pool: &Arc<Pool>) -> std::io::Result<()> {
    let (weak, wake) = (Arc::downgrade(pool), pool.wake.clone());
    let thread = std::thread::Builder::new().name("farside-pool".into()).spawn(move || {
        let mut told = None;
        while wake.wait() {
            if !work(&weak, &wake, &mut told) {
                return;
            }
        }
    })?;
    pool.wake.set_thread(thread);
    Ok(())
}

/// One round; false once the pool is gone. `told` is the failure that the log has.
fn work(weak: &Weak<Pool>, wake: &Wake, told: &mut Option<String>) -> bool {
    let Some(pool) = weak.upgrade() else { return false };
    if pool.check_usable().is_err() {
        return true;
    }
    let reap = || {
        pool.reap_step().map(|more| {
            if pool.learn_in_background() || more {
                wake.signal();
            }
        })
    };
    pool.look_below();
    // What fails stays, is tried again, and is told: see `Pool::note_data_write`.
    let _ = pool.write_out();
    let is_asked = pool.settle_wanted.swap(false, Ordering::AcqRel);
    let is_due = is_asked || pool.point_is_due();
    let mut may_be_due = true;
    let result = if is_due {
        match pool.point_in_background() {
            // What is reaped may give it some. Whoever writes is told.
            Err(StoreError::NoRoomForPoint { .. }) => {
                may_be_due = false;
                reap()
            }
            // What is reaped needs no room, and is used again after the next points that find some.
            Err(error) if error.is_full_below() => {
                may_be_due = false;
                reap().and(Err(error))
            }
            result => result,
        }
    } else {
        reap()
    };
    // What was reaped or freed may be reason for one, and nobody else may come.
    if may_be_due && result.is_ok() && pool.point_is_due() {
        wake.signal();
    }
    // Hosts that write wake this thread again and again: what fails in the same way is told once.
    let failed = result.err().map(|error| error.to_string());
    if let Some(error) = &failed
        && failed != *told
    {
        tracing::error!(pool = %pool.id(), "background work failed: {error}. It is tried again");
    }
    *told = failed;
    true
}
