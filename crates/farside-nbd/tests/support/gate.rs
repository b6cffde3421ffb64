//! Holds calls inside an export until the test lets them go.

use farside_nbd::NbdError;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::memory::{Call, MemoryExport};
use super::serve::PATIENCE;

pub struct Gate {
    arrivals: UnboundedSender<Call>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    may_pass: usize,
    inside: usize,
    inside_max: usize,
}

/// An export whose calls named `held` wait at the gate, and the calls as they arrive there.
pub fn gated(size_bytes: u64, held: &'static str) -> (Arc<MemoryExport>, Arc<Gate>, Arrivals) {
    let (arrivals, arrived) = unbounded_channel();
    let gate = Arc::new(Gate { arrivals, state: Mutex::default(), changed: Condvar::new() });
    let held_here = Arc::clone(&gate);
    let export = MemoryExport::with_hook(size_bytes, move |call| {
        if call.name == held {
            held_here.pass(call);
        }
        Ok::<(), NbdError>(())
    });
    (Arc::new(export), gate, Arrivals(arrived))
}

impl Gate {
    fn pass(&self, call: &Call) {
        let mut state = self.state.lock();
        state.inside += 1;
        state.inside_max = state.inside_max.max(state.inside);
        let _ = self.arrivals.send(*call);
        while state.may_pass == 0 {
            assert!(!self.changed.wait_for(&mut state, PATIENCE).timed_out(), "nobody opened the gate");
        }
        state.may_pass -= 1;
        state.inside -= 1;
    }

    /// Lets `calls` pass, those waiting first.
    pub fn let_pass(&self, calls: usize) {
        self.state.lock().may_pass += calls;
        self.changed.notify_all();
    }

    /// The most that ever were inside at once.
    pub fn inside_max(&self) -> usize {
        self.state.lock().inside_max
    }
}

pub struct Arrivals(UnboundedReceiver<Call>);

impl Arrivals {
    pub async fn next(&mut self) -> Call {
        tokio::time::timeout(PATIENCE, self.0.recv())
            .await
            .expect("a call arrives")
            .expect("the export lives")
    }
}
