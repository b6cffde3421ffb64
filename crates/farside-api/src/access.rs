//! Who may do what over HTTPS, and who did what.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What somebody may do. Each role may do what the ones before it may.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AccessRole {
    /// Sees all that has no secret, and changes nothing.
    Viewer,
    /// Runs mirrors, volumes and snapshots; takes no data away, and lets nobody in.
    Operator,
    /// Everything.
    Administrator,
}

impl AccessRole {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            AccessRole::Viewer => "viewer",
            AccessRole::Operator => "operator",
            AccessRole::Administrator => "administrator",
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<AccessRole> {
        [AccessRole::Viewer, AccessRole::Operator, AccessRole::Administrator]
            .into_iter()
            .find(|role| role.name() == name)
    }
}

/// A token as it is listed: what proves it is known to its owner alone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Token {
    /// Its name.
    pub name: String,
    /// What its owner may do.
    pub role: AccessRole,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: String,
    /// From when on it is good for nothing.
    pub expires_at: Timestamp,
    /// Whether that is past.
    pub expired: bool,
    /// When it was used last, to within a minute; null: never.
    pub last_used_at: Option<Timestamp>,
}

/// `POST /tokens`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// Its name.
    pub name: String,
    /// What its owner may do.
    pub role: AccessRole,
    /// For how long; null: 90 days. At most ten years.
    #[serde(default)]
    pub valid_seconds: Option<f64>,
}

/// A new token. What proves it is told this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CreatedToken {
    /// As it is listed from now on.
    #[serde(flatten)]
    pub token: Token,
    /// What its owner sends along: `Authorization: Bearer SECRET`.
    #[cfg_attr(feature = "schema", schema(format = Password))]
    pub secret: String,
}

impl std::fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedToken").field("token", &self.token).finish_non_exhaustive()
    }
}

/// A person who logs in with a password.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Account {
    /// Its name.
    pub name: String,
    /// What this person may do.
    pub role: AccessRole,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: String,
    /// How often this person is logged in now.
    pub sessions: u64,
}

/// `POST /accounts`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateAccount {
    /// Its name.
    pub name: String,
    /// What this person may do.
    pub role: AccessRole,
    /// 12 to 256 characters.
    #[cfg_attr(feature = "schema", schema(format = Password, write_only, min_length = 12, max_length = 256))]
    pub password: String,
}

impl std::fmt::Debug for CreateAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreateAccount").field("name", &self.name).finish_non_exhaustive()
    }
}

/// `POST /accounts/ACCOUNT/set`: what is absent stays as it is. It ends every session of the account.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetAccount {
    /// What this person may do.
    #[serde(default)]
    pub role: Option<AccessRole>,
    /// 12 to 256 characters.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(format = Password, write_only, min_length = 12, max_length = 256))]
    pub password: Option<String>,
}

impl std::fmt::Debug for SetAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SetAccount").field("role", &self.role).finish_non_exhaustive()
    }
}

/// `POST /session`: logs in. The answer sets a cookie.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// The account.
    pub name: String,
    /// Its password.
    #[cfg_attr(feature = "schema", schema(format = Password, write_only))]
    pub password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("name", &self.name).finish_non_exhaustive()
    }
}

/// `GET /session`: who asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WhoAmI {
    /// `account NAME`, `token NAME`, or `uid NUMBER` on the control socket.
    pub who: String,
    /// What they may do.
    pub role: AccessRole,
    /// When the session or token ends; null: not by itself.
    pub ends_at: Option<Timestamp>,
}

/// What is done and has nothing else to say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Confirmed {
    /// Always true: a failure has another form.
    pub done: bool,
}

/// One change that somebody asked for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AuditEntry {
    /// Its number. Numbers grow, and none is given twice.
    pub id: i64,
    /// When it was asked for.
    pub at: Timestamp,
    /// `account NAME`, `token NAME`, or `uid NUMBER` on the control socket.
    pub who: String,
    /// What they were allowed then; null: nobody had said who they were.
    pub role: Option<AccessRole>,
    /// `socket`, or the address.
    pub from: String,
    /// The method: `POST` or `DELETE`.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// What was sent along, secrets replaced by `***`; null: nothing, or what is no JSON or too long.
    pub request: Option<serde_json::Value>,
    /// `done`, or the code of the failure; null: the daemon ended before it was over.
    pub outcome: Option<String>,
    /// What was said of the failure.
    pub message: Option<String>,
    /// How long it took; null: it is not over.
    pub duration_seconds: Option<f64>,
}

/// `GET /audit`: newest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AuditPage {
    /// The entries.
    pub entries: Vec<AuditEntry>,
    /// What to ask for as `before` for the next page; null: there is none.
    pub next: Option<i64>,
}
