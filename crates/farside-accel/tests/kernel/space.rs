//! Network namespaces without names: each lives as long as its file is open, so that nothing is left behind.
//!
//! ```text
//! client eth0 ── lan0 box wan0 ── eth0 server        client 10.1.0.2 fd00:1::2   server 10.2.0.3 fd00:2::3
//!   neighbour eth0 ── lan1 ┘                          neighbour 10.3.0.4 fd00:3::4   the box has .1
//! ```

use std::fs::{self, File};
use std::future::Future;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sched::{CloneFlags, setns, unshare};

/// Nothing here takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A network namespace. It lives as long as its file is open.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    file: Arc<File>,
}

impl Space {
    pub(crate) fn new() -> io::Result<Space> {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        };
        let file = thread::spawn(make).join().unwrap()?;
        let space = Space { file: Arc::new(file) };
        space.ip("link set lo up")?;
        Ok(space)
    }

    /// Runs `work` on a thread inside.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let file = Arc::clone(&self.file);
        thread::spawn(move || {
            setns(&*file, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        })
    }

    /// Runs `work` on a thread inside, and waits for it.
    pub(crate) fn inside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.spawn(work).join().unwrap()
    }

    /// Runs `work` on a runtime inside.
    pub(crate) fn run<F: Future>(&self, work: impl FnOnce() -> F + Send + 'static) -> F::Output
    where
        F::Output: Send + 'static,
    {
        self.inside(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime
                .block_on(async { tokio::time::timeout(6 * PATIENCE, work()).await.expect("the test hangs") })
        })
    }

    /// A program inside.
    pub(crate) fn program(&self, mut command: Command) -> io::Result<Output> {
        self.inside(move || command.output())
    }

    /// Lines of `ip -batch`.
    pub(crate) fn ip(&self, lines: &str) -> io::Result<()> {
        let lines = lines.to_owned();
        self.inside(move || {
            let mut child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
            child.stdin.take().unwrap().write_all(lines.as_bytes())?;
            if child.wait()?.success() { Ok(()) } else { Err(io::Error::other(format!("ip: {lines}"))) }
        })
    }

    /// What `ip` says.
    pub(crate) fn ip_says(&self, words: &str) -> String {
        let mut command = Command::new("ip");
        command.args(words.split(' '));
        String::from_utf8(self.program(command).unwrap().stdout).unwrap()
    }

    /// Sets a kernel parameter.
    pub(crate) fn sysctl(&self, path: &str, value: &str) -> io::Result<()> {
        let (path, value) = (format!("/proc/sys/{path}"), value.to_owned());
        self.inside(move || fs::write(path, value))
    }

    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}

/// Four hosts; see the head.
pub(crate) struct Lab {
    pub(crate) client: Space,
    pub(crate) neighbour: Space,
    pub(crate) middle: Space,
    pub(crate) server: Space,
}

impl Lab {
    /// `None`, with a line, where it cannot be had.
    pub(crate) fn new() -> Option<Lab> {
        match Lab::lay() {
            Ok(lab) => Some(lab),
            Err(error) => {
                let required = std::env::var_os("FARSIDE_REQUIRE_LAB").is_some();
                assert!(!required, "no network namespaces: {error}");
                eprintln!("skipped: no network namespaces (root and iproute2 are needed): {error}");
                None
            }
        }
    }

    fn lay() -> io::Result<Lab> {
        let [client, neighbour, middle, server] =
            [Space::new()?, Space::new()?, Space::new()?, Space::new()?];
        let lab = Lab { client, neighbour, middle, server };
        for (space, link, network, host) in
            [(&lab.client, "lan0", 1, 2), (&lab.neighbour, "lan1", 3, 4), (&lab.server, "wan0", 2, 3)]
        {
            lab.middle.ip(&format!(
                "link add {link} type veth peer name eth0 netns {}\n\
                 addr add 10.{network}.0.1/24 dev {link}\n\
                 addr add fd00:{network}::1/64 dev {link} nodad\n\
                 link set {link} up",
                space.path()
            ))?;
            space.ip(&format!(
                "addr add 10.{network}.0.{host}/24 dev eth0\n\
                 addr add fd00:{network}::{host}/64 dev eth0 nodad\n\
                 link set eth0 up\n\
                 route add default via 10.{network}.0.1\n\
                 route add ::/0 via fd00:{network}::1"
            ))?;
        }
        lab.middle.sysctl("net/ipv4/ip_forward", "1")?;
        lab.middle.sysctl("net/ipv6/conf/all/forwarding", "1")?;
        for interface in ["all", "lan0", "lan1", "wan0"] {
            lab.middle.sysctl(&format!("net/ipv4/conf/{interface}/rp_filter"), "0")?;
        }
        // The first packet of IPv6 on a new link may wait a second for its neighbour; later ones do not.
        for (space, network) in [(&lab.client, 1), (&lab.neighbour, 3), (&lab.server, 2)] {
            let closed = SocketAddr::from(([0xfd00, network, 0, 0, 0, 0, 0, 1], 9));
            let refused = space.inside(move || TcpStream::connect_timeout(&closed, PATIENCE)).unwrap_err();
            if refused.kind() != io::ErrorKind::ConnectionRefused {
                return Err(refused);
            }
        }
        Ok(lab)
    }
}

/// A port of the server, in both families.
pub(crate) fn at_server(port: u16) -> [SocketAddr; 2] {
    [format!("10.2.0.3:{port}"), format!("[fd00:2::3]:{port}")].map(|address| address.parse().unwrap())
}

/// A port of the client, in both families.
pub(crate) fn at_client(port: u16) -> [SocketAddr; 2] {
    [format!("10.1.0.2:{port}"), format!("[fd00:1::2]:{port}")].map(|address| address.parse().unwrap())
}
