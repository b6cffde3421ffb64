//! Destructive requests that are confirmed by name, and that wait before they run.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ErrorBody;

/// The header that confirms a destructive request: it names the thing, as [`thing_of`] writes it.
pub const CONFIRM_HEADER: &str = "x-farside-confirm";

/// The thing that a request is about, by the parts of its path below the API's prefix: `POOL`, `POOL/VOL`, `POOL/VOL@SNAP`,
/// `PEER`; of a release `POOL/VOL PEER`.
pub fn thing_of(path: &[&str]) -> Option<String> {
    match path {
        ["pools", pool, "staged", volume] => Some(format!("{pool}/{volume}")),
        ["pools", pool, ..] => Some((*pool).to_owned()),
        ["volumes", pool, volume, "snapshots", snapshot, ..] => Some(format!("{pool}/{volume}@{snapshot}")),
        ["mirrors", pool, volume, "release", peer] => Some(format!("{pool}/{volume} {peer}")),
        ["volumes" | "mirrors", pool, volume, ..] => Some(format!("{pool}/{volume}")),
        [_, name, ..] => Some((*name).to_owned()),
        _ => None,
    }
}

/// A destructive request that waits: until it runs, it can be stopped.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Delayed {
    /// Its id.
    pub id: Uuid,
    /// Who asked for it: `token NAME`, `account NAME`.
    pub who: String,
    /// From where.
    pub from: String,
    /// The request's method.
    pub method: String,
    /// Its path, with its query.
    pub path: String,
    /// What was sent along, without secrets; null: nothing.
    pub request: Option<serde_json::Value>,
    /// What it is about: `POOL/VOL`, say.
    pub thing: String,
    /// When it was asked for.
    pub asked_at: Timestamp,
    /// When it runs.
    pub runs_at: Timestamp,
}

/// The answer to a request that waits (status 202): nothing has been changed yet.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DelayedDocument {
    /// The request.
    pub delayed: Delayed,
    /// The same in words, as a failure has them.
    pub error: ErrorBody,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_named_as_people_name_them() {
        for (path, thing) in [
            ("pools/p", Some("p")),
            ("pools/p/staged", Some("p")),
            ("pools/p/staged/v", Some("p/v")),
            ("volumes/p/v", Some("p/v")),
            ("volumes/p/v/resize", Some("p/v")),
            ("volumes/p/v/snapshots/s", Some("p/v@s")),
            ("volumes/p/v/snapshots/s/rollback", Some("p/v@s")),
            ("mirrors/p/v/resync", Some("p/v")),
            ("mirrors/p/v/release/b", Some("p/v b")),
            ("peers/b", Some("b")),
            ("volumes", None),
            ("", None),
        ] {
            let parts: Vec<&str> = path.split('/').collect();
            assert_eq!(thing_of(&parts).as_deref(), thing, "{path}");
        }
    }
}
