//! Which segments go to this box's transparent sockets that would not find them: those of a program on this box itself, which speaks
//! with an address that is elsewhere and would send them by the wire; and where the box is a bridge, all of them.
//!
//! Sets of the tables name them. The first segment of a connection is not among them: what is decided about it counts.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::netfilter::OwnedTable;
use crate::rules::Place;

/// How long after its end a connection's last segments still find their socket. They pass through `lo` or a LAN.
const LINGER: Duration = Duration::from_secs(2);
/// Most at a time: 60 bytes of the kernel's memory each, and some.
const KEPT_MAX: usize = 65_536;

/// In which table, who sends, and to whom.
type Way = (Place, SocketAddr, SocketAddr);

/// The table while it is installed, and what its sets name. Clones share them.
#[derive(Clone, Default)]
pub struct Carried(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    table: Option<OwnedTable>,
    ways: HashMap<Way, Entry>,
    next: u64,
}

struct Entry {
    /// The [`Kept`] that holds it: a later one of the same way replaces an earlier.
    holder: u64,
    /// When it goes; none while it is held.
    until: Option<Instant>,
}

impl Carried {
    /// Takes the table. Before that, and after [`Carried::remove_table`], nothing can be kept.
    pub fn set_table(&self, table: OwnedTable) {
        self.0.lock().table = Some(table);
    }

    /// Removes the table and everything with it.
    pub fn remove_table(&self) {
        let mut inner = self.0.lock();
        inner.ways.clear();
        inner.table = None;
    }

    /// From now on what `from` sends to `to` goes to a socket of this box, for as long as what is given back lives.
    ///
    /// # Errors
    /// If the kernel refuses, or there are too many.
    pub fn keep(&self, place: Place, from: SocketAddr, to: SocketAddr) -> io::Result<Kept> {
        let mut inner = self.0.lock();
        let inner = &mut *inner;
        let table = inner.table.as_mut().ok_or_else(|| io::Error::other("the rules are gone"))?;
        if inner.ways.len() >= KEPT_MAX && !inner.ways.contains_key(&(place, from, to)) {
            return Err(io::Error::other("it carries as many connections as it takes"));
        }
        table.carry(place, from, to, true)?;
        inner.next += 1;
        inner.ways.insert((place, from, to), Entry { holder: inner.next, until: None });
        Ok(Kept { of: self.clone(), way: (place, from, to), holder: inner.next, is_made: false })
    }

    /// What `from` sends to `to` goes its plain way again: a new connection of the same ends does.
    pub fn forget(&self, place: Place, from: SocketAddr, to: SocketAddr) {
        self.0.lock().forget((place, from, to));
    }

    /// Forgets what has ended. To be called every second or so.
    pub fn tick(&self) {
        let mut inner = self.0.lock();
        let now = Instant::now();
        let is_over = |entry: &Entry| entry.until.is_some_and(|until| until <= now);
        let over: Vec<Way> =
            inner.ways.iter().filter(|(_, entry)| is_over(entry)).map(|(way, _)| *way).collect();
        for way in over {
            inner.forget(way);
        }
    }
}

impl Inner {
    fn forget(&mut self, way: Way) {
        if self.ways.remove(&way).is_some()
            && let Some(table) = &mut self.table
            && let Err(error) = table.carry(way.0, way.1, way.2, false)
        {
            tracing::warn!(from = %way.1, to = %way.2, %error, "a way of a connection stays after it");
        }
    }
}

impl fmt::Debug for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carried").field("ways", &self.0.lock().ways.len()).finish_non_exhaustive()
    }
}

/// A way that is kept. Dropped, it goes two seconds later; at once if nothing came of the connection, as the same program may then
/// try the plain way.
#[derive(Debug)]
pub struct Kept {
    of: Carried,
    way: Way,
    holder: u64,
    is_made: bool,
}

impl Kept {
    /// The connection has come about.
    pub fn made(mut self) -> Kept {
        self.is_made = true;
        self
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut inner = self.of.0.lock();
        let Some(entry) = inner.ways.get_mut(&self.way).filter(|entry| entry.holder == self.holder) else {
            return;
        };
        if self.is_made {
            entry.until = Some(Instant::now() + LINGER);
        } else {
            inner.forget(self.way);
        }
    }
}
