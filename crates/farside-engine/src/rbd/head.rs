//! The head of an image: whose it is, and what it holds.
//!
//! ```text
//!                  hide                               stage, unpark
//!  hosts' ───────────────────► hidden: hosts are shown ────────────► holds what is staged
//!     ▲                        a snapshot (`shown`)  ◄────────────         │ commit: `shown` goes,
//!     │                               │ restore          park,           │ the head is what hosts see
//!     └───────────────────────────────┴──────────────────abandon ◄─────────┘
//! ```
//!
//! Each arrow is one change of the document; what moves bytes comes before it, so a crash leaves the state before.

use std::sync::Arc;

use uuid::Uuid;

use super::ceph::Image;
use super::comparison::differs;
use super::document::{Document, Entry, Holder, Kept};
use super::errors::is_busy;
use super::held::Head;
use super::version::Version;
use super::volume::Volume;
use crate::EngineError;

const EXCLUSIVE_LOCK: u64 = 1 << 2;
const JOURNALING: u64 = 1 << 6;
/// `EROFS`: another client has the lock and keeps it.
const EROFS: i32 = 30;

impl Head {
    /// Everything that was written is on the medium when this returns.
    pub(super) fn finish_writes(&mut self, volume: &Volume) -> Result<(), EngineError> {
        self.finish().map_err(|failed| volume.failed("what is staged", failed))
    }

    /// Has the image for itself: whoever else writes is refused.
    pub(super) fn hold(&mut self, volume: &Volume) -> Result<Arc<Image>, EngineError> {
        if let Some(held) = self.held() {
            if self.still_owns(&held).map_err(|failed| volume.failed("the lock", failed))? {
                return Ok(held);
            }
            // Somebody broke it, or the cluster was away for long.
            if self.lose() {
                return Err(EngineError::Io(format!(
                    "the lock of volume {} was lost while data was being staged. What was staged since the last checkpoint may be \
                     missing; what is published is safe. The transfer goes on from there",
                    volume.name
                )));
            }
        }
        let image = volume.opened()?;
        let features = image.features().map_err(|failed| volume.failed("the features", failed))?;
        let refused = |what: &str, how: &str| {
            let (name, image) = (&volume.name, volume.image_name());
            EngineError::Refused(format!(
                "volume {name} cannot be a replica: {what}. Nothing was changed. To have it otherwise: rbd feature {how} {image}"
            ))
        };
        if features & EXCLUSIVE_LOCK == 0 {
            return Err(refused(
                "its image has no exclusive lock, so hosts could write beside the mirror",
                "enable IMAGE exclusive-lock, where IMAGE is",
            ));
        }
        if features & JOURNALING != 0 {
            return Err(refused(
                "its image is journaled, for another mirror",
                "disable IMAGE journaling, where IMAGE is",
            ));
        }
        let own = own_address(volume, &image)?;
        volume.change("announce who holds it", |document| {
            document.holder = Some(Holder { address: own.clone(), site: volume.inner.site.clone() });
            Ok(())
        })?;
        volume.inner.steps.take("take the lock")?;
        image.lock().map_err(|failed| match failed.errno {
            EROFS => in_use(volume, "another client"),
            _ if is_busy(failed) => in_use(volume, "another client"),
            _ => volume.failed("the lock", failed),
        })?;
        let image = Arc::new(image);
        self.keep_held(Arc::clone(&image));
        Ok(image)
    }

    /// Has hosts be shown a snapshot, so that the head may hold something else. It is the newest one that lasts, if the head is just
    /// that; `base` lasts.
    pub(super) fn hide(&mut self, volume: &Volume, base: Option<Uuid>) -> Result<Kept, EngineError> {
        let document = volume.load()?;
        if let Some(shown) = document.shown {
            return Ok(shown);
        }
        let newest =
            document.snapshots.last().filter(|entry| lasts(&document, entry, base)).map(|entry| entry.at);
        let shown = match newest {
            Some(newest)
                if !differs(volume, Some(&Version::of(volume, &newest)?), &Version::head(volume)?)? =>
            {
                newest
            }
            _ => self.keep_head(volume)?,
        };
        volume.change("show a snapshot", |document| {
            document.shown = Some(shown);
            document.garbage.retain(|garbage| *garbage != shown.uuid);
            Ok(shown)
        })
    }

    fn keep_head(&mut self, volume: &Volume) -> Result<Kept, EngineError> {
        volume.keep_head(self)
    }

    /// The head becomes what `kept` holds.
    pub(super) fn roll_back(&mut self, volume: &Volume, kept: &Kept) -> Result<(), EngineError> {
        let image = self.hold(volume)?;
        self.drop_writes();
        volume.inner.steps.take("roll the head back")?;
        image.roll_back(&kept.name()).map_err(|failed| volume.failed("the head", failed))
    }

    pub(super) fn resize(&mut self, volume: &Volume, size_bytes: u64) -> Result<(), EngineError> {
        let image = self.hold(volume)?;
        self.finish_writes(volume)?;
        let now = image.size_bytes().map_err(|failed| volume.failed("the size", failed))?;
        if now == size_bytes {
            return Ok(());
        }
        self.forget_root();
        volume.inner.steps.take("resize the image")?;
        image.resize(size_bytes).map_err(|failed| volume.failed("the size", failed))
    }

    /// Hosts see the head again: it becomes what they were shown. What is staged was dropped or parked before.
    pub(super) fn restore(&mut self, volume: &Volume) -> Result<(), EngineError> {
        let document = volume.load()?;
        if let Some(shown) = document.shown {
            self.roll_back(volume, &shown)?;
            volume.change("show the head", |document| {
                document.show_head();
                Ok(())
            })?;
        }
        if !document.is_replica() {
            self.release();
        }
        Ok(())
    }

    /// What is staged in the head becomes a snapshot aside, and can become the head again.
    pub(super) fn park(&mut self, volume: &Volume) -> Result<(), EngineError> {
        let document = volume.load()?;
        let Some(staging) = document.staged.filter(|staging| staging.parked.is_none()) else { return Ok(()) };
        self.hold(volume)?;
        let kept = self.keep_head(volume)?;
        volume.change("park what is staged", |document| {
            if let Some(staging) = document.staged.as_mut().filter(|now| now.uuid == staging.uuid) {
                staging.parked = Some(kept);
                document.garbage.retain(|garbage| *garbage != kept.uuid);
            }
            Ok(())
        })?;
        self.drop_writes();
        Ok(())
    }

    /// The head is held, and holds this staged version.
    pub(super) fn ready(&mut self, volume: &Volume, staged: Uuid) -> Result<Arc<Image>, EngineError> {
        if self.staged == Some(staged) {
            let image = self.hold(volume)?;
            if self.staged == Some(staged) {
                return Ok(image);
            }
        }
        let document = volume.load()?;
        let staging = document.staging(staged)?.clone();
        let image = self.hold(volume)?;
        if let Some(parked) = staging.parked {
            self.hide(volume, staging.base)?;
            self.roll_back(volume, &parked)?;
            volume.change("unpark what is staged", |document| {
                document.staging(staged)?;
                if let Some(staging) = &mut document.staged {
                    staging.parked = None;
                }
                document.let_go(parked.uuid);
                Ok(())
            })?;
        }
        self.staged = Some(staged);
        Ok(image)
    }
}

/// Whether what a snapshot holds is there for as long as somebody wants it: a mirror's own goes when the mirror needs it no more. What a
/// mirror published is no host's to lose.
pub(super) fn lasts(document: &Document, entry: &Entry, base: Option<Uuid>) -> bool {
    entry.relationship.is_none() || document.published == Some(entry.uuid) || base == Some(entry.uuid)
}

/// The address by which the cluster knows this client, which has the image open. Refused if a host has written: it owns the lock, would
/// give it up when asked, and its next write would fail.
fn own_address(volume: &Volume, image: &Image) -> Result<String, EngineError> {
    let own = volume.pool.ceph.connection.number();
    let clients = image.watchers().map_err(|failed| volume.failed("its clients", failed))?;
    let owner = image.lock_owner().map_err(|failed| volume.failed("the lock", failed))?;
    if let Some(owner) = owner {
        let is_host = |(number, address): &&(u64, String)| *number != own && *address == owner;
        if let Some((number, address)) = clients.iter().find(is_host) {
            return Err(in_use(volume, &format!("client.{number} ({address})")));
        }
    }
    let found = clients.into_iter().find(|(number, _)| *number == own).map(|(_, address)| address);
    found.ok_or_else(|| {
        EngineError::Io(format!("the cluster does not see that volume {} is open here", volume.name))
    })
}

fn in_use(volume: &Volume, client: &str) -> EngineError {
    EngineError::Refused(format!(
        "{client} has volume {} open for writing. Nothing was changed. End what uses it there; who it is: rbd status {}",
        volume.name,
        volume.image_name()
    ))
}
