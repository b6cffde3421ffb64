//! The accelerator in explicit mode, with real processes on loopback: forwards that carry real connections, what is shown of them, and
//! a process that is killed. Transparent interception needs other machines: `make demo-accel`.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::support::{Pair, Site, eventually, seed, text};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use serde_json::{Value, json};

const MIB: usize = 1 << 20;
/// A read that takes longer will not end.
const PATIENCE: Duration = Duration::from_secs(60);

/// An address of loopback where nobody listens.
fn free(host: &str) -> String {
    TcpListener::bind(format!("{host}:0")).unwrap().local_addr().unwrap().to_string()
}

/// A server whose connections are each served by `serve`, for as long as the test runs.
fn server(serve: impl Fn(TcpStream) -> std::io::Result<()> + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (serve, socket) = (serve.clone(), socket.unwrap());
            std::thread::spawn(move || drop(serve(socket)));
        }
    });
    address
}

/// Gives back what comes, and ends when its client does.
fn echo() -> String {
    server(|socket| std::io::copy(&mut &socket, &mut &socket).and_then(|_| socket.shutdown(Shutdown::Write)))
}

/// Two paired sites, and where their accelerators listen.
struct Boxes {
    pair: Pair,
    at_a: String,
    at_b: String,
}

impl Boxes {
    fn start() -> Boxes {
        let root = tempfile::tempdir().unwrap();
        let (at_a, at_b) = (free("127.0.0.2"), free("127.0.0.3"));
        let site = |name: &str, other: &str, other_is_at: &str| {
            let dir = root.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            let file = format!("[accelerator.peers.{other}]\naddress = \"{other_is_at}\"\n");
            std::fs::write(dir.join("farside.toml"), file).unwrap();
            Site::start(root.path(), name)
        };
        let (a, b) = (site("a", "b", &at_b), site("b", "a", &at_a));
        let pair = Pair { a, b, root };
        pair.pair_at(&pair.a.published("peer.addr"));
        Boxes { pair, at_a, at_b }
    }

    /// Both are on, and have found each other.
    fn up(&self, forward_to: &[&str]) {
        self.pair.a.ok(&format!("accel up --listen {}", self.at_a));
        self.pair.b.ok(&format!("accel up --listen {} --forward-to {}", self.at_b, forward_to.join(" ")));
        self.are_active();
    }

    fn are_active(&self) {
        for site in [&self.pair.a, &self.pair.b] {
            eventually("both accelerators are active", || site.json("accel status")["state"] == "active");
        }
    }
}

fn connect(address: &str) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends all of `data`, ends its own side, and gives what came back until the other side's end.
fn sends(address: &str, data: &[u8]) -> std::io::Result<Vec<u8>> {
    let socket = connect(address);
    std::thread::scope(|scope| {
        scope.spawn(|| (&socket).write_all(data).and_then(|()| socket.shutdown(Shutdown::Write)));
        let mut got = Vec::new();
        (&socket).read_to_end(&mut got).map(|_| got)
    })
}

/// The accelerator's process of a site.
fn process(site: &Site) -> Option<u32> {
    let of_site = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // `PID (NAME) STATE PARENT …`
        let Some((name, rest)) = stat.rsplit_once(") ") else { return false };
        let parent = rest.split(' ').nth(1).and_then(|parent| parent.parse::<u32>().ok());
        name.ends_with("(farside-accel") && parent == Some(site.pid())
    };
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(of_site)
}

fn is_there(pid: u32) -> bool {
    std::path::Path::new("/proc").join(pid.to_string()).exists()
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    StdRng::seed_from_u64(seed()).fill_bytes(&mut data);
    data
}

#[test]
fn a_forward_carries_bytes_and_ends_of_both_sides() {
    let boxes = Boxes::start();
    let (a, b) = (&boxes.pair.a, &boxes.pair.b);
    let status = a.json("accel status");
    assert_eq!((&status["state"], &status["why"]), (&json!("off"), &Value::Null));
    assert_eq!(status["store_size_bytes"], 10_u64 << 30);

    // One server that ends first, and hears its client after that.
    let ends_first = server(|mut socket| {
        socket.write_all(b"hello and good bye")?;
        socket.shutdown(Shutdown::Write)?;
        let mut heard = Vec::new();
        socket.read_to_end(&mut heard)?;
        std::fs::write(String::from_utf8(heard).unwrap(), "heard")
    });
    let echo = echo();
    boxes.up(&[&echo, &ends_first]);
    let said = a.ok("accel up");
    assert!(said.contains("explicit mode"), "{said}");
    let (to_echo, to_other, to_nobody) = (free("127.0.0.1"), free("127.0.0.1"), free("127.0.0.1"));
    let made = a.json(&format!("accel forward {to_echo} {echo} --peer b"));
    assert_eq!(made, json!({"listen": to_echo, "destination": echo, "peer": "b"}));
    a.ok(&format!("accel forward {to_other} {ends_first} --peer b"));
    a.ok(&format!("accel forward {to_nobody} 127.0.0.1:1 --peer b"));

    let data = noise(8 * MIB);
    assert!(sends(&to_echo, &data).unwrap() == data, "the bytes differ");
    assert_eq!(sends(&to_echo, b"").unwrap(), b"");
    let mut socket = connect(&to_other);
    let mut greeting = Vec::new();
    socket.read_to_end(&mut greeting).unwrap();
    assert_eq!(greeting, b"hello and good bye");
    let file = boxes.pair.root.path().join("heard");
    socket.write_all(file.to_str().unwrap().as_bytes()).unwrap();
    drop(socket);
    eventually("the server heard what was said after its own end", || file.exists());
    // Not among what b forwards to.
    let refused = sends(&to_nobody, b"x");
    assert!(refused.is_err() || refused.unwrap().is_empty());

    let status = a.json("accel status");
    assert_eq!(status["peers"][0]["name"], "b");
    assert_eq!(status["peers"][0]["state"], "connected");
    assert!(status["original_bytes"].as_u64().unwrap() >= 16 * MIB as u64, "{status}");
    assert!(status["wire_bytes"].as_u64().unwrap() > 0, "{status}");
    assert!(status["taken_connections"].as_u64().unwrap() >= 3, "{status}");
    for (name, value) in [
        ("farside_accel_state{state=\"active\"}", "1"),
        ("farside_accel_state{state=\"off\"}", "0"),
        ("farside_accel_peer_connected{peer=\"b\"}", "1"),
        ("farside_accel_restarts_total", "0"),
    ] {
        eventually(name, || a.http("/metrics").contains(&format!("{name} {value}\n")));
    }
    let page = a.http("/metrics");
    for name in [
        "farside_accel_connections_total{application=\"",
        "direction=\"received\",side=\"wire\"}",
        "farside_accel_block_wait_seconds_bucket{le=\"0.001\"} ",
        "farside_accel_block_wait_seconds_bucket{le=\"+Inf\"} ",
        "farside_accel_connection_hold_seconds_count 0\n",
        "farside_accel_store_lookups_total ",
        "farside_accel_store_index_bytes ",
        "farside_accel_preposition_bytes_total{side=\"wire\"} 0\n",
    ] {
        assert!(page.contains(name), "{name}: {page}");
    }
    let status = a.json("accel status");
    let sum = |side: &str| -> u64 {
        let all = status["applications"].as_array().unwrap();
        all.iter().map(|of| of[side].as_u64().unwrap()).sum()
    };
    let both = sum("sent_original_bytes") + sum("received_original_bytes");
    assert_eq!(both, status["original_bytes"].as_u64().unwrap(), "by direction or together: {status}");
    assert!(sum("sent_original_bytes") >= 8 * MIB as u64, "{status}");
    assert!(status["block_wait"]["count"].as_u64().unwrap() > 10, "{status}");
    assert!(status["cache"]["oldest_seconds"].is_null() || status["cache"]["oldest_seconds"].is_u64());
    let table = a.ok("accel status");
    assert!(table.contains("active") && table.contains("connected"), "{table}");
    assert_eq!(a.json("accel forwards").as_array().unwrap().len(), 3);
    a.ok(&format!("accel unforward {to_other}"));
    assert!(TcpStream::connect(&to_other).is_err(), "nobody listens there any more");
    a.fails(3, &format!("accel unforward {to_other}"));
    assert!(b.json("accel forwards").as_array().unwrap().is_empty());
}

#[test]
fn a_connection_is_shown_and_can_be_reset() {
    let boxes = Boxes::start();
    let a = &boxes.pair.a;
    let echo = echo();
    boxes.up(&[&echo]);
    let listen = free("127.0.0.1");
    a.ok(&format!("accel forward {listen} {echo} --peer b"));
    assert_eq!(a.json("accel connections"), json!([]));

    let mut socket = connect(&listen);
    let mut got = [0; 5];
    socket.write_all(b"hello").unwrap();
    socket.read_exact(&mut got).unwrap();
    let client = socket.local_addr().unwrap();
    let all = a.json("accel connections");
    let shown = &all[0];
    assert_eq!(shown["client"], client.to_string());
    assert_eq!(shown["server"].as_str().unwrap().parse::<SocketAddr>().unwrap(), listen.parse().unwrap());
    assert_eq!((&shown["peer"], &shown["client_is_here"]), (&json!("b"), &json!(true)));
    for policy in ["configured", "peer_policy", "negotiated", "applied"] {
        assert!(shown[policy].is_string(), "{policy}: {shown}");
    }
    assert!(shown["opened_at"].as_str().unwrap().ends_with('Z'), "{shown}");
    assert!(shown["original_bytes"].as_u64().unwrap() >= 10, "{shown}");
    assert_eq!(a.json("accel status")["optimized_connections"], 1);
    let table = a.ok("accel connections");
    assert!(table.starts_with("CLIENT") && table.contains(&client.to_string()), "{table}");

    let server = shown["server"].as_str().unwrap();
    a.ok(&format!("accel reset {client} {server}"));
    assert!(socket.read(&mut got).is_err(), "reset, and not ended");
    eventually("it is gone", || a.json("accel status")["optimized_connections"] == 0);
    let said = a.fails(3, &format!("accel reset {client} {server}"));
    assert!(said.contains("accel connections"), "{said}");
}

#[test]
fn a_process_that_is_killed_comes_back_and_storage_does_not_notice() {
    let mut boxes = Boxes::start();
    let echo = echo();
    boxes.up(&[&echo]);
    let a = &boxes.pair.a;
    let listen = free("127.0.0.1");
    a.ok(&format!("accel forward {listen} {echo} --peer b"));
    let mut socket = connect(&listen);
    socket.write_all(b"x").unwrap();
    socket.read_exact(&mut [0]).unwrap();
    let session = |site: &Site| site.json("peer list")[0]["state"] == "connected";
    eventually("the sites have a session", || session(a));

    eventually("it is counted", || a.json("accel status")["taken_connections"] == 1);
    let killed = process(a).expect("it runs");
    kill(killed);
    assert!(socket.read(&mut [0]).map_or(true, |bytes| bytes == 0), "its connections are gone");
    eventually("another one runs", || process(a).is_some_and(|pid| pid != killed));
    assert!(session(a), "the sites' own session has not noticed");
    boxes.are_active();
    let status = a.json("accel status");
    assert_eq!(status["restarts"], 1);
    assert!(status["taken_connections"].as_u64().unwrap() >= 1, "what was counted stays: {status}");
    assert_eq!(sends(&listen, b"again").unwrap(), b"again");

    // A daemon that ends takes it along, however it ends.
    let of_b = process(&boxes.pair.b).unwrap();
    assert_eq!(boxes.pair.b.stop(), Some(0));
    assert!(!is_there(of_b));
    let of_a = process(&boxes.pair.a).unwrap();
    boxes.pair.a.kill();
    eventually("it sees its daemon's end", || !is_there(of_a));
    // What was on is on again, with its forwards.
    boxes.pair.a.restart();
    boxes.pair.b.restart();
    boxes.are_active();
    assert_eq!(sends(&listen, b"remembered").unwrap(), b"remembered");

    let off = boxes.pair.a.json("accel down");
    assert_eq!(off["state"], "off");
    assert!(process(&boxes.pair.a).is_none() && TcpStream::connect(&listen).is_err());
    boxes.pair.a.kill();
    boxes.pair.a.restart();
    assert_eq!(boxes.pair.a.json("accel status")["state"], "off", "off is remembered, too");
    assert_eq!(boxes.pair.a.json("accel forwards").as_array().unwrap().len(), 1);
}

#[test]
fn a_peer_that_is_removed_or_comes_is_followed() {
    let boxes = Boxes::start();
    let (a, b) = (&boxes.pair.a, &boxes.pair.b);
    boxes.up(&["127.0.0.1:1"]);
    let running = process(a).unwrap();
    b.ok("peer remove a --yes");
    let is_bypass = |site: &Site| site.json("accel status")["state"] == "bypass";
    eventually("without a peer nothing is optimised", || is_bypass(b));
    assert_eq!(b.json("accel status")["peers"], json!([]));
    eventually("its peer notices", || is_bypass(a));
    assert!(a.json("accel status")["why"].is_string());
    a.ok("peer remove b --yes");
    boxes.pair.pair_at(&a.published("peer.addr"));
    boxes.are_active();
    assert_eq!(process(a), Some(running), "all that without another process");
}

#[test]
fn what_would_be_installed_is_printed_and_wrong_words_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let site = Site::start(root.path(), "a");
    let rules = site.ok("accel up --lan eth1 --lan eth2 --wan eth0 --dry-run");
    assert!(
        rules.contains("table inet farside") && rules.contains("eth1") && rules.contains("eth2"),
        "{rules}"
    );
    let plan = site.json("accel up --lan eth1 --wan eth0 --listen 10.1.0.2:7442 --dry-run");
    assert_eq!(
        (&plan["lan"], &plan["wan"], &plan["listen"]),
        (&json!(["eth1"]), &json!("eth0"), &json!("10.1.0.2:7442"))
    );
    assert!(plan["rules"].is_string());
    let explicit = site.ok("accel up --dry-run");
    assert!(explicit.contains("nothing would be intercepted"), "{explicit}");
    assert_eq!(site.json("accel status")["state"], "off", "nothing was changed");
    assert!(process(&site).is_none());

    for arguments in [
        "accel",
        "accel up --store-size 10GB",
        "accel up --lan eth1",
        "accel up --lan a/b --wan eth0",
        "accel up --listen 7442",
        "accel up --forward-to 10.2.0.5",
        "accel forward 127.0.0.1:1 10.2.0.5:1",
        "accel forward localhost:1 10.2.0.5:1 --peer b",
        "accel reset here there",
    ] {
        site.fails(2, arguments);
    }
    let said = site.fails(3, "accel up --lan lo --wan no-such-if");
    assert!(said.contains("no-such-if") && said.contains("ip link"), "{said}");
    let said = site.fails(3, "accel forward 127.0.0.1:1 10.2.0.5:1 --peer b");
    assert!(said.contains("peer list"), "{said}");
    assert_eq!(site.json("accel status")["state"], "off");
    let policies = site.json("accel policies");
    assert_eq!(policies.as_array().unwrap().last().unwrap()["application"], "other");
    let table = site.ok("accel policies");
    assert!(table.contains("snapmirror") && table.contains("10565-10569"), "{table}");
    assert!(text(&site.farside("config show").stdout).contains("accelerator's address"));
}

#[test]
fn what_was_prepositioned_passes_as_references_the_first_time() {
    let boxes = Boxes::start();
    let (a, b) = (&boxes.pair.a, &boxes.pair.b);
    // A server at a; its clients are at b, and so is the store that is filled.
    let file = noise(20_000_000);
    let served = file.clone();
    let server = server(move |mut socket| {
        socket.write_all(&served)?;
        socket.shutdown(Shutdown::Write)
    });
    // More than any buffer takes: the refusal comes while the file is still being sent.
    let large = boxes.pair.root.path().join("large");
    std::fs::write(&large, vec![1; 32 << 20]).unwrap();
    for _ in 0..20 {
        let off = a.fails(4, &format!("accel preposition {}", large.display()));
        assert!(off.contains("accel up"), "{off}");
    }
    a.ok(&format!("accel up --listen {} --forward-to {server}", boxes.at_a));
    b.ok(&format!("accel up --listen {}", boxes.at_b));
    boxes.are_active();
    let listen = free("127.0.0.1");
    b.ok(&format!("accel forward {listen} {server} --peer a"));

    let files = boxes.pair.root.path().join("files");
    std::fs::create_dir_all(files.join("deep/er")).unwrap();
    std::fs::write(files.join("deep/er/image"), &file).unwrap();
    std::fs::write(files.join("small"), "x").unwrap();
    std::os::unix::fs::symlink("/etc", files.join("link")).unwrap();
    let done = a.json(&format!("accel preposition {}", files.display()));
    assert_eq!((&done["files"], &done["original_bytes"]), (&json!(1), &json!(20_000_000)), "{done}");
    assert_eq!((&done["kind"], &done["peer"]), (&json!("directory"), &json!("b")));
    let left_out = &done["left_out"];
    assert_eq!((&left_out["symbolic_links"], &left_out["small_files"]), (&json!(1), &json!(1)), "{done}");
    let wire = done["wire_bytes"].as_u64().unwrap();
    assert!((20_000_000..20_100_000).contains(&wire), "{wire}");
    let again = a.ok(&format!("accel preposition {}/deep/er/image --peer b", files.display()));
    assert!(again.contains("is in the chunk store of b: 19.1 MiB"), "{again}");
    assert_eq!(a.json("accel prepositions"), json!([]));

    // What is held is told within a twentieth of a second.
    std::thread::sleep(Duration::from_millis(500));
    let before = b.json("accel status")["wire_bytes"].as_u64().unwrap();
    assert!(sends(&listen, b"").unwrap() == file, "the bytes differ");
    eventually("it has ended", || b.json("accel status")["optimized_connections"] == 0);
    let wire = b.json("accel status")["wire_bytes"].as_u64().unwrap() - before;
    eprintln!("20,000,000 bytes that were prepositioned: {wire} on the link");
    assert!(wire < 20_000_000 / 50, "{wire}");

    for (code, arguments, said) in [
        (3, "accel preposition /no/such/file", "no file, directory or volume"),
        (2, "accel preposition /dev/null", "no file and no directory"),
        (3, "accel preposition /etc/hostname --peer nobody", "nobody"),
        (3, "accel prepositions --cancel 1-2", "accel prepositions"),
    ] {
        let text = a.fails(code, arguments);
        assert!(text.contains(said), "{arguments}: {text}");
    }
}

#[test]
fn a_volume_is_prepositioned_from_its_newest_snapshot() {
    let boxes = Boxes::start();
    let a = &boxes.pair.a;
    boxes.up(&["127.0.0.1:1"]);
    a.ok(&format!("pool create p --path {} --size 200M", boxes.pair.root.path().join("pool").display()));
    a.ok("volume create p/v --size 64M");
    let refused = a.fails(4, "accel preposition p/v");
    assert!(refused.contains("snapshot create p/v@"), "{refused}");
    let data = noise(4 * MIB);
    let mut host = a.nbd("p/v");
    host.write(8 << 20, &data).unwrap();
    host.write(40 << 20, &data).unwrap();
    host.flush().unwrap();
    a.ok("snapshot create p/v@one");
    let done = a.json("accel preposition p/v");
    assert_eq!((&done["kind"], &done["original_bytes"]), (&json!("volume"), &json!(8 * MIB)), "{done}");
    // The same twice: the second time as references.
    let wire = done["wire_bytes"].as_u64().unwrap();
    assert!(wire < 5 * MIB as u64, "{wire}");
}
