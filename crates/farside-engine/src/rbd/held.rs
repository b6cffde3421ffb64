//! What this process has of an image's head: the handle with the lock, and what is being written.

use std::sync::Arc;

use farside_format::ContentRoot;
use uuid::Uuid;

use super::ceph::{Failed, Image, Writes};
use super::leaves::Leaves;

/// What this process has of a head. Default: nothing.
#[derive(Default)]
pub(super) struct Head {
    /// Before `held`: writes end before the image is closed.
    writes: Option<Writes>,
    /// Open with the exclusive lock.
    held: Option<Arc<Image>>,
    /// The staged version that the head holds, as far as this process knows without looking.
    pub(super) staged: Option<Uuid>,
    /// Of that, as it is now.
    pub(super) root: Option<(ContentRoot, Arc<Leaves>)>,
    /// Somebody computes the root; what changes the head meanwhile takes this away.
    pub(super) root_is_being_made: bool,
}

impl Head {
    pub(super) fn held(&self) -> Option<Arc<Image>> {
        self.held.clone()
    }

    pub(super) fn keep_held(&mut self, image: Arc<Image>) {
        self.held = Some(image);
    }

    /// What is being written to the head, if it is held.
    pub(super) fn writes(&mut self) -> Option<&mut Writes> {
        self.forget_root();
        let held = self.held.clone()?;
        Some(self.writes.get_or_insert_with(|| Writes::new(held)))
    }

    /// Everything that was written is on the medium when this returns.
    pub(super) fn finish(&mut self) -> Result<(), Failed> {
        self.writes.as_mut().map_or(Ok(()), Writes::finish)
    }

    /// The lock was lost. Answers whether something may have been being written.
    pub(super) fn lose(&mut self) -> bool {
        let was_writing = self.writes.is_some();
        self.drop_writes();
        self.held = None;
        was_writing
    }

    /// What was written does not count any more, nor whether it failed.
    pub(super) fn drop_writes(&mut self) {
        (self.writes, self.staged) = (None, None);
        self.forget_root();
    }

    pub(super) fn forget_root(&mut self) {
        (self.root, self.root_is_being_made) = (None, false);
    }

    /// Lets go of the image: hosts may write.
    pub(super) fn release(&mut self) {
        self.drop_writes();
        if let Some(held) = self.held.take() {
            // Whoever still reads it keeps it open, not locked. What fails here has a lock that nobody owns: it is taken by whoever wants it.
            _ = held.unlock();
        }
    }
}
