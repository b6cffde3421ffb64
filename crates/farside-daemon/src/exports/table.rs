//! Who has which volume open. One lock for that and for fences.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use farside_engine::VolumeName;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Clients that a sentence names.
const NAMED_MAX: usize = 3;

/// One lock for both, so that a connection is either counted before a fence comes or sees it.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Volumes that have connections, whatever they are called by now; a snapshot's count for its volume.
    uses: HashMap<u64, Use>,
    /// Which of these a name means: more than one if it was opened by this name while another volume was about to get it.
    names: HashMap<VolumeName, Vec<u64>>,
    next: u64,
    /// Volumes that refuse host writes, with the reason.
    pub(super) fences: HashMap<VolumeName, String>,
}

#[derive(Debug)]
pub(super) struct Use {
    /// What it is called now.
    name: VolumeName,
    pub(super) connections: Connections,
    /// Ends those that are pinned to a published version, or read a fenced volume.
    pub(super) pinned: CancellationToken,
    /// Ends those that may write.
    pub(super) writing: CancellationToken,
    /// Ends those to snapshots.
    pub(super) snapshots: CancellationToken,
    /// Connections of each client, as it is named in the log, by kind.
    clients: BTreeMap<(Kind, String), usize>,
}

impl Use {
    fn of(volume: &VolumeName) -> Use {
        Use {
            name: volume.clone(),
            connections: Connections::default(),
            pinned: CancellationToken::new(),
            writing: CancellationToken::new(),
            snapshots: CancellationToken::new(),
            clients: BTreeMap::new(),
        }
    }

    fn change(&mut self, kind: Kind, client: &str, is_more: bool) {
        let count = self.connections.count(kind);
        let of_client = self.clients.entry((kind, client.to_owned())).or_default();
        if is_more {
            *count += 1;
            *of_client += 1;
            return;
        }
        *count -= 1;
        *of_client -= 1;
        if *of_client == 0 {
            self.clients.remove(&(kind, client.to_owned()));
        }
    }
}

/// Clients with their connections: who has to let a volume go.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Clients(pub(crate) Vec<(String, usize)>);

impl Clients {
    /// All their connections.
    pub(crate) fn connections(&self) -> usize {
        self.0.iter().map(|(_, connections)| connections).sum()
    }

    /// `1 NBD connection`, `4 NBD connections`; and whose they are, where that is known.
    pub(crate) fn count(&self) -> (usize, String) {
        let connections = self.connections();
        let word = if connections == 1 { "NBD connection" } else { "NBD connections" };
        (connections, format!("{connections} {word}"))
    }

    /// ` (pid 4242 (nbdfuse) uid 0; host web1 at 10.0.0.7:4711, 2 connections)`; empty if nobody is known.
    pub(crate) fn named(&self) -> String {
        let one = |(client, connections): &(String, usize)| match connections {
            1 => client.clone(),
            more => format!("{client}, {more} connections"),
        };
        let mut named: Vec<_> = self.0.iter().filter(|(client, _)| !client.is_empty()).map(one).collect();
        let more = named.len().saturating_sub(NAMED_MAX);
        named.truncate(NAMED_MAX);
        if more > 0 {
            named.push(format!("and {more} more"));
        }
        if named.is_empty() { String::new() } else { format!(" ({})", named.join("; ")) }
    }
}

impl Table {
    /// The one that whoever opens `volume` now is counted in.
    fn enter(&mut self, volume: &VolumeName) -> u64 {
        if let Some(known) = self.names.get(volume).and_then(|known| known.last()) {
            return *known;
        }
        let id = self.next;
        self.next += 1;
        self.names.entry(volume.clone()).or_default().push(id);
        self.uses.insert(id, Use::of(volume));
        id
    }

    fn leave(&mut self, id: u64) {
        let Some(gone) = self.uses.remove(&id) else { return };
        if let Some(known) = self.names.get_mut(&gone.name) {
            known.retain(|other| *other != id);
            if known.is_empty() {
                self.names.remove(&gone.name);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.uses.is_empty() && self.names.is_empty()
    }

    /// A volume has another name: its connections and its fence go with it.
    pub(super) fn rename(&mut self, from: &VolumeName, to: &VolumeName) {
        if let Some(moved) = self.names.remove(from) {
            for id in &moved {
                if let Some(found) = self.uses.get_mut(id) {
                    found.name = to.clone();
                }
            }
            self.names.entry(to.clone()).or_default().extend(moved);
        }
        if let Some(why) = self.fences.remove(from) {
            self.fences.insert(to.clone(), why);
        }
    }

    /// Connections to a volume.
    pub(super) fn of<'a>(&'a self, volume: &VolumeName) -> impl Iterator<Item = &'a Use> {
        self.names.get(volume).into_iter().flatten().filter_map(|id| self.uses.get(id))
    }

    /// Has something done with all connections to volumes that `wanted` says.
    pub(super) fn each(&mut self, wanted: impl Fn(&VolumeName) -> bool, mut work: impl FnMut(&mut Use)) {
        for (_, known) in self.names.iter().filter(|(name, _)| wanted(name)) {
            for id in known {
                if let Some(found) = self.uses.get_mut(id) {
                    work(found);
                }
            }
        }
    }

    /// How many there are to all volumes that `wanted` says.
    pub(super) fn connections(&self, wanted: impl Fn(&VolumeName) -> bool) -> Connections {
        let named = self.names.keys().filter(|name| wanted(name));
        named
            .flat_map(|name| self.of(name))
            .fold(Connections::default(), |sum, found| sum + found.connections)
    }

    /// Who may write to `volume`.
    pub(super) fn writers(&self, volume: &VolumeName) -> Clients {
        self.those(|name| name == volume, |kind| kind == Kind::Writer)
    }

    fn those(&self, wanted: impl Fn(&VolumeName) -> bool, counts: impl Fn(Kind) -> bool) -> Clients {
        let mut all = BTreeMap::<&String, usize>::new();
        for found in self.names.keys().filter(|name| wanted(name)).flat_map(|name| self.of(name)) {
            for ((_, client), connections) in found.clients.iter().filter(|((kind, _), _)| counts(*kind)) {
                *all.entry(client).or_default() += connections;
            }
        }
        Clients(all.into_iter().map(|(client, connections)| (client.clone(), connections)).collect())
    }

    /// Who has a volume, or a snapshot of it, open, of all volumes that `wanted` says.
    pub(super) fn clients(&self, wanted: impl Fn(&VolumeName) -> bool) -> Clients {
        self.those(wanted, |_| true)
    }
}

/// Connections to a volume and its snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Connections {
    /// To the volume, and may write.
    pub(crate) writers: usize,
    /// To a replica or a snapshot.
    pub(crate) readers: usize,
    /// To the volume while it is fenced, or without the right to write: they only read.
    pub(crate) fenced: usize,
}

impl std::ops::Add for Connections {
    type Output = Connections;

    fn add(self, other: Connections) -> Connections {
        Connections {
            writers: self.writers + other.writers,
            readers: self.readers + other.readers,
            fenced: self.fenced + other.fenced,
        }
    }
}

impl Connections {
    /// Of either kind.
    pub(crate) fn all(self) -> usize {
        self.writers + self.readers + self.fenced
    }
}

/// What whoever opens a volume may do with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Writes,
    Reads,
}

/// One connection's hold on a volume: a reader's, until it becomes another's.
pub(super) struct Held {
    table: Arc<Mutex<Table>>,
    /// The volume, among those that have connections.
    id: u64,
    client: String,
    kind: Kind,
}

/// What a connection counts as.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Reader,
    Writer,
    Fenced,
}

impl Connections {
    fn count(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Reader => &mut self.readers,
            Kind::Writer => &mut self.writers,
            Kind::Fenced => &mut self.fenced,
        }
    }
}

impl Held {
    /// `client` is a connection's, as the log names it; empty if nobody knows.
    pub(super) fn new(table: Arc<Mutex<Table>>, volume: &VolumeName, client: &str) -> Held {
        let id = {
            let mut table = table.lock();
            let id = table.enter(volume);
            if let Some(found) = table.uses.get_mut(&id) {
                found.change(Kind::Reader, client, true);
            }
            id
        };
        Held { table, id, client: client.to_owned(), kind: Kind::Reader }
    }

    /// A token of the volume; it is there for as long as this is.
    fn token(&self, which: impl Fn(&Use) -> &CancellationToken) -> CancellationToken {
        self.table.lock().uses.get(&self.id).map(|found| which(found).clone()).unwrap_or_default()
    }

    /// What ends this connection if it only reads what may change.
    pub(super) fn pinned(&self) -> CancellationToken {
        self.token(|found| &found.pinned)
    }

    /// What ends this connection to a snapshot.
    pub(super) fn snapshots(&self) -> CancellationToken {
        self.token(|found| &found.snapshots)
    }

    /// Makes it a connection to the volume itself, and answers what ends it if it may write; none if it may not, or the volume
    /// is fenced.
    pub(super) fn open(&mut self, access: Access) -> Option<CancellationToken> {
        let mut table = self.table.lock();
        let Table { uses, fences, .. } = &mut *table;
        let found = uses.get_mut(&self.id)?;
        let may_write = access == Access::Writes && !fences.contains_key(&found.name);
        let kind = if may_write { Kind::Writer } else { Kind::Fenced };
        found.change(self.kind, &self.client, false);
        found.change(kind, &self.client, true);
        self.kind = kind;
        may_write.then(|| found.writing.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        if let Some(found) = table.uses.get_mut(&self.id) {
            found.change(self.kind, &self.client, false);
            if found.connections.all() == 0 {
                table.leave(self.id);
            }
        }
    }
}
