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

/// Bytes of history are counted in these: the least that a flow has.
const UNIT_LOG: u32 = 20;
/// Histories of literals that the flows of a trunk may have at once, of a unit each. A flow without one compresses each block alone.
const HISTORIES: u32 = 48;
/// So many of them may have tables of any size: by zstd's parameters those take up to 18 MiB beside a history of a unit. The others have
/// [`MODEST`] ones, of up to 3 MiB. When any flow could have any, a thousand chats had 0.3 GB of them in a box, and 2.3 GB once.
const ANY_TABLES: u32 = 6;
/// The most that is spent on the flows beyond those.
const MODEST: Effort = Effort::Standard;
/// Units beyond the first of each history, for the flows that have much to send: one of them may have half of what is free, so the first takes 128
/// MiB, the next 64. Both sides have them in memory, as they are filled.
const LONG_HISTORIES: u32 = 256;
/// Units of the peer's flows. A sender counts a history until the far side has come to its end, but for flows that are reset: this
/// only bounds a peer that does not keep to the above.
const UNITS_RECEIVED: u32 = 2 * (HISTORIES + LONG_HISTORIES);

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

/// A flow's place among those that have a history of literals.
#[derive(Debug)]
pub(crate) struct History {
    _place: OwnedSemaphorePermit,
    /// Units beyond the first.
    more: Option<OwnedSemaphorePermit>,
    is_modest: bool,
}

impl History {
    fn units(&self) -> u32 {
        let more = self.more.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        1 + u32::try_from(more).unwrap_or(u32::MAX - 1)
    }
}

/// See the head of the module.
pub(super) struct Efforts {
    control: Mutex<LevelControl>,
    /// Histories of flows that send.
    places: Arc<Semaphore>,
    /// Units beyond the first of each.
    longer: Arc<Semaphore>,
    received: Arc<Semaphore>,
}

impl Efforts {
    pub(super) fn new(rtt_seconds: Option<f64>) -> Efforts {
        let round_trip = Duration::from_secs_f64(rtt_seconds.unwrap_or(0.0).clamp(0.0, 10.0));
        Efforts {
            control: Mutex::new(LevelControl::over(round_trip)),
            places: Arc::new(Semaphore::new(HISTORIES as usize)),
            longer: Arc::new(Semaphore::new(LONG_HISTORIES as usize)),
            received: Arc::new(Semaphore::new(UNITS_RECEIVED as usize)),
        }
    }
}

/// What zstd is told, if there is memory for it.
fn settings_of(effort: Effort) -> StreamSettings {
    StreamSettings::spending(match effort {
        Effort::Raw | Effort::Fast => farside_chunks::Effort::Fast,
        Effort::Standard => farside_chunks::Effort::Standard,
        Effort::Thorough => farside_chunks::Effort::Thorough,
        Effort::Strong => farside_chunks::Effort::Strong,
    })
}

impl Efforts {
    /// What is spent on a block now.
    fn effort(&self) -> Effort {
        self.control.lock().effort()
    }

    /// The same for a flow that has such a history.
    pub(super) fn effort_of(&self, history: Option<&History>) -> Effort {
        let effort = self.effort();
        if history.is_some_and(|history| history.is_modest) { effort.min(MODEST) } else { effort }
    }

    /// What zstd is told now of a flow that has such a history; none: that it compresses each block alone.
    pub(super) fn stream_settings(&self, history: Option<&History>) -> StreamSettings {
        let settings = settings_of(self.effort_of(history));
        let most = history.map_or(UNIT_LOG, |history| UNIT_LOG + history.units().ilog2());
        StreamSettings { window_log: settings.window_log.min(most), ..settings }
    }

    /// A history of literals for a flow that sends; none if too many flows have one.
    pub(super) fn history(&self) -> Option<History> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let taken = HISTORIES as usize - self.places.available_permits();
        Some(History { _place: place, more: None, is_modest: taken > ANY_TABLES as usize })
    }

    /// A longer one for a flow that has much to send, as far as its effort can use it and others have left something.
    pub(super) fn lengthen(&self, history: &mut History) {
        let has = history.units();
        let free = 1 + u32::try_from(self.longer.available_permits()).unwrap_or(0);
        let useful = 1 << settings_of(self.effort()).window_log.saturating_sub(UNIT_LOG);
        let wanted = (free / 2).checked_ilog2().map_or(0, |log| 1 << log).min(useful);
        if wanted > has
            && let Ok(more) = Arc::clone(&self.longer).try_acquire_many_owned(wanted - has)
        {
            history.is_modest = false;
            match &mut history.more {
                Some(before) => before.merge(more),
                None => history.more = Some(more),
            }
        }
    }

    /// The same for one that receives, of a history of 2^`window_log` bytes in place of what it had.
    ///
    /// # Errors
    /// If the peer has more than any sender makes.
    pub(super) fn received_history(
        &self,
        before: Option<OwnedSemaphorePermit>,
        window_log: u32,
    ) -> io::Result<OwnedSemaphorePermit> {
        drop(before);
        let units = 1 << window_log.saturating_sub(UNIT_LOG);
        let permit = Arc::clone(&self.received).try_acquire_many_owned(units);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_flows_have_long_histories_and_all_have_short_ones() {
        let efforts = Efforts::new(Some(0.1));
        let lengthened = || {
            let mut history = efforts.history().unwrap();
            efforts.lengthen(&mut history);
            let settings = efforts.stream_settings(Some(&history));
            (settings.window_log, history)
        };
        let mut flows: Vec<_> = (0..HISTORIES).map(|_| lengthened()).collect();
        let logs: Vec<u32> = flows.iter().map(|(log, _)| *log).take(6).collect();
        assert_eq!(logs, [27, 26, 25, 24, 23, 22]);
        assert_eq!(flows.last().unwrap().0, UNIT_LOG);
        assert!(flows.iter().map(|(log, _)| 1 << (log - UNIT_LOG)).sum::<u32>() <= UNITS_RECEIVED);
        assert!(efforts.history().is_none());
        // The longest ends, and half of what it had is for the next.
        drop(flows.remove(0));
        assert_eq!(lengthened().0, 26);
        assert_eq!(efforts.stream_settings(None).window_log, UNIT_LOG);
    }

    /// Tables are larger than histories: few flows have those of a great effort.
    #[test]
    fn many_flows_have_small_tables() {
        // Over a slow line.
        let efforts = Efforts::new(Some(0.1));
        assert!(efforts.effort() > MODEST, "{:?}", efforts.effort());
        let flows: Vec<_> = std::iter::from_fn(|| efforts.history()).collect();
        assert_eq!(flows.len(), HISTORIES as usize);
        let strong = settings_of(efforts.effort()).level;
        let has_any = |history: &&History| efforts.stream_settings(Some(history)).level == strong;
        assert_eq!(flows.iter().filter(has_any).count(), ANY_TABLES as usize);
    }

    #[test]
    fn a_peer_has_no_more_histories_than_a_sender_makes() {
        let efforts = Efforts::new(None);
        let mut long: Vec<_> = (0..4).map(|_| efforts.received_history(None, 27).unwrap()).collect();
        assert!(efforts.received_history(None, 27).is_err());
        // One in place of another.
        let short = efforts.received_history(long.pop(), 10).unwrap();
        assert!(efforts.received_history(None, 26).is_ok());
        drop((short, long));
        assert_eq!(efforts.received.available_permits(), UNITS_RECEIVED as usize);
    }
}
