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
            taken_by: Some(TakenBy::Rescue),
            made_by: MadeBy::Mirror,
            rotates: true,
            referenced_bytes: Some(8192),
            unique_bytes: None,
        }],
        json!([{
            "name": "monday", "volume": "p/v", "uuid": ID, "content_root": "00112233445566778899aabbccddeeff",
            "created_at": "2026-11-21T20:00:00.5Z", "held": true, "on_main_line": false, "taken_by": "rescue", "made_by": "mirror",
            "rotates": true, "referenced_bytes": 8192,
            "unique_bytes": null
        }]),
    );
}

#[test]
fn who_made_a_snapshot() {
    let all = vec![MadeBy::Person, MadeBy::Mirror, MadeBy::Kept, MadeBy::Common];
    golden(&all, json!(["person", "mirror", "kept", "common"]));
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

#[test]
fn timetables_of_snapshots() {
    golden(
        &vec![SnapshotSchedule {
            volume: "p/v".into(),
            others: vec!["p/log".into()],
            schedule: "every 1h".into(),
            retention: "hourly=24".into(),
            hook: Some("pg".into()),
            last_at: Some(at("2026-11-21T20:00:00Z")),
            last_snapshot: Some("app-2026-11-21T20:00:00Z".into()),
            points: Some(7),
            why: None,
        }],
        json!([{
            "volume": "p/v", "others": ["p/log"], "schedule": "every 1h", "retention": "hourly=24", "hook": "pg", "last_at": "2026-11-21T20:00:00Z",
            "last_snapshot": "app-2026-11-21T20:00:00Z", "points": 7, "why": null
        }]),
    );
    golden(
        &SetSnapshotSchedule {
            every_seconds: Some(3600.0),
            retention: Some("daily=7".into()),
            ..Default::default()
        },
        json!({"every_seconds": 3600.0, "schedule": null, "time_zone": null, "retention": "daily=7", "others": null, "hook": null}),
    );
}

#[test]
fn clones_and_drills() {
    golden(
        &CloneSnapshot { name: "p/new".into(), even_if_damaged: true },
        json!({"name": "p/new", "even_if_damaged": true}),
    );
    let asked: StartDrill = serde_json::from_value(json!({})).unwrap();
    assert_eq!(asked, StartDrill::default());
    golden(
        &Drill {
            name: "q/db-drill-20261121T200012Z".into(),
            uuid: id(),
            replica: "q/db".into(),
            snapshot: "s9".into(),
            point: at("2026-11-21T20:00:00Z"),
            age_seconds: 12.5,
            size_bytes: 8192,
            uri: "nbd+unix:///q/db-drill-20261121T200012Z?socket=/d/nbd.sock".into(),
            duration_seconds: 0.25,
            run: Some(DrillRun {
                command: "check-it".into(),
                result: DrillResult::TimedOut,
                exit_status: None,
                duration_seconds: 60.0,
                recovery_seconds: 60.5,
                deleted: true,
            }),
        },
        json!({
            "name": "q/db-drill-20261121T200012Z", "uuid": ID, "replica": "q/db",
            "snapshot": "s9", "point": "2026-11-21T20:00:00Z", "age_seconds": 12.5, "size_bytes": 8192,
            "uri": "nbd+unix:///q/db-drill-20261121T200012Z?socket=/d/nbd.sock", "duration_seconds": 0.25,
            "run": {
                "command": "check-it", "result": "timed-out", "exit_status": null, "duration_seconds": 60.0,
                "recovery_seconds": 60.5, "deleted": true
            }
        }),
    );
    golden(&DrillVolume { uuid: id() }, json!({"uuid": ID}));
    let results = [DrillResult::Ok, DrillResult::Failed, DrillResult::TimedOut, DrillResult::Interrupted];
    golden(&results.to_vec(), json!(["ok", "failed", "timed-out", "interrupted"]));
}
