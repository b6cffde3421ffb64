//! Pools and volumes.

use super::*;

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
            path_lost: None,
        },
        json!({
            "name": "p", "uuid": null, "path": "/srv/p", "state": "failed", "error": "no superblock",
            "advice": "farside pool reopen p", "size_bytes": null, "used_bytes": null, "reclaimable_bytes": null,
            "free_bytes": null, "volumes": null,
            "corrupt_blocks": null, "staged": null, "staged_bytes": null, "quarantined": null,
            "unattributed_bytes_max": null, "path_lost": null
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
        },
        json!({
            "name": "p/v", "uuid": ID, "size_bytes": 1_073_741_824, "referenced_bytes": 4096, "snapshots": 2,
            "side_branches": 1, "replica": false, "writable": true, "why": null, "writers": 1, "readers": 0, "rights_of": ["b"],
            "hosts": [{"host": "web1", "read_only": true}], "quarantined": null
        }),
    );
}
