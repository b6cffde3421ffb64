//! The accelerator.

use super::*;

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
