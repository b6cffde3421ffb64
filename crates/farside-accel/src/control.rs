//! What `farsided` and the accelerator's process say to each other: one JSON document a line, over a Unix socket that the
//! process has as its standard input. A request may come with a descriptor. Types only; no I/O.
//!
//! ```text
//! farsided                                 farside-accel
//!   {"id":1,"command":{"start":{…}}}  ──►     who we are, what to take, whom to send it to
//!                                     ◄──  {"answer":{"id":1,"result":{"Ok":null}}}
//!                                     ◄──  {"alive":{…status…}}        every [`ALIVE_EVERY`]
//!   {"id":2,"command":{"peers":[…]}}  ──►     all peers, whenever one changes
//! ```
//!
//! The process ends when its standard input does, and is killed when it has not been alive for [`SILENCE_MAX`].

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::policy::{Action, Demotion, WrittenPolicy};

/// How often the process says that it lives.
pub const ALIVE_EVERY: Duration = Duration::from_millis(250);
/// After so long a silence it hangs, and holds every connection that is being made: it is killed. Users feel this and the time it
/// takes to die, two seconds at most.
pub const SILENCE_MAX: Duration = Duration::from_millis(1500);
/// Longest line, bytes: 10,000 connections of about 500 bytes, and some.
pub const LINE_MAX: usize = 16 << 20;
/// Applications that are told apart in figures; more count as [`OTHER`](crate::policy::OTHER).
pub const APPLICATIONS_MAX: usize = 64;

/// A request of `farsided`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Given back with the answer.
    pub id: u64,
    /// What to do.
    pub command: Command,
}

/// What `farsided` can ask.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// The first command, and only the first. Answered with null once everything is installed.
    Start(Box<Settings>),
    /// These are the peers now. Answered with null.
    Peers(Vec<Peer>),
    /// These are the explicit forwards now; those no longer named are closed for new connections. Answered with null.
    Forwards(Vec<Forward>),
    /// These are the policies of new connections now. Answered with null.
    Policies {
        /// As in [`Settings`].
        policies: Vec<WrittenPolicy>,
        /// The same.
        otherwise: Action,
    },
    /// Answered with a list of [`Connection`].
    Connections,
    /// Removes what the chunk store keeps of a peer (its name), or of all. Answered with null.
    ClearStore(Option<String>),
    /// Sends what comes over a socket, whose descriptor comes with the request, to the chunk store of a peer's box. Answered
    /// with [`PrepositionEnd`], once all of it is there; others may be answered before.
    Preposition {
        /// For [`Status::prepositions`].
        id: u64,
        /// The peer's name.
        peer: String,
    },
    /// Resets a connection. Answered with whether there was one.
    Reset {
        /// Its client's end.
        client: SocketAddr,
        /// Its server's end.
        server: SocketAddr,
    },
}

impl Command {
    /// Whether a descriptor comes with it.
    pub fn has_descriptor(&self) -> bool {
        matches!(self, Command::Preposition { .. })
    }
}

/// A line of the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// It lives.
    Alive(Box<Status>),
    /// The answer to a request: the document that the command names, or a sentence that says what was wrong.
    Answer {
        /// The request's.
        id: u64,
        /// See above.
        result: Result<serde_json::Value, String>,
    },
}

/// What the process works with. A change of anything but peers, forwards and policies takes a new process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// The release of `farsided`: a process of another one refuses.
    pub release: String,
    /// The site's name.
    pub site_name: String,
    /// The site's key and certificate.
    pub identity: Secret,
    /// Where other boxes are met, `HOST:PORT`.
    pub listen: String,
    /// What is intercepted; `None`: nothing, and no privilege is needed.
    pub interception: Option<Interception>,
    /// Where the chunk store is; `None`: there is none, and bytes of connections go as they are.
    pub store: Option<StorePlace>,
    /// Where peers' explicit forwards may end, each `HOST:PORT`.
    pub forward_to: Vec<String>,
    /// The administrator's own policies, asked before those that are shipped.
    pub policies: Vec<WrittenPolicy>,
    /// What is done where none fits.
    pub otherwise: Action,
    /// The peers.
    pub peers: Vec<Peer>,
    /// Explicit forwards.
    pub forwards: Vec<Forward>,
}

/// Where the chunk store is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorePlace {
    /// Its directory; made if it is not there.
    pub path: String,
    /// What it may use of the disk, bytes.
    pub bytes: u64,
}

/// What is intercepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interception {
    /// Interfaces towards this site's hosts.
    pub lan: Vec<String>,
    /// The interface towards the other sites.
    pub wan: String,
}

/// A paired site that may have a box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// SHA-256 of its key, 64 hexadecimal digits.
    pub id: String,
    /// What it is called here.
    pub name: String,
    /// Where its box is dialled, `HOST:PORT`; `None`: it dials this one.
    pub address: Option<String>,
    /// What lies behind it. Empty: what its box says of itself, and what probes find.
    pub subnets: Vec<IpNet>,
}

/// A port of this box whose connections end at the peer's side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// Where this box listens.
    pub listen: SocketAddr,
    /// Where the peer's box connects to, `HOST:PORT`.
    pub destination: String,
    /// The peer's name.
    pub peer: String,
}

/// How it goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Why nothing is optimised; `None`: at least one peer's box is there.
    pub bypass: Option<String>,
    /// Where it listens.
    pub listen: Option<String>,
    /// Every peer.
    pub peers: Vec<PeerStatus>,
    /// Connections that are optimised now.
    pub optimized_connections: u64,
    /// Connections that have been let through as they are, since the start.
    pub passed_through_connections: u64,
    /// Connections that have been optimised, since the start.
    pub taken_connections: u64,
    /// Connections that were reset since the start because a box, a peer or a session was lost.
    pub reset_connections: u64,
    /// Bytes of connections, both ways, since the start.
    pub original_bytes: u64,
    /// What they cost between the boxes, both ways.
    pub wire_bytes: u64,
    /// What filled the stores ahead of time, here and at peers, since the start.
    #[serde(default)]
    pub prepositioned: Prepositioned,
    /// What this side fills the stores of peers with now.
    #[serde(default)]
    pub prepositions: Vec<PrepositionStatus>,
    /// By application, by name. No more of them than [`APPLICATIONS_MAX`].
    #[serde(default)]
    pub applications: Vec<ApplicationFigures>,
    /// Connections for which less was done than both sites allow, by why; those that are open are not among them yet.
    #[serde(default)]
    pub demotions: Vec<(Demotion, u64)>,
    /// How long parts of connections waited in this box until they were handed to a session, encoding included.
    #[serde(default)]
    pub block_wait: Histogram,
    /// How long the first packets of connections were held.
    #[serde(default)]
    pub connection_hold: Histogram,
    /// First packets that are held now.
    #[serde(default)]
    pub held_connections: u64,
    /// How it goes with the chunk store; `None`: there is none.
    pub store: Option<StoreStatus>,
}

/// What the connections of one application came to since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplicationFigures {
    /// What its policy calls it.
    pub application: String,
    /// Connections that are optimised now.
    pub open: u64,
    /// Of those: less is done for them than both sites allow.
    pub demoted: u64,
    /// Connections that were optimised.
    pub taken: u64,
    /// Connections let through as they are.
    pub passed: u64,
    /// Bytes that this box has sent to the other, as the connections had them.
    pub sent_original_bytes: u64,
    /// What these were on the link.
    pub sent_wire_bytes: u64,
    /// The same of what has come.
    pub received_original_bytes: u64,
    /// The same on the link.
    pub received_wire_bytes: u64,
}

/// How often something took how long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Upper bounds of its parts, ascending.
    pub bounds_seconds: Vec<f64>,
    /// How many are in each part; the last has what is longer than all bounds.
    pub counts: Vec<u64>,
    /// All of them together.
    pub sum_seconds: f64,
}

/// What filling a store ahead of time came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepositioned {
    /// Bytes.
    pub original_bytes: u64,
    /// What they cost between the boxes.
    pub wire_bytes: u64,
}

/// How filling a peer's store ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrepositionEnd {
    /// All of it is there.
    Sent(Prepositioned),
    /// The peer's box was not there, or was lost: another try makes sense, and what had come there costs only references then.
    PeerLost(String),
    /// Another try would end the same way.
    Refused(String),
}

/// How far filling a peer's store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrepositionStatus {
    /// As [`Command::Preposition`] has it.
    pub id: u64,
    /// Bytes that have been sent.
    pub original_bytes: u64,
    /// What they cost between the boxes.
    pub wire_bytes: u64,
}

/// How it goes with the chunk store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStatus {
    /// What it has, bytes.
    pub bytes: u64,
    /// What it may have, bytes.
    pub size_bytes: u64,
    /// Chunks that can be found.
    pub chunks: u64,
    /// Of its index in memory, bytes.
    pub index_bytes: u64,
    /// Chunks that were looked for in the index since the start.
    pub lookups: u64,
    /// Of which so many were found.
    pub hits: u64,
    /// Containers that went for others since the start, 16 MiB each at most.
    pub evicted: u64,
    /// Containers that were damaged, and removed.
    pub damaged: u64,
    /// Since when the oldest container has been as it is, seconds; `None`: there is none, or nobody has looked yet.
    #[serde(default)]
    pub oldest_seconds: Option<u64>,
    /// Containers of an earlier time that are not in the index yet.
    #[serde(default)]
    pub not_loaded: u64,
    /// Why it takes nothing at the moment.
    #[serde(default)]
    pub trouble: Option<String>,
}

/// How it goes with one peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// What it is called here.
    pub name: String,
    /// Whether its box can be used now.
    pub is_connected: bool,
    /// If not: the last error.
    pub error: Option<String>,
    /// For how long it has been so, seconds.
    #[serde(default)]
    pub for_seconds: f64,
    /// Round trip, seconds.
    pub rtt_seconds: Option<f64>,
    /// What lies behind it, as configured or as its box says.
    pub subnets: Vec<IpNet>,
}

/// A connection that is optimised, or was let through not long ago.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// Who connected.
    pub client: SocketAddr,
    /// To whom.
    pub server: SocketAddr,
    /// The peer over whose box it goes.
    pub peer: Option<String>,
    /// Whether this box has the client's side.
    pub is_near: bool,
    /// The application that its policy names.
    pub application: String,
    /// This site's policy.
    pub configured: Action,
    /// The peer's; `None`: it was not asked.
    pub peer_policy: Option<Action>,
    /// What both allow.
    pub negotiated: Action,
    /// What is done.
    pub applied: Action,
    /// Why less is done than both allow.
    pub reason: Option<Demotion>,
    /// Its bytes, both ways.
    pub original_bytes: u64,
    /// What they cost between the boxes.
    pub wire_bytes: u64,
    /// Seconds since it was opened.
    pub age_seconds: f64,
}

/// Text that is never shown, and wiped when it is dropped.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text`.
    pub fn new(text: String) -> Secret {
        Secret(text)
    }

    /// The text.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
