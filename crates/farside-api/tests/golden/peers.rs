//! Peers, their links and rights.

use super::*;

fn peer() -> Peer {
    Peer {
        name: "b".into(),
        id: "ab".repeat(32),
        address: Some("192.0.2.1:7440".into()),
        other_addresses: vec!["192.0.2.2:7440".into()],
        state: PeerState::Connected,
        dialled_us: false,
        why: None,
        last_heard_at: Some(at("2026-11-21T20:00:00Z")),
        protocol: Some(1),
        rtt_seconds: Some(0.05),
        clock_ahead_seconds: Some(-0.5),
        sent_bytes: 10,
        received_bytes: 20,
        key_conflicts: 0,
    }
}

#[test]
fn peer_list_and_status() {
    let listed = json!({
        "name": "b", "id": "ab".repeat(32), "address": "192.0.2.1:7440", "other_addresses": ["192.0.2.2:7440"], "state": "connected", "why": null,
        "last_heard_at": "2026-11-21T20:00:00Z", "protocol": 1, "rtt_seconds": 0.05, "clock_ahead_seconds": -0.5, "sent_bytes": 10, "received_bytes": 20,
        "key_conflicts": 0
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
    status["role"] = json!("viewer");
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
            role: Some(AccessRole::Viewer),
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
