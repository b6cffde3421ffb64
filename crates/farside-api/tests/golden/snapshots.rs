//! Snapshots and what differs between them.

use super::*;

#[test]
fn snapshot_list() {
    golden(
        &vec![Snapshot {
            name: "monday".into(),
            volume: "p/v".into(),
            uuid: id(),
            content_root: Some("00112233445566778899aabbccddeeff".into()),
            created_at: at("2026-11-21T20:00:00.5Z"),
            held: true,
            on_main_line: false,
            made_by: MadeBy::Mirror,
            referenced_bytes: Some(8192),
            unique_bytes: None,
        }],
        json!([{
            "name": "monday", "volume": "p/v", "uuid": ID, "content_root": "00112233445566778899aabbccddeeff",
            "created_at": "2026-11-21T20:00:00.5Z", "held": true, "on_main_line": false, "made_by": "mirror", "referenced_bytes": 8192,
            "unique_bytes": null
        }]),
    );
}

#[test]
fn who_made_a_snapshot() {
    golden(&vec![MadeBy::Person, MadeBy::Mirror, MadeBy::Common], json!(["person", "mirror", "common"]));
}

#[test]
fn a_rollback() {
    golden(
        &Rollback { volume: "p/v".into(), snapshot: "monday".into(), kept_as: Some("p/v@rescue-1".into()) },
        json!({"volume": "p/v", "snapshot": "monday", "kept_as": "p/v@rescue-1"}),
    );
}

#[test]
fn snapshot_diff() {
    golden(
        &vec![
            Difference { offset: 0, length: 4096, kind: DifferenceKind::Data },
            Difference { offset: 8192, length: 4096, kind: DifferenceKind::Hole },
        ],
        json!([{"offset": 0, "length": 4096, "kind": "data"}, {"offset": 8192, "length": 4096, "kind": "hole"}]),
    );
}
