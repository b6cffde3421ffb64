//! What a mirror's transfers may take of the link, as its destination configures it.

use std::sync::Arc;

use farside_link::limits::{PATHS_MAX, WINDOW_MAX, WINDOW_MIN};
use farside_link::{Bucket, PathSpec, Priority, Rules, StreamOptions, Window};

use crate::error::MirrorError;

/// What a mirror's transfers may take of the link. The throttle holds at once, the rest from the next data stream on.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MirrorOptions {
    /// What may come of this mirror, by the clock; the limits of site and peer hold beside it.
    pub throttle: Rules,
    /// How many bytes may be on their way.
    pub window: Window,
    /// Whether it gives way to other traffic.
    pub priority: Priority,
    /// Instead of the peer's paths; empty: the peer's.
    pub paths: Vec<PathSpec>,
}

impl MirrorOptions {
    /// # Errors
    /// [`MirrorError::Invalid`] with what of it cannot be.
    pub fn check(&self) -> Result<(), MirrorError> {
        if let Window::Bytes(bytes) = self.window
            && !(WINDOW_MIN..=WINDOW_MAX).contains(&bytes)
        {
            return Err(MirrorError::Invalid(format!(
                "a window has {WINDOW_MIN} to {WINDOW_MAX} bytes (64K to 64M), this one {bytes}; auto finds the right one"
            )));
        }
        if self.paths.len() > PATHS_MAX {
            return Err(MirrorError::Invalid(format!(
                "{} paths; a mirror has at most {PATHS_MAX}",
                self.paths.len()
            )));
        }
        Ok(())
    }

    /// Of its data streams, which are under `throttle`.
    pub(crate) fn of_stream(&self, throttle: Arc<Bucket>) -> StreamOptions {
        StreamOptions {
            window: self.window,
            priority: self.priority,
            bulk: false,
            throttle: Some(throttle),
            paths: self.paths.clone(),
        }
    }
}
