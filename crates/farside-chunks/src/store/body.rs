//! Where the chunks of a container are read, whether it still grows or not.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::container::{Entry, Growing, Sealed};
use crate::name::ChunkName;

/// The body of a container.
pub(super) enum Body {
    Growing(Arc<Mutex<Growing>>),
    Sealed(Arc<Sealed>),
}

impl Body {
    pub(super) fn entry(&self, place: u16) -> Option<Entry> {
        let of =
            |entries: &[Entry]| entries.get(usize::from(place)).copied().filter(|entry| entry.length > 0);
        match self {
            Body::Growing(growing) => of(growing.lock().entries()),
            Body::Sealed(sealed) => of(sealed.entries()),
        }
    }

    pub(super) fn read(&self, entry: &Entry, chunk: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Body::Growing(growing) => growing.lock().read(entry, chunk),
            Body::Sealed(sealed) => sealed.read(entry, chunk),
        }
    }
}

/// Where a stream is in a container: what comes after a chunk that was found most likely is what came after it before.
#[derive(Clone)]
pub struct Cursor {
    pub(super) name: ChunkName,
    /// Not of a container that still grows.
    pub(super) sealed: Option<Arc<Sealed>>,
}

impl Cursor {
    pub(super) fn on(name: ChunkName, body: &Body) -> Cursor {
        let sealed = match body {
            Body::Growing(_) => None,
            Body::Sealed(sealed) => Some(sealed.clone()),
        };
        Cursor { name, sealed }
    }

    /// The chunk that it stands on.
    pub fn name(&self) -> ChunkName {
        self.name
    }

    /// How long the chunk after it is, where that is known: a cut is most likely there.
    pub fn next_length(&self) -> Option<usize> {
        let entry = self.sealed.as_ref()?.entries().get(usize::from(self.name.place) + 1)?;
        (entry.length > 0).then_some(entry.length as usize)
    }
}
