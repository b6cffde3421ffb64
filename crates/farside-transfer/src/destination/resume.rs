//! Going on with what a transfer that was cut has staged.
//!
//! A staged version stays in the pool until it is published or thrown away, and with it what it was being built for: the
//! relationship and the source's snapshot. Nothing else is remembered. What of it can be used is found out anew each time,
//! by walking it against the base (`held.rs`), so there is no cursor that could be wrong.
//!
//! What is staged is of the snapshot it names, or it says that it is of several ([`OF_SEVERAL`], durable before the first
//! block of another snapshot is written): only of the former are bare positions believed. Either way the content root
//! decides in the end.

use std::sync::Arc;

use farside_engine::{Engine, EngineError, StagedFor, StagedVersion, VolumeName};
use uuid::Uuid;

use crate::error::TransferError;
use crate::protocol::convert::{CandidateBase, OF_SEVERAL, TravellingSnapshot};
use crate::protocol::held::Held;

/// A staged version that an earlier transfer, or an earlier attempt of this one, has left.
pub(crate) struct Kept {
    pub(crate) staged: Arc<dyn StagedVersion>,
    /// The snapshot it was to become, or [`OF_SEVERAL`].
    pub(crate) incremental: Uuid,
    /// What it branches at.
    pub(crate) base: Option<Uuid>,
}

/// A staged version to be filled.
pub(crate) struct Opened {
    pub(crate) staged: Arc<dyn StagedVersion>,
    /// What to tell the source of what it holds.
    pub(crate) held: Held,
}

/// The newest staged version of the relationship. Whatever else is staged is thrown away: what is of another relationship,
/// what became a snapshot by another transfer since, and what holds nothing.
pub(crate) fn find(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
) -> Result<Option<Kept>, TransferError> {
    let snapshots = engine.all_snapshots(volume)?;
    let mut kept: Option<Kept> = None;
    for (info, staged) in engine.staged(volume)?.into_iter().rev() {
        let StagedFor { relationship: of, incremental } = info.staged_for;
        let is_useful = kept.is_none()
            && of == relationship
            && !snapshots.iter().any(|s| s.uuid == incremental)
            && holds_something(&*staged, info.base);
        if is_useful {
            kept = Some(Kept { staged, incremental, base: info.base });
        } else {
            staged.abandon()?;
            tracing::info!(%volume, %incremental, "discarded what an unfinished transfer had staged");
        }
    }
    Ok(kept)
}

/// A staged version that cannot be compared is worth nothing either.
fn holds_something(staged: &dyn StagedVersion, base: Option<Uuid>) -> bool {
    match staged.changed_from(base).map(|mut extents| extents.next().transpose()) {
        Ok(Ok(first)) => first.is_some(),
        Ok(Err(error)) | Err(error) => {
            tracing::warn!(
                "cannot use staged content of an earlier transfer; it is transferred again: {error}"
            );
            false
        }
    }
}

impl Kept {
    /// Whether a step can go on with it: it must become a child of the step's base, of a snapshot that it could be staged upon
    /// in its stead (`upon`), or of the version that readers see, so that the line of versions stays one. Without a base only what
    /// began as nothing fits, or as what is compared.
    pub(crate) fn fits(
        &self,
        base: Option<CandidateBase>,
        published: Option<CandidateBase>,
        upon: Option<CandidateBase>,
    ) -> bool {
        let is = |version: Option<CandidateBase>| version.map(|v| v.uuid) == self.base;
        is(base) || (self.base.is_some() && (is(upon) || (base.is_some() && is(published))))
    }

    /// Makes it ready to become `step`, upon `base` or what has its content. Bare positions say nothing if it branches elsewhere: then it differs
    /// from the base by what it began as, too, and not only by what arrived of the step.
    pub(crate) fn open(self, step: &TravellingSnapshot, base: Option<Uuid>) -> Result<Opened, EngineError> {
        let info = self.staged.info()?;
        let is_same = info.staged_for.incremental == step.uuid && info.size_bytes == step.size_bytes;
        if !is_same && info.staged_for.incremental != OF_SEVERAL {
            self.staged.retarget(OF_SEVERAL)?;
        }
        if info.size_bytes != step.size_bytes {
            self.staged.resize(step.size_bytes)?;
        }
        let held = if is_same && self.base == base { Held::Positions } else { Held::Fingerprints };
        Ok(Opened { staged: self.staged, held })
    }
}

/// What becomes of a staged version whose transfer failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// The next transfer goes on with it, and with the same snapshot of the source.
    Kept,
    /// The next transfer goes on with it, but with another snapshot of the source: that one cannot be read, or has no
    /// room here.
    KeptForAnother,
    /// It is thrown away.
    ThrownAway,
}

/// Kept is what failed for reasons that lie outside of it. What did not add up, what cannot be read here, and what came
/// from a peer that broke the protocol, is not touched again: else the same failure would come back for ever.
pub(crate) fn fate(error: &TransferError) -> Fate {
    match error {
        TransferError::Session(_) | TransferError::Aborted | TransferError::GroupGivenUp(_) => Fate::Kept,
        TransferError::Engine(EngineError::Io(_)) => Fate::Kept,
        // The newest version may be smaller than this one, and would never be reached through it.
        TransferError::Engine(
            EngineError::NoSpace { .. } | EngineError::NoSpaceBelow { .. } | EngineError::OverQuota(_),
        )
        | TransferError::NoRoom { .. } => Fate::KeptForAnother,
        TransferError::SourceFailed { code, .. } => match code.as_str() {
            "corrupt" | "failed" | "not-found" => Fate::KeptForAnother,
            _ => Fate::Kept,
        },
        _ => Fate::ThrownAway,
    }
}

#[cfg(test)]
mod tests {
    use farside_peer::SessionError;

    use super::*;

    #[test]
    fn only_what_may_yet_be_right_is_kept() {
        let failed = |code: &str| TransferError::SourceFailed { code: code.into(), message: String::new() };
        let full = EngineError::NoSpace { pool: "p".into(), needed_bytes: 1, available_bytes: 0 };
        for (error, expected) in [
            (TransferError::Session(SessionError::Lost("x".into())), Fate::Kept),
            (TransferError::Aborted, Fate::Kept),
            (TransferError::GroupGivenUp("another one".into()), Fate::Kept),
            (TransferError::Engine(full), Fate::KeptForAnother),
            (failed("forbidden"), Fate::Kept),
            (failed("state"), Fate::Kept),
            (failed("corrupt"), Fate::KeptForAnother),
            (TransferError::Engine(EngineError::Corrupt("node".into())), Fate::ThrownAway),
            (TransferError::Protocol("x".into()), Fate::ThrownAway),
            (TransferError::State("not a replica".into()), Fate::ThrownAway),
        ] {
            assert_eq!(fate(&error), expected, "{error}");
        }
    }
}
