//! The command line and a daemon whose API is of another version. There is one version yet: between the two stands a relay that
//! makes of a real daemon's answers what a newer one's may be.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::{Pair, Site, text};
use serde_json::{Value, json};

const OWN: &str = env!("CARGO_PKG_VERSION");

/// What a relay makes of an answer: its status, its version, its document.
type Change = fn(&mut u16, &mut String, &mut Value);

/// Stands before a daemon's control socket.
fn relay(root: &Path, name: &str, to: PathBuf, change: Change) -> PathBuf {
    let socket = root.join(name);
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, to) = (client.unwrap(), to.clone());
            std::thread::spawn(move || pass(client, &to, change));
        }
    });
    socket
}

/// One request and its answer; the connection ends with them.
fn pass(mut client: UnixStream, to: &Path, change: Change) {
    let (head, body) = message(&mut client);
    let mut daemon = UnixStream::connect(to).unwrap();
    let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    daemon.write_all(head.as_bytes()).unwrap();
    daemon.write_all(&body).unwrap();
    let (head, body) = message(&mut daemon);
    let mut status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut version = header(&head, "x-farside-version").expect("the daemon says its version").to_owned();
    let mut document = serde_json::from_slice(&body).unwrap();
    change(&mut status, &mut version, &mut document);
    let body = document.to_string();
    let answer = format!(
        "HTTP/1.1 {status} Changed\r\ncontent-type: application/json\r\nconnection: close\r\n\
         x-farside-version: {version}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let _ = client.write_all(answer.as_bytes());
}

/// Head and body of what comes next.
fn message(from: &mut UnixStream) -> (String, Vec<u8>) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        from.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    from.read_exact(&mut body).unwrap();
    (head, body)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn through(socket: &Path, arguments: &str) -> Output {
    let mut farside = Command::new(env!("CARGO_BIN_EXE_farside"));
    farside
        .arg("--socket")
        .arg(socket)
        .args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// What a newer daemon says besides.
fn grown(document: &mut Value) {
    match document {
        Value::Array(all) => all.iter_mut().for_each(grown),
        Value::Object(fields) => {
            fields.values_mut().for_each(grown);
            fields.insert("from_a_later_version".into(), json!({ "any": ["thing", 1.5, null] }));
        }
        _ => {}
    }
}

#[test]
fn a_newer_daemon_may_say_more_and_what_is_not_understood_names_both_versions() {
    let pair = Pair::start();
    let (a, b) = (&pair.a, &pair.b);
    pair.mirror(4 << 20);
    b.ok("mirror initialize q/v");
    a.ok("snapshot create p/v@s");
    let root = pair.root.path();
    let daemon = |site: &Site| site.dir.join("farside.sock");

    // It says more: everything goes on.
    let more = relay(root, "more", daemon(b), |_, version, document| {
        "9.9.9".clone_into(version);
        grown(document);
    });
    let documents = [
        "status",
        "site status",
        "pool list",
        "pool status q",
        "volume list",
        "volume status q/v",
        "snapshot list q/v",
        "peer list",
        "peer status a",
        "mirror status",
        "mirror status q/v",
        "mirror history q/v",
        "mirror log q/v",
        "alarm list",
        "host list",
        "accel status",
        "audit",
        "mirror update q/v",
        "mirror break q/v --yes",
    ];
    for arguments in documents {
        let output = through(&more, arguments);
        assert!(output.status.success(), "farside {arguments}: {}", text(&output.stderr));
    }

    // It uses a word that this version does not know.
    let words = relay(root, "words", daemon(a), |_, version, document| {
        "9.9.9".clone_into(version);
        document[0]["state"] = json!("teleported");
    });
    let said = text(&through(&words, "pool list").stderr);
    assert!(said.contains("cannot read the daemon's answer") && said.contains("teleported"), "{said}");
    assert!(
        said.contains(&format!("farsided is version 9.9.9, this farside {OWN}: use farside 9.9.9")),
        "{said}"
    );

    // An older one has no such request, or does not know a field of it.
    let none = relay(root, "none", daemon(a), |status, version, document| {
        (*status, *version) = (404, "0.0.1".into());
        *document = json!({ "error": { "code": "failed", "message": "there is no GET /api/v1/pools", "hint": null } });
    });
    let output = through(&none, "pool list");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("does not know this request") && said.contains("use farside 0.0.1 for it"),
        "{said}"
    );
    let field = relay(root, "field", daemon(a), |status, version, document| {
        (*status, *version) = (400, "0.0.1".into());
        *document =
            json!({ "error": { "code": "wrong-usage", "message": "unknown field `x`", "hint": "look" } });
    });
    let output = through(&field, "volume create p/w --size 4M");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("unknown field `x`") && said.contains("use farside 0.0.1 for it; look"), "{said}");

    // Of the same version nobody is sent to look for another one.
    let same = relay(root, "same", daemon(a), |status, _, document| {
        *status = 400;
        *document = json!({ "error": { "code": "wrong-usage", "message": "no such size", "hint": null } });
    });
    let said = text(&through(&same, "volume create p/w --size 4M").stderr);
    assert!(said.contains("no such size") && !said.contains("version"), "{said}");
}
