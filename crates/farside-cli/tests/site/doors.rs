//! The daemon's doors while somebody stands in them: a log that nobody reads, clients that say nothing, signals that mean
//! something else.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::support::{Pair, Site, eventually, text};

/// What answers at all answers in milliseconds; a busy machine gets more.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Runs `what`, which must not take long.
#[track_caller]
fn at_once<T>(name: &str, what: impl FnOnce() -> T + Send) -> T
where
    T: Send,
{
    let began = Instant::now();
    let result = what();
    println!("{name}: {:?}", began.elapsed());
    assert!(began.elapsed() < AT_ONCE, "{name} took {:?}", began.elapsed());
    result
}

/// `farside` with these arguments, killed if it does not end.
#[track_caller]
fn answered(site: &Site, arguments: &str) {
    let mut child = site.command(arguments).stdout(std::process::Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > AT_ONCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("farside {arguments} got no answer");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("farside {arguments}: {:?}", began.elapsed());
    assert!(child.wait().unwrap().success(), "farside {arguments}");
}

/// A pipe that takes not one byte more, and its other end.
fn full_pipe() -> (OwnedFd, std::io::PipeReader) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    for piece in [4096, 1] {
        while writer.write(&vec![b'.'; piece]).is_ok() {}
    }
    rustix::fs::fcntl_setfl(&writer, flags).unwrap();
    (writer.into(), reader)
}

/// Connections with rubbish, each of them worth a warning.
fn strangers(site: &Site) {
    for _ in 0..6 {
        let mut stranger = TcpStream::connect(site.peer_address.as_ref().unwrap()).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        stranger.set_read_timeout(Some(AT_ONCE)).unwrap();
        let _ = stranger.read(&mut [0; 64]);
    }
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let mut pair = Pair::start();
    pair.mirror(4 << 20);
    pair.b.ok("mirror initialize q/v");
    pair.b.ok("volume create q/own --size 4M");
    assert_eq!(pair.b.stop(), Some(0));
    let (log, mut reader) = full_pipe();
    pair.b.log_to = Some(log);
    std::fs::write(pair.b.dir.join("farside.toml"), "log = \"debug\"\n").unwrap();
    pair.b.restart();
    strangers(&pair.b);
    answered(&pair.b, "pool list");
    answered(&pair.b, "mirror break q/v --yes");
    at_once("a write", || {
        let mut host = pair.b.nbd("q/own");
        host.write(0, &[7; 4096]).unwrap();
        host.flush().unwrap();
    });
    eventually("health says it", || {
        let page = pair.b.http("/healthz");
        page.starts_with("HTTP/1.1 503") && page.contains("nobody has read the log")
    });
    assert!(pair.b.http("/metrics").contains("farside_log_lines_lost_total 0"));
    let stopped = at_once("the stop", || pair.b.stop());
    assert_eq!(stopped, Some(0));

    // A reader that goes on reads what was kept.
    pair.b.restart();
    strangers(&pair.b);
    let mut log = String::new();
    let mut piece = vec![0; 64 << 10];
    while !log.contains("pool opened") {
        let read = reader.read(&mut piece).unwrap();
        log += &text(&piece[..read]);
    }
    std::thread::spawn(move || while reader.read(&mut piece).is_ok_and(|read| read > 0) {});
    eventually("all is well again", || pair.b.http("/healthz").starts_with("HTTP/1.1 200"));
    assert_eq!(pair.b.stop(), Some(0));
}

/// More than there are places.
const SILENT: usize = 150;

/// Clients of both doors that say nothing, or the half of something.
fn silent_clients(site: &Site, count: usize) -> (Vec<UnixStream>, Vec<TcpStream>) {
    let control = (0..count).map(|number| {
        let mut stream = UnixStream::connect(site.dir.join("farside.sock")).unwrap();
        if number % 2 == 1 {
            // Two thirds of a request.
            let half = b"POST /api/v1/pools HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
            let _ = stream.write_all(half);
        }
        stream
    });
    let public = (0..count).map(|_| {
        let mut stream = TcpStream::connect(site.published("http.addr")).unwrap();
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-A: ");
        stream
    });
    (control.collect(), public.collect())
}

/// A page, if there is an answer at all.
fn page(site: &Site, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(site.published("http.addr")).ok()?;
    stream.set_read_timeout(Some(AT_ONCE)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn whoever_says_nothing_keeps_nobody_out_and_no_stop_up() {
    let root = tempfile::tempdir().unwrap();
    let mut site = Site::start(root.path(), "a");
    site.ok(&format!("pool create p --path {} --size 64M", root.path().join("p.pool").display()));
    site.ok("volume create p/v --size 4M");
    let mut host = site.nbd("p/v");
    host.write(0, &[7; 4096]).unwrap();

    let (control, public) = silent_clients(&site, SILENT);
    answered(&site, "volume list");
    let health = at_once("health", || page(&site, "/healthz")).expect("an answer");
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");
    // Half a header has five seconds.
    for mut stream in public {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let end = stream.read(&mut [0; 64]);
        assert!(!end.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "it is still open");
    }
    drop(control);

    let _silent = silent_clients(&site, 20);
    let stopped = at_once("the stop", || site.stop());
    assert_eq!(stopped, Some(0));
    assert!(!site.log().contains("still running"), "{}", site.log());
}

#[test]
fn a_daemon_that_does_not_answer_is_told_of() {
    let root = tempfile::tempdir().unwrap();
    let site = Site::start(root.path(), "a");
    site.freeze();
    let mut asking = site
        .command("pool list")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let (said, hears) = std::sync::mpsc::channel();
    let mut stderr = BufReader::new(asking.stderr.take().unwrap());
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = stderr.read_line(&mut line);
        let _ = said.send(line);
    });
    let line = hears.recv_timeout(Duration::from_secs(30)).unwrap_or_default();
    site.thaw();
    assert!(line.contains("has not answered for 2 s"), "{line:?}");
    assert!(asking.wait().unwrap().success(), "it waited on, and was answered");
}

#[test]
fn a_hangup_is_no_end() {
    let root = tempfile::tempdir().unwrap();
    let mut site = Site::start(root.path(), "a");
    site.ok(&format!("pool create p --path {} --size 64M", root.path().join("p.pool").display()));
    site.ok("volume create p/v --size 4M");
    let mut host = site.nbd("p/v");
    host.write(0, &[7; 4096]).unwrap();
    for _ in 0..3 {
        site.hang_up();
    }
    eventually("the log says what it does", || site.log().contains("SIGHUP: nothing to reload"));
    host.write(0, &[8; 4096]).unwrap();
    host.flush().unwrap();
    site.ok("pool list");
    assert_eq!(site.stop(), Some(0), "SIGTERM ends it as before");
    assert!(!site.dir.join("farside.sock").exists());
}
