//! Whether the updates of a mirror look as if somebody encrypts its source. Pure.
//!
//! Ciphertext shows in two figures that every update has anyway. It changes much, fast; and what changed cannot be made smaller:
//! neither by compression nor by what both sites hold already. So an update is *unusual* if both are so, against the mirror's own
//! past and nobody else's:
//!
//! * **The change rate jumps.** Changed bytes over the time since the update before are more than [`RATE_TIMES`] times the median of
//!   the last [`HISTORY_MAX`] updates, and more than [`RATE_DEVIATIONS`] median deviations above it (of a normal distribution:
//!   standard deviations).
//! * **The reduction collapses.** The *saving* of an update is the part of its changed bytes that did not travel (0: nothing; a
//!   reduction by four: 0.75). What travelled as it is only because the line was faster than compressing, and does not look random,
//!   counts as if half of it had travelled ([`PLAIN_SAVING`]): how busy a machine is must not look like an attack. The saving is less
//!   than [`SAVING_LEFT`] of the median saving, and less than that of all but [`SAVING_SELDOM`] of the updates. A mirror whose median
//!   saving is below [`SAVING_USUAL`] is never judged: ciphertext would look like what it has always had.
//! * **It is not what has happened before.** No earlier updates in a row saved as little, at half of the rate or more, and changed half
//!   as much together: an archive that is copied onto the volume each night is unusual once. A backup of 20 MB does not make everything
//!   usual that comes as fast; but what a person has called usual is, in any amount.
//!
//! Unusual updates that follow each other are a *run*, whose bytes count together; small updates in between (below [`JUDGED_LEAST`])
//! neither belong to it nor end it. A run of [`suspected_bytes`] is suspected: a hundredth of the volume, at least 16 MiB, at most
//! 256 MiB. A program that encrypts 50 MB/s reaches that in ten seconds of any volume, so it is seen with the first update that
//! covers so much of its time, and with the second at the latest.
//!
//! Nothing is judged before [`UPDATES_LEAST`] updates are known. Suspected updates do not become what is usual until a person says
//! that they are.
//!
//! What raises it though nobody attacks: the first time that much is copied which cannot be made smaller (films, archives, an
//! encrypted backup), and encrypting a volume on purpose. What does not: an upgrade, a `VACUUM FULL`, a restored database, however
//! large: they save what such data always saves. What is not seen: an encryptor that is slower than four times the usual rate, and
//! one on a volume that was encrypted or compressed before.

use std::collections::VecDeque;

use farside_platform::Timestamp;
use farside_transfer::{TransferKind, TransferReport, TransferResult};

/// Updates that a mirror is compared with.
pub(crate) const HISTORY_MAX: usize = 500;
/// Updates of [`JUDGED_LEAST`] or more that must be known before one is judged.
const UPDATES_LEAST: usize = 8;
/// An update of less says nothing about reduction: what frames its bytes costs as much as they do.
const JUDGED_LEAST: u64 = 256 << 10;
/// How many times the median rate is a jump.
const RATE_TIMES: f64 = 4.0;
/// And how many deviations above it.
const RATE_DEVIATIONS: f64 = 6.0;
/// A median deviation times this is a standard deviation, where values are spread normally.
const TO_STANDARD: f64 = 1.4826;
/// A median saving below this cannot collapse.
const SAVING_USUAL: f64 = 0.25;
/// The saving has collapsed below this part of its median.
const SAVING_LEFT: f64 = 1.0 / 3.0;
/// The part of the updates that may have saved as little.
const SAVING_SELDOM: f64 = 0.05;
/// The saving of bytes that would have compressed, had there been time: what they would have saved nobody knows. More than a third of
/// any median, so that they never make an update unusual; and far from all, so that they hide no encryptor of as many bytes again.
const PLAIN_SAVING: f64 = 0.5;
/// Earlier updates at this part of the rate were like these,
const LIKE_RATE: f64 = 0.5;
/// if they changed this part of the bytes in a row.
const LIKE_BYTES: f64 = 0.5;
/// An update that began at once after another is not infinitely fast.
const INTERVAL_LEAST: f64 = 1.0;
/// Unusual updates that are remembered while they are suspected.
const SUSPECTED_MAX: usize = HISTORY_MAX;

/// Bytes of unusual updates in a row that are suspected, for a volume of this size.
pub(crate) fn suspected_bytes(volume_bytes: u64) -> u64 {
    (volume_bytes / 100).clamp(16 << 20, 256 << 20)
}

/// What counts of an update.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Figures {
    bytes: u64,
    /// Bytes in a second.
    rate: f64,
    /// None of one that is too small to say.
    saving: Option<f64>,
    /// A person has said that it is.
    is_called_usual: bool,
}

/// An update that belongs to a run.
#[derive(Clone, PartialEq, Debug)]
struct Unusual {
    figures: Figures,
    since: Since,
}

/// Where what is suspected began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Since {
    /// The snapshot that the first such update brought, as it is called here.
    pub(crate) snapshot: Option<String>,
    /// When the transfer before it had ended: what was published until then is good.
    pub(crate) good_until: Timestamp,
}

/// That the updates of a mirror look like encryption.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Suspicion {
    /// Where it began.
    pub(crate) since: Since,
    /// How many updates it are.
    pub(crate) updates: usize,
    /// How much they changed.
    pub(crate) bytes: u64,
    /// Bytes in a second, of the last.
    pub(crate) rate: f64,
    /// Bytes in a second, usually.
    pub(crate) usual_rate: f64,
    /// The part of the last that did not travel.
    pub(crate) saving: f64,
    /// The same, usually.
    pub(crate) usual_saving: f64,
}

/// Follows the updates of one mirror.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    history: VecDeque<Figures>,
    run: Vec<Unusual>,
    is_suspected: bool,
    /// When the last transfer that ended well began and ended.
    last: Option<(Timestamp, Timestamp)>,
}

impl Watch {
    /// From what is known of a mirror, oldest first. What ended until `usual_until` is usual, whatever it looks like. Answers what was
    /// suspicious since, if it was: nobody may have been told.
    pub(crate) fn from_history<'a>(
        reports: impl IntoIterator<Item = &'a TransferReport>,
        volume_bytes: u64,
        usual_until: Timestamp,
    ) -> (Watch, Option<Suspicion>) {
        let (mut watch, mut suspicion) = (Watch::default(), None);
        for report in reports {
            match watch.note(report, volume_bytes) {
                Some(_) if report.ended_at <= usual_until => watch.settle(),
                Some(found) => suspicion = Some(found),
                None => {}
            }
        }
        (watch, suspicion)
    }

    /// What is known is suspected: it was told before this process began.
    pub(crate) fn suspect(&mut self) {
        self.is_suspected = true;
    }

    /// Whether what a person has not called usual looks like encryption.
    pub(crate) fn is_suspected(&self) -> bool {
        self.is_suspected
    }

    /// A person has said that what was suspected is usual.
    pub(crate) fn settle(&mut self) {
        self.is_suspected = false;
        self.end_run(true);
    }

    fn end_run(&mut self, is_called_usual: bool) {
        for unusual in std::mem::take(&mut self.run) {
            self.keep(Figures { is_called_usual, ..unusual.figures });
        }
    }

    /// Takes up a transfer that has ended. Answers when it becomes suspicious, once until a person has settled it.
    pub(crate) fn note(&mut self, report: &TransferReport, volume_bytes: u64) -> Option<Suspicion> {
        if report.result != TransferResult::Ok {
            return None;
        }
        let before = self.last.replace((report.started_at, report.ended_at));
        let (began, ended) = before.filter(|_| report.kind == TransferKind::Update)?;
        let figures = figures(report, began);
        let Some(usual) = self.usual().filter(|_| figures.saving.is_some()) else {
            self.keep(figures);
            return None;
        };
        if !self.is_unusual(&figures, &usual) {
            if !self.is_suspected {
                self.end_run(false);
            }
            self.keep(figures);
            return None;
        }
        let since = Since { snapshot: report.incremental.clone(), good_until: ended };
        if self.run.len() < SUSPECTED_MAX {
            self.run.push(Unusual { figures, since });
        }
        let bytes = self.run.iter().fold(0u64, |sum, unusual| sum.saturating_add(unusual.figures.bytes));
        let is_like_before = LIKE_BYTES * bytes as f64 <= self.like_bytes(figures.rate, &usual) as f64;
        if self.is_suspected || bytes < suspected_bytes(volume_bytes) || is_like_before {
            return None;
        }
        self.is_suspected = true;
        Some(Suspicion {
            since: self.run.first()?.since.clone(),
            updates: self.run.len(),
            bytes,
            rate: figures.rate,
            usual_rate: usual.rate,
            saving: figures.saving?,
            usual_saving: usual.saving,
        })
    }

    fn keep(&mut self, figures: Figures) {
        self.history.push_back(figures);
        if self.history.len() > HISTORY_MAX {
            self.history.pop_front();
        }
    }

    /// What is usual; none before enough is known.
    fn usual(&self) -> Option<Usual> {
        let mut savings: Vec<f64> = self.history.iter().filter_map(|figures| figures.saving).collect();
        if savings.len() < UPDATES_LEAST {
            return None;
        }
        savings.sort_unstable_by(f64::total_cmp);
        let seldom = savings[(savings.len() as f64 * SAVING_SELDOM) as usize];
        let saving = median(&mut savings);
        let mut rates: Vec<f64> = self.history.iter().map(|figures| figures.rate).collect();
        let rate = median(&mut rates);
        let mut deviations: Vec<f64> = rates.iter().map(|one| (one - rate).abs()).collect();
        Some(Usual { rate, deviation: TO_STANDARD * median(&mut deviations), saving, seldom })
    }

    fn is_unusual(&self, figures: &Figures, usual: &Usual) -> bool {
        let Some(saving) = figures.saving else { return false };
        let is_fast = figures.rate > RATE_TIMES * usual.rate
            && figures.rate > usual.rate + RATE_DEVIATIONS * usual.deviation;
        let is_incompressible =
            usual.saving >= SAVING_USUAL && saving < SAVING_LEFT * usual.saving && saving < usual.seldom;
        is_fast && is_incompressible
    }

    /// The most that earlier updates in a row changed which saved as little, if they were about as fast. Of what a person has called
    /// usual there may be any amount.
    fn like_bytes(&self, rate: f64, usual: &Usual) -> u64 {
        let (mut most, mut bytes, mut fastest) = (0u64, 0u64, 0.0f64);
        for before in &self.history {
            if before.is_called_usual && before.rate >= LIKE_RATE * rate {
                return u64::MAX;
            }
            match before.saving {
                None => {}
                Some(saving) if saving < SAVING_LEFT * usual.saving => {
                    (bytes, fastest) = (bytes.saturating_add(before.bytes), fastest.max(before.rate));
                }
                Some(_) => (bytes, fastest) = (0, 0.0),
            }
            if fastest >= LIKE_RATE * rate {
                most = most.max(bytes);
            }
        }
        most
    }
}

struct Usual {
    rate: f64,
    deviation: f64,
    saving: f64,
    /// All but a few saved more.
    seldom: f64,
}

fn figures(report: &TransferReport, began: Timestamp) -> Figures {
    // What an earlier transfer that was cut had brought changed in this time as well.
    let bytes = report.changed_bytes.saturating_add(report.resumed_bytes);
    // Without what a step cost that had to be brought once more, where that is known.
    let (whole, travelled) = match &report.levels {
        Some(levels) => {
            let spared = levels.plain_bytes() as f64 * PLAIN_SAVING;
            (levels.in_bytes(), levels.out_bytes() as f64 - spared)
        }
        None => (report.changed_bytes, report.wire_bytes_received as f64),
    };
    let saving = (whole >= JUDGED_LEAST).then(|| 1.0 - travelled / whole as f64);
    let seconds = report.started_at.seconds_since(began).max(INTERVAL_LEAST);
    Figures { bytes, rate: bytes as f64 / seconds, saving, is_called_usual: false }
}

/// Of at least one value; sorts them.
fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len().is_multiple_of(2) { (values[half - 1] + values[half]) / 2.0 } else { values[half] }
}

#[cfg(test)]
mod tests;
