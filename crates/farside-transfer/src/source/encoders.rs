//! What a site has for encoding, shared by all its transfers: as many encoders as cores, and one budget of memory.

use std::sync::Arc;
use std::time::Duration;

use farside_platform::Cores;
use farside_wire::{Effort, EncoderResources, LevelControl};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::limits::ENCODERS_PER_TRANSFER;

/// Memory of all encoders of a site, unless told otherwise: six frames at *strong*, or sixteen at *standard*, at a time.
pub const ENCODER_MEMORY: u64 = 256 << 20;
/// The least that may be set, bytes: one frame at *standard*.
pub const ENCODER_MEMORY_MIN: u64 = 16 << 20;
/// In what units memory is counted: a permit for each.
const UNIT: u64 = 1 << 20;

/// What a site's encoders may use.
#[derive(Clone)]
pub struct EncoderSettings {
    /// The effort of every frame; none lets it follow the link.
    pub effort: Option<Effort>,
    /// Memory of frames that are being encoded, bytes; at least [`ENCODER_MEMORY_MIN`].
    pub memory_bytes: u64,
    /// Whether there is anybody else who wants the processors.
    pub cores: Arc<dyn Cores>,
}

impl EncoderSettings {
    /// Effort follows the link, within [`ENCODER_MEMORY`].
    pub fn new(cores: Arc<dyn Cores>) -> EncoderSettings {
        EncoderSettings { effort: None, memory_bytes: ENCODER_MEMORY, cores }
    }
}

/// The encoders of a site.
pub(crate) struct EncoderBudget {
    settings: EncoderSettings,
    encoders: usize,
    encoder_permits: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    memory_units: u32,
}

/// A frame may be encoded while this lives.
pub(crate) struct EncoderPermit {
    _encoder: OwnedSemaphorePermit,
    _memory: OwnedSemaphorePermit,
}

impl EncoderBudget {
    /// As many encoders as this machine has cores.
    pub(crate) fn new(settings: EncoderSettings) -> EncoderBudget {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        EncoderBudget::with_encoders(settings, cores)
    }

    fn with_encoders(settings: EncoderSettings, encoders: usize) -> EncoderBudget {
        let units = settings.memory_bytes.max(ENCODER_MEMORY_MIN) / UNIT;
        let memory_units = u32::try_from(units).unwrap_or(u32::MAX).min(1 << 28);
        EncoderBudget {
            settings,
            encoders,
            encoder_permits: Arc::new(Semaphore::new(encoders)),
            memory: Arc::new(Semaphore::new(memory_units as usize)),
            memory_units,
        }
    }

    /// What chooses the efforts of a transfer over a link of which nothing is known yet but its round trip (zero: not even that).
    pub(crate) fn level_control(&self, round_trip: Duration) -> LevelControl {
        self.settings.effort.map_or_else(|| LevelControl::over(round_trip), LevelControl::pinned)
    }

    /// What there is now. Frames that are being encoded do not lower the ceiling: waiting for them takes milliseconds, and a
    /// frame that goes out raw instead takes seconds of a slow link. Of a budget that is small as a whole fewer frames are
    /// encoded at a time, and *strong*, then *thorough*, are not chosen.
    pub(crate) fn resources(&self) -> EncoderResources {
        let at_once = (self.memory_units / units(Effort::Standard)).max(1);
        let encoders = at_once.min(self.encoders.min(ENCODERS_PER_TRANSFER) as u32);
        // What somebody has pinned is encoded one frame after the other, if need be.
        let together = if self.settings.effort.is_some() { 1 } else { encoders };
        let fits = |effort: &Effort| units(*effort).saturating_mul(together) <= self.memory_units;
        let ceiling = [Effort::Strong, Effort::Thorough].into_iter().find(fits);
        EncoderResources {
            encoders,
            idle_cores: self.settings.cores.idle(),
            ceiling: ceiling.unwrap_or(Effort::Standard),
        }
    }

    /// Waits for an encoder and for the memory of a frame; whoever asks first comes first.
    pub(crate) async fn acquire(&self, effort: Effort) -> Result<EncoderPermit, AcquireError> {
        // A budget that is smaller than this frame's share serves one at a time.
        let units = units(effort).min(self.memory_units);
        let memory = self.memory.clone().acquire_many_owned(units).await?;
        let encoder = self.encoder_permits.clone().acquire_owned().await?;
        Ok(EncoderPermit { _encoder: encoder, _memory: memory })
    }
}

/// What a frame takes of the budget.
fn units(effort: Effort) -> u32 {
    u32::try_from(effort.encoder_bytes().div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use farside_platform::ManualCores;

    use super::*;

    /// What a future has now, if it need not wait.
    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn budget(memory_bytes: u64) -> EncoderBudget {
        let settings =
            EncoderSettings { memory_bytes, ..EncoderSettings::new(Arc::new(ManualCores::new(2.0))) };
        EncoderBudget::with_encoders(settings, 64)
    }

    #[tokio::test]
    async fn frames_at_the_same_time_stay_within_the_memory() {
        let budget = budget(ENCODER_MEMORY);
        for effort in [Effort::Fast, Effort::Standard, Effort::Thorough, Effort::Strong] {
            let mut encoder_permits = Vec::new();
            while let Some(permit) = now(budget.acquire(effort)) {
                encoder_permits.push(permit.unwrap());
            }
            let used = encoder_permits.len() as u64 * effort.encoder_bytes();
            assert!(used <= ENCODER_MEMORY && used + effort.encoder_bytes() > ENCODER_MEMORY, "{effort:?}");
            // What does not fit waits.
            assert_eq!((budget.resources().ceiling, budget.resources().encoders), (Effort::Strong, 3));
        }
    }

    #[tokio::test]
    async fn the_smallest_budget_encodes_one_frame_after_the_other() {
        let budget = budget(0);
        let permit = budget.acquire(Effort::Strong).await.unwrap();
        assert!(now(budget.acquire(Effort::Fast)).is_none());
        // The next frame waits for it, however little its link carries: it is not sent raw.
        assert_eq!((budget.resources().ceiling, budget.resources().encoders), (Effort::Standard, 1));
        drop(permit);
        budget.acquire(Effort::Fast).await.unwrap();
    }

    #[test]
    fn a_small_budget_has_no_strong_frames_or_fewer_at_a_time() {
        let resources = |memory_bytes| budget(memory_bytes).resources();
        let of = |memory_bytes| (resources(memory_bytes).ceiling, resources(memory_bytes).encoders);
        assert_eq!(of(32 << 20), (Effort::Standard, 2));
        assert_eq!(of(64 << 20), (Effort::Thorough, 3));
        assert_eq!(of(120 << 20), (Effort::Strong, 3));
    }

    #[test]
    fn a_pinned_effort_stays() {
        let mut settings = EncoderSettings::new(Arc::new(ManualCores::new(2.0)));
        settings.effort = Some(Effort::Fast);
        let budget = EncoderBudget::with_encoders(settings.clone(), 1);
        assert_eq!(budget.level_control(Duration::ZERO).next_effort(&budget.resources()), Effort::Fast);
        (settings.effort, settings.memory_bytes) = (Some(Effort::Strong), 64 << 20);
        let budget = EncoderBudget::with_encoders(settings, 4);
        assert_eq!(budget.level_control(Duration::ZERO).next_effort(&budget.resources()), Effort::Strong);
    }
}
