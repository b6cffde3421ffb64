//! What a scrub finds, in names that people know.

/// Records of damage that are kept; more are counted.
pub const SCRUB_DAMAGE_MAX: usize = 1024;
/// Snapshots named in one record; more are counted.
const SNAPSHOTS_MAX: usize = 64;
/// Lines of what was rewritten, and of damage to the pool's own structures, that are kept.
const LINES_MAX: usize = 256;

/// What is damaged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DamageKind {
    /// Data: these blocks cannot be read.
    Data,
    /// Metadata of a volume: where these blocks lie is not known any more, so that they cannot be read.
    Map,
}

/// A range of a volume that is damaged, and who shares it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScrubDamage {
    /// Data or metadata.
    pub kind: DamageKind,
    /// The volume.
    pub volume: String,
    /// First block.
    pub block: u64,
    /// How many.
    pub count: u64,
    /// Whether the volume itself has it, as hosts see it.
    pub in_volume: bool,
    /// Whether what a transfer has staged for the volume has it.
    pub in_staged: bool,
    /// The snapshots of the volume that have it, 64 at most.
    pub snapshots: Vec<String>,
    /// How many more have it.
    pub more_snapshots: u64,
}

/// What a scrub has found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ScrubFindings {
    /// Places that hold damaged data, and metadata of which no copy is left.
    pub damaged_places: u64,
    /// Where they belong, [`SCRUB_DAMAGE_MAX`] records at most.
    pub damage: Vec<ScrubDamage>,
    /// Damage to the pool's own structures, in words.
    pub structures: Vec<String>,
    /// Copies that were damaged and have been rewritten from the other copy, in words.
    pub rewritten: Vec<String>,
    /// How many were.
    pub rewritten_copies: u64,
}

/// Where a damaged data block can be had once more: the replica at a peer, another pool. Nobody implements it yet. A scrub that has one
/// asks it for each damaged data block by its fingerprint, believes nothing that does not match, and rewrites the block in place under the
/// maintenance lock, as it does with the second copy of a node (`Pool::rewrite_copy`).
pub trait SecondCopies: Send + Sync {
    /// The 4096 bytes of the block with this fingerprint, which volume `volume` has at block number `block`; none if it cannot be had.
    fn data_block(&self, volume: &str, block: u64, fingerprint: [u8; 16]) -> Option<Vec<u8>>;
}

impl ScrubFindings {
    /// Whether nothing is damaged, or was.
    pub fn is_sound(&self) -> bool {
        self.damaged_places == 0 && self.structures.is_empty()
    }

    /// Enters a record. One that goes on where the last one ended, for the same versions, becomes part of it.
    pub(super) fn add(&mut self, mut damage: ScrubDamage) {
        let snapshots = damage.snapshots.len();
        damage.snapshots.truncate(SNAPSHOTS_MAX);
        damage.more_snapshots = (snapshots - damage.snapshots.len()) as u64;
        let is_like = |other: &ScrubDamage| {
            other.kind == damage.kind
                && other.volume == damage.volume
                && (other.in_volume, other.in_staged) == (damage.in_volume, damage.in_staged)
                && (&other.snapshots, other.more_snapshots) == (&damage.snapshots, damage.more_snapshots)
        };
        let end = damage.block + damage.count;
        for other in self.damage.iter_mut().filter(|other| is_like(other)) {
            let other_end = other.block + other.count;
            // Told again, by a scrub that went on after a crash.
            if other.block <= damage.block && end <= other_end {
                return;
            }
            if other_end == damage.block {
                other.count += damage.count;
                return;
            }
            if end == other.block {
                other.block = damage.block;
                other.count += damage.count;
                return;
            }
        }
        if self.damage.len() < SCRUB_DAMAGE_MAX {
            self.damage.push(damage);
        }
    }

    pub(super) fn add_structure(&mut self, what: String) {
        if self.structures.len() < LINES_MAX && !self.structures.contains(&what) {
            self.structures.push(what);
        }
    }

    pub(super) fn add_rewritten(&mut self, what: String) {
        self.rewritten_copies += 1;
        if self.rewritten.len() < LINES_MAX {
            self.rewritten.push(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damage(block: u64, count: u64, snapshots: usize) -> ScrubDamage {
        ScrubDamage {
            kind: DamageKind::Data,
            volume: "v".into(),
            block,
            count,
            in_volume: true,
            in_staged: false,
            snapshots: (0..snapshots).map(|n| format!("s{n}")).collect(),
            more_snapshots: 0,
        }
    }

    #[test]
    fn neighbours_become_one_range_and_nothing_is_told_twice() {
        let mut findings = ScrubFindings::default();
        for block in [5, 6, 4, 5, 100] {
            findings.add(damage(block, 1, 1));
        }
        findings.add(damage(7, 1, 2));
        let ranges: Vec<_> = findings.damage.iter().map(|d| (d.block, d.count, d.snapshots.len())).collect();
        assert_eq!(ranges, [(4, 3, 1), (100, 1, 1), (7, 1, 2)]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut findings = ScrubFindings::default();
        for block in 0..SCRUB_DAMAGE_MAX as u64 + 10 {
            findings.add(damage(2 * block, 1, 1000));
        }
        assert_eq!(findings.damage.len(), SCRUB_DAMAGE_MAX);
        assert_eq!(
            (findings.damage[0].snapshots.len(), findings.damage[0].more_snapshots),
            (SNAPSHOTS_MAX, 1000 - SNAPSHOTS_MAX as u64)
        );
    }
}
