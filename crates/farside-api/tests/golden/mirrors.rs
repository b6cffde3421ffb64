//! Mirrors: status, history, log, schedules.

use super::*;

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
            objective_seconds: Some(30.0),
            forecast_seconds: Some(28.5),
            queue_position: Some(3),
            retention: Some("last=2,hourly=24".into()),
            group: Some("shop".into()),
            owner: Some("alpha".into()),
            current_snapshot: Some("s1".into()),
            content_root: Some("00".repeat(16)),
            base_snapshot: Some("s1".into()),
            last_proven_at: None,
            schedule: Some("every 10s".into()),
            schedule_lost: false,
            shows_own_state: false,
            changes_roles: false,
            no_common_moment: false,
            sleeping: false,
            group_split: None,
            was_in_use: None,
            went_on_by: None,
            turned_at: None,
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
            stopped: Some(MirrorStopped::NoRoom),
            source_heard: Some(SourceHeard::Noted),
            source_heard_at: Some(at("2026-11-21T21:30:00Z")),
            broken_off_at: None,
            set_aside: None,
            source_overtaken: Some(SourceOvertaken { by: "c:r/s".into(), since: at("2026-11-21T21:00:00Z") }),
            kept_as: None,
            hosts_refused: None,
            way_back: None,
            first_copy_bytes: None,
            room_bytes: None,
            resized: None,
            source_follows: Some("c:r/v".into()),
            taken_over: Some(TakenOver { reverse: true }),
            given_up: Some("resync".into()),
        }],
        json!([{
            "id": ID, "name": "q/r", "role": "destination", "source": "a:p/v", "destination": "q/r",
            "state": "transferring", "why": null, "stopped": "no-room", "owner": "alpha", "lag_seconds": 12.5, "objective_seconds": 30.0,
            "forecast_seconds": 28.5, "queue_position": 3, "retention": "last=2,hourly=24", "group": "shop",
            "current_snapshot": "s1", "content_root": "00".repeat(16), "base_snapshot": "s1", "last_proven_at": null,
            "schedule": "every 10s", "throttle": 4_000_000,
            "link": {"throttle": "4MB/s", "window_bytes": null, "low_priority": true, "paths": ["10.0.0.1=a:7440"]},
            "transfer": {
                "kind": "update", "phase": "difference", "changed_bytes": null, "done_bytes": 0, "wire_bytes": 300,
                "rate_bytes_per_second": null, "eta_seconds": null, "levels": levels_as_json()
            },
            "overtaken": null, "source_heard": "noted", "source_heard_at": "2026-11-21T21:30:00Z",
            "source_overtaken": {"by": "c:r/s", "since": "2026-11-21T21:00:00Z"}, "source_follows": "c:r/v",
            "taken_over": {"reverse": true}, "given_up": "resync"
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
            kept: vec![
                KeptSnapshot { name: "s1".into(), made_by_person: true, why: KeptFor::Base },
                KeptSnapshot { name: "m2".into(), made_by_person: false, why: KeptFor::Interrupted },
            ],
            transferring: false,
            known: true,
            stale: false,
            overtaken: Some(Overtaken {
                group: None,
                group_rest: None,
                since: at("2026-11-21T21:00:00Z"),
                reported_at: at("2026-11-21T22:00:00Z"),
                snapshot: Some("s1".into()),
                diverged_bytes: Some(8192),
                diverged_blocks: Some(2),
                fenced: true,
                ended: false,
                beyond: Some("c:r/s".into()),
                follows: None,
                follows_since: None,
                set_back: false,
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
            "kept": [
                {"name": "s1", "made_by_person": true, "why": "base"},
                {"name": "m2", "made_by_person": false, "why": "interrupted"}
            ],
            "transferring": false, "known": true, "stale": false,
            "overtaken": {
                "since": "2026-11-21T21:00:00Z", "reported_at": "2026-11-21T22:00:00Z", "snapshot": "s1",
                "diverged_bytes": 8192, "diverged_blocks": 2, "fenced": true, "ended": false, "beyond": "c:r/s",
                "follows": null, "follows_since": null
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
            volume: Some("q/v".into()),
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
            noise_bytes: Some(8192),
            overhead_bytes: Some(1000),
            wire_bytes_sent: 500,
            wire_bytes_received: 4600,
            scan_seconds: Some(0.01),
            set_aside: vec!["rescue-1".into()],
            let_go: vec!["rescue-0".into()],
        }],
        json!([{
            "id": ID, "volume": "q/v", "kind": "update", "result": "ok", "reason": null, "started_at": "2026-11-21T20:00:00Z",
            "ended_at": "2026-11-21T20:00:01.5Z", "duration_seconds": 1.5, "base": "s1", "incremental": "s2",
            "content_root": "00".repeat(16), "resumed": false, "snapshots": 1, "changed_bytes": 4096, "resumed_bytes": 0,
            "deallocated_bytes": 0, "source_read_bytes": 4096, "base_read_bytes": null,
            "referenced_bytes": null, "delta_bytes": null,
            "literal_bytes": 4096, "wire_bytes_sent": 500, "wire_bytes_received": 4600, "scan_seconds": 0.01,
            "set_aside": ["rescue-1"],
            "let_go": ["rescue-0"],
            "levels": levels_as_json(), "noise_bytes": 8192, "overhead_bytes": 1000
        }]),
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
fn schedules_of_requests() {
    golden(
        &CreateMirror {
            if_absent: false,
            source: "a:p/v".into(),
            destination: "q/r".into(),
            every_seconds: None,
            schedule: Some("*/15 * * * *".into()),
            time_zone: Some("Europe/Berlin".into()),
            no_reverse: false,
            copy_of_own: false,
            rpo_seconds: None,
            retention: None,
            group: None,
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
