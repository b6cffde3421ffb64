//! The bed of all cells: a host and a box at each of two sites, and a router between the boxes, which is the WAN.
//!
//! ```text
//! client eth0 ── lan0 near wan0 ── west router east ── wan0 far lan0 ── eth0 server
//!        10.1.0.2      .1  10.8.0.1   .2       10.9.0.1   .2  10.2.0.1     .3
//!                                  past router ──────────────────── past server
//!                                       10.7.0.1                        .3     used by no route, until a cell does
//! ```
//!
//! Plain connections to the server's ports pass the router, which notes their clients' ports; those over the boxes do not.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::space::{Space, join};
use crate::support::{Site, eventually};
use crate::traffic::{Request, Server, Transfer};
use crate::watch::Watch;

/// Where the server is.
pub(crate) const SERVER: &str = "10.2.0.3:8000";
/// Nothing that is right takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// One of the two sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Near,
    Far,
}

pub(crate) struct Bed {
    pub(crate) client: Space,
    pub(crate) router: Space,
    pub(crate) server: Space,
    pub(crate) near: Box_,
    pub(crate) far: Box_,
    pub(crate) serving: Server,
    pub(crate) root: tempfile::TempDir,
    resets: AtomicU32,
}

/// A site with its namespace.
pub(crate) struct Box_ {
    pub(crate) space: Space,
    pub(crate) site: Site,
    prepare: fn(&Site),
}

/// What a cell may want to have otherwise.
pub(crate) struct Wanted {
    /// Environment of both daemons.
    pub(crate) environment: Vec<(String, String)>,
    /// Called on the thread that starts a daemon, before each start.
    pub(crate) prepare: fn(&Site),
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted { environment: Vec::new(), prepare: |_| {} }
    }
}

impl Bed {
    /// With both boxes active; `None`, with a line, where namespaces cannot be had.
    pub(crate) fn new() -> Option<Bed> {
        Bed::wanted(Wanted::default())
    }

    pub(crate) fn wanted(wanted: Wanted) -> Option<Bed> {
        match Bed::lay(wanted) {
            Ok(bed) => {
                bed.meet();
                Some(bed)
            }
            Err(error) => {
                let required = std::env::var_os("FARSIDE_REQUIRE_LAB").is_some();
                assert!(!required, "no network namespaces: {error}");
                eprintln!("skipped: no network namespaces (root, iproute2 and nftables are needed): {error}");
                None
            }
        }
    }

    fn lay(wanted: Wanted) -> io::Result<Bed> {
        // What else a busy machine does is not to be measured here. Processes that are started inherit it.
        let _ = rustix::process::setpriority_process(None, -10);
        let [client, near, router, far, server] =
            [Space::new()?, Space::new()?, Space::new()?, Space::new()?, Space::new()?];
        join((&client, "eth0"), (&near, "lan0"), 1, (2, 1))?;
        join((&near, "wan0"), (&router, "west"), 8, (1, 2))?;
        join((&router, "east"), (&far, "wan0"), 9, (1, 2))?;
        join((&far, "lan0"), (&server, "eth0"), 2, (1, 3))?;
        join((&router, "past"), (&server, "past"), 7, (1, 3))?;
        client.ip("route add default via 10.1.0.1")?;
        near.ip("route add default via 10.8.0.2")?;
        router.ip("route add 10.1.0.0/24 via 10.8.0.1\nroute add 10.2.0.0/24 via 10.9.0.2")?;
        far.ip("route add default via 10.9.0.1")?;
        server.ip("route add default via 10.2.0.1")?;
        for space in [&near, &router, &far] {
            space.sysctl("net/ipv4/ip_forward", "1")?;
        }
        for space in [&near, &router, &far, &server] {
            space.sysctl("net/ipv4/conf/all/rp_filter", "0")?;
        }
        router.nft(
            "table inet wan {\n\
               set plain { type inet_service; }\n\
               chain look { type filter hook forward priority 10; policy accept;\n\
                 iifname west tcp dport 8000 tcp flags & (syn | ack) == syn add @plain { tcp sport };\n\
               }\n\
               chain fault { type filter hook forward priority 0; policy accept; };\n\
             }",
        )?;
        let serving = Server::start(&server, SERVER);
        let root = tempfile::tempdir()?;
        let site = |name: &str, space: &Space, address: &str| {
            let mut site = Site::new(&root.path().join(name), name);
            site.peer_address = Some(format!("{address}:7440"));
            site.environment = wanted.environment.clone();
            let mut box_ = Box_ { space: space.clone(), site, prepare: wanted.prepare };
            box_.start();
            box_
        };
        let (near, far) = (site("near", &near, "10.8.0.1"), site("far", &far, "10.9.0.2"));
        let bed = Bed { client, router, server, near, far, serving, root, resets: 0.into() };
        bed.pair();
        for at in [End::Near, End::Far] {
            bed.up(at);
        }
        Ok(bed)
    }

    pub(crate) fn pair(&self) {
        let code = self.root.path().join("code");
        std::fs::write(&code, self.near.site.ok("peer invite")).unwrap();
        let join = format!("peer join 10.8.0.1:7440 --code-file {}", code.display());
        self.far.site.ok(&join);
    }

    pub(crate) fn up(&self, at: End) {
        self.at(at).site.ok("accel up --lan lan0 --wan wan0 --store-size 1G");
    }

    /// Waits until both boxes have found each other.
    pub(crate) fn meet(&self) {
        for site in [&self.near.site, &self.far.site] {
            eventually("both boxes are active", || site.json("accel status")["state"] == "active");
        }
    }

    pub(crate) fn at(&self, at: End) -> &Box_ {
        match at {
            End::Near => &self.near,
            End::Far => &self.far,
        }
    }

    pub(crate) fn at_mut(&mut self, at: End) -> &mut Box_ {
        match at {
            End::Near => &mut self.near,
            End::Far => &mut self.far,
        }
    }

    /// Starts a daemon again that was killed or stopped.
    pub(crate) fn restart(&mut self, at: End) {
        self.at_mut(at).start();
    }

    /// What is done to all that is forwarded over the WAN; nothing: an empty text.
    pub(crate) fn fault(&self, rules: &str) {
        let rules: String = rules.lines().map(|rule| format!("add rule inet wan fault {rule}\n")).collect();
        self.router.nft(&format!("flush chain inet wan fault\n{rules}")).unwrap();
    }

    /// The clients' ports of all connections that went their plain way.
    pub(crate) fn plain_ports(&self) -> HashSet<u16> {
        let said = self.router.says("nft", "-j list set inet wan plain");
        let all: Value = serde_json::from_str(&said).unwrap();
        let set = all["nftables"].as_array().unwrap().iter().find_map(|part| part.get("set")).unwrap();
        let ports = set.get("elem").and_then(Value::as_array).cloned().unwrap_or_default();
        ports.iter().map(|port| u16::try_from(port.as_u64().unwrap()).unwrap()).collect()
    }

    /// A transfer that must go over the boxes, and arrive whole. How long it took, seconds.
    #[track_caller]
    pub(crate) fn optimised(&self, transfer: Transfer) -> f64 {
        let seconds = self.whole(transfer);
        assert!(!self.plain_ports().contains(&seconds.1), "it went its plain way");
        seconds.0
    }

    /// That connections are optimised now: one that arrives whole, and is. A peer that is slow for a moment, as all are on a busy
    /// machine, is passed by; and a session that both sides have dialled after a cut may be replaced once more. How long it took, seconds.
    #[track_caller]
    pub(crate) fn optimises(&self, request: Request) -> f64 {
        for _ in 0..10 {
            let (seconds, port) = self.whole(Transfer::start(&self.client, request));
            if !self.plain_ports().contains(&port) {
                return seconds;
            }
            std::thread::sleep(Duration::from_millis(400));
        }
        panic!("ten connections went their plain way");
    }

    /// A transfer that must arrive whole. How long it took, seconds, and the client's port.
    #[track_caller]
    pub(crate) fn whole(&self, transfer: Transfer) -> (f64, u16) {
        let ended = transfer.end();
        assert!(ended.result.is_ok(), "{:?}", ended.result);
        (ended.seconds, ended.port)
    }

    /// A transfer over which something happened: it is whole, or was reset, which is counted.
    #[track_caller]
    pub(crate) fn whole_or_reset(&self, transfer: Transfer) -> bool {
        let ended = transfer.end();
        let is_whole = ended.result.is_ok();
        if let Err(broken) = ended.result {
            assert!(broken.is_reset(), "{broken:?}");
            self.resets.fetch_add(1, Ordering::Relaxed);
        }
        is_whole
    }

    /// Connections that a fault has reset so far.
    pub(crate) fn resets(&self) -> u32 {
        self.resets.load(Ordering::Relaxed)
    }

    /// The client's machine is another one from now on, at the same address: what was connected knows nothing of it any more.
    pub(crate) fn replace_client(&mut self) {
        let new = Space::new().unwrap();
        self.client.ip(&format!("link set eth0 netns {}", new.path())).unwrap();
        new.ip("addr add 10.1.0.2/24 dev eth0\nlink set eth0 up\nroute add default via 10.1.0.1").unwrap();
        self.client = new;
    }

    /// The same of the server's.
    pub(crate) fn replace_server(&mut self) {
        let new = Space::new().unwrap();
        self.server.ip(&format!("link set eth0 netns {}", new.path())).unwrap();
        new.ip("addr add 10.2.0.3/24 dev eth0\nlink set eth0 up\nroute add default via 10.2.0.1").unwrap();
        self.server = new;
        self.serving.also(&self.server, SERVER);
    }

    /// Connections that an end carries now.
    pub(crate) fn open(&self, at: End) -> u64 {
        self.at(at).site.json("accel status")["optimized_connections"].as_u64().unwrap()
    }

    pub(crate) fn watch(&self) -> Watch {
        Watch::start(&self.client)
    }

    pub(crate) fn taken(&self, at: End) -> u64 {
        self.at(at).site.json("accel status")["taken_connections"].as_u64().unwrap()
    }

    /// Bytes between the boxes so far, as the near one has counted them.
    pub(crate) fn wire_bytes(&self) -> u64 {
        // It tells them every 250 ms.
        std::thread::sleep(Duration::from_millis(350));
        self.near.site.json("accel status")["wire_bytes"].as_u64().unwrap()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        assert_eq!(self.serving.wrong(), Vec::<String>::new(), "what the server got was not what was sent");
    }
}

impl Box_ {
    fn start(&mut self) {
        let Box_ { space, site, prepare } = self;
        space.inside(|| {
            std::fs::create_dir_all(&site.dir).unwrap();
            prepare(site);
            site.restart();
        });
    }

    /// The accelerator's process.
    pub(crate) fn process(&self) -> Option<u32> {
        let of_site = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // `PID (NAME) STATE PARENT …`
            let Some((name, rest)) = stat.rsplit_once(") ") else { return false };
            let parent = rest.split(' ').nth(1).and_then(|parent| parent.parse::<u32>().ok());
            name.ends_with("(farside-accel") && parent == Some(self.site.pid())
        };
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(of_site)
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = self.process().expect("the accelerator runs");
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// The files of the chunk store's containers.
    pub(crate) fn containers(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut open = vec![self.store()];
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    open.push(path);
                } else if path.extension().is_some_and(|extension| extension == "chunks") {
                    found.push(path);
                }
            }
        }
        found
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.site.dir.join("chunks")
    }
}

/// Waits until this is so. Seconds since `from`.
#[track_caller]
pub(crate) fn seconds_until(from: Instant, what: &str, is_so: impl FnMut() -> bool) -> f64 {
    eventually(what, is_so);
    from.elapsed().as_secs_f64()
}
