//! The names of the contract: each shape against the JSON it must be, both ways.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod accelerator;
mod access;
mod alarms;
mod hosts;
mod mirrors;
mod peers;
mod plans;
mod pools;
mod snapshots;
mod support;

use farside_api::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// `value` becomes exactly `golden`, and `golden` becomes `value` again.
fn golden<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T, golden: Value) {
    assert_eq!(serde_json::to_value(value).unwrap(), golden);
    assert_eq!(&serde_json::from_value::<T>(golden).unwrap(), value);
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

const ID: &str = "0191e0a0-0000-7000-8000-000000000001";

fn id() -> Uuid {
    ID.parse().unwrap()
}

fn levels() -> Levels {
    let level = |in_bytes, out_bytes| Level { in_bytes, out_bytes };
    Levels {
        known: level(4096, 9),
        repeat: level(8192, 8),
        delta: level(12_288, 7),
        compressed: level(16_384, 6),
        raw: level(20_480, 20_480),
    }
}

fn levels_as_json() -> Value {
    json!({
        "known": {"in_bytes": 4096, "out_bytes": 9}, "repeat": {"in_bytes": 8192, "out_bytes": 8},
        "delta": {"in_bytes": 12_288, "out_bytes": 7}, "compressed": {"in_bytes": 16_384, "out_bytes": 6},
        "raw": {"in_bytes": 20_480, "out_bytes": 20_480}
    })
}

#[test]
fn errors() {
    golden(
        &ErrorDocument {
            error: ErrorBody::new(ErrorCode::NotFound, "volume p/v does not exist").hint("see the list"),
        },
        json!({"error": {"code": "not-found", "message": "volume p/v does not exist", "hint": "see the list"}}),
    );
    let unknown: ErrorBody =
        serde_json::from_value(json!({"code": "from-the-future", "message": "m"})).unwrap();
    assert_eq!(unknown, ErrorBody::new(ErrorCode::Failed, "m"));
}

#[test]
fn exit_codes_are_those_of_the_manual() {
    let codes = [
        (ErrorCode::WrongUsage, 2),
        (ErrorCode::NotFound, 3),
        (ErrorCode::Refused, 4),
        (ErrorCode::Exists, 4),
        (ErrorCode::DaemonUnreachable, 5),
        (ErrorCode::Unauthenticated, 1),
        (ErrorCode::Forbidden, 1),
        (ErrorCode::TooManyRequests, 1),
        (ErrorCode::NoSpace, 1),
        (ErrorCode::Corrupt, 1),
        (ErrorCode::PeerUnreachable, 1),
        (ErrorCode::PeerRefused, 1),
        (ErrorCode::Failed, 1),
    ];
    for (code, exit) in codes {
        assert_eq!(code.exit_code(), exit, "{code:?}");
        assert!(code.http_status() >= 400, "{code:?}");
    }
}

#[test]
fn a_request_with_a_misspelt_field_is_refused() {
    assert!(serde_json::from_value::<CreateVolume>(json!({"name": "p/v", "size": 4096})).is_err());
    assert!(serde_json::from_value::<SetMirror>(json!({"evry_seconds": 1.0})).is_err());
    assert!(serde_json::from_value::<BreakMirror>(json!({"At": "monday"})).is_err());
    assert_eq!(serde_json::from_value::<BreakMirror>(json!({})).unwrap(), BreakMirror::default());
    assert!(serde_json::from_value::<ResyncMirror>(json!({"form": "a:p/v"})).is_err());
}
