//! Alarms.

use super::*;

fn alarm() -> Alarm {
    Alarm {
        id: "12".into(),
        kind: "peer-gone".into(),
        subject: "north".into(),
        severity: AlarmSeverity::Warning,
        raised_at: at("2026-11-21T20:00:00Z"),
        cleared_at: None,
        acknowledged: true,
        message: "peer north has not answered for 5 min".into(),
        hint: "is its farsided running?".into(),
    }
}

fn alarm_as_json() -> Value {
    json!({
        "id": "12", "kind": "peer-gone", "subject": "north", "severity": "warning", "raised_at": "2026-11-21T20:00:00Z",
        "cleared_at": null, "acknowledged": true, "message": "peer north has not answered for 5 min",
        "hint": "is its farsided running?"
    })
}

#[test]
fn alarm_list() {
    golden(&alarm(), alarm_as_json());
    let cleared = Alarm { cleared_at: Some(at("2026-11-21T21:00:00Z")), ..alarm() };
    let mut as_json = alarm_as_json();
    as_json["cleared_at"] = json!("2026-11-21T21:00:00Z");
    golden(&cleared, as_json);
}

#[test]
fn what_webhook_and_command_are_told() {
    for event in [AlarmEvent::Raised, AlarmEvent::Cleared, AlarmEvent::Test] {
        let mut as_json = alarm_as_json();
        as_json["event"] = json!(event.name());
        as_json["site"] = json!("south");
        as_json["notice_id"] = json!(ID);
        golden(&AlarmNotice { event, site: "south".into(), notice_id: id(), alarm: alarm() }, as_json);
    }
}

#[test]
fn what_came_of_a_test() {
    golden(
        &AlarmTest {
            way: "webhook".into(),
            target: Some("https://a".into()),
            ok: false,
            result: "no route".into(),
        },
        json!({"way": "webhook", "target": "https://a", "ok": false, "result": "no route"}),
    );
    for severity in [AlarmSeverity::Warning, AlarmSeverity::Critical] {
        assert_eq!(serde_json::to_value(severity).unwrap(), severity.name());
    }
}
