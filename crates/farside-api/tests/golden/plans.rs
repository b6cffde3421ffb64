//! Checks, plans and operations that take a while.

use super::*;

#[test]
fn a_check_a_plan_and_an_operation() {
    golden(
        &PoolCheck {
            path: "/srv/p".into(),
            uuid: id(),
            size_bytes: 1 << 30,
            used_bytes: 8192,
            generation: 7,
            superblock_errors: vec![None, Some("checksum".into())],
            journal_batches: 2,
            versions: vec![CheckedVersion {
                volume: "v".into(),
                snapshot: None,
                size_bytes: 4096,
                content_root: Some("00".repeat(16)),
            }],
            findings: vec![CheckFinding {
                severity: Severity::Error,
                what: "block".into(),
                location: "place 9".into(),
                expected: "a".into(),
                found: "b".into(),
                hint: "restore".into(),
            }],
            findings_dropped: 0,
            read_bytes: 4096,
            error: Some(ErrorBody::new(ErrorCode::Corrupt, "1 errors")),
        },
        json!({
            "path": "/srv/p", "uuid": ID, "size_bytes": 1_073_741_824, "used_bytes": 8192, "generation": 7,
            "superblock_errors": [null, "checksum"], "journal_batches": 2,
            "versions": [{"volume": "v", "snapshot": null, "size_bytes": 4096, "content_root": "00".repeat(16)}],
            "findings": [{
                "severity": "error", "what": "block", "location": "place 9", "expected": "a", "found": "b",
                "hint": "restore"
            }],
            "findings_dropped": 0, "read_bytes": 4096,
            "error": {"code": "corrupt", "message": "1 errors", "hint": null}
        }),
    );
    golden(
        &Plan {
            action: "roll p/v back".into(),
            would: vec!["w".into()],
            lost: vec![],
            lost_blocks: Some(0),
            lost_bytes: Some(0),
            lost_seconds: Some(0.0),
            kept_as: Some("p/v@rescue-1".into()),
            kept_blocks: Some(2),
            kept_bytes: Some(8192),
            kept_seconds: Some(1.5),
            brings_bytes: Some(12_288),
            room_bytes: None,
            refused: None,
        },
        json!({
            "action": "roll p/v back", "would": ["w"], "lost": [], "lost_blocks": 0, "lost_bytes": 0,
            "lost_seconds": 0.0, "kept_as": "p/v@rescue-1", "kept_blocks": 2, "kept_bytes": 8192,
            "kept_seconds": 1.5, "brings_bytes": 12_288, "room_bytes": null, "refused": null
        }),
    );
    let old: Plan =
        serde_json::from_value(json!({"action": "a", "would": [], "lost": [], "refused": null})).unwrap();
    assert_eq!((old.lost_blocks, old.kept_as), (None, None), "a daemon that does not say knows nothing");
    golden(
        &Operation {
            id: id(),
            kind: OperationKind::Swap,
            phase: Some(SwapPhase::LastUpdate),
            volume: "q/r".into(),
            state: OperationState::Failed,
            started_at: at("2026-11-21T20:00:00Z"),
            ended_at: None,
            transfer: None,
            session_lost_seconds: Some(2.5),
            waits_to_begin: true,
            record: None,
            error: Some(ErrorBody::new(ErrorCode::PeerUnreachable, "gone")),
        },
        json!({
            "id": ID, "kind": "swap", "phase": "last-update", "volume": "q/r", "state": "failed", "started_at": "2026-11-21T20:00:00Z",
            "ended_at": null, "transfer": null, "session_lost_seconds": 2.5, "waits_to_begin": true, "record": null,
            "error": {"code": "peer-unreachable", "message": "gone", "hint": null}
        }),
    );
}
