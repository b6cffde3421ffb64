//! Peers: other sites that this one is paired with.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Whether there is a session with a peer now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerState {
    /// A session is up.
    Connected,
    /// None.
    Disconnected,
}

/// A peer as it is listed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// What it is called here.
    pub name: String,
    /// Its identity: SHA-256 of its key, 64 hexadecimal digits.
    pub id: String,
    /// Where this site dials it; null if it always dials us.
    pub address: Option<String>,
    /// Whether there is a session.
    pub state: PeerState,
    /// Why there is none.
    #[serde(default)]
    pub why: Option<String>,
    /// The protocol of the session.
    pub protocol: Option<u32>,
    /// Round-trip time, last measured.
    pub rtt_seconds: Option<f64>,
    /// Bytes sent to it since this daemon started, TLS included.
    pub sent_bytes: u64,
    /// Bytes received from it, likewise.
    pub received_bytes: u64,
}

/// What a peer may do with one volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeRights {
    /// `POOL/VOL`; need not exist yet.
    pub volume: String,
    /// Its volume may become a replica of ours, and ours of its (failback).
    pub reverse: bool,
    /// Hosts may not write to the volume while the peer has overtaken it.
    #[serde(default)]
    pub fence: bool,
}

/// `peer status`: a peer and its rights.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PeerStatus {
    /// The peer.
    #[serde(flatten)]
    pub peer: Peer,
    /// When it was paired.
    pub paired_at: Option<Timestamp>,
    /// What it may do here.
    pub rights: Vec<VolumeRights>,
}

/// `POST /peers/invitations`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateInvitation {
    /// How long the code can be used, seconds.
    pub valid_seconds: f64,
}

/// An invitation: worth a pairing to whoever has the code.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Invitation {
    /// One-time token and this site's key hash, one string.
    pub code: String,
    /// Until when it can be used.
    pub expires_at: Timestamp,
}

/// `POST /peers`: pairs with a site that has invited us.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinPeer {
    /// `HOST:PORT`.
    pub address: String,
    /// The invitation's code.
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
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPeer {
    /// Where it is dialled, `HOST:PORT`; empty: it dials us.
    #[serde(default)]
    pub address: Option<String>,
    /// What it shall be called here.
    #[serde(default)]
    pub name: Option<String>,
}

/// `POST /peers/NAME/allow` and `/deny`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
