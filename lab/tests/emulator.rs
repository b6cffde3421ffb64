//! The emulator between two network namespaces, with real packets: what is counted is what hosts see. Nothing here asserts
//! that something was fast; a loaded machine makes packets late, and lateness is what the counters tell.
//!
//! Needs root, `/dev/net/tun` and `unshare`, `ip`, `nsenter`, `ping`. Without them the tests say that they are skipped;
//! `FARSIDE_REQUIRE_LAB=1` makes that a failure.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use farside_lab::emulator::{Emulator, LinkCounters, Tun};
use farside_lab::link::{Change, Direction, Event, LinkTerms};
use nix::sched::{CloneFlags, setns};

const A: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const PORT: u16 = 9000;

/// IPv4's and UDP's headers.
const HEADERS: usize = 28;

/// Longer than any packet of these tests is on its way, also on a machine that hardly runs.
const PATIENCE: Duration = Duration::from_secs(300);

/// A network namespace that lives as long as a process in it, which ends with its standard input: whatever happens to the
/// test.
struct Namespace {
    holder: Child,
    path: PathBuf,
}

impl Namespace {
    fn new() -> Self {
        let holder = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("unshare runs");
        let path = PathBuf::from(format!("/proc/{}/ns/net", holder.id()));
        let own = std::fs::read_link("/proc/self/ns/net").expect("namespaces can be read");
        let begin = Instant::now();
        while std::fs::read_link(&path).expect("the holder lives") == own {
            assert!(begin.elapsed() < PATIENCE, "unshare makes no namespace");
            std::thread::sleep(Duration::from_millis(1));
        }
        Self { holder, path }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path.display())).args(words);
        command
    }

    /// A UDP socket in this namespace.
    fn socket(&self, address: Ipv4Addr) -> UdpSocket {
        let path = self.path.clone();
        std::thread::spawn(move || {
            setns(File::open(path).expect("the namespace is there"), CloneFlags::CLONE_NEWNET)
                .expect("a thread enters it");
            UdpSocket::bind((address, PORT)).expect("the address is there")
        })
        .join()
        .expect("the thread ends")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        self.holder.wait().expect("the holder ends");
    }
}

/// Two hosts and the link between them.
struct Lab {
    emulator: Emulator,
    a: Namespace,
    b: Namespace,
}

impl Lab {
    /// None if something that it needs is missing.
    fn lay(terms: &LinkTerms, seed: u64) -> Option<Self> {
        println!("seed {seed}");
        if let Err(missing) = tools() {
            assert!(std::env::var_os("FARSIDE_REQUIRE_LAB").is_none(), "{missing}");
            println!("SKIPPED: {missing}");
            return None;
        }
        let link = terms.build("test").expect("a link");
        let (a, b) = (Namespace::new(), Namespace::new());
        let tun = |namespace: &Namespace, address: Ipv4Addr, peer: Ipv4Addr| {
            let tun = Tun::open(Some(&namespace.path), "wan0", link.forward.mtu).expect("a TUN device");
            let (address, peer) = (address.to_string(), peer.to_string());
            let set =
                namespace.command(&["ip", "address", "add", &address, "peer", &peer, "dev", "wan0"]).status();
            assert!(set.expect("ip runs").success());
            tun
        };
        let (tun_a, tun_b) = (tun(&a, A, B), tun(&b, B, A));
        let emulator = Emulator::start(tun_a, tun_b, &link, seed).expect("the link comes up");
        Some(Self { emulator, a, b })
    }

    fn counters(&self) -> LinkCounters {
        self.emulator.counters().expect("the link runs")
    }

    /// Waits until every packet that went in has come out or is accounted for, and `packets` went in.
    fn settled(&self, packets: u64) -> LinkCounters {
        let begin = Instant::now();
        loop {
            let counters = self.counters();
            let f = &counters.forward;
            let gone = f.lost + f.dropped_queue + f.dropped_down + f.dropped_size + f.device_drops;
            if f.packets_in == packets && f.packets_out + gone == packets {
                return counters;
            }
            assert!(begin.elapsed() < PATIENCE, "{packets} sent: {counters:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn tools() -> Result<(), String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("the emulator needs root".to_owned());
    }
    if !Path::new("/dev/net/tun").exists() {
        return Err("there is no /dev/net/tun".to_owned());
    }
    for tool in ["unshare", "nsenter", "ip", "ping"] {
        let found =
            Command::new("sh").args(["-c", &format!("command -v {tool}")]).stdout(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            return Err(format!("{tool} is not installed"));
        }
    }
    Ok(())
}

/// A datagram whose bytes tell its number.
fn datagram(number: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; length];
    (&mut bytes[..4]).write_all(&number.to_le_bytes()).expect("four bytes");
    bytes
}

/// Everything that has arrived, by number; each datagram must be as it was sent.
fn received(socket: &UdpSocket) -> Vec<u32> {
    socket.set_nonblocking(true).expect("a socket");
    let mut buffer = [0; 2000];
    let mut numbers = Vec::new();
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) => {
                let number = u32::from_le_bytes(buffer[..4].try_into().expect("four bytes"));
                assert_eq!(buffer[..length], datagram(number, length));
                numbers.push(number);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return numbers,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn an_idle_link_has_the_round_trip_time_that_is_set() {
    let terms = LinkTerms {
        profile: Some("t3".to_owned()),
        rtt: Some(Duration::from_millis(40)),
        ..LinkTerms::default()
    };
    let Some(lab) = Lab::lay(&terms, 1) else { return };
    let address = B.to_string();
    let ping = |words: &[&str]| {
        let words = [&["ping", "-q", "-W", "300"], words, &[&address]].concat();
        String::from_utf8(lab.a.command(&words).output().expect("ping runs").stdout).expect("text")
    };
    let text = ping(&["-c", "20", "-i", "0.02"]);
    // Behind the others, and waited for: ping alone gives up the last of many two round trips after it was sent.
    let last = ping(&["-c", "1"]);
    assert!(last.contains("1 received"), "{last}");
    // rtt min/avg/max/mdev = 40.2/…: never too early; and the best of them not by much too late, as other work can make
    // any one late.
    let best: f64 = text
        .split_once("mdev = ")
        .and_then(|(_, times)| times.split('/').next()?.parse().ok())
        .expect("ping tells times");
    assert!((40.0..80.0).contains(&best), "{text}");
    let counters = lab.emulator.stop().expect("it stops");
    for direction in [&counters.forward, &counters.back] {
        assert_eq!((direction.packets_in, direction.packets_out), (21, 21), "{direction:?}");
        assert_eq!((direction.bytes_in, direction.bytes_out), (21 * 84, 21 * 84), "{direction:?}");
    }
}

#[test]
fn bytes_and_losses_are_exactly_as_counted() {
    let terms = LinkTerms {
        rate: Some(20_000_000),
        rtt: Some(Duration::from_millis(10)),
        jitter: Some(Duration::from_millis(2)),
        loss: Some(0.1),
        burst: Some(2.0),
        queue: Some(1 << 20),
        ..LinkTerms::default()
    };
    let Some(lab) = Lab::lay(&terms, 7) else { return };
    let (from, to) = (lab.a.socket(A), lab.b.socket(B));
    let target = SocketAddr::from((B, PORT));
    let (mut sent_bytes, mut arrived) = (0, Vec::new());
    // In portions that the receiving socket holds.
    for portion in 0..20_u32 {
        for number in portion * 50..(portion + 1) * 50 {
            let length = 4 + (number as usize * 37) % 1400;
            from.send_to(&datagram(number, length), target).expect("it is sent");
            sent_bytes += (length + HEADERS) as u64;
        }
        lab.settled(u64::from(portion + 1) * 50);
        arrived.extend(received(&to));
    }
    let forward = lab.settled(1000).forward;
    assert_eq!(forward.bytes_in, sent_bytes);
    assert_eq!(forward.packets_out, arrived.len() as u64);
    assert_eq!(forward.lost, 1000 - arrived.len() as u64);
    assert!((20..300).contains(&forward.lost), "{forward:?}");
    let arrived_bytes: u64 =
        arrived.iter().map(|&number| (4 + (number as usize * 37) % 1400 + HEADERS) as u64).sum();
    assert_eq!(forward.bytes_out, arrived_bytes);
    assert!(arrived.is_sorted(), "none overtakes");
    assert_eq!(forward.reordered, 0);

    lab.emulator.mark().expect("the link runs");
    from.send_to(&datagram(0, 100), target).expect("it is sent");
    let forward = lab.settled(1).forward;
    assert_eq!(forward.bytes_in, 100 + HEADERS as u64);
}

#[test]
fn a_slow_line_takes_its_time_and_a_full_queue_drops() {
    let terms = LinkTerms { rate: Some(400_000), queue: Some(15_000), ..LinkTerms::default() };
    let Some(lab) = Lab::lay(&terms, 1) else { return };
    let (from, to) = (lab.a.socket(A), lab.b.socket(B));
    let begin = Instant::now();
    for number in 0..30 {
        from.send_to(&datagram(number, 1000 - HEADERS), (B, PORT)).expect("it is sent");
    }
    let forward = lab.settled(30).forward;
    let took = begin.elapsed();
    let arrived = received(&to);
    assert_eq!(forward.packets_out, arrived.len() as u64);
    assert_eq!(forward.dropped_queue, 30 - arrived.len() as u64);
    // Fifteen fit, and as many more as the line sent while they came: each takes 20 ms.
    assert!(arrived.len() >= 15, "{forward:?}");
    assert!(took >= Duration::from_millis(20) * arrived.len() as u32, "{took:?}: {forward:?}");
}

#[test]
fn an_outage_lets_nothing_through_and_ends() {
    let terms = LinkTerms {
        rate: Some(10_000_000),
        rtt: Some(Duration::from_millis(2)),
        // By script: down a while after the link has come up, for good.
        script: vec![Event {
            at: Duration::from_millis(300),
            direction: Some(Direction::Back),
            path: None,
            change: Change::Down,
        }],
        ..LinkTerms::default()
    };
    let Some(lab) = Lab::lay(&terms, 1) else { return };
    let up = Instant::now();
    let (from, to) = (lab.a.socket(A), lab.b.socket(B));
    let send = |socket: &UdpSocket, target: Ipv4Addr, numbers: std::ops::Range<u32>| {
        for number in numbers {
            socket.send_to(&datagram(number, 500), (target, PORT)).expect("it is sent");
        }
    };
    send(&from, B, 0..10);
    lab.settled(10);
    lab.emulator.change(Some(Direction::Forward), &Change::Down).expect("the link runs");
    send(&from, B, 10..20);
    lab.settled(20);
    lab.emulator.change(Some(Direction::Forward), &Change::Up).expect("the link runs");
    send(&from, B, 20..30);
    let forward = lab.settled(30).forward;
    assert_eq!((forward.packets_out, forward.dropped_down), (20, 10), "{forward:?}");
    assert_eq!(received(&to), (0..10).chain(20..30).collect::<Vec<_>>());

    std::thread::sleep(Duration::from_millis(320).saturating_sub(up.elapsed()));
    send(&to, A, 0..5);
    let begin = Instant::now();
    while lab.counters().back.packets_in < 5 {
        assert!(begin.elapsed() < PATIENCE, "{:?}", lab.counters());
        std::thread::sleep(Duration::from_millis(5));
    }
    let back = lab.emulator.stop().expect("it stops").back;
    assert_eq!((back.packets_out, back.dropped_down), (0, 5), "{back:?}");
    assert!(received(&from).is_empty());
}

#[test]
fn packets_held_back_are_overtaken_and_counted() {
    let terms = LinkTerms {
        rate: Some(50_000_000),
        rtt: Some(Duration::from_millis(4)),
        reorder: Some(0.05),
        queue: Some(1 << 20),
        ..LinkTerms::default()
    };
    let Some(lab) = Lab::lay(&terms, 11) else { return };
    let (from, to) = (lab.a.socket(A), lab.b.socket(B));
    let mut arrived = Vec::new();
    // In portions that the receiving socket holds.
    for portion in 0..10_u32 {
        for number in portion * 50..(portion + 1) * 50 {
            from.send_to(&datagram(number, 1400), (B, PORT)).expect("it is sent");
        }
        lab.settled(u64::from(portion + 1) * 50);
        arrived.extend(received(&to));
    }
    let forward = lab.counters().forward;
    assert_eq!(arrived.len(), 500, "{forward:?}");
    let (mut highest, mut overtaken) = (0, 0);
    for number in arrived {
        overtaken += u64::from(number < highest);
        highest = highest.max(number);
    }
    assert_eq!(forward.reordered, overtaken);
    assert!(overtaken > 0, "{forward:?}");
}
