//! What this process has of an image's head: the handle with the lock, and what is being written.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_format::ContentRoot;
use uuid::Uuid;

use super::ceph::{Failed, Image, Writes};
use super::leaves::Leaves;

/// How long a lock that was held is taken to be: to ask takes a round trip to the cluster, and each write would wait for it. What fences a
/// client that lost it is the blocklist, at once.
const CHECKED_FOR: Duration = Duration::from_secs(1);

/// What this process has of a head. Default: nothing.
#[derive(Default)]
pub(super) struct Head {
    /// Before `held`: writes end before the image is closed.
    writes: Option<Writes>,
    /// Open with the exclusive lock.
    held: Option<Arc<Image>>,
    /// When the cluster was last asked whether the lock is still held.
    checked: Option<Instant>,
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
        (self.held, self.checked) = (Some(image), Some(Instant::now()));
    }

    /// Whether the lock is still held.
    pub(super) fn still_owns(&mut self, held: &Image) -> Result<bool, Failed> {
        if self.checked.is_some_and(|checked| checked.elapsed() < CHECKED_FOR) {
            return Ok(true);
        }
        let owns = held.owns_lock()?;
        self.checked = owns.then(Instant::now);
        Ok(owns)
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

    /// Whoever goes on with what is staged begins from what is there: a write that failed is not told again.
    pub(super) fn forget_failed_writes(&mut self) {
        if self.writes.as_mut().is_some_and(|writes| writes.finish().is_err()) {
            self.drop_writes();
        }
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
