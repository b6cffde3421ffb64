//! How much is spent on the literals of a trunk's flows: what its link leaves time for. The choice is the mirror's own
//! ([`LevelControl`]), told of what the trunk's bulk stream has written.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use farside_chunks::StreamSettings;
use farside_platform::{Cores as IdleCores, SystemClock, SystemCores};
use farside_wire::{Effort, EncoderResources, LevelControl, Sent};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Histories of literals that the flows of a trunk may have at once. Those of both sides take some megabytes each; a flow without
/// one compresses each block alone.
const HISTORIES_SENT: usize = 48;
/// The same of the peer's: a sender that has let one go may be ahead of a receiver that still delivers.
const HISTORIES_RECEIVED: usize = 256;

/// Processor time of a box.
pub(crate) struct Cores {
    /// A place for each block that is encoded or decoded.
    pub(crate) free: Arc<Semaphore>,
    number: u32,
    idle: SystemCores,
}

impl Cores {
    /// All that there are.
    pub(crate) fn new() -> Cores {
        let number = std::thread::available_parallelism().map_or(1, usize::from);
        Cores {
            free: Arc::new(Semaphore::new(number)),
            number: u32::try_from(number).unwrap_or(u32::MAX),
            idle: SystemCores::new(Arc::new(SystemClock::default())),
        }
    }
}

/// What is known of a part that was encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoded {
    /// With what.
    pub(crate) effort: Effort,
    /// Bytes of it that are no references.
    pub(crate) literal_bytes: u64,
    /// How long it took.
    pub(crate) encoding: Duration,
}

/// See the head of the module.
pub(super) struct Efforts {
    control: Mutex<LevelControl>,
    sent: Arc<Semaphore>,
    received: Arc<Semaphore>,
}

impl Efforts {
    pub(super) fn new(rtt_seconds: Option<f64>) -> Efforts {
        let round_trip = Duration::from_secs_f64(rtt_seconds.unwrap_or(0.0).clamp(0.0, 10.0));
        Efforts {
            control: Mutex::new(LevelControl::over(round_trip)),
            sent: Arc::new(Semaphore::new(HISTORIES_SENT)),
            received: Arc::new(Semaphore::new(HISTORIES_RECEIVED)),
        }
    }
}

/// What zstd is told. Its history is no longer than 2 MiB: what repeats from farther back is found by chunks.
fn settings_of(effort: Effort) -> StreamSettings {
    let (level, window_log) = match effort {
        Effort::Raw | Effort::Fast => (1, 20),
        Effort::Standard => (3, 20),
        Effort::Thorough => (9, 21),
        Effort::Strong => (15, 21),
    };
    StreamSettings { level, window_log, ..StreamSettings::default() }
}

impl Efforts {
    /// What is spent on a block now.
    pub(super) fn effort(&self) -> Effort {
        self.control.lock().effort()
    }

    /// What zstd is told now.
    pub(super) fn stream_settings(&self) -> StreamSettings {
        settings_of(self.effort())
    }

    /// A history of literals for a flow that sends; none if too many flows have one.
    pub(super) fn history_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.sent).try_acquire_owned().ok()
    }

    /// The same for one that receives.
    ///
    /// # Errors
    /// If the peer has more than any sender makes.
    pub(super) fn received_history(&self) -> io::Result<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.received).try_acquire_owned();
        permit.map_err(|_| io::Error::other("the peer keeps too many histories"))
    }

    /// Parts, and how many bytes each has on the wire, were written together, with others of `bytes` in all, after there had been
    /// nothing to write for `waited`.
    pub(super) fn written(
        &self,
        parts: impl Iterator<Item = (Encoded, usize)>,
        bytes: usize,
        waited: Duration,
        writing: Duration,
        cores: &Cores,
    ) {
        let mut waited = Some(waited);
        let resources = EncoderResources {
            encoders: cores.number,
            idle_cores: cores.idle.idle(),
            ceiling: Effort::Strong,
        };
        for (encoded, part_bytes) in parts {
            let share = part_bytes as f64 / bytes.max(1) as f64;
            let sent = Sent {
                effort: encoded.effort,
                in_bytes: encoded.literal_bytes,
                out_bytes: part_bytes as u64,
                searching: Duration::ZERO,
                encoding: encoded.encoding,
                waited: waited.take().unwrap_or(Duration::ZERO),
                writing: writing.mul_f64(share.min(1.0)),
            };
            let mut control = self.control.lock();
            control.sent(&sent, &resources);
            // A sample is not taken: other settings begin a flow's history anew.
            control.next_effort(&resources);
        }
    }
}
