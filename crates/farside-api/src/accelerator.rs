//! The accelerator: what it does for connections between hosts of two sites.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Whether connections are optimised.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AcceleratorState {
    /// They are.
    Active,
    /// It is on, and connections go their plain way for now.
    Bypass,
    /// It is off.
    Off,
}

/// Whether a peer's accelerator can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AcceleratorPeerState {
    /// There is a session with it.
    Connected,
    /// There is none.
    Disconnected,
}

/// What is done for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Acceleration {
    /// Transport, references and compression.
    Full,
    /// Transport, and references to what has passed before.
    Dre,
    /// Transport, and compression.
    Lz,
    /// Full windows, congestion control that knows the link, quick recovery of losses.
    Transport,
    /// Nothing.
    PassThrough,
}

/// Why less is done for a connection than both sites' policies allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Demotion {
    /// No paired accelerator was found on the way to the server.
    NoPeer,
    /// There is no session with the peer.
    PeerLost,
    /// The server does not answer the peer's accelerator: it is down, or its answers take another way.
    NoAnswer,
    /// Another pair of accelerators optimises it.
    BoxInBetween,
    /// It is encrypted.
    Encrypted,
    /// It gets no smaller.
    Incompressible,
    /// There are as many connections as the accelerator takes.
    Overload,
    /// The chunk store takes nothing.
    StoreUnusable,
}

/// A peer's accelerator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AcceleratorPeer {
    /// What the peer is called here.
    pub name: String,
    /// Whether its accelerator can be used.
    pub state: AcceleratorPeerState,
    /// Why not.
    #[serde(default)]
    pub why: Option<String>,
    /// Since when it has been so; null: not known.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// Round-trip time.
    #[serde(default)]
    pub rtt_seconds: Option<f64>,
    /// The subnets behind it.
    #[serde(default)]
    pub subnets: Vec<String>,
}

/// `GET /accelerator`. What is counted begins at 0 with the daemon.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AcceleratorStatus {
    /// Whether connections are optimised.
    pub state: AcceleratorState,
    /// If they are not though it is on: why.
    pub why: Option<String>,
    /// The peers.
    pub peers: Vec<AcceleratorPeer>,
    /// Connections that are optimised now.
    pub optimized_connections: u64,
    /// Connections that were let through as they are.
    pub passed_through_connections: u64,
    /// Bytes of optimised connections, both ways.
    pub original_bytes: u64,
    /// What they cost between the sites, both ways.
    pub wire_bytes: u64,
    /// Bytes of the chunk store; null while nobody has it open.
    pub store_bytes: Option<u64>,
    /// What it may have at most.
    pub store_size_bytes: Option<u64>,
    /// Connections that were optimised.
    #[serde(default)]
    pub taken_connections: u64,
    /// Connections that were reset because an accelerator or a session was lost.
    #[serde(default)]
    pub reset_connections: u64,
    /// How often its process had to be started again.
    #[serde(default)]
    pub restarts: u64,
    /// Interfaces towards this site's hosts; none: only explicit forwards are optimised.
    #[serde(default)]
    pub lan: Vec<String>,
    /// The interface towards the other sites.
    #[serde(default)]
    pub wan: Option<String>,
    /// Where other accelerators are met.
    #[serde(default)]
    pub listen: Option<String>,
    /// Where explicit forwards of peers may end.
    #[serde(default)]
    pub forward_to: Vec<String>,
    /// Why not every explicit forward of this site works.
    #[serde(default)]
    pub forwards_error: Option<String>,
    /// What is wrong though connections are optimised, and what can be done about it; empty: nothing.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What filled chunk stores ahead of time, at this site or from it, bytes.
    #[serde(default)]
    pub prepositioned_original_bytes: u64,
    /// What that cost between the sites.
    #[serde(default)]
    pub prepositioned_wire_bytes: u64,
    /// By application; begins at 0 with its process.
    #[serde(default)]
    pub applications: Vec<AcceleratedApplication>,
    /// Connections for which less was done than both sites allow, by why; those that are open are not among them yet. Begins at
    /// 0 with its process.
    #[serde(default)]
    pub demotions: Vec<DemotedConnections>,
    /// Connections whose beginning is held until the server has answered.
    #[serde(default)]
    pub held_connections: u64,
    /// What the accelerator adds: how long what hosts said waited here until it was on its way, encoding included.
    #[serde(default)]
    pub block_wait: Option<AcceleratorTimes>,
    /// How long beginnings of connections were held: what the server and the way to it take is in it.
    #[serde(default)]
    pub connection_hold: Option<AcceleratorTimes>,
    /// The chunk store; null while nobody has it open.
    #[serde(default)]
    pub cache: Option<AcceleratorCache>,
}

/// What the connections of an application came to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AcceleratedApplication {
    /// What its policy calls it.
    pub application: String,
    /// Connections that are optimised now.
    pub optimized_connections: u64,
    /// Of those: less is done for them than both sites allow.
    pub demoted_connections: u64,
    /// Connections that were optimised.
    pub taken_connections: u64,
    /// Connections that were let through as they are.
    pub passed_through_connections: u64,
    /// Bytes of them towards the other site.
    pub sent_original_bytes: u64,
    /// What these cost between the sites.
    pub sent_wire_bytes: u64,
    /// Bytes of them from the other site.
    pub received_original_bytes: u64,
    /// What these cost.
    pub received_wire_bytes: u64,
}

/// How many connections had less done for them, for one reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DemotedConnections {
    /// The reason.
    pub reason: Demotion,
    /// How many.
    pub connections: u64,
}

/// How long something took, as a histogram; begins at 0 with the accelerator's process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AcceleratorTimes {
    /// How often it happened.
    pub count: u64,
    /// Half took no longer; rounded up to a bound; null: there are none, or it is longer than all bounds.
    pub p50_seconds: Option<f64>,
    /// The same of 99 in 100.
    pub p99_seconds: Option<f64>,
    /// All of them together.
    pub sum_seconds: f64,
    /// Upper bounds of the parts.
    pub bounds_seconds: Vec<f64>,
    /// How many are in each part; one more than bounds, for what is longer than all.
    pub counts: Vec<u64>,
}

/// One connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AcceleratedConnection {
    /// Who connected, `ADDR:PORT`.
    pub client: String,
    /// To whom.
    pub server: String,
    /// The application that its policy names.
    pub application: String,
    /// This site's policy.
    pub configured: Acceleration,
    /// The peer's; null: it was not asked.
    pub peer_policy: Option<Acceleration>,
    /// What both allow.
    pub negotiated: Acceleration,
    /// What is done.
    pub applied: Acceleration,
    /// Why less is done than both allow.
    pub reason: Option<Demotion>,
    /// Its bytes, both ways.
    pub original_bytes: u64,
    /// What they cost between the sites.
    pub wire_bytes: u64,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// The peer over whose accelerator it goes.
    #[serde(default)]
    pub peer: Option<String>,
    /// Whether the client is at this site.
    #[serde(default)]
    pub client_is_here: bool,
}

/// Where a policy comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PolicyOrigin {
    /// It was set with `POST /accelerator/policies`.
    Set,
    /// `farside.toml`.
    Configured,
    /// It is shipped.
    Shipped,
    /// What is done where no policy fits; always the last.
    Otherwise,
}

/// A policy. The first that fits a connection holds for it; a list that is empty fits all.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AcceleratorPolicy {
    /// As people call it.
    pub application: String,
    /// Ports of the server, `873` or `10565-10569`.
    pub ports: Vec<String>,
    /// Subnets; client or server is in one of them.
    pub addresses: Vec<String>,
    /// Subnets; the client is in one of them.
    pub clients: Vec<String>,
    /// Subnets; the server is in one of them.
    pub servers: Vec<String>,
    /// What is done.
    pub action: Acceleration,
    /// Where it comes from.
    pub origin: PolicyOrigin,
}

/// `POST /accelerator/policies`: sets a policy, for new connections. It comes before those of `farside.toml`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetAcceleratorPolicy {
    /// As people call it; one that was set under that name is replaced.
    pub application: String,
    /// See [`AcceleratorPolicy::ports`].
    #[serde(default)]
    pub ports: Vec<String>,
    /// See [`AcceleratorPolicy::addresses`].
    #[serde(default)]
    pub addresses: Vec<String>,
    /// See [`AcceleratorPolicy::clients`].
    #[serde(default)]
    pub clients: Vec<String>,
    /// See [`AcceleratorPolicy::servers`].
    #[serde(default)]
    pub servers: Vec<String>,
    /// What is done.
    pub action: Acceleration,
    /// It is asked before all others; else it keeps its place, or comes after the others that were set.
    #[serde(default)]
    pub first: bool,
}

/// A port of this site whose connections end at a peer's side. Also `POST /accelerator/forwards`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AcceleratorForward {
    /// Where this site listens, `ADDR:PORT`.
    pub listen: String,
    /// Where the peer's accelerator connects to, `HOST:PORT`.
    pub destination: String,
    /// The peer.
    pub peer: String,
}

/// `POST /accelerator/up` and `/accelerator/plan`: what is absent stays as it is, or as `farside.toml` says.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StartAccelerator {
    /// Interfaces towards this site's hosts; empty: nothing is intercepted.
    #[serde(default)]
    pub lan: Option<Vec<String>>,
    /// The interface towards the other sites; empty: nothing is intercepted.
    #[serde(default)]
    pub wan: Option<String>,
    /// Refuse unless these are ports of one bridge. Where they are, the accelerator is inline in any case.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bridge: bool,
    /// What the chunk store may have at most.
    #[serde(default)]
    pub store_size_bytes: Option<u64>,
    /// Where other accelerators are met, `ADDR:PORT`.
    #[serde(default)]
    pub listen: Option<String>,
    /// Where explicit forwards of peers may end, each `HOST:PORT`; empty: nowhere.
    #[serde(default)]
    pub forward_to: Option<Vec<String>>,
}

/// What starting the accelerator would install.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AcceleratorPlan {
    /// Interfaces towards this site's hosts; none: nothing is intercepted.
    pub lan: Vec<String>,
    /// The interface towards the other sites.
    pub wan: Option<String>,
    /// Where other accelerators would be met.
    pub listen: String,
    /// Where explicit forwards of peers could end.
    pub forward_to: Vec<String>,
    /// The packet filter's rules, as they would be given to it; null: none, and no privilege is needed.
    pub rules: Option<String>,
}

/// `POST /accelerator/connections/reset`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResetConnection {
    /// The client's end, `ADDR:PORT`.
    pub client: String,
    /// The server's end.
    pub server: String,
}

/// `GET /accelerator/cache`: the chunk store, while the accelerator runs. What is counted begins at 0 with its process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AcceleratorCache {
    /// What it has, bytes.
    pub bytes: u64,
    /// What it may have, bytes.
    pub size_bytes: u64,
    /// Chunks that can be found.
    pub chunks: u64,
    /// Of its index in memory, bytes.
    pub index_bytes: u64,
    /// How often the index was asked for a chunk; neighbours of one that was found are found without it.
    pub lookups: u64,
    /// How often it had it.
    pub hits: u64,
    /// Containers, of 16 MiB at most, that made room for others.
    pub evicted_containers: u64,
    /// Containers that were damaged, and removed.
    pub damaged_containers: u64,
    /// `hits` of `lookups`; null: nothing was looked for yet.
    #[serde(default)]
    pub hit_ratio: Option<f64>,
    /// How long ago the oldest container was last written to: what passed before is gone. Null: there is none.
    #[serde(default)]
    pub oldest_seconds: Option<u64>,
    /// Containers of an earlier time that cannot be found by content yet.
    #[serde(default)]
    pub not_loaded_containers: u64,
    /// Why it takes less than it should; null: all is well.
    #[serde(default)]
    pub trouble: Option<String>,
}

/// `GET /accelerator/prepositions`: what a peer's chunk store is being filled with, ahead of time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Preposition {
    /// As whoever asked for it calls it; several files may be of one job.
    pub job: String,
    /// A file's path as its sender names it, or the snapshot of a volume.
    pub what: String,
    /// The peer.
    pub peer: String,
    /// How much it is; null: not known.
    pub size_bytes: Option<u64>,
    /// What of it has been sent.
    pub original_bytes: u64,
    /// What that cost between the sites.
    pub wire_bytes: u64,
    /// Since when.
    pub started_at: Timestamp,
}

/// `POST /accelerator/prepositions`, with the bytes as its body: a file. The daemon opens no file: whoever may read it sends it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schema", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct PrepositionFile {
    /// See [`Preposition::job`]; up to 64 letters, digits and dashes.
    pub job: String,
    /// See [`Preposition::what`].
    pub what: String,
    /// The peer; null: the only one.
    #[serde(default)]
    pub peer: Option<String>,
    /// How much it is, if that is known.
    #[serde(default)]
    pub size_bytes: Option<u64>,
}

/// `POST /accelerator/prepositions/volume`: the newest snapshot of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PrepositionVolume {
    /// See [`Preposition::job`].
    pub job: String,
    /// `POOL/VOL`.
    pub volume: String,
    /// The peer; null: the only one.
    #[serde(default)]
    pub peer: Option<String>,
}

/// What a preposition came to, once all of it is there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Prepositioned {
    /// See [`Preposition::what`].
    pub what: String,
    /// The peer.
    pub peer: String,
    /// Bytes.
    pub original_bytes: u64,
    /// What they cost between the sites.
    pub wire_bytes: u64,
}

/// `POST /accelerator/cache/clear`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClearCache {
    /// Only what has passed between this site and this peer; null: everything.
    #[serde(default)]
    pub peer: Option<String>,
}
