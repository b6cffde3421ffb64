//! What a support bundle and the health page say.

use super::*;

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
                api: Some(ApiConfiguration {
                    listen: "0.0.0.0:7443".into(),
                    names: vec!["san.example".into()],
                    own_certificate: false,
                    delay_seconds: Some(3600.0),
                }),
                nbd: Some(NbdConfiguration {
                    listen: "0.0.0.0:10809".into(),
                    tls: true,
                    names: vec!["san.example".into()],
                    own_certificates: false,
                }),
                daemon: Some("north-2".into()),
                log: "info".into(),
                log_format: "text".into(),
                database: Some("sqlite:".into()),
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
                alarms: Some(AlarmConfiguration {
                    webhook: Some("https://hooks.example".into()),
                    webhook_signed: true,
                    command: None,
                    peer_gone_after_seconds: 300,
                    daemon_gone_after_seconds: Some(300),
                    no_progress_after_seconds: 900,
                    failing_transfers: 3,
                    clear_after_seconds: 60,
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
                "api": {"listen": "0.0.0.0:7443", "names": ["san.example"], "own_certificate": false, "delay_seconds": 3600.0},
                "nbd": {
                    "listen": "0.0.0.0:10809", "tls": true, "names": ["san.example"], "own_certificates": false
                },
                "daemon": "north-2", "log": "info", "log_format": "text", "database": "sqlite:",
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
                },
                "alarms": {
                    "webhook": "https://hooks.example", "webhook_signed": true, "command": null, "peer_gone_after_seconds": 300, "daemon_gone_after_seconds": 300,
                    "no_progress_after_seconds": 900, "failing_transfers": 3, "clear_after_seconds": 60
                }
            },
            "network_advice": ["sysctl"], "log": ["one"], "log_dropped": 7
        }),
    );
}
