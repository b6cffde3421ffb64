//! Sites that this one is paired with, as it sees them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{AccessRole, SiteStatus};

/// How a site is seen from here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SiteSeenState {
    /// It is the one that answers.
    Here,
    /// It has answered now.
    Seen,
    /// It does not let this site look.
    Closed,
    /// It cannot be asked now.
    Away,
}

impl SiteSeenState {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            SiteSeenState::Here => "here",
            SiteSeenState::Seen => "seen",
            SiteSeenState::Closed => "closed",
            SiteSeenState::Away => "away",
        }
    }
}

/// A site, as it is or was seen last.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SiteSeen {
    /// What it is called here.
    pub name: String,
    /// Its identity: SHA-256 of its key, 64 hexadecimal digits.
    pub id: String,
    /// How it is seen now.
    pub state: SiteSeenState,
    /// Why it cannot be asked, or may not.
    pub why: Option<String>,
    /// When it answered last; what follows is as of then. Null: not since this daemon started.
    pub seen_at: Option<Timestamp>,
    /// The version of farside there.
    pub version: Option<String>,
    /// What whoever asks may do there.
    pub role: Option<AccessRole>,
    /// How it is.
    pub status: Option<SiteStatus>,
}

impl SiteSeen {
    /// One that has not answered yet.
    pub fn unseen(name: String, id: String) -> SiteSeen {
        let state = SiteSeenState::Away;
        SiteSeen { name, id, state, why: None, seen_at: None, version: None, role: None, status: None }
    }
}
