//! Pools and volumes.

use super::*;

#[test]
fn pools_and_volumes() {
    golden(
        &Pool {
            name: "p".into(),
            uuid: None,
            path: "/srv/p".into(),
            engine: PoolEngine::Rbd,
            state: PoolState::Failed,
            error: Some("no superblock".into()),
            advice: Some("farside pool reopen p".into()),
            size_bytes: None,
            used_bytes: None,
            reclaimable_bytes: None,
            free_bytes: None,
            room: Some(PoolRoom::NearlyFull),
            room_bytes: Some(4096),
            warning: Some("95 %".into()),
            volumes: None,
            volume_bytes: None,
            reserved_bytes: Some(8192),
            corrupt_blocks: None,
            staged: None,
            staged_bytes: None,
            quarantined: None,
            unattributed_bytes_max: None,
            path_lost: None,
            file_system: Some(PoolFileSystem { free_bytes: 4096, may_take_bytes: 8192 }),
            scrub: None,
        },
        json!({
            "name": "p", "uuid": null, "path": "/srv/p", "engine": "rbd", "state": "failed", "error": "no superblock",
            "advice": "farside pool reopen p", "size_bytes": null, "used_bytes": null, "reclaimable_bytes": null,
            "free_bytes": null, "room": "nearly-full", "room_bytes": 4096, "warning": "95 %", "volumes": null, "volume_bytes": null,
            "reserved_bytes": 8192,
            "corrupt_blocks": null, "staged": null, "staged_bytes": null, "quarantined": null,
            "unattributed_bytes_max": null, "path_lost": null,
            "file_system": {"free_bytes": 4096, "may_take_bytes": 8192}, "scrub": null
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
            hosts: vec![VolumeHost { host: "web1".into(), read_only: true }],
            quarantined: None,
            occupied_bytes: Some(8192),
            quota_bytes: Some(1 << 20),
            room: Some(PoolRoom::Enough),
            warning: None,
            reserve_bytes: Some(4096),
            autogrow: Some(Autogrow { to_bytes: 1 << 40, step_bytes: Some(1 << 30) }),
            origin: Some("p/db@monday".into()),
            origin_created_at: Some(at("2026-11-21T20:00:00Z")),
            origin_exists: Some(false),
        },
        json!({
            "name": "p/v", "uuid": ID, "size_bytes": 1_073_741_824, "referenced_bytes": 4096, "snapshots": 2,
            "side_branches": 1, "replica": false, "writable": true, "why": null, "writers": 1, "readers": 0, "rights_of": ["b"],
            "hosts": [{"host": "web1", "read_only": true}], "quarantined": null,
            "occupied_bytes": 8192, "quota_bytes": 1_048_576, "room": "enough", "warning": null, "reserve_bytes": 4096,
            "autogrow": {"to_bytes": 1_099_511_627_776_u64, "step_bytes": 1_073_741_824},
            "origin": "p/db@monday", "origin_created_at": "2026-11-21T20:00:00Z", "origin_exists": false
        }),
    );
}

#[test]
fn scrubs() {
    golden(
        &Scrub {
            pool: "p".into(),
            state: ScrubState::Running,
            started_at: "2026-01-02T03:04:05Z".parse().unwrap(),
            ended_at: None,
            total_bytes: 1 << 30,
            read_bytes: 1 << 20,
            limit_bytes_per_second: Some(64 << 20),
            rate_bytes_per_second: Some(1.5),
            eta_seconds: Some(2.5),
            damaged_blocks: 1,
            damage: vec![ScrubDamage {
                kind: ScrubDamageKind::Data,
                volume: "v".into(),
                offset_bytes: 8192,
                length_bytes: 4096,
                in_volume: true,
                in_staged: false,
                snapshots: vec!["s".into()],
                more_snapshots: 0,
            }],
            structures: vec![],
            rewritten_copies: 1,
            rewritten: vec!["the map of a volume (pool block 7)".into()],
            error: None,
            completed_at: None,
        },
        json!({
            "pool": "p", "state": "running", "started_at": "2026-01-02T03:04:05Z", "ended_at": null,
            "total_bytes": 1_073_741_824, "read_bytes": 1_048_576, "limit_bytes_per_second": 67_108_864,
            "rate_bytes_per_second": 1.5, "eta_seconds": 2.5, "damaged_blocks": 1,
            "damage": [{
                "kind": "data", "volume": "v", "offset_bytes": 8192, "length_bytes": 4096, "in_volume": true,
                "in_staged": false, "snapshots": ["s"], "more_snapshots": 0
            }],
            "structures": [], "rewritten_copies": 1, "rewritten": ["the map of a volume (pool block 7)"],
            "error": null, "completed_at": null
        }),
    );
}

#[test]
fn dedups() {
    golden(
        &Dedup {
            volume: "p/v".into(),
            state: DedupState::Running,
            saved_bytes: 8192,
            scanned_bytes: 1 << 20,
            phase: Some(DedupPhase::Sharing),
            shared_bytes: 16_384,
            held_by_snapshots_bytes: 4096,
            limited_blocks: 1,
            damaged_blocks: 2,
            pool_saved_bytes: Some(16_384),
            limit_bytes_per_second: Some(64 << 20),
            rate_bytes_per_second: Some(1.5),
            done: Some(0.25),
            eta_seconds: Some(2.5),
            started_at: Some("2026-01-02T03:04:05Z".parse().unwrap()),
            completed_at: None,
            counted_at: None,
            next_at: None,
            why: None,
        },
        json!({
            "volume": "p/v", "state": "running", "saved_bytes": 8192, "scanned_bytes": 1_048_576, "phase": "sharing",
            "shared_bytes": 16_384, "held_by_snapshots_bytes": 4096, "limited_blocks": 1, "damaged_blocks": 2,
            "pool_saved_bytes": 16_384, "limit_bytes_per_second": 67_108_864, "rate_bytes_per_second": 1.5, "done": 0.25,
            "eta_seconds": 2.5, "started_at": "2026-01-02T03:04:05Z", "completed_at": null, "counted_at": null,
            "next_at": null, "why": null
        }),
    );
}
