//! One volume: its image, found by name, and its document, read and changed.

use std::sync::Arc;

use farside_format::Fingerprint;
use uuid::Uuid;

use super::ceph::{CANCELED, Failed, Image};
use super::document::{Document, KEY, Kept, name_of};
use super::errors::{explained, is_absent, is_busy};
use super::held::Head;
use super::leaves;
use super::pool::{OpenPool, RbdPool};
use super::state::{Inner, RbdEngine, SharedHead};
use crate::{BLOCK_BYTES, EngineError, VolumeName};

/// How often a change is tried while others change the same document.
const TRIES: usize = 16;
/// `CEPH_NOSNAP`: the head.
const HEAD: u64 = u64::MAX - 1;

/// A volume that is there.
#[derive(Clone)]
pub(super) struct Volume {
    pub(super) inner: Arc<Inner>,
    pub(super) pool: Arc<OpenPool>,
    pub(super) name: VolumeName,
    /// The image's id.
    pub(super) id: String,
}

impl RbdEngine {
    /// The image of this name, whatever is left of it.
    pub(super) fn find(&self, name: &VolumeName) -> Result<Option<Volume>, EngineError> {
        let pool = self.pool(&name.pool)?;
        let found = match pool.ceph.read_object(&format!("rbd_id.{}", name.volume)) {
            Err(failed) if is_absent(failed) => return Ok(None),
            found => found.map_err(|failed| explained(&pool, &format!("volume {name}"), failed, 0))?,
        };
        let id = decoded(&found).and_then(|id| String::from_utf8(id.to_vec()).ok());
        let id =
            id.ok_or_else(|| EngineError::Corrupt(format!("image {name} has no id that can be read")))?;
        Ok(Some(self.volume_of(pool, name, id)))
    }

    pub(super) fn volume_of(&self, pool: Arc<OpenPool>, name: &VolumeName, id: String) -> Volume {
        Volume { inner: Arc::clone(&self.inner), pool, name: name.clone(), id }
    }

    /// The volume of this name, and its document.
    pub(super) fn locate(&self, name: &VolumeName) -> Result<(Volume, Document), EngineError> {
        let absent = || EngineError::NotFound { what: format!("volume {name}") };
        let volume = self.find(name)?.ok_or_else(absent)?;
        let document = volume.load()?;
        Ok((volume, document))
    }

    /// Has something done while nobody else of this process changes the volume.
    pub(super) fn on<T>(
        &self,
        name: &VolumeName,
        work: impl FnOnce(&Volume, &mut Head) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let (volume, _) = self.locate(name)?;
        volume.in_turn(|head| work(&volume, head))
    }
}

impl Volume {
    /// Its turn, and what this process has of its head.
    pub(super) fn in_turn<T>(&self, work: impl FnOnce(&mut Head) -> T) -> T {
        let key = (self.pool.name.clone(), self.id.clone());
        let head: SharedHead = Arc::clone(self.inner.heads.lock().entry(key).or_default());
        let mut head = head.lock();
        work(&mut head)
    }

    pub(super) fn failed(&self, what: &str, failed: Failed) -> EngineError {
        explained(&self.pool, &format!("{what} of volume {}", self.name), failed, 0)
    }

    /// Whether somebody of this process reads that snapshot of the cluster.
    pub(super) fn is_read(&self, kept: Uuid) -> bool {
        self.inner.readers.is_read(&self.pool.name, &self.id, kept)
    }

    /// As `rbd` wants it named.
    pub(super) fn image_name(&self) -> String {
        let RbdPool { rbd_pool, namespace, .. } = &self.pool.options;
        let within = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        format!("{rbd_pool}/{within}{}", self.name.volume)
    }

    fn header(&self) -> String {
        format!("rbd_header.{}", self.id)
    }

    /// Its identity, which follows from the image's: nothing has to be written to look at it.
    pub(super) fn uuid(&self) -> Uuid {
        let OpenPool { fsid, options, .. } = &*self.pool;
        let text = format!("{fsid}/{}/{}/{}", options.rbd_pool, options.namespace, self.id);
        let mut block = vec![0; BLOCK_BYTES as usize];
        let length = text.len().min(block.len());
        block[..length].copy_from_slice(&text.as_bytes()[..length]);
        Uuid::from_bytes(Fingerprint::of_block(&block).0)
    }

    /// The document, whatever it says; none if the image is gone.
    pub(super) fn load_any(&self) -> Result<Option<(Document, Vec<u8>)>, EngineError> {
        let bytes = match self.pool.ceph.ask(&self.header(), "metadata_get", &encoded(KEY.as_bytes())) {
            Ok(answer) => {
                let decoded = decoded(&answer).map(<[u8]>::to_vec);
                decoded.ok_or_else(|| {
                    EngineError::Corrupt(format!("the metadata of {} cannot be read", self.name))
                })?
            }
            // No image, or no document: the size tells.
            Err(failed) if is_absent(failed) => match self.ask_size() {
                Err(failed) if is_absent(failed) => return Ok(None),
                size => {
                    size.map_err(|failed| self.failed("the size", failed))?;
                    Vec::new()
                }
            },
            Err(failed) => return Err(self.failed("the metadata", failed)),
        };
        Ok(Some((Document::read(&self.name, &self.id, &bytes)?, bytes)))
    }

    fn load_raw(&self) -> Result<(Document, Vec<u8>), EngineError> {
        match self.load_any()? {
            Some((document, raw)) if !document.deleted => Ok((document, raw)),
            _ => Err(EngineError::NotFound { what: format!("volume {}", self.name) }),
        }
    }

    /// The document of a volume that is not deleted.
    pub(super) fn load(&self) -> Result<Document, EngineError> {
        Ok(self.load_raw()?.0)
    }

    fn ask_size(&self) -> Result<u64, Failed> {
        let answer = self.pool.ceph.ask(&self.header(), "get_size", &HEAD.to_le_bytes())?;
        let size = answer.get(1..9).and_then(|bytes| bytes.try_into().ok());
        size.map(u64::from_le_bytes).ok_or(Failed { call: "get_size", errno: 5 })
    }

    /// Bytes of the head.
    pub(super) fn head_bytes(&self) -> Result<u64, EngineError> {
        self.ask_size().map_err(|failed| self.failed("the size", failed))
    }

    /// Bytes of what hosts see.
    pub(super) fn shown_bytes(&self, document: &Document) -> Result<u64, EngineError> {
        document.shown.map_or_else(|| self.head_bytes(), |shown| Ok(shown.size_bytes))
    }

    /// Changes the document: by one write, from what it was when `change` looked at it. Where others changed it meanwhile `change` is
    /// asked again. Nothing is written where it changes nothing.
    pub(super) fn change<T>(
        &self,
        step: &str,
        mut change: impl FnMut(&mut Document) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        for _ in 0..TRIES {
            let (mut document, before) = self.load_raw()?;
            let was = document.clone();
            let done = change(&mut document)?;
            if document == was {
                return Ok(done);
            }
            document.image.clone_from(&self.id);
            let mut argument = 1_u32.to_le_bytes().to_vec();
            argument.extend(encoded(KEY.as_bytes()));
            argument.extend(encoded(&document.write()?));
            self.inner.steps.take(step)?;
            let held = (&*format!("metadata_{KEY}"), &*before);
            match self.pool.ceph.tell_if(&self.header(), held, "metadata_set", &argument) {
                Err(failed) if failed.errno == CANCELED => {}
                told => return told.map(|()| done).map_err(|failed| self.failed("the metadata", failed)),
            }
        }
        Err(EngineError::Refused(format!(
            "the metadata of volume {} was changed by others {TRIES} times while this was tried. Nothing was changed",
            self.name
        )))
    }

    /// The image, to be written: the handle that has its lock, if this process has it.
    pub(super) fn writable(&self, head: &Head) -> Result<Arc<Image>, EngineError> {
        match head.held() {
            Some(held) => Ok(held),
            None => self.opened().map(Arc::new),
        }
    }

    pub(super) fn opened(&self) -> Result<Image, EngineError> {
        Image::open(&self.pool.ceph, &self.id).map_err(|failed| self.failed("the image", failed))
    }

    /// Takes a snapshot of the head, as the cluster's. It is garbage until a document says what it stands for.
    pub(super) fn keep_head(&self, head: &mut Head) -> Result<Kept, EngineError> {
        head.finish().map_err(|failed| self.failed("what is staged", failed))?;
        let uuid = Uuid::new_v4();
        self.change("announce a snapshot", |document| {
            document.garbage.push(uuid);
            Ok(())
        })?;
        let (image, name) = (self.writable(head)?, name_of(uuid));
        self.inner.steps.take("create a snapshot")?;
        image.create_snapshot(&name).map_err(|failed| self.failed("a snapshot", failed))?;
        let made = image.snapshots().map_err(|failed| self.failed("the snapshots", failed))?;
        let made = made.into_iter().find(|snapshot| snapshot.name == name);
        let made = made
            .ok_or_else(|| EngineError::Io(format!("the snapshot {name} of {} is gone again", self.name)))?;
        Ok(Kept { uuid, id: made.id, size_bytes: made.size_bytes })
    }

    /// Clears away snapshots of the cluster that stand for nothing and that nobody here reads. What cannot go now goes another time.
    pub(super) fn clear_garbage(&self, head: &mut Head) -> Result<(), EngineError> {
        let document = self.load()?;
        let garbage: Vec<Uuid> =
            document.garbage.iter().copied().filter(|kept| !self.is_read(*kept)).collect();
        if garbage.is_empty() {
            return Ok(());
        }
        let image = self.writable(head)?;
        let gone = self.remove_snapshots(&image, &garbage)?;
        self.change("forget garbage", |document| {
            document.garbage.retain(|kept| !gone.contains(kept));
            Ok(())
        })
    }

    /// Answers which of them are gone now.
    pub(super) fn remove_snapshots(&self, image: &Image, all: &[Uuid]) -> Result<Vec<Uuid>, EngineError> {
        let mut gone = Vec::new();
        for kept in all {
            self.inner.steps.take("remove a snapshot")?;
            match image.remove_snapshot(&name_of(*kept)) {
                // Somebody made a clone of it.
                Err(failed) if is_busy(failed) => continue,
                Err(failed) if !is_absent(failed) => return Err(self.failed("a snapshot", failed)),
                _ => {}
            }
            // Of a snapshot that is no more they are of no use; what stays costs its room.
            _ = self.pool.ceph.remove_object(&leaves::object(&self.id, *kept));
            gone.push(*kept);
        }
        Ok(gone)
    }
}

/// As the cluster's classes want bytes: their number before them.
fn encoded(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes().to_vec();
    encoded.extend_from_slice(bytes);
    encoded
}

fn decoded(bytes: &[u8]) -> Option<&[u8]> {
    let length = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    bytes.get(4..4 + length)
}
