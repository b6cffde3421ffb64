//! What cut transfers have left in a pool: who has it, what it takes, and how it goes.

use std::sync::Arc;

use farside_format::catalog::{Change, DeleteVersion, VersionKind};

use crate::error::{Result, StoreError};
use crate::handle::Difference;
use crate::pool::{Pool, State};
use crate::staged::StagedFor;
use crate::versions::VersionState;

/// A staged version as an administrator sees it.
pub struct StagedContent {
    /// The volume that it shall become a version of.
    pub volume: String,
    /// What it is being built for.
    pub staged_for: StagedFor,
    /// Whether somebody builds it now: a transfer.
    pub is_building: bool,
    /// In what it differs from the snapshot that it began as: the data in it is about what it takes. Metadata is read as
    /// the walk goes on.
    pub difference: Difference,
}

/// Live staged versions with the names of their volumes, oldest first.
fn all(state: &State) -> impl Iterator<Item = (&VersionState, &str)> {
    let staged = state.versions.versions.values().filter(|v| v.kind == VersionKind::Staged && !v.deleted);
    staged.filter_map(|v| state.versions.volumes.get(&v.volume).map(|volume| (v, volume.name.as_str())))
}

fn is_building(version: &VersionState) -> bool {
    version.builder.strong_count() > 0
}

impl Pool {
    /// What is staged in the pool, oldest first.
    pub fn staged_content(self: &Arc<Self>) -> Result<Vec<StagedContent>> {
        let mut state = self.locked();
        let found: Vec<_> = all(&state)
            .map(|(version, volume)| {
                let base = state.versions.live_ancestor(version).map(|base| base.id);
                (version.id, base, volume.to_owned(), StagedFor::of(version), is_building(version))
            })
            .collect();
        // Those that were begun end after the lock is free: their end takes it.
        let mut content = Vec::with_capacity(found.len());
        let mut failed = None;
        for (version, base, volume, staged_for, is_building) in found {
            match Difference::begin(self, &mut state, base, version) {
                Ok(difference) => content.push(StagedContent { volume, staged_for, is_building, difference }),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        drop(state);
        failed.map_or(Ok(content), Err)
    }

    /// Throws away what is staged of one volume or of all, durably. The next transfer begins anew; nothing else changes.
    /// Answers how many versions went: not all of them if a transfer begins meanwhile.
    ///
    /// # Errors
    /// Refused, with nothing thrown away, while a transfer builds one of them.
    pub fn drop_staged(&self, volume: Option<&str>) -> Result<usize> {
        if let Some(volume) = volume {
            self.volume(volume)?;
        }
        self.make_way_to_free();
        let mut dropped = 0;
        loop {
            // One record each; whether any is being built is asked again each time.
            let more = self.change_if(|state| {
                let of_volume = |name: &str| volume.is_none_or(|volume| volume == name);
                let wanted: Vec<_> = all(state).filter(|(_, name)| of_volume(name)).collect();
                if let Some((_, name)) = wanted.iter().find(|(version, _)| is_building(version)) {
                    return Err(StoreError::Refused(format!(
                        "a transfer to {} runs now; nothing was discarded",
                        state.full_name(name)
                    )));
                }
                Ok(wanted.first().map(|(version, _)| DeleteVersion { version: version.id }))
            });
            match more {
                Ok(true) => dropped += 1,
                Ok(false) => break,
                // What went before is gone.
                Err(StoreError::Refused(_)) if dropped > 0 => break,
                Err(error) => return Err(error),
            }
        }
        self.wake.signal();
        Ok(dropped)
    }

    /// Makes the change that `decide` wants, if it wants one.
    fn change_if(&self, decide: impl Fn(&State) -> Result<Option<DeleteVersion>>) -> Result<bool> {
        if decide(&self.locked())?.is_none() {
            return Ok(false);
        }
        self.change(|state| match decide(state)? {
            Some(change) => Ok((Change::DeleteVersion(change), true)),
            // Somebody else was quicker.
            None => {
                Err(StoreError::Refused("staged content is changing right now; nothing was discarded".into()))
            }
        })
    }
}
