//! Tokens, accounts, audit.

use super::*;

const TIME: &str = "2026-11-26T15:00:00Z";

fn token() -> Token {
    Token {
        name: "backup".into(),
        role: AccessRole::Operator,
        created_at: at(TIME),
        created_by: "uid 0".into(),
        expires_at: at(TIME),
        expired: true,
        last_used_at: None,
    }
}

fn token_as_json() -> Value {
    json!({
        "name": "backup", "role": "operator", "created_at": TIME, "created_by": "uid 0", "expires_at": TIME, "expired": true,
        "last_used_at": null,
    })
}

#[test]
fn tokens() {
    golden(&token(), token_as_json());
    let mut created = token_as_json();
    created["secret"] = json!("farside_00");
    golden(&CreatedToken { token: token(), secret: "farside_00".into() }, created);
    let wanted = CreateToken { name: "a".into(), role: AccessRole::Viewer, valid_seconds: None };
    golden(&wanted, json!({"name": "a", "role": "viewer", "valid_seconds": null}));
    assert!(AccessRole::Viewer < AccessRole::Operator && AccessRole::Operator < AccessRole::Administrator);
}

#[test]
fn accounts_and_sessions() {
    golden(
        &Account {
            name: "ann".into(),
            role: AccessRole::Administrator,
            created_at: at(TIME),
            created_by: "uid 0".into(),
            sessions: 1,
        },
        json!({"name": "ann", "role": "administrator", "created_at": TIME, "created_by": "uid 0", "sessions": 1}),
    );
    golden(
        &WhoAmI { who: "account ann".into(), role: AccessRole::Viewer, ends_at: None },
        json!({"who": "account ann", "role": "viewer", "ends_at": null}),
    );
    let login = Login { name: "ann".into(), password: "p".into() };
    golden(&login, json!({"name": "ann", "password": "p"}));
    assert!(!format!("{login:?}").contains("password"));
    golden(&SetAccount::default(), json!({"role": null, "password": null}));
}

#[test]
fn audit() {
    let entry = AuditEntry {
        id: 7,
        at: at(TIME),
        who: "token backup".into(),
        role: Some(AccessRole::Operator),
        from: "192.0.2.1".into(),
        method: "POST".into(),
        path: "/api/v1/volumes".into(),
        request: Some(json!({"name": "p/v"})),
        outcome: Some("done".into()),
        message: None,
        duration_seconds: Some(0.5),
    };
    golden(
        &AuditPage { entries: vec![entry], next: Some(7) },
        json!({"entries": [{
            "id": 7, "at": TIME, "who": "token backup", "role": "operator", "from": "192.0.2.1", "method": "POST",
            "path": "/api/v1/volumes", "request": {"name": "p/v"}, "outcome": "done", "message": null, "duration_seconds": 0.5,
        }], "next": 7}),
    );
}
