//! What a pool knows of what it holds, by scope: a bounded index for each peer that asks.
//!
//! **Scope.** Whoever asks learns by the answer that the content is here, so a peer is answered only from what came from
//! that very peer. `learning.rs` says which versions those are, and feeds the indexes.
//!
//! Nothing of it is on the medium. Host writes pay nothing: they are no peer's data. An index that nobody asked for
//! [`IDLE_MAX`] is dropped.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farside_format::Fingerprint;
use farside_format::fingerprint::FAN_OUT;
use farside_platform::BLOCK_BYTES;
use parking_lot::{Mutex, MutexGuard};

use crate::fingerprint_index::{FingerprintIndex, LeafAt};

/// Scopes that have an index at a time; they share the budget evenly. One more takes the place of the one that asked
/// longest ago: a site with more peers than that hardly copies for the first time from all at once.
const SCOPES_MAX: usize = 8;
/// Time without a question after which an index is dropped. Building it anew takes seconds per TiB.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// Leaves looked at in one step, during which no freed place becomes free: as many as one inner node knows the fingerprints
/// of; where each must be read itself, fewer.
const LEAVES_PER_STEP: usize = 128;
/// See above.
pub(crate) const LEAVES_READ_PER_STEP: usize = 32;
/// Ranges of staged leaves that wait to be looked at, over all versions: 1 MiB. Past it a version's ranges become one.
const STAGED_RANGES_MAX: usize = 1 << 16;

/// What a pool knows of what it holds.
pub(crate) struct KnownData {
    budget_bytes: u64,
    /// Whether there is any scope: if not, nobody needs to be told of anything.
    is_asked: AtomicBool,
    staged: Mutex<StagedLeaves>,
    scopes: Mutex<HashMap<[u8; 32], Arc<KnownDataScope>>>,
    /// Who learns; taken before every other lock. What one question has begun to learn another one needs as much: without
    /// waiting for it, the second question of a transfer found nothing of what the first had in hand.
    learning: Mutex<()>,
}

/// How much a pool knows of what it holds, for people, metrics and tests.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KnownDataStatus {
    /// Peers whose transfers have asked lately.
    pub scopes: usize,
    /// Leaf nodes known, of all scopes.
    pub leaves: usize,
    /// Blocks known, of all scopes.
    pub blocks: usize,
    /// Of the scope that samples most coarsely: trailing zero bits that a short fingerprint needs to be kept.
    pub sampling_bits: u32,
    /// Memory of the tables, bytes.
    pub bytes: u64,
    /// Memory they may take, bytes.
    pub budget_bytes: u64,
    /// Whether there are versions still to be walked.
    pub is_learning: bool,
}

/// Leaves that staged writes have touched and nobody has looked at: version to ranges, first and last.
#[derive(Default)]
struct StagedLeaves {
    versions: HashMap<u64, Vec<(u64, u64)>>,
    ranges: usize,
}

/// One peer's data.
pub(crate) struct KnownDataScope {
    peer: [u8; 32],
    known: Mutex<Known>,
}

struct Known {
    index: FingerprintIndex,
    /// Still to be walked.
    walks: VecDeque<Walk>,
    /// Taken from there for a step that is under way.
    steps: usize,
    asked_at: Duration,
    /// Volumes of which something could not be read: it is said once.
    complained_of: HashSet<u64>,
}

/// A walk over what a volume holds of its peer.
#[derive(Clone, Copy)]
pub(crate) struct Walk {
    pub(crate) volume: u64,
    /// A staged version; `None`: whatever is published when the walk goes on.
    pub(crate) staged: Option<u64>,
    pub(crate) pass: Pass,
    pub(crate) next: u64,
}

/// What is entered of a leaf.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Its own fingerprint.
    Leaf,
    /// Those of its blocks.
    Blocks,
    Both,
}

/// What a step has read of one leaf.
pub(crate) struct Seen {
    pub(crate) leaf: u64,
    pub(crate) own: Option<Fingerprint>,
    pub(crate) blocks: Option<Box<[Fingerprint; FAN_OUT]>>,
}

impl Walk {
    pub(crate) fn leaves_per_step(&self) -> usize {
        if self.pass == Pass::Leaf { LEAVES_PER_STEP } else { LEAVES_READ_PER_STEP }
    }
}

impl KnownData {
    pub(crate) fn new(pool_blocks: u64, bytes_per_tib: u64) -> KnownData {
        let blocks_per_tib = (1 << 40) / BLOCK_BYTES as u128;
        let share = u128::from(bytes_per_tib) * u128::from(pool_blocks) / blocks_per_tib;
        KnownData {
            budget_bytes: u64::try_from(share).unwrap_or(u64::MAX).max(bytes_per_tib / 2),
            is_asked: AtomicBool::new(false),
            staged: Mutex::default(),
            scopes: Mutex::default(),
            learning: Mutex::default(),
        }
    }

    /// A transfer has written `count` blocks of a staged version from block `first` on.
    pub(crate) fn staged(&self, version: u64, first: u64, count: u64) {
        if count > 0 && self.is_asked.load(Ordering::Acquire) {
            let leaf = |block: u64| block / FAN_OUT as u64;
            self.staged.lock().add(version, (leaf(first), leaf(first + count - 1)));
        }
    }

    /// The index of one peer's data at `now`; if there is none it is begun with what `walks` says.
    pub(crate) fn scope(
        &self,
        peer: &[u8; 32],
        now: Duration,
        walks: impl FnOnce() -> VecDeque<Walk>,
    ) -> Arc<KnownDataScope> {
        let mut scopes = self.scopes.lock();
        self.forget_idle_of(&mut scopes, now);
        if let Some(scope) = scopes.get(peer) {
            scope.known.lock().asked_at = now;
            return scope.clone();
        }
        if scopes.len() == SCOPES_MAX {
            let oldest = scopes.iter().min_by_key(|(_, scope)| scope.known.lock().asked_at);
            if let Some(oldest) = oldest.map(|(peer, _)| *peer) {
                scopes.remove(&oldest);
            }
        }
        // From here on staged writes tell; what was staged before is walked.
        self.is_asked.store(true, Ordering::Release);
        let known = Known {
            index: FingerprintIndex::new(self.budget_bytes),
            walks: walks(),
            steps: 0,
            asked_at: now,
            complained_of: HashSet::new(),
        };
        let scope = Arc::new(KnownDataScope { peer: *peer, known: Mutex::new(known) });
        scopes.insert(*peer, scope.clone());
        self.share_out(&scopes);
        scope
    }

    /// How much is known.
    pub(crate) fn status(&self) -> KnownDataStatus {
        let budget_bytes = self.budget_bytes;
        let mut status = KnownDataStatus { budget_bytes, ..KnownDataStatus::default() };
        for scope in self.scopes.lock().values() {
            let known = scope.known.lock();
            let (leaves, blocks) = known.index.entries();
            status.scopes += 1;
            status.leaves += leaves;
            status.blocks += blocks;
            status.sampling_bits = status.sampling_bits.max(known.index.sampling_bits());
            status.bytes += known.index.bytes();
            status.is_learning |= !known.walks.is_empty() || known.steps > 0;
        }
        status
    }

    fn share_out(&self, scopes: &HashMap<[u8; 32], Arc<KnownDataScope>>) {
        for scope in scopes.values() {
            scope.known.lock().index.set_budget(self.budget_bytes / scopes.len() as u64);
        }
    }

    /// The indexes there are.
    pub(crate) fn scopes(&self) -> Vec<Arc<KnownDataScope>> {
        self.scopes.lock().values().cloned().collect()
    }

    /// That of one peer, if there is one.
    pub(crate) fn scope_of(&self, peer: &[u8; 32]) -> Option<Arc<KnownDataScope>> {
        self.scopes.lock().get(peer).cloned()
    }

    /// Whether anybody has asked lately.
    pub(crate) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Acquire)
    }

    /// Lets nobody else learn meanwhile.
    pub(crate) fn begin_to_learn(&self) -> MutexGuard<'_, ()> {
        self.learning.lock()
    }

    /// Leaves that staged writes have touched and nobody has looked at: version, first and last.
    pub(crate) fn take_staged(&self) -> Option<(u64, (u64, u64))> {
        self.staged.lock().take()
    }

    /// What was taken and not looked at.
    pub(crate) fn put_staged_back(&self, version: u64, leaves: (u64, u64)) {
        self.staged.lock().add(version, leaves);
    }

    /// Drops what nobody has asked for lately.
    pub(crate) fn forget_idle(&self, now: Duration) {
        self.forget_idle_of(&mut self.scopes.lock(), now);
    }

    fn forget_idle_of(&self, scopes: &mut HashMap<[u8; 32], Arc<KnownDataScope>>, now: Duration) {
        let before = scopes.len();
        scopes.retain(|_, scope| now.saturating_sub(scope.known.lock().asked_at) < IDLE_MAX);
        if scopes.len() == before {
            return;
        }
        self.share_out(scopes);
        if scopes.is_empty() {
            self.is_asked.store(false, Ordering::Release);
            *self.staged.lock() = StagedLeaves::default();
        }
    }
}

impl StagedLeaves {
    fn add(&mut self, version: u64, (first, last): (u64, u64)) {
        let ranges = self.versions.entry(version).or_default();
        // Frames mostly come one after the other.
        if let Some(range) = ranges.last_mut()
            && first <= range.1 + 1
            && range.0 <= last + 1
        {
            *range = (range.0.min(first), range.1.max(last));
            return;
        }
        ranges.push((first, last));
        self.ranges += 1;
        if self.ranges > STAGED_RANGES_MAX {
            let whole = ranges.iter().fold((first, last), |a, b| (a.0.min(b.0), a.1.max(b.1)));
            self.ranges -= ranges.len() - 1;
            *ranges = vec![whole];
        }
    }

    fn take(&mut self) -> Option<(u64, (u64, u64))> {
        let version = *self.versions.keys().next()?;
        let ranges = self.versions.get_mut(&version)?;
        let range = ranges.pop();
        if ranges.is_empty() {
            self.versions.remove(&version);
        }
        self.ranges -= usize::from(range.is_some());
        range.map(|range| (version, range))
    }
}

impl KnownDataScope {
    /// Where a leaf node of this short fingerprint may lie, the likeliest first.
    pub(crate) fn leaf(&self, short: u64) -> Vec<LeafAt> {
        self.known.lock().index.leaf(short).collect()
    }

    /// In which leaves a block of this short fingerprint may lie, the likeliest first.
    pub(crate) fn block(&self, short: u64) -> Vec<LeafAt> {
        self.known.lock().index.block(short).collect()
    }

    /// No leaf node of this short fingerprint was found there.
    pub(crate) fn leaf_is_stale(&self, short: u64, at: LeafAt) {
        self.known.lock().index.leaf_is_stale(short, at);
    }

    /// No block of this short fingerprint was found there.
    pub(crate) fn block_is_stale(&self, short: u64, at: LeafAt) {
        self.known.lock().index.block_is_stale(short, at);
    }

    /// The peer.
    pub(crate) fn peer(&self) -> &[u8; 32] {
        &self.peer
    }

    /// Whether something of a volume cannot be read for the first time.
    pub(crate) fn is_first_complaint(&self, volume: u64) -> bool {
        self.known.lock().complained_of.insert(volume)
    }

    /// A walk to go on with; [`KnownDataScope::end_step`] is told what is left of it.
    pub(crate) fn begin_step(&self) -> Option<Walk> {
        let mut known = self.known.lock();
        let walk = known.walks.pop_front()?;
        known.steps += 1;
        Some(walk)
    }

    /// One step was made; `rest` is what is left of its walk.
    pub(crate) fn end_step(&self, rest: Option<Walk>) {
        let mut known = self.known.lock();
        known.steps -= 1;
        known.walks.extend(rest);
        // What is begun is ended first.
        known.walks.rotate_right(usize::from(rest.is_some()));
    }

    /// What a step has read of a volume.
    pub(crate) fn enter(&self, volume: u64, seen: Vec<Seen>) {
        let index = &mut self.known.lock().index;
        for Seen { leaf, own, blocks } in seen {
            let at = LeafAt { volume, leaf };
            if let Some(own) = own {
                index.enter_leaf(at, own);
            }
            if let Some(blocks) = blocks {
                index.enter_blocks(at, blocks.iter().copied());
            }
        }
    }
}
