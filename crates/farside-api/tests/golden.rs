//! The names of the contract: each shape against the JSON it must be, both ways.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

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

fn peer() -> Peer {
    Peer {
        name: "b".into(),
        id: "ab".repeat(32),
        address: Some("192.0.2.1:7440".into()),
        state: PeerState::Connected,
        why: None,
        protocol: Some(1),
        rtt_seconds: Some(0.05),
        sent_bytes: 10,
        received_bytes: 20,
    }
}

#[test]
fn peer_list_and_status() {
    let listed = json!({
        "name": "b", "id": "ab".repeat(32), "address": "192.0.2.1:7440", "state": "connected", "why": null,
        "protocol": 1, "rtt_seconds": 0.05, "sent_bytes": 10, "received_bytes": 20
    });
    golden(&peer(), listed.clone());
    let mut status = listed;
    status["paired_at"] = json!("2026-11-21T20:00:00Z");
    status["link"] = json!({"paths": [], "mode": "multiplex", "dscp": 10, "rate_bytes_per_second": null,
        "keepalive_seconds": null});
    status["paths"] = json!([]);
    status["streams"] = json!({"open": 0, "idle_lanes": 0, "reused_lanes": 0, "retransmitted_bytes": 0});
    status["throttle_in"] = json!({"rules": "4MB/s", "bytes_per_second": 4_000_000});
    status["throttle_out"] = json!({"rules": "unlimited", "bytes_per_second": null});
    status["rights"] = json!([{"volume": "p/v", "reverse": true, "fence": false, "recorded": false}]);
    golden(
        &PeerStatus {
            peer: peer(),
            paired_at: Some(at("2026-11-21T20:00:00Z")),
            rights: vec![VolumeRights { volume: "p/v".into(), reverse: true, fence: false, recorded: false }],
            link: PeerLink { dscp: Some(10), ..PeerLink::default() },
            paths: Vec::new(),
            streams: PeerStreams::default(),
            throttle_in: Some(Throttle { rules: "4MB/s".into(), bytes_per_second: Some(4_000_000) }),
            throttle_out: Some(Throttle { rules: "unlimited".into(), bytes_per_second: None }),
            notes: Vec::new(),
        },
        status,
    );
}

#[test]
fn an_invitation_code_is_never_printed_by_debug() {
    let join = JoinPeer { address: "h:1".into(), code: "sekrit".into(), name: None };
    assert!(!format!("{join:?}").contains("sekrit"));
}

#[test]
fn mirror_status() {
    golden(
        &vec![Mirror {
            id: id(),
            name: "q/r".into(),
            role: Role::Destination,
            source: "a:p/v".into(),
            destination: "q/r".into(),
            state: MirrorState::Transferring,
            why: None,
            lag_seconds: Some(12.5),
            objective_seconds: None,
            current_snapshot: Some("s1".into()),
            content_root: Some("00".repeat(16)),
            base_snapshot: Some("s1".into()),
            last_proven_at: None,
            schedule: Some("every 10s".into()),
            throttle: Some(4_000_000),
            link: Some(MirrorLink {
                throttle: "4MB/s".into(),
                window_bytes: None,
                low_priority: true,
                paths: vec!["10.0.0.1=a:7440".into()],
            }),
            transfer: Some(Transfer {
                kind: TransferKind::Update,
                phase: TransferPhase::Difference,
                changed_bytes: None,
                done_bytes: 0,
                wire_bytes: 300,
                rate_bytes_per_second: None,
                eta_seconds: None,
                levels: levels(),
            }),
            overtaken: None,
            source_heard: Some(SourceHeard::NotYet),
            source_overtaken: Some(SourceOvertaken { by: "c:r/s".into(), since: at("2026-11-21T21:00:00Z") }),
            kept_as: None,
        }],
        json!([{
            "id": ID, "name": "q/r", "role": "destination", "source": "a:p/v", "destination": "q/r",
            "state": "transferring", "why": null, "lag_seconds": 12.5, "objective_seconds": null,
            "current_snapshot": "s1", "content_root": "00".repeat(16), "base_snapshot": "s1", "last_proven_at": null,
            "schedule": "every 10s", "throttle": 4_000_000,
            "link": {"throttle": "4MB/s", "window_bytes": null, "low_priority": true, "paths": ["10.0.0.1=a:7440"]},
            "transfer": {
                "kind": "update", "phase": "difference", "changed_bytes": null, "done_bytes": 0, "wire_bytes": 300,
                "rate_bytes_per_second": null, "eta_seconds": null, "levels": levels_as_json()
            },
            "overtaken": null, "source_heard": "not-yet",
            "source_overtaken": {"by": "c:r/s", "since": "2026-11-21T21:00:00Z"}
        }]),
    );
}

#[test]
fn mirror_destinations() {
    golden(
        &vec![MirrorDestination {
            id: id(),
            volume: "p/v".into(),
            peer: "b".into(),
            destination: "q/r".into(),
            base_snapshot: Some("s1".into()),
            content_root: Some("00".repeat(16)),
            since: Some(at("2026-11-21T20:00:00Z")),
            pinned_bytes: None,
            transferring: false,
            known: true,
            stale: false,
            overtaken: Some(Overtaken {
                since: at("2026-11-21T21:00:00Z"),
                reported_at: at("2026-11-21T22:00:00Z"),
                snapshot: Some("s1".into()),
                diverged_bytes: Some(8192),
                diverged_blocks: Some(2),
                fenced: true,
                ended: false,
                beyond: Some("c:r/s".into()),
                follows: None,
            }),
            released: Some(Released { at: at("2026-11-21T23:00:00Z"), why: "the pool had less free".into() }),
            budgets: Some(BudgetUse {
                transfers: 1,
                transfers_max: 16,
                mirrors: 2,
                mirrors_max: 1024,
                pins: 3,
                pins_max: 16384,
                snapshots: 4,
                snapshots_max: 1200,
                pinned_bytes_max: None,
            }),
        }],
        json!([{
            "id": ID, "volume": "p/v", "peer": "b", "destination": "q/r", "base_snapshot": "s1",
            "content_root": "00".repeat(16), "since": "2026-11-21T20:00:00Z", "pinned_bytes": null,
            "transferring": false, "known": true, "stale": false,
            "overtaken": {
                "since": "2026-11-21T21:00:00Z", "reported_at": "2026-11-21T22:00:00Z", "snapshot": "s1",
                "diverged_bytes": 8192, "diverged_blocks": 2, "fenced": true, "ended": false, "beyond": "c:r/s",
                "follows": null
            },
            "released": {"at": "2026-11-21T23:00:00Z", "why": "the pool had less free"},
            "budgets": {
                "transfers": 1, "transfers_max": 16, "mirrors": 2, "mirrors_max": 1024, "pins": 3,
                "pins_max": 16384, "snapshots": 4, "snapshots_max": 1200, "pinned_bytes_max": null
            }
        }]),
    );
}

#[test]
fn names_of_states_roles_and_phases() {
    use MirrorState::*;
    let states = [Uninitialized, Initializing, Mirrored, Transferring, Queued, Quiesced, BrokenOff];
    golden(
        &states.to_vec(),
        json!([
            "uninitialized",
            "initializing",
            "mirrored",
            "transferring",
            "queued",
            "quiesced",
            "broken-off"
        ]),
    );
    use TransferPhase::*;
    golden(
        &vec![Waiting, Snapshot, Difference, Transfer, Verify, Commit],
        json!(["waiting", "snapshot", "difference", "transfer", "verify", "commit"]),
    );
    golden(&vec![Role::Destination, Role::Source], json!(["destination", "source"]));
    golden(
        &vec![TransferKind::Initialize, TransferKind::Update, TransferKind::Resync],
        json!(["initialize", "update", "resync"]),
    );
    use OperationKind as Kind;
    golden(
        &vec![Kind::Initialize, Kind::Update, Kind::Resync, Kind::Swap],
        json!(["initialize", "update", "resync", "swap"]),
    );
    golden(
        &vec![
            SwapPhase::Update,
            SwapPhase::Fence,
            SwapPhase::LastUpdate,
            SwapPhase::Takeover,
            SwapPhase::Notify,
        ],
        json!(["update", "fence", "last-update", "takeover", "notify"]),
    );
    golden(
        &vec![TransferResult::Ok, TransferResult::Failed, TransferResult::Aborted],
        json!(["ok", "failed", "aborted"]),
    );
}

#[test]
fn mirror_history() {
    golden(
        &vec![TransferRecord {
            id: id(),
            kind: TransferKind::Update,
            result: TransferResult::Ok,
            reason: None,
            started_at: at("2026-11-21T20:00:00Z"),
            ended_at: at("2026-11-21T20:00:01.5Z"),
            duration_seconds: 1.5,
            base: Some("s1".into()),
            incremental: Some("s2".into()),
            content_root: Some("00".repeat(16)),
            resumed: false,
            snapshots: 1,
            changed_bytes: 4096,
            resumed_bytes: 0,
            deallocated_bytes: 0,
            source_read_bytes: Some(4096),
            base_read_bytes: None,
            referenced_bytes: None,
            delta_bytes: None,
            literal_bytes: Some(4096),
            levels: Some(levels()),
            overhead_bytes: Some(1000),
            wire_bytes_sent: 500,
            wire_bytes_received: 4600,
            scan_seconds: Some(0.01),
        }],
        json!([{
            "id": ID, "kind": "update", "result": "ok", "reason": null, "started_at": "2026-11-21T20:00:00Z",
            "ended_at": "2026-11-21T20:00:01.5Z", "duration_seconds": 1.5, "base": "s1", "incremental": "s2",
            "content_root": "00".repeat(16), "resumed": false, "snapshots": 1, "changed_bytes": 4096, "resumed_bytes": 0,
            "deallocated_bytes": 0, "source_read_bytes": 4096, "base_read_bytes": null,
            "referenced_bytes": null, "delta_bytes": null,
            "literal_bytes": 4096, "wire_bytes_sent": 500, "wire_bytes_received": 4600, "scan_seconds": 0.01,
            "levels": levels_as_json(), "overhead_bytes": 1000
        }]),
    );
}

#[test]
fn pools_and_volumes() {
    golden(
        &Pool {
            name: "p".into(),
            uuid: None,
            path: "/srv/p".into(),
            state: PoolState::Failed,
            error: Some("no superblock".into()),
            advice: Some("farside pool reopen p".into()),
            size_bytes: None,
            used_bytes: None,
            reclaimable_bytes: None,
            free_bytes: None,
            volumes: None,
            corrupt_blocks: None,
            staged: None,
            staged_bytes: None,
            quarantined: None,
            unattributed_bytes_max: None,
        },
        json!({
            "name": "p", "uuid": null, "path": "/srv/p", "state": "failed", "error": "no superblock",
            "advice": "farside pool reopen p", "size_bytes": null, "used_bytes": null, "reclaimable_bytes": null,
            "free_bytes": null, "volumes": null,
            "corrupt_blocks": null, "staged": null, "staged_bytes": null, "quarantined": null,
            "unattributed_bytes_max": null
        }),
    );
    golden(
        &Volume {
            name: "p/v".into(),
            uuid: id(),
            size_bytes: 1 << 30,
            referenced_bytes: Some(4096),
            snapshots: 2,
            side_branches: 1,
            replica: false,
            writable: true,
            why: None,
            writers: 1,
            readers: 0,
            rights_of: vec!["b".into()],
            quarantined: None,
        },
        json!({
            "name": "p/v", "uuid": ID, "size_bytes": 1_073_741_824, "referenced_bytes": 4096, "snapshots": 2,
            "side_branches": 1, "replica": false, "writable": true, "why": null, "writers": 1, "readers": 0, "rights_of": ["b"],
            "quarantined": null
        }),
    );
}

#[test]
fn a_request_with_a_misspelt_field_is_refused() {
    assert!(serde_json::from_value::<CreateVolume>(json!({"name": "p/v", "size": 4096})).is_err());
    assert!(serde_json::from_value::<SetMirror>(json!({"evry_seconds": 1.0})).is_err());
    assert!(serde_json::from_value::<BreakMirror>(json!({"At": "monday"})).is_err());
    assert_eq!(serde_json::from_value::<BreakMirror>(json!({})).unwrap(), BreakMirror { at: None });
    assert!(serde_json::from_value::<ResyncMirror>(json!({"form": "a:p/v"})).is_err());
}

#[test]
fn schedules_of_requests() {
    golden(
        &CreateMirror {
            source: "a:p/v".into(),
            destination: "q/r".into(),
            every_seconds: None,
            schedule: Some("*/15 * * * *".into()),
            time_zone: Some("Europe/Berlin".into()),
            no_reverse: false,
            link: None,
        },
        json!({
            "source": "a:p/v", "destination": "q/r", "every_seconds": null, "schedule": "*/15 * * * *",
            "time_zone": "Europe/Berlin", "no_reverse": false
        }),
    );
    golden(
        &SetMirror { every_seconds: Some(0.0), ..SetMirror::default() },
        json!({"every_seconds": 0.0, "schedule": null, "time_zone": null}),
    );
    // What a client of the first version sends.
    assert_eq!(serde_json::from_value::<SetMirror>(json!({})).unwrap(), SetMirror::default());
}

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
            refused: None,
        },
        json!({
            "action": "roll p/v back", "would": ["w"], "lost": [], "lost_blocks": 0, "lost_bytes": 0,
            "lost_seconds": 0.0, "kept_as": "p/v@rescue-1", "kept_blocks": 2, "kept_bytes": 8192,
            "kept_seconds": 1.5, "refused": null
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
            record: None,
            error: Some(ErrorBody::new(ErrorCode::PeerUnreachable, "gone")),
        },
        json!({
            "id": ID, "kind": "swap", "phase": "last-update", "volume": "q/r", "state": "failed", "started_at": "2026-11-21T20:00:00Z",
            "ended_at": null, "transfer": null, "session_lost_seconds": 2.5, "record": null,
            "error": {"code": "peer-unreachable", "message": "gone", "hint": null}
        }),
    );
}

#[test]
fn mirror_log() {
    let line = |event, kind| LogLine {
        at: at("2026-11-21T20:00:00Z"),
        mirror: "q/r".into(),
        relationship: id(),
        event,
        kind,
        transfer: None,
        requested_by: None,
        bytes: None,
        reason: None,
    };
    golden(
        &vec![
            LogLine {
                requested_by: Some(RequestedBy::Schedule),
                ..line(LogEvent::Request, Some(TransferKind::Update))
            },
            LogLine {
                transfer: Some(id()),
                bytes: Some(4096),
                ..line(LogEvent::End, Some(TransferKind::Update))
            },
            LogLine { reason: Some("aborted".into()), ..line(LogEvent::Abort, Some(TransferKind::Resync)) },
            line(LogEvent::Break, None),
        ],
        json!([
            {
                "at": "2026-11-21T20:00:00Z", "mirror": "q/r", "relationship": ID, "event": "request", "kind": "update",
                "transfer": null, "requested_by": "schedule", "bytes": null, "reason": null
            },
            {
                "at": "2026-11-21T20:00:00Z", "mirror": "q/r", "relationship": ID, "event": "end", "kind": "update",
                "transfer": ID, "requested_by": null, "bytes": 4096, "reason": null
            },
            {
                "at": "2026-11-21T20:00:00Z", "mirror": "q/r", "relationship": ID, "event": "abort", "kind": "resync",
                "transfer": null, "requested_by": null, "bytes": null, "reason": "aborted"
            },
            {
                "at": "2026-11-21T20:00:00Z", "mirror": "q/r", "relationship": ID, "event": "break", "kind": null,
                "transfer": null, "requested_by": null, "bytes": null, "reason": null
            }
        ]),
    );
}

#[test]
fn support() {
    golden(
        &Support {
            versions: Versions {
                farside: "0.1.0".into(),
                format: 2,
                session_protocol: [1, 1],
                mirror_protocol: [3, 3],
                schema: 4,
            },
            started_at: at("2026-11-21T20:00:00Z"),
            now: at("2026-11-21T21:00:00Z"),
            configuration: Configuration {
                name: "a".into(),
                data_dir: "/var/lib/farside".into(),
                peer_listen: "0.0.0.0:7440".into(),
                http: "off".into(),
                log: "info".into(),
                log_format: "text".into(),
                wire: Some(WireConfiguration {
                    effort: "auto".into(),
                    encoder_memory_bytes: 268_435_456,
                    similarity_bytes_per_tib: 16_777_216,
                }),
                budgets: Some(BudgetConfiguration {
                    snapshots_per_minute: 1200,
                    calls_per_minute: 12_000,
                    transfers: 16,
                    mirrors: 1024,
                    pins: 16_384,
                    pinned_bytes: None,
                    pin_age_days: 366,
                    reserve_percent: 5,
                }),
                replicas: Some(ReplicaConfiguration { reserve_percent: 5, snapshots: 4096, rescues: 16 }),
                accelerator: Some(AcceleratorConfiguration {
                    lan: vec!["eth1".into()],
                    wan: Some("eth0".into()),
                    listen: "0.0.0.0:7442".into(),
                    store_size_bytes: 10 << 30,
                    forward_to: vec!["10.2.0.5:5432".into()],
                    policies: 2,
                    otherwise: Acceleration::Full,
                    peers: vec!["b".into()],
                }),
            },
            log: vec!["one".into()],
            network_advice: vec!["sysctl".into()],
            log_dropped: 7,
        },
        json!({
            "versions": {
                "farside": "0.1.0", "format": 2, "session_protocol": [1, 1], "mirror_protocol": [3, 3], "schema": 4
            },
            "started_at": "2026-11-21T20:00:00Z", "now": "2026-11-21T21:00:00Z",
            "configuration": {
                "name": "a", "data_dir": "/var/lib/farside", "peer_listen": "0.0.0.0:7440", "http": "off",
                "log": "info", "log_format": "text",
                "wire": {
                    "effort": "auto", "encoder_memory_bytes": 268_435_456, "similarity_bytes_per_tib": 16_777_216
                },
                "budgets": {
                    "snapshots_per_minute": 1200, "calls_per_minute": 12_000, "transfers": 16, "mirrors": 1024,
                    "pins": 16_384, "pinned_bytes": null, "pin_age_days": 366, "reserve_percent": 5
                },
                "replicas": {"reserve_percent": 5, "snapshots": 4096, "rescues": 16},
                "accelerator": {
                    "lan": ["eth1"], "wan": "eth0", "listen": "0.0.0.0:7442", "store_size_bytes": 10_737_418_240_u64,
                    "forward_to": ["10.2.0.5:5432"], "policies": 2, "otherwise": "full", "peers": ["b"]
                }
            },
            "network_advice": ["sysctl"], "log": ["one"], "log_dropped": 7
        }),
    );
}

#[test]
fn accelerator_status() {
    let status = AcceleratorStatus {
        state: AcceleratorState::Bypass,
        why: Some("its process is starting".into()),
        peers: vec![AcceleratorPeer {
            name: "b".into(),
            state: AcceleratorPeerState::Connected,
            why: None,
            since: Some("2026-11-21T20:00:00Z".parse().unwrap()),
            rtt_seconds: Some(0.03),
            subnets: vec!["10.2.0.0/16".into()],
        }],
        optimized_connections: 1,
        passed_through_connections: 2,
        original_bytes: 3,
        wire_bytes: 4,
        store_bytes: None,
        store_size_bytes: Some(10 << 30),
        taken_connections: 5,
        reset_connections: 6,
        restarts: 7,
        lan: vec!["eth1".into()],
        wan: Some("eth0".into()),
        listen: Some("0.0.0.0:7442".into()),
        forward_to: vec!["10.2.0.5:5432".into()],
        forwards_error: Some("cannot listen at 127.0.0.1:1: taken".into()),
        warnings: vec!["the disk is full".into()],
        prepositioned_original_bytes: 8,
        prepositioned_wire_bytes: 9,
        applications: vec![AcceleratedApplication {
            application: "rsync".into(),
            optimized_connections: 2,
            demoted_connections: 1,
            taken_connections: 3,
            passed_through_connections: 4,
            sent_original_bytes: 50,
            sent_wire_bytes: 5,
            received_original_bytes: 60,
            received_wire_bytes: 6,
        }],
        demotions: vec![DemotedConnections { reason: Demotion::NoPeer, connections: 3 }],
        held_connections: 1,
        block_wait: Some(AcceleratorTimes {
            count: 3,
            p50_seconds: Some(0.001),
            p99_seconds: None,
            sum_seconds: 2.5,
            bounds_seconds: vec![0.001],
            counts: vec![2, 1],
        }),
        connection_hold: None,
        cache: None,
    };
    golden(
        &status,
        json!({
            "state": "bypass", "why": "its process is starting",
            "peers": [{
                "name": "b", "state": "connected", "why": null, "since": "2026-11-21T20:00:00Z", "rtt_seconds": 0.03,
                "subnets": ["10.2.0.0/16"]
            }],
            "optimized_connections": 1, "passed_through_connections": 2, "original_bytes": 3, "wire_bytes": 4,
            "store_bytes": null, "store_size_bytes": 10_737_418_240_u64, "taken_connections": 5,
            "reset_connections": 6, "restarts": 7, "lan": ["eth1"], "wan": "eth0", "listen": "0.0.0.0:7442",
            "forward_to": ["10.2.0.5:5432"], "forwards_error": "cannot listen at 127.0.0.1:1: taken",
            "warnings": ["the disk is full"], "prepositioned_original_bytes": 8, "prepositioned_wire_bytes": 9,
            "applications": [{
                "application": "rsync", "optimized_connections": 2, "demoted_connections": 1, "taken_connections": 3,
                "passed_through_connections": 4, "sent_original_bytes": 50, "sent_wire_bytes": 5,
                "received_original_bytes": 60, "received_wire_bytes": 6
            }],
            "demotions": [{"reason": "no-peer", "connections": 3}], "held_connections": 1,
            "block_wait": {
                "count": 3, "p50_seconds": 0.001, "p99_seconds": null, "sum_seconds": 2.5,
                "bounds_seconds": [0.001], "counts": [2, 1]
            },
            "connection_hold": null, "cache": null
        }),
    );
    use AcceleratorState::*;
    golden(&vec![Active, Bypass, Off], json!(["active", "bypass", "off"]));
    use AcceleratorPeerState::*;
    golden(&vec![Connected, Disconnected], json!(["connected", "disconnected"]));
}

#[test]
fn accelerator_connections_and_policies() {
    golden(
        &vec![AcceleratedConnection {
            client: "10.1.0.7:51000".into(),
            server: "10.2.0.9:5432".into(),
            application: "postgresql".into(),
            configured: Acceleration::Full,
            peer_policy: Some(Acceleration::Dre),
            negotiated: Acceleration::Dre,
            applied: Acceleration::Transport,
            reason: Some(Demotion::Encrypted),
            original_bytes: 1000,
            wire_bytes: 1010,
            opened_at: at("2026-11-21T20:00:00Z"),
            peer: Some("b".into()),
            client_is_here: true,
        }],
        json!([{
            "client": "10.1.0.7:51000", "server": "10.2.0.9:5432", "application": "postgresql",
            "configured": "full", "peer_policy": "dre", "negotiated": "dre", "applied": "transport",
            "reason": "encrypted", "original_bytes": 1000, "wire_bytes": 1010,
            "opened_at": "2026-11-21T20:00:00Z", "peer": "b", "client_is_here": true
        }]),
    );
    use Acceleration::*;
    golden(
        &vec![Full, Dre, Lz, Transport, PassThrough],
        json!(["full", "dre", "lz", "transport", "pass-through"]),
    );
    use Demotion::*;
    golden(
        &vec![NoPeer, PeerLost, NoAnswer, BoxInBetween, Encrypted, Incompressible, Overload, StoreUnusable],
        json!([
            "no-peer",
            "peer-lost",
            "no-answer",
            "box-in-between",
            "encrypted",
            "incompressible",
            "overload",
            "store-unusable"
        ]),
    );
    golden(
        &AcceleratorPolicy {
            application: "lab".into(),
            ports: vec!["8080-8089".into()],
            addresses: vec![],
            clients: vec!["10.1.0.0/16".into()],
            servers: vec![],
            action: Acceleration::Lz,
            origin: PolicyOrigin::Configured,
        },
        json!({
            "application": "lab", "ports": ["8080-8089"], "addresses": [], "clients": ["10.1.0.0/16"],
            "servers": [], "action": "lz", "origin": "configured"
        }),
    );
    golden(&vec![PolicyOrigin::Shipped, PolicyOrigin::Otherwise], json!(["shipped", "otherwise"]));
}

#[test]
fn accelerator_requests() {
    golden(
        &AcceleratorForward {
            listen: "127.0.0.1:5432".into(),
            destination: "10.2.0.5:5432".into(),
            peer: "b".into(),
        },
        json!({"listen": "127.0.0.1:5432", "destination": "10.2.0.5:5432", "peer": "b"}),
    );
    golden(
        &StartAccelerator { lan: Some(vec!["eth1".into()]), wan: Some("eth0".into()), ..Default::default() },
        json!({"lan": ["eth1"], "wan": "eth0", "store_size_bytes": null, "listen": null, "forward_to": null}),
    );
    assert_eq!(serde_json::from_value::<StartAccelerator>(json!({})).unwrap(), StartAccelerator::default());
    assert!(serde_json::from_value::<StartAccelerator>(json!({"lans": ["eth1"]})).is_err());
    golden(
        &AcceleratorPlan {
            lan: vec!["eth1".into()],
            wan: Some("eth0".into()),
            listen: "0.0.0.0:7442".into(),
            forward_to: vec![],
            rules: Some("table inet farside {}".into()),
        },
        json!({
            "lan": ["eth1"], "wan": "eth0", "listen": "0.0.0.0:7442", "forward_to": [],
            "rules": "table inet farside {}"
        }),
    );
    golden(
        &ResetConnection { client: "10.1.0.7:1".into(), server: "10.2.0.9:2".into() },
        json!({"client": "10.1.0.7:1", "server": "10.2.0.9:2"}),
    );
    golden(
        &PrepositionFile { job: "1-2".into(), what: "/a".into(), peer: None, size_bytes: Some(5) },
        json!({"job": "1-2", "what": "/a", "peer": null, "size_bytes": 5}),
    );
    golden(
        &PrepositionVolume { job: "1-2".into(), volume: "p/v".into(), peer: Some("b".into()) },
        json!({"job": "1-2", "volume": "p/v", "peer": "b"}),
    );
    golden(
        &Preposition {
            job: "1-2".into(),
            what: "/a".into(),
            peer: "b".into(),
            size_bytes: None,
            original_bytes: 1,
            wire_bytes: 2,
            started_at: "2026-11-21T20:00:00Z".parse().unwrap(),
        },
        json!({"job": "1-2", "what": "/a", "peer": "b", "size_bytes": null, "original_bytes": 1, "wire_bytes": 2,
            "started_at": "2026-11-21T20:00:00Z"}),
    );
    golden(
        &Prepositioned { what: "/a".into(), peer: "b".into(), original_bytes: 1, wire_bytes: 2 },
        json!({"what": "/a", "peer": "b", "original_bytes": 1, "wire_bytes": 2}),
    );
    golden(
        &SetAcceleratorPolicy {
            application: "payroll".into(),
            ports: vec!["7000".into()],
            addresses: Vec::new(),
            clients: Vec::new(),
            servers: Vec::new(),
            action: Acceleration::Dre,
            first: true,
        },
        json!({"application": "payroll", "ports": ["7000"], "addresses": [], "clients": [], "servers": [],
            "action": "dre", "first": true}),
    );
    golden(&ClearCache { peer: Some("south".into()) }, json!({"peer": "south"}));
    golden(
        &AcceleratorCache {
            bytes: 1,
            size_bytes: 2,
            chunks: 3,
            index_bytes: 4,
            lookups: 6,
            hits: 5,
            evicted_containers: 7,
            damaged_containers: 8,
            hit_ratio: Some(0.5),
            oldest_seconds: Some(9),
            not_loaded_containers: 10,
            trouble: None,
        },
        json!({"bytes": 1, "size_bytes": 2, "chunks": 3, "index_bytes": 4, "lookups": 6, "hits": 5,
            "evicted_containers": 7, "damaged_containers": 8, "hit_ratio": 0.5, "oldest_seconds": 9,
            "not_loaded_containers": 10, "trouble": null}),
    );
}
