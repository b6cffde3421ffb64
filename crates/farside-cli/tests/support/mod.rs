//! Real daemons below temporary directories, on loopback and Unix sockets only.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part of this")]
#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

pub mod api;
pub mod database_server;
pub mod hang;
pub mod host;
pub mod model;
pub mod mounted;
pub mod nbd;
pub mod postgres;
pub mod relay;
pub mod several;
pub mod small;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The client under test.
pub const FARSIDE: &str = env!("CARGO_BIN_EXE_farside");
/// The daemon under test.
pub const FARSIDED: &str = env!("CARGO_BIN_EXE_farsided");

/// A daemon that is not ready by then hangs.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A daemon and its directory.
pub struct Site {
    pub name: String,
    pub dir: PathBuf,
    child: Option<Child>,
    /// Where peers found it first; a restart listens there again.
    pub peer_address: Option<String>,
    /// Its environment, besides that of the test.
    pub environment: Vec<(String, String)>,
    /// Where its log goes, if not to the file `log`.
    pub log_to: Option<std::os::fd::OwnedFd>,
}

impl Site {
    /// A daemon that has not been started.
    pub fn new(dir: &Path, name: &str) -> Site {
        Site {
            name: name.into(),
            dir: dir.into(),
            child: None,
            peer_address: None,
            environment: Vec::new(),
            log_to: None,
        }
    }

    /// A daemon that is ready.
    pub fn start(root: &Path, name: &str) -> Site {
        let dir = root.join(name);
        let mut site = Site::new(&dir, name);
        site.restart();
        site
    }

    /// Starts it again, where its peers know it.
    pub fn restart(&mut self) {
        let listen = self.peer_address.clone().unwrap_or_else(|| "127.0.0.1:0".into());
        self.start_with(&["--peer-listen", &listen]);
        // One that stands by meets no peers.
        if listen != "off" && self.dir.join("peer.addr").exists() {
            self.peer_address = Some(self.published("peer.addr"));
        }
    }

    /// Starts it so that it meets no peer.
    pub fn isolated(&mut self) {
        self.start_with(&["--isolated"]);
    }

    fn start_with(&mut self, arguments: &[&str]) {
        assert!(self.child.is_none(), "{} runs already", self.name);
        std::fs::create_dir_all(&self.dir).unwrap();
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.dir.join("log")).unwrap();
        let log = self.log_to.as_ref().map_or(Stdio::from(log), |log| log.try_clone().unwrap().into());
        let mut child = Command::new(FARSIDED)
            .arg("--data-dir")
            .arg(&self.dir)
            .args(["--name", &self.name, "--http", "127.0.0.1:0"])
            .args(arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        self.child = Some(child);
        let (said, ready) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(stdout).read_line(&mut line);
            let _ = said.send(line);
        });
        let line = ready.recv_timeout(READY_WITHIN).unwrap_or_default();
        assert!(line.contains("ready"), "{} did not start; its log:\n{}", self.name, self.log());
    }

    /// What the daemon says of itself in a small file.
    pub fn published(&self, file: &str) -> String {
        std::fs::read_to_string(self.dir.join(file)).unwrap().trim().to_owned()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// The log has, or will have: a thread of its own writes it, and the answer to a request may come before the line about it.
    #[track_caller]
    pub fn has_logged(&self, what: &str) {
        let began = Instant::now();
        while !self.log().contains(what) {
            assert!(began.elapsed() < Duration::from_secs(20), "no line says {what:?}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Whether its process is there.
    pub fn runs(&self) -> bool {
        let child = self.child.as_ref().unwrap();
        std::fs::read_to_string(format!("/proc/{}/stat", child.id())).is_ok_and(|stat| !stat.contains(") Z"))
    }

    /// SIGKILL: no chance to tidy up.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM; returns the exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.signal(rustix::process::Signal::TERM);
        let mut child = self.child.take().unwrap();
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status.code();
            }
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "{} does not stop; its log:\n{}",
                self.name,
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// SIGSTOP: its sockets stay open, and nobody answers. A site that is dropped is killed all the same.
    pub fn freeze(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    /// SIGHUP.
    pub fn hang_up(&self) {
        self.signal(rustix::process::Signal::HUP);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// `farside` with these arguments, split at blanks, on this site.
    pub fn farside(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(FARSIDE);
        command.arg("--data-dir").arg(&self.dir).args(arguments.split_whitespace()).stdin(Stdio::null());
        command
    }

    /// The same, which must succeed; its stdout.
    #[track_caller]
    pub fn ok(&self, arguments: &str) -> String {
        let output = self.farside(arguments);
        assert!(
            output.status.success(),
            "{}: farside {arguments}: {}{}",
            self.name,
            text(&output.stderr),
            self.log()
        );
        text(&output.stdout)
    }

    /// The same with `--json`; its document.
    #[track_caller]
    pub fn json(&self, arguments: &str) -> Value {
        let stdout = self.ok(&format!("{arguments} --json"));
        serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("farside {arguments} --json: {e}: {stdout}"))
    }

    /// The same, which must fail with this exit code; what it says.
    #[track_caller]
    pub fn fails(&self, code: i32, arguments: &str) -> String {
        let output = self.farside(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{}: farside {arguments}: {said}", self.name);
        said
    }

    pub fn nbd_socket(&self) -> PathBuf {
        self.dir.join("nbd.sock")
    }

    pub fn nbd(&self, export: &str) -> nbd::Client {
        nbd::Client::open(&self.nbd_socket(), export).unwrap()
    }

    /// A page of the daemon's HTTP server: status line and all that follows.
    pub fn http(&self, path: &str) -> String {
        use std::io::Write;
        let mut stream = std::net::TcpStream::connect(self.published("http.addr")).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: farside\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("---- log of {}:\n{}", self.name, self.log());
        }
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Polls `done` until it says so; the wait is bounded.
#[track_caller]
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} did not come about");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Two sites with a pool each (`p` at `a`, `q` at `b`), paired.
pub struct Pair {
    pub a: Site,
    pub b: Site,
    pub root: tempfile::TempDir,
}

/// The pools of a pair.
pub const POOL_BYTES: u64 = 256 << 20;

impl Pair {
    pub fn start() -> Pair {
        Pair::with_pools(POOL_BYTES, POOL_BYTES)
    }

    /// A pair of which B dials A, and A does not dial B.
    pub fn dialled_by_b() -> Pair {
        let pair = Pair::unpaired_dialled_by_b();
        pair.pair_at(&pair.a.published("peer.addr"));
        pair
    }

    fn unpaired_dialled_by_b() -> Pair {
        let mut pair = Pair::unpaired(POOL_BYTES, POOL_BYTES);
        // A would dial B as soon as they are paired.
        assert_eq!(pair.b.stop(), Some(0));
        pair.b.peer_address = Some("off".into());
        pair.b.restart();
        pair
    }

    /// The same, every byte past a relay.
    pub fn through_relay() -> (Pair, relay::Relay) {
        let pair = Pair::unpaired_dialled_by_b();
        let relay = relay::Relay::start(&pair.a.published("peer.addr"));
        pair.pair_at(&relay.address);
        (pair, relay)
    }

    pub fn with_pools(a_bytes: u64, b_bytes: u64) -> Pair {
        let pair = Pair::unpaired(a_bytes, b_bytes);
        pair.pair_at(&pair.a.published("peer.addr"));
        pair
    }

    fn unpaired(a_bytes: u64, b_bytes: u64) -> Pair {
        let root = tempfile::tempdir().unwrap();
        let (a, b) = (Site::start(root.path(), "a"), Site::start(root.path(), "b"));
        a.ok(&format!("pool create p --path {} --size {a_bytes}", root.path().join("p.pool").display()));
        b.ok(&format!("pool create q --path {} --size {b_bytes}", root.path().join("q.pool").display()));
        Pair { a, b, root }
    }

    /// B accepts an invitation of A, whom it meets at this address.
    pub fn pair_at(&self, address: &str) {
        let code = self.root.path().join("code");
        std::fs::write(&code, self.a.ok("peer invite")).unwrap();
        self.b.ok(&format!("peer join {address} --code-file {}", code.display()));
    }

    /// `p/v` of `size` bytes, mirrored as `q/v`, not yet initialized.
    pub fn mirror(&self, size: u64) {
        self.a.ok(&format!("volume create p/v --size {size}"));
        self.a.ok("peer allow b p/v");
        self.b.ok("mirror create a:p/v q/v");
    }
}

/// The one mirror's status at a site.
#[track_caller]
pub fn status(site: &Site, volume: &str) -> Value {
    let all = site.json(&format!("mirror status {volume}"));
    assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
    all[0].clone()
}

/// A seed that is printed, so that a failure can be had again: `FARSIDE_SEED=… cargo test …`.
pub fn seed() -> u64 {
    let seed = match std::env::var("FARSIDE_SEED") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => rand::random(),
    };
    println!("FARSIDE_SEED={seed}");
    seed
}

/// The offline check of a pool that no daemon has open finds nothing wrong.
#[track_caller]
pub fn check_pool(pool: &Path) {
    let output = Command::new(FARSIDE).args(["pool", "check", "--json"]).arg(pool).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
