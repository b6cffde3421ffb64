//! Pools that are open and take no changes: why, what is safe, and what helps.

use std::sync::Arc;

use farside_api::{ErrorBody, ErrorCode};
use farside_store::Pool;

use super::below::room_wanted;
use super::{Content, Pools, Slot};
use crate::site::Site;

/// A pool takes no changes at present.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TakesNoChanges {
    /// Why, and what helps.
    pub(crate) why: String,
    /// Until it is opened again. Else it goes on by itself.
    pub(crate) is_read_only: bool,
}

impl TakesNoChanges {
    /// As the answer to what would change something. `as_before` says what it leaves alone.
    pub(crate) fn refusal(self, as_before: &str) -> ErrorBody {
        let code = if self.is_read_only { ErrorCode::Refused } else { ErrorCode::NoSpace };
        ErrorBody::new(code, self.why)
            .hint(format!("{as_before}. Once that is mended: the same command again"))
    }
}

impl Pools {
    /// Why an open pool takes no changes at present, if so. It asks the file system below.
    pub(crate) fn takes_no_changes(&self, name: &str) -> Option<TakesNoChanges> {
        let (pool, path) = self.open_with_path(name)?;
        let status = pool.status();
        let lacks = pool.lacks_room_below().map(|lacks| room_wanted(&lacks, &path)).unwrap_or_default();
        if let Some(cause) = status.failed {
            let why = format!(
                "pool {name} is read-only since a write failed ({cause}). What was flushed is safe.{lacks} Then: farside pool reopen {name}"
            );
            return Some(TakesNoChanges { why, is_read_only: true });
        }
        let cause = status.refused_write?;
        let why = format!(
            "the device of pool {name} refuses data ({cause}). What was flushed is safe, and it goes on by itself.{lacks}"
        );
        Some(TakesNoChanges { why, is_read_only: false })
    }

    /// Why hosts cannot write to an open pool now, or hardly, if so: it takes no changes, or little is left below its file. What does
    /// not wait for hosts may have found a reserve there.
    pub(crate) fn refuses_hosts(&self, name: &str) -> Option<String> {
        if let Some(refusing) = self.takes_no_changes(name) {
            return Some(refusing.why);
        }
        let (pool, path) = self.open_with_path(name)?;
        let lacks = pool.lacks_room_below()?;
        Some(format!("the file that pool {name} lies in finds no more room.{}", room_wanted(&lacks, &path)))
    }

    /// Why nothing can be deleted in an open pool now, if so: what hosts wrote waits for room below, and there is no reserve for it.
    pub(crate) fn refuses_deletions(&self, name: &str) -> Option<String> {
        let (pool, path) = self.open_with_path(name)?;
        let lacks = pool.lacks_room_to_delete()?;
        let wanted = room_wanted(&lacks, &path);
        Some(format!(
            "the file that pool {name} lies in finds no more room, and so nothing can be deleted now.{wanted}"
        ))
    }

    /// Refuses to open a pool again that would fail at once, since the file system below is full.
    pub(crate) fn refuse_without_room(&self, name: &str) -> Result<(), ErrorBody> {
        let Some((pool, path)) = self.open_with_path(name) else { return Ok(()) };
        let Some(lacks) = pool.lacks_room_below() else { return Ok(()) };
        Err(ErrorBody::new(
            ErrorCode::NoSpace,
            format!(
                "pool {name} is not opened again: it would fail at its next write.{} It stays as it is: what was flushed is safe and \
                 readable",
                room_wanted(&lacks, &path)
            ),
        )
        .hint(format!("then farside pool reopen {name}")))
    }

    /// Refuses to make a pool larger that could not write that down, since the file system below is full.
    pub(crate) fn refuse_to_grow_without_room(&self, name: &str) -> Result<(), ErrorBody> {
        let Some((pool, path)) = self.open_with_path(name) else { return Ok(()) };
        let Some(lacks) = pool.lacks_room_below() else { return Ok(()) };
        let why = format!(
            "pool {name} is not made larger: its new size could not be written down.{} Nothing was changed",
            room_wanted(&lacks, &path)
        );
        Err(ErrorBody::new(ErrorCode::NoSpace, why)
            .hint("a larger pool has no more room than the file system that it lies on; once there is some: this again"))
    }

    fn open_with_path(&self, name: &str) -> Option<(Arc<Pool>, String)> {
        match self.slots.read().get(name)? {
            Slot { path, content: Content::Open(opened) } => Some((Arc::clone(&opened.pool), path.clone())),
            _ => None,
        }
    }
}

impl Site {
    /// As [`Pools::takes_no_changes`], where a file system that does not answer holds up nobody else.
    pub(crate) async fn takes_no_changes(&self, pool: &str) -> Result<Option<TakesNoChanges>, ErrorBody> {
        let (pools, of) = (Arc::clone(&self.pools), pool.to_owned());
        self.blocking.run(move || Ok::<_, ErrorBody>(pools.takes_no_changes(&of))).await
    }

    /// As [`Pools::refuses_deletions`], likewise.
    pub(crate) async fn refuses_deletions(&self, pool: &str) -> Result<Option<String>, ErrorBody> {
        let (pools, of) = (Arc::clone(&self.pools), pool.to_owned());
        self.blocking.run(move || Ok::<_, ErrorBody>(pools.refuses_deletions(&of))).await
    }

    /// As [`Pools::refuses_hosts`], likewise.
    pub(crate) async fn refuses_hosts(&self, pool: &str) -> Result<Option<String>, ErrorBody> {
        let (pools, of) = (Arc::clone(&self.pools), pool.to_owned());
        self.blocking.run(move || Ok::<_, ErrorBody>(pools.refuses_hosts(&of))).await
    }
}
