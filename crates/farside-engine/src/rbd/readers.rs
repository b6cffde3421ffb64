//! Snapshots that are open to be read.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use uuid::Uuid;

use super::ceph::{Failed, Image, Pool};
use super::document::Kept;

/// Snapshots that stay open though nobody reads them just now: opening one takes some 10 ms, and a transfer reads many times.
const KEPT_OPEN: usize = 8;

/// What is open, by pool, image and snapshot.
#[derive(Default)]
pub(super) struct Readers(Mutex<Open>);

#[derive(Default)]
struct Open {
    images: HashMap<Key, Weak<Image>>,
    recent: VecDeque<(Key, Arc<Image>)>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    pool: String,
    image: String,
    kept: Uuid,
}

impl Readers {
    /// A snapshot of the image `image` of farside's pool `name`.
    pub(super) fn open(
        &self,
        (name, pool): (&str, &Arc<Pool>),
        image: &str,
        kept: &Kept,
    ) -> Result<Arc<Image>, Failed> {
        let key = Key { pool: name.into(), image: image.into(), kept: kept.uuid };
        if let Some(open) = self.0.lock().images.get(&key).and_then(Weak::upgrade) {
            return Ok(open);
        }
        // Two at once are no harm; the lock is not held while the cluster is asked.
        let opened = Arc::new(Image::open_to_read(pool, image, Some(&kept.name()))?);
        let mut evicted = None;
        {
            let mut open = self.0.lock();
            open.images.retain(|_, image| image.strong_count() > 0);
            open.images.insert(key.clone(), Arc::downgrade(&opened));
            open.recent.push_back((key, Arc::clone(&opened)));
            if open.recent.len() > KEPT_OPEN {
                evicted = open.recent.pop_front();
            }
        }
        drop(evicted);
        Ok(opened)
    }

    /// Closes what is open of a pool and not being read.
    pub(super) fn forget(&self, pool: &str) {
        let mut gone = VecDeque::new();
        let mut open = self.0.lock();
        std::mem::swap(&mut gone, &mut open.recent);
        open.recent = gone.iter().filter(|(key, _)| key.pool != pool).cloned().collect();
        // Closing takes time, and others may read meanwhile.
        drop(open);
    }

    /// Whether somebody reads a snapshot just now.
    pub(super) fn is_read(&self, pool: &str, image: &str, kept: Uuid) -> bool {
        let key = Key { pool: pool.into(), image: image.into(), kept };
        let mut open = self.0.lock();
        let recent = std::mem::take(&mut open.recent);
        let (gone, left): (VecDeque<_>, _) = recent.into_iter().partition(|(other, _)| *other == key);
        open.recent = left;
        drop(open);
        // Closed while nobody waits: a cluster that does not answer may take as long as it likes.
        drop(gone);
        self.0.lock().images.get(&key).is_some_and(|image| image.strong_count() > 0)
    }
}
