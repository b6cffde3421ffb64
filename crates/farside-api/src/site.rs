//! This daemon.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The daemon that answers, and where it is met.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Site {
    /// The site's name, `--name`.
    pub name: String,
    /// Its identity: SHA-256 of its key, 64 hexadecimal digits.
    pub id: String,
    /// The version of farside.
    pub version: String,
    /// The data directory.
    pub data_dir: String,
    /// Where peers are met; null when `--peer-listen off`.
    pub peer_address: Option<String>,
    /// Where `/metrics` and `/healthz` are; null when `--http off`.
    pub http_address: Option<String>,
    /// Where this API is served over HTTPS; null when that is off.
    #[serde(default)]
    pub api_address: Option<String>,
    /// SHA-256 of the certificate that is shown there, 64 hexadecimal digits: what a client that is to trust it names.
    #[serde(default)]
    pub api_fingerprint: Option<String>,
    /// Where hosts are served over TCP; null when that is off.
    #[serde(default)]
    pub nbd_address: Option<String>,
    /// The NBD socket.
    pub nbd_socket: String,
}

/// `POST /site/move-state`: carries the state into another database.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MoveState {
    /// `postgres://USER@HOST[:PORT]/DB`, or `sqlite:` for `farside.db` in the data directory. It must be empty, or what the state
    /// was moved away from.
    pub to: String,
    /// The password there; without one the daemon asks the file that its `PGPASSFILE` names.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(format = Password, write_only))]
    pub password: Option<String>,
}

/// That the state was moved. The daemon is to be restarted with the new address: until then it refuses what it would have to keep.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StateMoved {
    /// Where it is now: what `database` in `farside.toml` is to be.
    pub to: String,
    /// What was carried.
    pub tables: Vec<MovedTable>,
}

/// A table that was carried.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MovedTable {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub rows: i64,
}

/// How a daemon of the site is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DaemonState {
    /// It lives: it leads, or stands by to lead.
    Active,
    /// It lives, and is not to lead.
    Draining,
    /// It was not seen lately, or was stopped.
    Gone,
}

impl DaemonState {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            DaemonState::Active => "active",
            DaemonState::Draining => "draining",
            DaemonState::Gone => "gone",
        }
    }
}

/// A daemon of the site.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DaemonStatus {
    /// What it is called.
    pub name: String,
    /// Where the other daemons reach its API; null: nowhere.
    pub address: Option<String>,
    /// How it is.
    pub state: DaemonState,
    /// It does the site's work; the others answer and stand by.
    pub leads: bool,
    /// Replicas whose mirrors it drives.
    pub mirrors: u64,
    /// Transfers under way there.
    pub transfers: u64,
    /// When it was last seen, by the database's clock; null: never.
    pub last_seen_at: Option<Timestamp>,
    /// Its version of farside.
    pub version: String,
}

/// `POST /site/invitations`: invites a further daemon.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct InviteDaemon {
    /// How long the invitation is good; an hour if it is left out, a day at most.
    #[serde(default)]
    pub ttl_seconds: Option<u64>,
}

/// An invitation for a further daemon of the site. Good once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DaemonInvited {
    /// What the new daemon is told: whoever has it and the database has the site's key.
    #[cfg_attr(feature = "schema", schema(format = Password))]
    pub code: String,
    /// What the invitation is called, to take it back.
    #[serde(default)]
    pub id: String,
    /// Seconds that it is good for.
    pub ttl_seconds: u64,
    /// The site's database, without a password.
    pub database: String,
}

/// `POST /site/join`: makes this daemon, which has no peers and pools yet, one of a site.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct JoinSite {
    /// The site's database: `postgres://USER@HOST[:PORT]/DB`.
    pub database: String,
    /// The password there; without one the daemon asks the file that its `PGPASSFILE` names.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(format = Password, write_only))]
    pub password: Option<String>,
    /// The code that `farside site invite` has printed.
    #[cfg_attr(feature = "schema", schema(format = Password, write_only))]
    pub code: String,
}

/// That this daemon is one of the site's from its next start on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SiteJoined {
    /// What it is called among the site's daemons.
    pub daemon: String,
    /// The site's identity.
    pub site_id: String,
    /// What `database` in `farside.toml` is to be.
    pub database: String,
}
