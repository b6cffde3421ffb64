//! Alarms of real daemons: raised once and cleared once, in the list, the log, at a webhook and by a command.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Pair, Site, eventually, seed};
use aws_lc_rs::hmac;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::Value;

const SECRET: &str = "open sesame";

/// Takes what is posted to it, and holds it to its signature.
struct Server {
    url: String,
    taken: Arc<Mutex<Vec<Value>>>,
}

impl Server {
    fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/farside", listener.local_addr().unwrap());
        let taken: Arc<Mutex<Vec<Value>>> = Arc::default();
        let into = Arc::clone(&taken);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                into.lock().unwrap().push(take(stream.unwrap()));
            }
        });
        Server { url, taken }
    }

    /// What was told of alarms of a kind, in order.
    fn of(&self, kind: &str) -> Vec<Value> {
        self.taken.lock().unwrap().iter().filter(|notice| notice["kind"] == kind).cloned().collect()
    }

    fn events(&self, kind: &str) -> Vec<String> {
        self.of(kind).iter().map(|notice| notice["event"].as_str().unwrap().to_owned()).collect()
    }
}

/// One request, answered with 200; its body.
fn take(mut stream: TcpStream) -> Value {
    let mut bytes = Vec::new();
    let (head, body) = loop {
        let mut part = [0; 4096];
        let n = stream.read(&mut part).unwrap();
        bytes.extend_from_slice(&part[..n]);
        let text = String::from_utf8(bytes.clone()).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if body.len() == length.expect("a length") {
            break (head.to_owned(), body.to_owned());
        }
    };
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /farside HTTP/1.1"), "{head}");
    let signature =
        head.lines().find_map(|line| line.strip_prefix("farside-signature: sha256=")).expect("signed");
    let tag: Vec<u8> = (0..signature.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&signature[at..at + 2], 16).unwrap())
        .collect();
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    hmac::verify(&key, body.as_bytes(), &tag).expect("its signature");
    serde_json::from_str(&body).unwrap()
}

/// Has a site tell its alarms to `server` and to a command that writes a line for each into `told`.
fn tell(site: &Site, server: &Server) {
    std::fs::create_dir_all(&site.dir).unwrap();
    std::fs::write(site.dir.join("secret"), format!("{SECRET}\n")).unwrap();
    std::fs::set_permissions(site.dir.join("secret"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let script = format!(
        "cat > /dev/null\necho \"$FARSIDE_ALARM_EVENT $FARSIDE_ALARM_KIND $FARSIDE_ALARM_SUBJECT\" >> {}\n",
        site.dir.join("told").display()
    );
    std::fs::write(site.dir.join("command"), script).unwrap();
    let text = format!(
        "[alarms]\nwebhook = {:?}\nwebhook_secret_file = {:?}\ncommand = [\"/bin/sh\", {:?}]\npeer_gone_after = \"3s\"\nclear_after = \"1s\"\n",
        server.url,
        site.dir.join("secret"),
        site.dir.join("command"),
    );
    std::fs::write(site.dir.join("farside.toml"), text).unwrap();
}

fn told(site: &Site, kind: &str) -> Vec<String> {
    let text = std::fs::read_to_string(site.dir.join("told")).unwrap_or_default();
    text.lines().filter(|line| line.contains(kind)).map(str::to_owned).collect()
}

/// Alarms of a kind that are raised.
fn raised(site: &Site, kind: &str) -> Vec<Value> {
    let all = site.json("alarm list");
    all.as_array().unwrap().iter().filter(|alarm| alarm["kind"] == kind).cloned().collect()
}

fn lines(site: &Site, of: &str) -> usize {
    site.log().lines().filter(|line| line.contains(of)).count()
}

fn warnings(site: &Site) -> Vec<String> {
    let warnings = site.json("site status")["warnings"].clone();
    serde_json::from_value(warnings).unwrap()
}

fn is_connected(site: &Site) -> bool {
    site.json("peer list")[0]["state"] == "connected"
}

#[test]
fn a_peer_that_is_gone_is_told_once_and_once_when_it_is_back() {
    let server = Server::start();
    let mut pair = Pair::start();
    assert_eq!(pair.b.stop(), Some(0));
    tell(&pair.b, &server);
    pair.b.restart();
    eventually("they meet", || is_connected(&pair.b));
    assert_eq!(pair.b.json("alarm list"), serde_json::json!([]));

    pair.a.kill();
    eventually("it is raised", || raised(&pair.b, "peer-gone").len() == 1);
    let alarm = raised(&pair.b, "peer-gone").remove(0);
    assert_eq!(
        (&alarm["subject"], &alarm["severity"]),
        (&Value::from("a"), &Value::from("warning")),
        "{alarm}"
    );
    assert!(alarm["cleared_at"].is_null() && alarm["acknowledged"] == false, "{alarm}");
    assert!(alarm["message"].as_str().unwrap().contains("peer a has not answered"), "{alarm}");
    assert!(alarm["hint"].as_str().unwrap().contains("farside peer status a"), "{alarm}");
    let text = pair.b.ok("alarm list");
    assert!(text.contains("peer-gone") && text.contains("What to do"), "{text}");
    eventually("it is posted", || server.events("peer-gone") == ["raised"]);
    eventually("the command ran", || told(&pair.b, "peer-gone") == ["raised peer-gone a"]);
    let posted = server.of("peer-gone").remove(0);
    assert_eq!((&posted["id"], &posted["site"]), (&alarm["id"], &Value::from("b")), "{posted}");
    assert!(
        pair.b.http("/metrics").contains("farside_alarms_open{kind=\"peer-gone\",severity=\"warning\"} 1")
    );
    assert!(
        pair.b.http("/metrics").contains("farside_alarms_open{kind=\"pool-full\",severity=\"critical\"} 0")
    );
    assert!(warnings(&pair.b).iter().any(|warning| warning.contains("peer-gone")), "{:?}", warnings(&pair.b));
    assert!(pair.b.http("/healthz").contains("200 OK"), "a warning leaves health as it is");

    // A person knows; it stays raised, and is no warning any more.
    let id = alarm["id"].as_str().unwrap();
    assert_eq!(pair.b.json(&format!("alarm ack {id}"))["acknowledged"], true);
    assert!(warnings(&pair.b).is_empty(), "{:?}", warnings(&pair.b));
    pair.b.fails(3, "alarm ack 99999");
    pair.b.fails(3, "alarm ack north");

    // A restart neither raises it again nor clears it.
    assert_eq!(pair.b.stop(), Some(0));
    pair.b.restart();
    std::thread::sleep(Duration::from_secs(6));
    let again = raised(&pair.b, "peer-gone");
    assert_eq!(
        (again.len(), &again[0]["id"], &again[0]["acknowledged"]),
        (1, &alarm["id"], &Value::from(true))
    );
    assert_eq!(server.events("peer-gone"), ["raised"]);

    pair.a.restart();
    eventually("it is cleared", || raised(&pair.b, "peer-gone").is_empty());
    eventually("that is posted", || server.events("peer-gone") == ["raised", "cleared"]);
    eventually("and handed to the command", || told(&pair.b, "peer-gone").len() == 2);
    assert_eq!(told(&pair.b, "peer-gone")[1], "cleared peer-gone a");
    let all = pair.b.json("alarm list --all");
    let of_peer: Vec<&Value> =
        all.as_array().unwrap().iter().filter(|alarm| alarm["kind"] == "peer-gone").collect();
    assert!(of_peer.len() == 1 && of_peer[0]["cleared_at"].is_string(), "{all}");
    assert_eq!((lines(&pair.b, "alarm raised"), lines(&pair.b, "alarm cleared")), (1, 1));
    assert_ne!(server.of("peer-gone")[0]["notice_id"], server.of("peer-gone")[1]["notice_id"]);

    // Every way on request.
    let ways = pair.b.json("alarm test");
    let of = |way: &str| ways.as_array().unwrap().iter().find(|tried| tried["way"] == way).cloned().unwrap();
    for way in ["log", "webhook", "command"] {
        assert_eq!(of(way)["ok"], true, "{ways}");
    }
    assert_eq!(server.events("test"), ["test"]);
    assert_eq!(told(&pair.b, "test"), ["test test b"]);
    std::fs::write(pair.b.dir.join("command"), "echo the pager is broken >&2\nexit 1\n").unwrap();
    let said = pair.b.fails(1, "alarm test");
    assert!(said.contains("did not arrive by command"), "{said}");
    assert!(crate::support::text(&pair.b.farside("alarm test").stdout).contains("the pager is broken"));
    assert!(!pair.b.ok("config show").contains("/farside\n"), "the path of a webhook may be a secret");
}

#[test]
fn two_originals_are_told_at_both_sites_until_a_person_decides() {
    let mut pair = Pair::start();
    pair.mirror(1 << 20);
    pair.b.ok("mirror initialize q/v");
    pair.a.kill();
    eventually("it is seen", || pair.b.json("peer list")[0]["state"] == "disconnected");
    let plan = pair.b.ok("mirror break q/v --plan");
    assert!(plan.contains("a was last heard at 20") && !plan.contains("running transfer"), "{plan}");
    pair.b.ok("mirror break q/v");
    eventually("the other site may not know", || raised(&pair.b, "two-originals").len() == 1);
    let alarm = raised(&pair.b, "two-originals").remove(0);
    assert_eq!((&alarm["subject"], &alarm["severity"]), (&"q/v".into(), &"critical".into()), "{alarm}");
    assert!(alarm["message"].as_str().unwrap().contains("a has not heard of it"), "{alarm}");

    pair.a.restart();
    eventually("it has heard", || raised(&pair.b, "two-originals").is_empty());
    eventually("it is told there", || raised(&pair.a, "two-originals").len() == 1);
    let alarm = raised(&pair.a, "two-originals").remove(0);
    assert_eq!(alarm["subject"], "p/v", "{alarm}");
    assert!(alarm["hint"].as_str().unwrap().contains("farside mirror release p/v b"), "{alarm}");
    assert!(warnings(&pair.a).iter().any(|warning| warning.contains("two-originals")));
    pair.a.ok("mirror release p/v b --yes");
    eventually("it is decided", || raised(&pair.a, "two-originals").is_empty());
    assert_eq!((lines(&pair.a, "alarm raised"), lines(&pair.a, "alarm cleared")), (1, 1));
}

#[test]
fn a_pool_that_is_nearly_full_is_told() {
    let server = Server::start();
    let root = tempfile::tempdir().unwrap();
    let mut site = Site::new(&root.path().join("a"), "a");
    tell(&site, &server);
    site.restart();
    site.ok(&format!("pool create p --path {} --size 64M", root.path().join("p.pool").display()));
    site.ok("volume create p/v --size 1G");
    let mut random = StdRng::seed_from_u64(seed());
    let mut host = site.nbd("p/v");
    let mut at = 0;
    let room = || site.json("pool status p")["room"].as_str().unwrap().to_owned();
    while !["nearly-full", "full"].contains(&room().as_str()) {
        let mut block = vec![0; 1 << 19];
        random.fill(&mut block[..]);
        host.write(at, &block).and_then(|()| host.flush()).unwrap();
        at += 1 << 19;
    }
    eventually("it is raised", || raised(&site, "pool-nearly-full").len() == 1);
    let alarm = raised(&site, "pool-nearly-full").remove(0);
    assert!(alarm["hint"].as_str().unwrap().contains("farside pool grow p"), "{alarm}");
    eventually("it is posted", || server.events("pool-nearly-full") == ["raised"]);
    assert_eq!(warnings(&site).len(), 1, "it is said once: {:?}", warnings(&site));
    host.trim(0, at as u32).and_then(|()| host.flush()).unwrap();
    drop(host);
    eventually("it is cleared", || server.events("pool-nearly-full") == ["raised", "cleared"]);
    assert_eq!(site.stop(), Some(0));
}

/// 512 KiB that compress as text does, each time others.
fn text(random: &mut StdRng) -> Vec<u8> {
    let words = ["volume", "snapshot", "mirror", "replica", "peer", "frame", "source", "site"];
    let mut text = String::new();
    while text.len() < 1 << 19 {
        text += words[random.random_range(0..words.len())];
        text += &format!(" {:x} ", random.random::<u32>());
    }
    text.truncate(1 << 19);
    text.into_bytes()
}

#[test]
fn a_source_that_is_encrypted_is_told_and_the_last_good_point_is_held() {
    let server = Server::start();
    let mut pair = Pair::start();
    assert_eq!(pair.b.stop(), Some(0));
    tell(&pair.b, &server);
    pair.b.restart();
    pair.mirror(64 << 20);
    let mut random = StdRng::seed_from_u64(seed());
    let mut host = pair.a.nbd("p/v");
    host.write(0, &text(&mut random)).and_then(|()| host.flush()).unwrap();
    pair.b.ok("mirror initialize q/v");
    for number in 0..12u64 {
        host.write(number << 20, &text(&mut random)).and_then(|()| host.flush()).unwrap();
        // What is usual has a rate that 40 MiB at once are far above, however quick the machine is.
        std::thread::sleep(Duration::from_millis(400));
        if number == 10 {
            pair.a.ok("snapshot create p/v@good");
        }
        pair.b.ok("mirror update q/v");
    }
    assert_eq!(raised(&pair.b, "ransomware"), Vec::<Value>::new());

    let mut cipher = vec![0; 40 << 20];
    random.fill(&mut cipher[..]);
    for (number, part) in cipher.chunks(1 << 20).enumerate() {
        host.write((number as u64) << 20, part).unwrap();
    }
    host.flush().unwrap();
    pair.b.ok("mirror update q/v");
    eventually("it is raised", || raised(&pair.b, "ransomware").len() == 1);
    let alarm = raised(&pair.b, "ransomware").remove(0);
    assert_eq!(
        (&alarm["subject"], &alarm["severity"]),
        (&Value::from("q/v"), &Value::from("critical")),
        "{alarm}"
    );
    assert!(alarm["message"].as_str().unwrap().contains("farside snapshot unhold q/v@good"), "{alarm}");
    eventually("it is posted", || server.events("ransomware") == ["raised"]);
    let held = |pair: &Pair| {
        let snapshots = pair.b.json("snapshot list q/v");
        snapshots
            .as_array()
            .unwrap()
            .iter()
            .any(|snapshot| snapshot["name"] == "good" && snapshot["held"] == true)
    };
    assert!(held(&pair), "{}", pair.b.json("snapshot list q/v"));

    // Further updates neither tell it again nor end it, nor does a restart.
    pair.b.ok("mirror update q/v");
    assert_eq!(pair.b.stop(), Some(0));
    pair.b.restart();
    eventually("they meet", || is_connected(&pair.b));
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(raised(&pair.b, "ransomware").len(), 1);
    assert_eq!(server.events("ransomware"), ["raised"]);
    pair.b.ok(&format!("alarm ack {}", alarm["id"].as_str().unwrap()));
    eventually("a person ends it", || raised(&pair.b, "ransomware").is_empty());
    eventually("that is posted", || server.events("ransomware") == ["raised", "cleared"]);
    assert!(held(&pair), "what is held is a person's to let go");
    // It is in the history still, and usual.
    assert_eq!(pair.b.stop(), Some(0));
    pair.b.restart();
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(server.events("ransomware"), ["raised", "cleared"]);
}

#[test]
fn what_the_file_says_of_alarms_is_checked_at_the_start_and_a_copy_tells_nobody() {
    let server = Server::start();
    let root = tempfile::tempdir().unwrap();
    let mut site = Site::new(&root.path().join("a"), "a");
    tell(&site, &server);
    site.isolated();
    let refused = site.fails(4, "alarm test");
    assert!(refused.contains("isolated"), "{refused}");
    assert_eq!(site.stop(), Some(0));
    // A secret that others may read is told, and keeps nobody from their volumes.
    std::fs::set_permissions(site.dir.join("secret"), std::fs::Permissions::from_mode(0o644)).unwrap();
    site.restart();
    site.has_logged("chmod 600");
    let said = site.fails(1, "alarm test");
    assert!(said.contains("did not arrive by webhook"), "{said}");
    assert_eq!(server.events("test"), Vec::<String>::new());
}
