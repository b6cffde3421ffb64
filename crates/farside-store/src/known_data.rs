//! What a pool knows of what it holds, by realm: which peer's data lies where.
//!
//! **Realm.** Whoever asks learns by the answer that the content is here, so a peer is answered only from what came from
//! that very peer. Of a volume that counts only if its replica record names the peer (broken off or not), and of that volume
//! these versions: the one that was last *published*, by a commit that proved it to be the peer's snapshot, and those being
//! *staged* for the record's relationship. Not the head, not snapshots taken here: after a break they hold what hosts wrote.
//! Nor older snapshots: some may be from before the volume became a replica, and what they have that the last one
//! has not is little. That is looked up whenever an answer is given, not when the index was fed.
//!
//! **Where the index comes from.** Nothing of it is on the medium. The first question of a realm makes an empty one and a
//! list of versions to walk: leaf fingerprints first, from inner nodes (64 MiB per TiB of data), then blocks, from the leaves
//! (8 GiB per TiB). The walk goes on in steps, some with each question, the others on the pool's thread; questions are
//! answered from what is known so far. From then on staged writes say which leaves they touched, so that transfers that run
//! side by side learn from each other. Host writes pay nothing: they are no peer's data. An index that nobody asked for
//! [`IDLE_MAX`] is dropped.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farside_format::Fingerprint;
use farside_format::catalog::{VersionKind, Volume};
use farside_format::fingerprint::FAN_OUT;
use farside_platform::BLOCK_BYTES;
use parking_lot::Mutex;

use crate::error::{Result, StoreError};
use crate::fingerprint_index::{FingerprintIndex, LeafAt};
use crate::handle::Walked;
use crate::pool::{Pool, State};
use crate::volumes::published_by;

/// Realms that have an index at a time; they share the budget evenly. One more takes the place of the one that asked
/// longest ago: a site with more peers than that hardly copies for the first time from all at once.
const REALMS_MAX: usize = 8;
/// Time without a question after which an index is dropped. Building it anew takes seconds per TiB.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// Leaves looked at in one step, during which no freed place becomes free: as many as one inner node knows the fingerprints
/// of; where each must be read itself, fewer.
const LEAVES_PER_STEP: usize = 128;
/// See above.
const LEAVES_READ_PER_STEP: usize = 32;
/// Leaves looked at per question at most, of those that were staged and of those to walk: 512 MiB each.
const LEAVES_PER_QUESTION: usize = 1024;
/// After this time a question learns no more, though it may: on a slow device each leaf is a seek. The pool's thread goes on.
const TIME_PER_QUESTION: Duration = Duration::from_millis(50);
/// Ranges of staged leaves that wait to be looked at, over all versions: 1 MiB. Past it a version's ranges become one.
const STAGED_RANGES_MAX: usize = 1 << 16;

/// What a pool knows of what it holds.
pub(crate) struct KnownData {
    budget_bytes: u64,
    /// Whether there is any realm: if not, nobody needs to be told of anything.
    is_asked: AtomicBool,
    staged: Mutex<StagedLeaves>,
    realms: Mutex<HashMap<[u8; 32], Arc<Realm>>>,
    /// Who learns; taken before every other lock. What one question has begun to learn another one needs as much: without
    /// waiting for it, the second question of a transfer found nothing of what the first had in hand.
    learning: Mutex<()>,
}

/// How much a pool knows of what it holds, for people, metrics and tests.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KnownDataStatus {
    /// Peers whose transfers have asked lately.
    pub realms: usize,
    /// Leaf nodes known, of all realms.
    pub leaves: usize,
    /// Blocks known, of all realms.
    pub blocks: usize,
    /// Of the realm that samples most coarsely: trailing zero bits that a short fingerprint needs to be kept.
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
pub(crate) struct Realm {
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
struct Walk {
    volume: u64,
    /// A staged version; `None`: whatever is published when the walk goes on.
    staged: Option<u64>,
    pass: Pass,
    next: u64,
}

/// What is entered of a leaf.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Its own fingerprint.
    Leaf,
    /// Those of its blocks.
    Blocks,
    Both,
}

/// What a step has read of one leaf.
struct Seen {
    leaf: u64,
    own: Option<Fingerprint>,
    blocks: Option<Box<[Fingerprint; FAN_OUT]>>,
}

impl Walk {
    fn leaves_per_step(&self) -> usize {
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
            realms: Mutex::default(),
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

    /// The index of one peer's data, begun if there is none.
    pub(crate) fn realm(&self, pool: &Pool, peer: &[u8; 32]) -> Arc<Realm> {
        let now = pool.options.clock.monotonic();
        let mut realms = self.realms.lock();
        self.forget_idle_of(&mut realms, now);
        if let Some(realm) = realms.get(peer) {
            realm.known.lock().asked_at = now;
            return realm.clone();
        }
        if realms.len() == REALMS_MAX {
            let oldest = realms.iter().min_by_key(|(_, realm)| realm.known.lock().asked_at);
            if let Some(oldest) = oldest.map(|(peer, _)| *peer) {
                realms.remove(&oldest);
            }
        }
        // From here on staged writes tell; what was staged before is walked.
        self.is_asked.store(true, Ordering::Release);
        let known = Known {
            index: FingerprintIndex::new(self.budget_bytes),
            walks: walks(&pool.locked(), peer),
            steps: 0,
            asked_at: now,
            complained_of: HashSet::new(),
        };
        let realm = Arc::new(Realm { peer: *peer, known: Mutex::new(known) });
        realms.insert(*peer, realm.clone());
        self.share_out(&realms);
        realm
    }

    fn share_out(&self, realms: &HashMap<[u8; 32], Arc<Realm>>) {
        for realm in realms.values() {
            realm.known.lock().index.set_budget(self.budget_bytes / realms.len() as u64);
        }
    }

    fn forget_idle(&self, now: Duration) {
        self.forget_idle_of(&mut self.realms.lock(), now);
    }

    fn forget_idle_of(&self, realms: &mut HashMap<[u8; 32], Arc<Realm>>, now: Duration) {
        let before = realms.len();
        realms.retain(|_, realm| now.saturating_sub(realm.known.lock().asked_at) < IDLE_MAX);
        if realms.len() == before {
            return;
        }
        self.share_out(realms);
        if realms.is_empty() {
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

impl Realm {
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

    /// Opens the versions of a volume that hold this realm's data, the likeliest first; none if it is no such volume (any
    /// more).
    pub(crate) fn versions(&self, pool: &Arc<Pool>, volume: u64) -> Vec<Arc<Walked>> {
        let mut state = pool.locked();
        let Some(found) = state.versions.volumes.get(&volume) else { return Vec::new() };
        let versions = versions_from(&state, found, &self.peer);
        let open = |version| Walked::begin(pool, &mut state, version).ok().map(Arc::new);
        versions.into_iter().filter_map(open).collect()
    }

    /// Says once per volume that something of it cannot be read.
    pub(crate) fn complain(&self, pool: &Pool, volume: u64, error: &StoreError) {
        if self.known.lock().complained_of.insert(volume) {
            let name = pool.locked().versions.volumes.get(&volume).map_or(String::new(), |v| v.name.clone());
            tracing::warn!(
                pool = %pool.id, volume = name,
                "something of this replica cannot be read, so a transfer brings it again instead of taking it from here: {error}. \
                 No transfer fails by it; farside pool check tells what is damaged"
            );
        }
    }

    fn enter(&self, volume: u64, seen: Vec<Seen>) {
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

/// What is to be walked for a new index.
fn walks(state: &State, peer: &[u8; 32]) -> VecDeque<Walk> {
    let mut walks = VecDeque::new();
    for pass in [Pass::Leaf, Pass::Blocks] {
        for volume in state.versions.volumes.values() {
            let published = published_by(volume, peer);
            for version in versions_from(state, volume, peer) {
                let staged = (version != published).then_some(version);
                walks.push_back(Walk { volume: volume.id, staged, pass, next: 0 });
            }
        }
    }
    walks
}

/// The versions of a volume that hold nothing but what came from the peer: what was published last, and what is being
/// staged, newest first.
fn versions_from(state: &State, volume: &Volume, peer: &[u8; 32]) -> Vec<u64> {
    let Some(record) = volume.replica.as_ref().filter(|r| r.peer == peer && !volume.deleted) else {
        return Vec::new();
    };
    let published = state.versions.versions.get(&published_by(volume, peer));
    let published = published.filter(|v| v.kind == VersionKind::Snapshot && !v.deleted);
    let staged = state.versions.versions.values().rev().filter(|v| {
        v.volume == volume.id
            && v.kind == VersionKind::Staged
            && !v.deleted
            && v.staged.as_ref().is_some_and(|s| s.relationship == record.relationship)
    });
    published.into_iter().chain(staged).map(|v| v.id).collect()
}

impl Pool {
    /// Whether the pool holds anything that came from that peer and may be taken for its further volumes.
    pub fn holds_of(&self, peer: &[u8; 32]) -> bool {
        let state = self.locked();
        state.versions.volumes.values().any(|volume| !versions_from(&state, volume, peer).is_empty())
    }

    /// How much is known of what the pool holds. Nothing before a transfer asks.
    pub fn known_data(&self) -> KnownDataStatus {
        let budget_bytes = self.known.budget_bytes;
        let mut status = KnownDataStatus { budget_bytes, ..KnownDataStatus::default() };
        for realm in self.known.realms.lock().values() {
            let known = realm.known.lock();
            let (leaves, blocks) = known.index.entries();
            status.realms += 1;
            status.leaves += leaves;
            status.blocks += blocks;
            status.sampling_bits = status.sampling_bits.max(known.index.sampling_bits());
            status.bytes += known.index.bytes();
            status.is_learning |= !known.walks.is_empty() || known.steps > 0;
        }
        status
    }

    /// Learns some of what is not known yet, after whoever is at it; true if there is more. Whoever waited past its own time
    /// learns nothing, so nobody waits for more than that and one step.
    pub(crate) fn learn(self: &Arc<Self>) -> bool {
        let until = self.options.clock.monotonic() + TIME_PER_QUESTION;
        let _learning = self.known.learning.lock();
        let of_staged = self.learn_staged(until);
        let realms: Vec<_> = self.known.realms.lock().values().cloned().collect();
        realms.iter().fold(of_staged, |more, realm| self.learn_by_walking(realm, until) || more)
    }

    /// The same for the pool's thread, which also drops what nobody asks for any more.
    pub(crate) fn learn_in_background(self: &Arc<Self>) -> bool {
        if !self.known.is_asked.load(Ordering::Acquire) {
            return false;
        }
        self.known.forget_idle(self.options.clock.monotonic());
        self.learn()
    }

    /// Looks at leaves that staged writes have touched.
    fn learn_staged(self: &Arc<Self>, until: Duration) -> bool {
        let mut left = LEAVES_PER_QUESTION as u64;
        while left > 0 && self.options.clock.monotonic() < until {
            let Some((version, (first, last))) = self.known.staged.lock().take() else { return false };
            let Some((realm, volume, walked)) = self.realm_of(version) else { continue };
            let leaves = (last - first + 1).min(left).min(LEAVES_READ_PER_STEP as u64);
            left -= leaves;
            match self.look(&walked, first, leaves as usize, Pass::Both) {
                Ok((mut seen, next)) => {
                    seen.retain(|seen| seen.leaf <= last);
                    realm.enter(volume, seen);
                    if let Some(next) = next.filter(|next| *next <= last) {
                        self.known.staged.lock().add(version, (next, last));
                    }
                }
                Err(error) => realm.complain(self, volume, &error),
            }
        }
        true
    }

    /// The realm to which a staged version belongs, if it has an index.
    fn realm_of(self: &Arc<Self>, version: u64) -> Option<(Arc<Realm>, u64, Walked)> {
        let (peer, volume, walked) = {
            let mut state = self.locked();
            let volume = state.versions.volumes.get(&state.versions.versions.get(&version)?.volume)?;
            let peer: [u8; 32] = volume.replica.as_ref()?.peer.as_slice().try_into().ok()?;
            let id = volume.id;
            if !versions_from(&state, volume, &peer).contains(&version) {
                return None;
            }
            (peer, id, Walked::begin(self, &mut state, version).ok()?)
        };
        let realm = self.known.realms.lock().get(&peer).cloned()?;
        Some((realm, volume, walked))
    }

    /// Goes on with the walks of a new index.
    fn learn_by_walking(self: &Arc<Self>, realm: &Arc<Realm>, until: Duration) -> bool {
        let mut left = LEAVES_PER_QUESTION;
        while left > 0 && self.options.clock.monotonic() < until {
            let walk = {
                let mut known = realm.known.lock();
                let Some(walk) = known.walks.pop_front() else { return false };
                known.steps += 1;
                walk
            };
            left -= walk.leaves_per_step();
            let rest = self.walk_on(realm, walk);
            let mut known = realm.known.lock();
            known.steps -= 1;
            known.walks.extend(rest);
            // What is begun is ended first.
            known.walks.rotate_right(usize::from(rest.is_some()));
        }
        true
    }

    /// One step of a walk; what is left of it.
    fn walk_on(self: &Arc<Self>, realm: &Realm, walk: Walk) -> Option<Walk> {
        let versions = realm.versions(self, walk.volume);
        let published = {
            let state = self.locked();
            published_by(state.versions.volumes.get(&walk.volume)?, &realm.peer)
        };
        let wanted = walk.staged.unwrap_or(published);
        let walked = versions.iter().find(|v| v.version == wanted)?;
        match self.look(walked, walk.next, walk.leaves_per_step(), walk.pass) {
            Ok((seen, next)) => {
                realm.enter(walk.volume, seen);
                next.map(|next| Walk { next, ..walk })
            }
            Err(error) => {
                realm.complain(self, walk.volume, &error);
                None
            }
        }
    }

    /// Reads what is to be entered of some leaves; answers with the number to go on with.
    fn look(
        &self,
        walked: &Walked,
        from: u64,
        leaves_max: usize,
        pass: Pass,
    ) -> Result<(Vec<Seen>, Option<u64>)> {
        let _reading = self.readers.read();
        let view = walked.view()?;
        let mut seen = Vec::with_capacity(leaves_max);
        let next = view.visit_leaves(&self.nodes, from, leaves_max, &mut |leaf, spot| {
            let own = match pass {
                Pass::Blocks => None,
                Pass::Leaf | Pass::Both => Some(spot.fingerprint(&self.nodes, view.tree)?),
            };
            let blocks = match pass {
                Pass::Leaf => None,
                Pass::Blocks | Pass::Both => {
                    Some(Box::new(spot.leaf(&self.nodes, view.tree)?.map(|p| p.fingerprint)))
                }
            };
            seen.push(Seen { leaf, own, blocks });
            Ok(())
        })?;
        Ok((seen, next))
    }
}
