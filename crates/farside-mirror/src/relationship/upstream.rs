//! What the source has said of where it stands: what it follows, and whether hosts went on elsewhere.

use farside_peer::PeerId;
use farside_transfer::destination::Outcome;
use farside_transfer::protocol::convert::{Place, Upstream};
use farside_transfer::report::TransferResult;
use uuid::Uuid;

use super::driver::Driver;
use crate::state::Work;
use crate::store::{Relationship, place};

impl Driver {
    /// Keeps what the source said with the transfer's beginning, and tells the log if hosts went on without it.
    pub(super) async fn note_upstream(&mut self, outcome: &Outcome) {
        let Some(upstream) = outcome.upstream.clone() else { return };
        if self.keep_upstream(upstream).await && outcome.report.result == TransferResult::Ok {
            // Who else follows what this follows by now has not gone on without it.
            self.drop_other_direction().await;
        }
    }

    /// What the source said when it was asked outside of a transfer.
    pub(super) async fn source_stands(&mut self, of: Uuid, upstream: Upstream) {
        if of == self.relationship.id && self.state.work != Work::BrokenOff {
            self.keep_upstream(upstream).await;
        }
    }

    /// Answers whether it is news.
    async fn keep_upstream(&mut self, upstream: Upstream) -> bool {
        if upstream == self.relationship.upstream {
            return false;
        }
        let before = self.upstream_why().is_some();
        self.relationship.upstream = upstream;
        match self.upstream_why() {
            Some(why) => tracing::warn!(volume = %self.relationship.destination, "{why}"),
            None if before => {
                tracing::info!(
                    volume = %self.relationship.destination,
                    "the source is no longer overtaken, and what it follows ends at an original"
                );
            }
            None => {}
        }
        if let Err(error) = self.parts.store.save(&self.relationship).await {
            tracing::warn!(relationship = %self.relationship.id, "the state database could not record where the \
                 source stands; the next transfer tells it again: {error}");
        }
        self.on_overtaken_change();
        true
    }

    /// That there is no original, or that what is brought is of an old one.
    pub(super) fn upstream_why(&self) -> Option<String> {
        let Relationship { upstream, destination, .. } = &self.relationship;
        if let Some(ring) = self.ring() {
            return Some(format!(
                "{destination} follows itself, by way of {}, as its source last said: there is no original, and no host can \
                 write to any of them. Look whether one has been broken off since: farside mirror update {destination}. If \
                 not, decide whose data count; at that site: farside mirror break POOL/VOL. What was written elsewhere stays \
                 as snapshots",
                ring.join(", which follows ")
            ));
        }
        let overtaken = upstream.overtaken.as_ref().filter(|_| self.state.work != Work::BrokenOff)?;
        let what = overtaken.what.clone().unwrap_or_else(|| self.source_name());
        Some(format!(
            "{what} was overtaken by {} at {:.0}: hosts went on there, and what comes here is the old original's",
            overtaken.by, overtaken.at
        ))
    }

    /// The volumes through which this one follows itself, the nearest first: `PEER:POOL/VOL`, as far as the peer is known here.
    /// Several resyncs that were asked for at the same time can close such a ring, or ones of which one could not ask the other.
    fn ring(&self) -> Option<Vec<String>> {
        if self.state.work == Work::BrokenOff {
            return None;
        }
        let (chain, links) = (self.chain(), &self.parts.links);
        let itself = place(links.own_id()?, &self.relationship.destination);
        // A source that is prepared for a role change follows this volume for a moment; and of two that cross, one gives way.
        let end = chain.iter().position(|place| *place == itself).filter(|between| *between > 1)?;
        let name = |place: &Place| match links.name_of(PeerId(place.site)) {
            Some(peer) => format!("{peer}:{}", place.volume),
            None => place.volume.to_string(),
        };
        Some(chain[..end].iter().map(name).collect())
    }
}
