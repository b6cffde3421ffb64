//! What a site's administrator lives with: schedules, and what outlives a restart.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod support;

use serde_json::{Value, json};
use support::{Pair, Site, eventually, status, text};

/// `farside` with a timetable, which has blanks of its own.
fn scheduled(site: &Site, words: &str, timetable: &str) -> std::process::Output {
    site.command(words).args(["--schedule", timetable, "--json"]).output().unwrap()
}

#[test]
fn a_timetable_is_kept_with_its_zone() {
    let mut pair = Pair::start();
    pair.a.ok("volume create p/v --size 4M");
    pair.a.ok("peer allow b p/v");
    assert_eq!(pair.b.stop(), Some(0));
    pair.b.environment = vec![("TZ".into(), "America/Havana".into())];
    pair.b.restart();
    eventually("the session is back", || pair.b.json("peer list")[0]["state"] == "connected");
    let b = &pair.b;
    let made = scheduled(b, "mirror create a:p/v q/v", "*/15  * * * *");
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(made["schedule"], "*/15 * * * * America/Havana", "the system's zone, by name");
    b.ok("mirror initialize q/v");
    for (words, timetable) in [
        ("mirror set q/v", "0 0 30 2 *"),
        ("mirror set q/v", "@daily"),
        ("mirror set q/v", "0 0 * * * *"),
        ("mirror set q/v --time-zone Nowhere", "0 0 * * *"),
    ] {
        let output = scheduled(b, words, timetable);
        assert_eq!(output.status.code(), Some(2), "{timetable}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["error"]["code"], "wrong-usage", "{}", text(&output.stderr));
    }
    assert_eq!(
        status(b, "q/v")["schedule"],
        "*/15 * * * * America/Havana",
        "what was refused changed nothing"
    );
    let set = scheduled(b, "mirror set q/v --time-zone europe/berlin", "30 2 * * MON-FRI");
    assert!(set.status.success(), "{}", text(&set.stderr));

    // Another zone of the system is not the mirror's; and a restart looks at once.
    let before = b.json("mirror history q/v").as_array().unwrap().len();
    assert_eq!(pair.b.stop(), Some(0));
    pair.b.environment = vec![("TZ".into(), "UTC".into())];
    pair.b.restart();
    assert_eq!(status(&pair.b, "q/v")["schedule"], "30 2 * * MON-FRI Europe/Berlin");
    eventually("a restart looks for news", || {
        pair.b.json("mirror history q/v").as_array().unwrap().len() > before
    });
    assert_eq!(pair.b.json("mirror set q/v --every off")["schedule"], Value::Null);
    assert_eq!(pair.b.json("mirror set q/v --every 90s")["schedule"], json!("every 1m 30s"));
}
