//! Peers: other sites that this one is paired with.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::AccessRole;
use crate::throttle::Throttle;

/// Whether there is a session with a peer now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PeerState {
    /// A session is up.
    Connected,
    /// A session is up, and every connection to the peer has ended: it is stopped, or cannot be reached. Dialled in time the session
    /// goes on.
    NotAnswering,
    /// None.
    Disconnected,
}

/// A peer as it is listed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Peer {
    /// What it is called here.
    pub name: String,
    /// Its identity: SHA-256 of its key, 64 hexadecimal digits.
    pub id: String,
    /// Where this site dials it; null if it always dials us.
    pub address: Option<String>,
    /// Where its other daemons are, as the peer has told: they are dialled as well. Absent if it has told of none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_addresses: Vec<String>,
    /// Whether there is a session.
    pub state: PeerState,
    /// The peer has dialled this site for it: it says nothing of `address`. Absent if not, and without a session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dialled_us: bool,
    /// Why there is none, why the peer does not answer, or what does not pass on the way to it; that another living site has its key.
    #[serde(default)]
    pub why: Option<String>,
    /// When it was last heard; null: not since this daemon started.
    #[serde(default)]
    pub last_heard_at: Option<Timestamp>,
    /// The protocol of the session.
    pub protocol: Option<u32>,
    /// Round-trip time, last measured.
    pub rtt_seconds: Option<f64>,
    /// By how much its clock is ahead of this site's, as last measured (wrong by half of `rtt_seconds` at most); negative if it is
    /// behind.
    #[serde(default)]
    pub clock_ahead_seconds: Option<f64>,
    /// Bytes sent to it since this daemon started, TLS included.
    pub sent_bytes: u64,
    /// Bytes received from it, likewise.
    pub received_bytes: u64,
    /// How often since this daemon started another living site that has the peer's key was refused here, or this site was
    /// refused at the peer because another has this site's.
    #[serde(default)]
    pub key_conflicts: u64,
}

/// What a peer may do with one volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct VolumeRights {
    /// `POOL/VOL`; need not exist yet.
    pub volume: String,
    /// Its volume may become a replica of ours, and ours of its (failback).
    pub reverse: bool,
    /// Hosts may not write to the volume while the peer has overtaken it.
    #[serde(default)]
    pub fence: bool,
    /// It, or `reverse`, was recorded for the way back of a mirror: that ends with the mirror.
    #[serde(default)]
    pub recorded: bool,
}

/// How several paths to a peer are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PathsMode {
    /// All at once.
    #[default]
    Multiplex,
    /// The first that works; back to an earlier one when that has worked again for a while.
    Failover,
}

/// How the link to a peer is made, as it was set.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PeerLink {
    /// `LOCAL=HOST:PORT` or `HOST:PORT`, in the order of preference; empty: the peer's address.
    pub paths: Vec<String>,
    /// How they are used.
    pub mode: PathsMode,
    /// Differentiated services code point of its packets.
    pub dscp: Option<u8>,
    /// The committed rate (CIR): all that is sent to it keeps below.
    pub rate_bytes_per_second: Option<u64>,
    /// How often a quiet session is asked for a sign of life; null: every two seconds. Of what the two sites say, the longer
    /// counts.
    #[serde(default)]
    pub keepalive_seconds: Option<f64>,
}

/// Whether a path carries anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PathState {
    /// It works.
    Up,
    /// It has connections, and nothing that is asked over it is answered.
    Stalled,
    /// No connection.
    Down,
}

/// One path of the session with a peer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PeerPath {
    /// The address here; null: the kernel's choice.
    pub local: Option<String>,
    /// Where the peer is dialled; the host it comes from if it dials this site.
    pub remote: String,
    /// Whether it works.
    pub state: PathState,
    /// For how long it has not.
    #[serde(default)]
    pub down_seconds: Option<f64>,
    /// Why it does not; or what does not pass on it though it works.
    #[serde(default)]
    pub why: Option<String>,
    /// Connections on it, idle ones not counted.
    pub lanes: u64,
    /// The congestion control that the kernel has granted.
    pub congestion: Option<String>,
    /// Round-trip time, as the kernel has smoothed it.
    pub rtt_seconds: Option<f64>,
    /// Largest packet that the path takes.
    pub path_mtu_bytes: Option<u32>,
    /// Payload of a full segment.
    pub mss_bytes: Option<u32>,
    /// Packets larger than Ethernet's 1500 bytes go through.
    pub jumbo: Option<bool>,
    /// What arrives at the peer, as last measured.
    pub delivery_bytes_per_second: Option<u64>,
    /// Bytes sent over it in this session, TLS included.
    pub sent_bytes: u64,
    /// Bytes received, likewise.
    pub received_bytes: u64,
    /// Bytes that the kernel had to send again.
    pub retransmitted_bytes: Option<u64>,
}

/// What is shared by the paths of a session.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PeerStreams {
    /// Data streams that are open now.
    pub open: u64,
    /// Connections that wait for the next stream.
    pub idle_lanes: u64,
    /// Streams that began on such a connection, in this session.
    pub reused_lanes: u64,
    /// Bytes that went over a second lane because the first died or stalled, in this session.
    pub retransmitted_bytes: u64,
}

/// `peer status`: a peer and its rights.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PeerStatus {
    /// The peer.
    #[serde(flatten)]
    pub peer: Peer,
    /// When it was paired.
    pub paired_at: Option<Timestamp>,
    /// What it may do here.
    pub rights: Vec<VolumeRights>,
    /// How its link is made.
    #[serde(default)]
    pub link: PeerLink,
    /// The paths of its session; none without a session.
    #[serde(default)]
    pub paths: Vec<PeerPath>,
    /// The streams of its session.
    #[serde(default)]
    pub streams: PeerStreams,
    /// What it may send here.
    #[serde(default)]
    pub throttle_in: Option<Throttle>,
    /// What may be sent to it.
    #[serde(default)]
    pub throttle_out: Option<Throttle>,
    /// What its administrators may do at this site, over the session; null: nothing.
    #[serde(default)]
    pub role: Option<AccessRole>,
    /// What is to be known of what was just done; absent if nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// `POST /invitations`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateInvitation {
    /// How long the code can be used, seconds.
    pub valid_seconds: f64,
}

/// An invitation: worth a pairing to whoever has the code.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Invitation {
    /// One-time token and this site's key hash, one string.
    pub code: String,
    /// What it is called in lists; says nothing of the code.
    #[serde(default)]
    pub id: String,
    /// Until when it can be used.
    pub expires_at: Timestamp,
}

/// An invitation that can still be used: without its code, which only whoever made it was told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct OpenInvitation {
    /// What it is called.
    pub id: String,
    /// Until when it can be used.
    pub expires_at: Timestamp,
}

/// `POST /peers`: pairs with a site that has invited us.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct JoinPeer {
    /// `HOST:PORT`.
    pub address: String,
    /// The invitation's code.
    #[cfg_attr(feature = "schema", schema(format = Password, write_only))]
    pub code: String,
    /// What the peer shall be called here; its own name if absent.
    #[serde(default)]
    pub name: Option<String>,
}

impl std::fmt::Debug for JoinPeer {
    /// Without the code: it is a secret until used.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinPeer")
            .field("address", &self.address)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// `POST /peers/NAME/set`: what is absent stays as it is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetPeer {
    /// Where it is dialled, `HOST:PORT`; empty: it dials us.
    #[serde(default)]
    pub address: Option<String>,
    /// What it shall be called here.
    #[serde(default)]
    pub name: Option<String>,
    /// All its paths, see [`PeerLink::paths`]; empty: its address alone.
    #[serde(default)]
    pub paths: Option<Vec<String>>,
    /// How they are used.
    #[serde(default)]
    pub mode: Option<PathsMode>,
    /// See [`PeerLink::dscp`]; 0: the packets are not marked.
    #[serde(default)]
    pub dscp: Option<u8>,
    /// The committed rate (CIR), such as `10Mb/s`; `unlimited`: none.
    #[serde(default)]
    pub rate: Option<String>,
    /// See [`PeerLink::keepalive_seconds`]; 2 to 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive_seconds: Option<f64>,
    /// What it may send here: `4MB/s`, with times `4MB/s,08:00-18:00=1MB/s`, or `unlimited`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle_in: Option<String>,
    /// What may be sent to it, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle_out: Option<String>,
    /// What its administrators may do at this site, over the session: `none`, `viewer` or `operator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// `POST /peers/NAME/rekey`: the site called so has another key now. NAME may also be the beginning of a key that no
/// peer has any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RekeyPeer {
    /// The peer that the site was paired anew as.
    pub with: String,
}

/// `POST /peers/NAME/allow` and `/deny`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PeerRights {
    /// `POOL/VOL`, one or more.
    pub volumes: Vec<String>,
    /// Also the way back; see [`VolumeRights::reverse`].
    #[serde(default)]
    pub reverse: bool,
    /// Refuse host writes once the peer has overtaken the volume; see [`VolumeRights::fence`].
    #[serde(default)]
    pub fence: bool,
}
