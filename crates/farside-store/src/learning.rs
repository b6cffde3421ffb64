//! How a pool learns what it holds of a peer's data.
//!
//! **Which versions.** Of a volume whose replica record names the peer (broken off or not), and of no other: the one that
//! was last *published*, by a commit that proved it to be the peer's snapshot, and those being *staged* for the record's
//! relationship. Not the head, not snapshots taken here: after a break they hold what hosts wrote. Nor older snapshots: some
//! may be from before the volume became a replica, and what they have that the last one has not is little. That is looked up
//! whenever an answer is given, not when the index was fed.
//!
//! **How.** The first question of a scope makes an empty index and a list of versions to walk: leaf fingerprints first, from
//! inner nodes (64 MiB per TiB of data), then blocks, from the leaves (8 GiB per TiB). The walk goes on in steps, some with
//! each question, the others on the pool's thread; questions are answered from what is known so far. From then on staged
//! writes say which leaves they touched, so that transfers that run side by side learn from each other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use farside_format::catalog::{VersionKind, Volume};

use crate::error::{Result, StoreError};
use crate::handle::Walked;
use crate::known_data::{KnownDataScope, KnownDataStatus, LEAVES_READ_PER_STEP, Pass, Seen, Walk};
use crate::pool::{Pool, State};
use crate::volumes::published_by;

/// Leaves looked at per question at most, of those that were staged and of those to walk: 512 MiB each.
const LEAVES_PER_QUESTION: usize = 1024;
/// After this time a question learns no more, though it may: on a slow device each leaf is a seek. The pool's thread goes on.
const TIME_PER_QUESTION: Duration = Duration::from_millis(50);

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
    /// The index of one peer's data, begun if there is none.
    pub(crate) fn scope(&self, peer: &[u8; 32]) -> Arc<KnownDataScope> {
        self.known.scope(peer, self.options.clock.monotonic(), || walks(&self.locked(), peer))
    }

    /// Whether the pool holds anything that came from that peer and may be taken for its further volumes.
    pub fn holds_of(&self, peer: &[u8; 32]) -> bool {
        let state = self.locked();
        state.versions.volumes.values().any(|volume| !versions_from(&state, volume, peer).is_empty())
    }

    /// How much is known of what the pool holds. Nothing before a transfer asks.
    pub fn known_data(&self) -> KnownDataStatus {
        self.known.status()
    }

    /// Opens the versions of a volume that hold this scope's data, the likeliest first; none if it is no such volume (any
    /// more).
    pub(crate) fn versions_of(self: &Arc<Self>, scope: &KnownDataScope, volume: u64) -> Vec<Arc<Walked>> {
        let mut state = self.locked();
        let Some(found) = state.versions.volumes.get(&volume) else { return Vec::new() };
        let versions = versions_from(&state, found, scope.peer());
        let open = |version| Walked::begin(self, &mut state, version).ok().map(Arc::new);
        versions.into_iter().filter_map(open).collect()
    }

    /// Says once per volume that something of it cannot be read.
    pub(crate) fn warn_unreadable(&self, scope: &KnownDataScope, volume: u64, error: &StoreError) {
        if scope.is_first_complaint(volume) {
            let name = self.locked().versions.volumes.get(&volume).map_or(String::new(), |v| v.name.clone());
            tracing::warn!(
                pool = %self.id, volume = name,
                "part of this replica cannot be read, so a transfer brings it again from the source: {error}. No \
                 transfer fails because of it; farside pool check lists the damage"
            );
        }
    }

    /// Learns some of what is not known yet, after whoever is at it; true if there is more. Whoever waited past its own time
    /// learns nothing, so nobody waits for more than that and one step.
    pub(crate) fn learn(self: &Arc<Self>) -> bool {
        let until = self.options.clock.monotonic() + TIME_PER_QUESTION;
        let _learning = self.known.begin_to_learn();
        let of_staged = self.learn_staged(until);
        let scopes = self.known.scopes();
        scopes.iter().fold(of_staged, |more, scope| self.learn_by_walking(scope, until) || more)
    }

    /// The same for the pool's thread, which also drops what nobody asks for any more.
    pub(crate) fn learn_in_background(self: &Arc<Self>) -> bool {
        if !self.known.is_asked() {
            return false;
        }
        self.known.forget_idle(self.options.clock.monotonic());
        self.learn()
    }

    /// Looks at leaves that staged writes have touched.
    fn learn_staged(self: &Arc<Self>, until: Duration) -> bool {
        let mut left = LEAVES_PER_QUESTION as u64;
        while left > 0 && self.options.clock.monotonic() < until {
            let Some((version, (first, last))) = self.known.take_staged() else { return false };
            let Some((scope, volume, walked)) = self.scope_of(version) else { continue };
            let leaves = (last - first + 1).min(left).min(LEAVES_READ_PER_STEP as u64);
            left -= leaves;
            match self.look(&walked, first, leaves as usize, Pass::Both) {
                Ok((mut seen, next)) => {
                    seen.retain(|seen| seen.leaf <= last);
                    scope.enter(volume, seen);
                    if let Some(next) = next.filter(|next| *next <= last) {
                        self.known.put_staged_back(version, (next, last));
                    }
                }
                Err(error) => self.warn_unreadable(&scope, volume, &error),
            }
        }
        true
    }

    /// The scope to which a staged version belongs, if it has an index.
    fn scope_of(self: &Arc<Self>, version: u64) -> Option<(Arc<KnownDataScope>, u64, Walked)> {
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
        let scope = self.known.scope_of(&peer)?;
        Some((scope, volume, walked))
    }

    /// Goes on with the walks of a new index.
    fn learn_by_walking(self: &Arc<Self>, scope: &Arc<KnownDataScope>, until: Duration) -> bool {
        let mut left = LEAVES_PER_QUESTION;
        while left > 0 && self.options.clock.monotonic() < until {
            let Some(walk) = scope.begin_step() else { return false };
            left -= walk.leaves_per_step();
            scope.end_step(self.walk_on(scope, walk));
        }
        true
    }

    /// One step of a walk; what is left of it.
    fn walk_on(self: &Arc<Self>, scope: &KnownDataScope, walk: Walk) -> Option<Walk> {
        let versions = self.versions_of(scope, walk.volume);
        let published = {
            let state = self.locked();
            published_by(state.versions.volumes.get(&walk.volume)?, scope.peer())
        };
        let wanted = walk.staged.unwrap_or(published);
        let walked = versions.iter().find(|v| v.version == wanted)?;
        match self.look(walked, walk.next, walk.leaves_per_step(), walk.pass) {
            Ok((seen, next)) => {
                scope.enter(walk.volume, seen);
                next.map(|next| Walk { next, ..walk })
            }
            Err(error) => {
                self.warn_unreadable(scope, walk.volume, &error);
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
