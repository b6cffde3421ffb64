//! Hosts and their rights.

use super::*;

fn host() -> Host {
    Host {
        name: "web1".into(),
        fingerprint: Some("ab".repeat(32)),
        added_at: at("2026-11-21T20:00:00Z"),
        expires_at: Some(at("2036-11-21T00:00:00Z")),
        connections: 2,
        rights: vec![HostRight { volume: "p/v".into(), read_only: true }],
    }
}

#[test]
fn host_list_and_status() {
    let listed = json!({
        "name": "web1", "fingerprint": "ab".repeat(32), "added_at": "2026-11-21T20:00:00Z",
        "expires_at": "2036-11-21T00:00:00Z", "connections": 2, "rights": [{"volume": "p/v", "read_only": true}]
    });
    golden(&host(), listed.clone());
    let mut status = listed.clone();
    status["opened"] = json!([{"export": "p/v@s", "read_only": true}]);
    let opened = vec![HostExport { export: "p/v@s".into(), read_only: true }];
    golden(&HostStatus { host: host(), opened, notes: Vec::new() }, status);
    let mut added = listed;
    added["files"] = json!({"ca_certificate": "a", "certificate": "c", "key": "k"});
    let files = HostFiles { ca_certificate: "a".into(), certificate: "c".into(), key: "k".into() };
    golden(&AddedHost { host: host(), files: Some(files) }, added);
}

#[test]
fn the_key_of_a_host_is_never_printed_by_debug() {
    let files = HostFiles { ca_certificate: String::new(), certificate: String::new(), key: "sekrit".into() };
    assert!(!format!("{files:?}").contains("sekrit"));
}

#[test]
fn requests_about_hosts() {
    let rights = HostRights { volumes: vec!["p/v".into()], read_only: false };
    assert_eq!(serde_json::from_value::<HostRights>(json!({"volumes": ["p/v"]})).unwrap(), rights);
    assert!(serde_json::from_value::<HostRights>(json!({"volumes": [], "readonly": true})).is_err());
    assert!(serde_json::from_value::<AddHost>(json!({"name": "a", "key": "k"})).is_err());
}
