//! The link's script: what happens to it, by time since the first counted phase.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use crate::emulator::EmulatorError;
use crate::link::Event;
use crate::testbed::Laid;

/// Waits for the beginning, then makes each change at its time, on its path or on every one; ends early when the run does.
///
/// # Errors
/// A change that the link cannot have, or a link that has failed.
pub(super) fn play(laid: &Laid, script: &[Event], begun: &Receiver<Instant>) -> Result<(), EmulatorError> {
    let Ok(beginning) = begun.recv() else { return Ok(()) };
    for event in script {
        let due = beginning + event.at;
        loop {
            match begun.recv_timeout(due.saturating_duration_since(Instant::now())) {
                // A later phase begins; the script goes on.
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
        for (path, emulator) in (0..).zip(laid.emulators()) {
            if event.path.is_none_or(|only| only == path) {
                emulator.change(event.direction, &event.change)?;
            }
        }
    }
    Ok(())
}
