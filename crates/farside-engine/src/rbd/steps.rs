//! The steps at which this process may die, for tests: before each request that changes something in the cluster. Without the feature
//! `conformance` there is nothing of this.

use crate::EngineError;

/// See the head of this file.
#[derive(Default)]
pub(super) struct Steps {
    #[cfg(feature = "conformance")]
    state: parking_lot::Mutex<State>,
}

#[cfg(feature = "conformance")]
#[derive(Default)]
struct State {
    /// Steps that it still lives.
    left: Option<usize>,
    died_at: Option<String>,
}

impl Steps {
    /// A request that changes something comes now. An error once the process is dead.
    #[cfg(feature = "conformance")]
    pub(super) fn take(&self, step: &str) -> Result<(), EngineError> {
        let mut state = self.state.lock();
        if state.left == Some(0) {
            state.died_at.get_or_insert_with(|| step.into());
            return Err(EngineError::Io("the process is dead".into()));
        }
        state.left = state.left.map(|left| left - 1);
        Ok(())
    }

    #[cfg(not(feature = "conformance"))]
    pub(super) fn take(&self, _: &str) -> Result<(), EngineError> {
        Ok(())
    }

    /// It dies at one of those that come: 0 is the next.
    #[cfg(feature = "conformance")]
    pub(super) fn die_at(&self, step: usize) {
        *self.state.lock() = State { left: Some(step), died_at: None };
    }

    /// Where it died, if it did.
    #[cfg(feature = "conformance")]
    pub(super) fn died_at(&self) -> Option<String> {
        self.state.lock().died_at.clone()
    }
}
