//! What the source has said of where it stands: what it follows, and whether hosts went on elsewhere.

use farside_transfer::destination::Outcome;
use farside_transfer::report::TransferResult;

use super::driver::Driver;
use crate::state::Work;
use crate::store::Relationship;

impl Driver {
    /// Keeps what the source said with the transfer's beginning, and tells the log if hosts went on without it.
    pub(super) async fn note_upstream(&mut self, outcome: &Outcome) {
        let Some(upstream) = outcome.upstream.clone().filter(|said| *said != self.relationship.upstream)
        else {
            return;
        };
        let before = self.relationship.upstream.overtaken.is_some();
        self.relationship.upstream = upstream;
        match self.upstream_why() {
            Some(why) => tracing::warn!(volume = %self.relationship.destination, "{why}"),
            None if before => {
                tracing::info!(volume = %self.relationship.destination, "the source is no longer overtaken");
            }
            None => {}
        }
        if let Err(error) = self.parts.store.save(&self.relationship).await {
            tracing::warn!(relationship = %self.relationship.id, "the state database could not record where the \
                 source stands; the next transfer tells it again: {error}");
        }
        if outcome.report.result == TransferResult::Ok {
            // Who else follows what this follows by now has not gone on without it.
            self.drop_other_direction().await;
        }
        self.on_overtaken_change();
    }

    /// That what is brought is of an old original.
    pub(super) fn upstream_why(&self) -> Option<String> {
        let Relationship { upstream, .. } = &self.relationship;
        let overtaken = upstream.overtaken.as_ref().filter(|_| self.state.work != Work::BrokenOff)?;
        let what = overtaken.what.clone().unwrap_or_else(|| self.source_name());
        Some(format!(
            "{what} was overtaken by {} at {:.0}: hosts went on there, and what comes here is the old original's",
            overtaken.by, overtaken.at
        ))
    }
}
