//! Deduplication of a volume as it is kept and shown. Pure.

use farside_api::{Dedup as Document, DedupState, Timestamp};
use farside_platform::BLOCK_BYTES;
use farside_store::{DedupFigures, DedupPosition, DedupSavings, DedupUndone};
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::state::DedupRow;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// What it reads in a second unless it is told otherwise: as a scrub. The metadata of a TiB takes two minutes, and 1 TiB of blocks that
/// lie twice four and a half hours.
const RATE_DEFAULT: u64 = 64 << 20;
/// From the end of a pass to the next one. What changed in a day costs the same in 24 of them as in one.
const EVERY: SignedDuration = SignedDuration::from_hours(1);
/// How old a count may be. Each reads all metadata of the volume, 0.7 % of its data.
const COUNTED_EVERY: SignedDuration = SignedDuration::from_hours(24);

/// What somebody wants of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Wanted {
    Off,
    On,
    Undo,
}

/// What the state database has of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The pool's identity: volumes of another of the same name are others.
    pub(super) pool: Uuid,
    pub(super) volume: Uuid,
    pub(super) wanted: Wanted,
    pub(super) document: Document,
    under_way: Option<Position>,
    last: Option<Position>,
    /// It is to begin, or go on, as soon as it can.
    pub(super) is_due: bool,
}

/// See [`DedupPosition`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Position {
    head: u64,
    since: u64,
    until: u64,
    leaf: u64,
}

/// Of a volume that nobody has asked for.
pub(super) fn nothing(volume: &str) -> Document {
    Document {
        volume: volume.to_owned(),
        state: DedupState::Off,
        saved_bytes: 0,
        scanned_bytes: 0,
        phase: None,
        shared_bytes: 0,
        held_by_snapshots_bytes: 0,
        limited_blocks: 0,
        damaged_blocks: 0,
        pool_saved_bytes: None,
        limit_bytes_per_second: None,
        rate_bytes_per_second: None,
        done: None,
        eta_seconds: None,
        started_at: None,
        completed_at: None,
        counted_at: None,
        next_at: None,
        why: None,
    }
}

impl Kept {
    pub(super) fn begun(name: &str, pool: Uuid, volume: Uuid) -> Kept {
        let document = Document { limit_bytes_per_second: Some(RATE_DEFAULT), ..nothing(name) };
        Kept { pool, volume, wanted: Wanted::Off, document, under_way: None, last: None, is_due: false }
    }

    pub(super) fn parse(text: &str) -> Result<Kept, serde_json::Error> {
        serde_json::from_str(text)
    }

    pub(super) fn row(&self, pool: &str) -> DedupRow {
        // Only maps with keys that are no strings fail, and there are none.
        let document = serde_json::to_string(self).unwrap_or_default();
        DedupRow { pool: pool.to_owned(), volume: self.volume.to_string(), document }
    }

    /// All of the volume is new again.
    pub(super) fn begin_anew(&mut self) {
        (self.under_way, self.last) = (None, None);
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Whether it is its turn at `now`.
    pub(super) fn is_due_at(&self, now: Timestamp) -> bool {
        match self.wanted {
            Wanted::Off => false,
            Wanted::Undo => true,
            Wanted::On => self.is_due || self.document.next_at.is_none_or(|next| next <= now),
        }
    }

    pub(super) fn under_way(&self) -> Option<DedupPosition> {
        self.under_way.map(DedupPosition::from)
    }

    pub(super) fn last(&self) -> Option<DedupPosition> {
        self.last.map(DedupPosition::from)
    }

    /// What it had done when it was left.
    pub(super) fn figures(&self) -> DedupFigures {
        let Document { scanned_bytes, shared_bytes, held_by_snapshots_bytes, .. } = &self.document;
        DedupFigures {
            scanned_blocks: scanned_bytes / BLOCK,
            shared_blocks: shared_bytes / BLOCK,
            held_blocks: held_by_snapshots_bytes / BLOCK,
            limited_blocks: self.document.limited_blocks,
            damaged_blocks: self.document.damaged_blocks,
        }
    }

    /// A pass or an undoing begins.
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.document.started_at = Some(now);
        self.note(DedupFigures::default(), None);
    }

    /// Takes over how far it is.
    pub(super) fn note(&mut self, figures: DedupFigures, at: Option<DedupPosition>) {
        self.under_way = at.map(Position::from);
        let document = &mut self.document;
        let shared_bytes = figures.shared_blocks * BLOCK;
        // Half of it, roughly: the other half is what the other owner saves. A count says it exactly.
        document.saved_bytes += shared_bytes.saturating_sub(document.shared_bytes) / 2;
        document.scanned_bytes = figures.scanned_blocks * BLOCK;
        document.shared_bytes = shared_bytes;
        document.held_by_snapshots_bytes = figures.held_blocks * BLOCK;
        document.limited_blocks = figures.limited_blocks;
        document.damaged_blocks = figures.damaged_blocks;
    }

    /// The pass has come to its end at `at`.
    pub(super) fn pass_ended(&mut self, at: DedupPosition) {
        (self.under_way, self.last) = (None, Some(at.into()));
    }

    /// Whether what it saves is to be counted though no pass over everything has ended: once a day.
    pub(super) fn is_to_be_counted(&self, now: Timestamp) -> bool {
        let is_new = |counted: Timestamp| now.duration_since(counted) < COUNTED_EVERY;
        !self.document.counted_at.is_some_and(is_new)
    }

    pub(super) fn counted(&mut self, savings: DedupSavings, now: Timestamp) {
        self.document.saved_bytes = savings.saved_bytes;
        self.document.counted_at = Some(now);
    }

    /// All is done for now.
    pub(super) fn rest(&mut self, now: Timestamp) {
        (self.document.completed_at, self.document.why) = (Some(now), None);
        self.document.next_at = now.checked_add(EVERY).ok();
    }

    /// It cannot go on; it is tried again.
    pub(super) fn failed(&mut self, why: String, now: Timestamp) {
        self.document.why = Some(why);
        self.document.next_at = now.checked_add(EVERY).ok();
    }

    /// Takes over how far an undoing is.
    pub(super) fn note_undone(&mut self, undone: DedupUndone) {
        self.document.scanned_bytes = undone.scanned_blocks * BLOCK;
        self.document.shared_bytes = undone.copied_blocks * BLOCK;
        self.document.damaged_blocks = undone.damaged_blocks;
    }

    /// An undoing has ended.
    pub(super) fn undone(&mut self, failed: Option<String>, now: Timestamp) {
        self.wanted = Wanted::Off;
        self.begin_anew();
        self.document.next_at = None;
        if failed.is_none() {
            self.document.saved_bytes = 0;
            (self.document.completed_at, self.document.counted_at) = (Some(now), Some(now));
        }
        self.document.why = failed;
    }
}

impl From<DedupPosition> for Position {
    fn from(position: DedupPosition) -> Position {
        let DedupPosition { head, since, until, leaf } = position;
        Position { head, since, until, leaf }
    }
}

impl From<Position> for DedupPosition {
    fn from(position: Position) -> DedupPosition {
        let Position { head, since, until, leaf } = position;
        DedupPosition { head, since, until, leaf }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + hours * 3600).unwrap()
    }

    fn kept() -> Kept {
        let mut kept = Kept::begun("p/v", Uuid::from_u128(1), Uuid::from_u128(2));
        kept.wanted = Wanted::On;
        kept
    }

    #[test]
    fn it_is_due_at_once_then_hourly_and_never_once_it_is_off() {
        let mut kept = kept();
        assert!(kept.is_due_at(at(0)));
        kept.rest(at(0));
        assert!(!kept.is_due_at(at(0)) && kept.is_due_at(at(1)));
        kept.is_due = true;
        assert!(kept.is_due_at(at(0)));
        kept.wanted = Wanted::Off;
        assert!(!kept.is_due_at(at(100)));
    }

    #[test]
    fn it_is_counted_daily() {
        let mut kept = kept();
        assert!(kept.is_to_be_counted(at(0)));
        kept.counted(DedupSavings { saved_bytes: 5, ..DedupSavings::default() }, at(0));
        assert!(!kept.is_to_be_counted(at(23)) && kept.is_to_be_counted(at(24)));
        assert_eq!(kept.document.saved_bytes, 5);
    }

    #[test]
    fn what_is_kept_goes_on_where_it_was() {
        let mut kept = kept();
        kept.begin(at(0));
        let figures = DedupFigures {
            scanned_blocks: 10,
            shared_blocks: 6,
            held_blocks: 2,
            limited_blocks: 1,
            damaged_blocks: 3,
        };
        let position = DedupPosition { head: 1, since: 3, until: 9, leaf: 4 };
        kept.note(figures, Some(position));
        let read = Kept::parse(&kept.row("p").document).unwrap();
        assert_eq!((read.figures(), read.under_way(), read.last()), (figures, Some(position), None));
        assert_eq!(read.document.saved_bytes, 3 * BLOCK);
        assert!(read.is_under_way());
    }
}
