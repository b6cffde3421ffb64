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
    /// Volumes that have connections; a snapshot's count for its volume.
    pub(super) uses: HashMap<VolumeName, Use>,
    /// Volumes that refuse host writes, with the reason.
    pub(super) fences: HashMap<VolumeName, String>,
}

#[derive(Debug, Default)]
pub(super) struct Use {
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
    /// Who may write to `volume`.
    pub(super) fn writers(&self, volume: &VolumeName) -> Clients {
        let of_kind = |((kind, client), connections): (&(Kind, String), &usize)| {
            (*kind == Kind::Writer).then(|| (client.clone(), *connections))
        };
        let found = self.uses.get(volume).map(|found| found.clients.iter().filter_map(of_kind).collect());
        Clients(found.unwrap_or_default())
    }

    /// Who has a volume, or a snapshot of it, open, of all volumes that `wanted` says.
    pub(super) fn clients(&self, wanted: impl Fn(&VolumeName) -> bool) -> Clients {
        let mut all = BTreeMap::<&String, usize>::new();
        for (_, found) in self.uses.iter().filter(|(name, _)| wanted(name)) {
            for ((_, client), connections) in &found.clients {
                *all.entry(client).or_default() += connections;
            }
        }
        Clients(all.into_iter().map(|(client, connections)| (client.clone(), connections)).collect())
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
    volume: VolumeName,
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
    pub(super) fn new(table: Arc<Mutex<Table>>, volume: VolumeName, client: &str) -> Held {
        table.lock().uses.entry(volume.clone()).or_default().change(Kind::Reader, client, true);
        Held { table, volume, client: client.to_owned(), kind: Kind::Reader }
    }

    /// What ends this connection if it only reads what may change.
    pub(super) fn pinned(&self) -> CancellationToken {
        self.table.lock().uses.entry(self.volume.clone()).or_default().pinned.clone()
    }

    /// What ends this connection to a snapshot.
    pub(super) fn snapshots(&self) -> CancellationToken {
        self.table.lock().uses.entry(self.volume.clone()).or_default().snapshots.clone()
    }

    /// Makes it a connection to the volume itself, and answers what ends it if it may write; none if it may not, or the volume
    /// is fenced.
    pub(super) fn open(&mut self, access: Access) -> Option<CancellationToken> {
        let mut table = self.table.lock();
        let may_write = access == Access::Writes && !table.fences.contains_key(&self.volume);
        let kind = if may_write { Kind::Writer } else { Kind::Fenced };
        let found = table.uses.entry(self.volume.clone()).or_default();
        found.change(self.kind, &self.client, false);
        found.change(kind, &self.client, true);
        self.kind = kind;
        may_write.then(|| found.writing.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let uses = &mut self.table.lock().uses;
        if let Some(found) = uses.get_mut(&self.volume) {
            found.change(self.kind, &self.client, false);
            if found.connections.all() == 0 {
                uses.remove(&self.volume);
            }
        }
    }
}
