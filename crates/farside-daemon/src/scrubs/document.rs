//! A scrub as it is kept and shown. Pure.

use farside_api::{Scrub as Document, ScrubDamage, ScrubDamageKind, ScrubState, Timestamp};
use farside_platform::BLOCK_BYTES;
use farside_store::{DamageKind, Scrub, ScrubFindings, ScrubPosition};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::state::ScrubRow;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What the state database has of a scrub.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The pool's identity: another of the same name has not been scrubbed.
    pub(super) pool: Uuid,
    pub(super) document: Document,
    position: Position,
}

/// See [`ScrubPosition`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Position {
    until: u64,
    pool_wide_done: bool,
    version: u64,
    class: u8,
    age: u64,
    block: u64,
}

impl Kept {
    pub(super) fn begun(
        name: &str,
        pool: Uuid,
        total_bytes: u64,
        now: Timestamp,
        completed_at: Option<Timestamp>,
    ) -> Kept {
        let document = Document {
            pool: name.to_owned(),
            state: ScrubState::Running,
            started_at: now,
            ended_at: None,
            total_bytes,
            read_bytes: 0,
            limit_bytes_per_second: None,
            rate_bytes_per_second: None,
            eta_seconds: None,
            damaged_blocks: 0,
            damage: Vec::new(),
            structures: Vec::new(),
            rewritten_copies: 0,
            rewritten: Vec::new(),
            error: None,
            completed_at,
        };
        Kept { pool, document, position: Position::from(ScrubPosition::default()) }
    }

    pub(super) fn parse(text: &str) -> Result<Kept, serde_json::Error> {
        serde_json::from_str(text)
    }

    pub(super) fn row(&self, name: &str) -> ScrubRow {
        // Only maps with keys that are no strings fail, and there are none.
        let document = serde_json::to_string(self).unwrap_or_default();
        ScrubRow { pool: name.to_owned(), document }
    }

    /// Takes over how far it is.
    pub(super) fn note(&mut self, scrub: &Scrub, read_bytes: u64) {
        self.position = scrub.position().into();
        self.document.read_bytes = read_bytes;
        let found = scrub.findings();
        self.document.damaged_blocks = found.damaged_places;
        // Almost always the same as before.
        if self.document.damage.len() != found.damage.len() || !found.damage.is_empty() {
            let mut damage: Vec<ScrubDamage> = found.damage.iter().map(shown).collect();
            damage.sort_by(|a, b| (&a.volume, a.offset_bytes).cmp(&(&b.volume, b.offset_bytes)));
            self.document.damage = damage;
        }
        self.document.structures.clone_from(&found.structures);
        self.document.rewritten_copies = found.rewritten_copies;
        self.document.rewritten.clone_from(&found.rewritten);
    }

    pub(super) fn end(&mut self, error: Option<String>, now: Timestamp) {
        self.document.state = if error.is_none() { ScrubState::Done } else { ScrubState::Failed };
        self.document.ended_at = Some(now);
        if error.is_none() {
            self.document.completed_at = Some(now);
        }
        self.document.error = error;
    }

    pub(super) fn position(&self) -> ScrubPosition {
        let Position { until, pool_wide_done, version, class, age, block } = self.position;
        ScrubPosition { until, pool_wide_done, version, class, age, block }
    }

    pub(super) fn findings(&self) -> ScrubFindings {
        let Document { damaged_blocks, damage, structures, rewritten, rewritten_copies, .. } = &self.document;
        ScrubFindings {
            damaged_places: *damaged_blocks,
            damage: damage.iter().map(kept).collect(),
            structures: structures.clone(),
            rewritten: rewritten.clone(),
            rewritten_copies: *rewritten_copies,
        }
    }
}

impl From<ScrubPosition> for Position {
    fn from(position: ScrubPosition) -> Position {
        let ScrubPosition { until, pool_wide_done, version, class, age, block } = position;
        Position { until, pool_wide_done, version, class, age, block }
    }
}

fn shown(damage: &farside_store::ScrubDamage) -> ScrubDamage {
    ScrubDamage {
        kind: match damage.kind {
            DamageKind::Data => ScrubDamageKind::Data,
            DamageKind::Map => ScrubDamageKind::Map,
        },
        volume: damage.volume.clone(),
        offset_bytes: damage.block * BLOCK,
        length_bytes: damage.count * BLOCK,
        in_volume: damage.in_volume,
        in_staged: damage.in_staged,
        snapshots: damage.snapshots.clone(),
        more_snapshots: damage.more_snapshots,
    }
}

fn kept(damage: &ScrubDamage) -> farside_store::ScrubDamage {
    farside_store::ScrubDamage {
        kind: match damage.kind {
            ScrubDamageKind::Data => DamageKind::Data,
            ScrubDamageKind::Map => DamageKind::Map,
        },
        volume: damage.volume.clone(),
        block: damage.offset_bytes / BLOCK,
        count: damage.length_bytes / BLOCK,
        in_volume: damage.in_volume,
        in_staged: damage.in_staged,
        snapshots: damage.snapshots.clone(),
        more_snapshots: damage.more_snapshots,
    }
}
