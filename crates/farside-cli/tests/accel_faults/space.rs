//! Network namespaces without names: each lives as long as its file is open or a process is in it, so that nothing is left behind.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace.
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

    /// Runs `work` on a thread inside and waits for it. What it starts, threads and processes, is inside too.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let file = Arc::clone(&self.file);
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                setns(&*file, CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Lines of `ip -batch`.
    pub(crate) fn ip(&self, lines: &str) -> io::Result<()> {
        self.tell("ip", &["-batch", "-"], lines)
    }

    /// Lines of `nft -f`.
    pub(crate) fn nft(&self, lines: &str) -> io::Result<()> {
        self.tell("nft", &["-f", "-"], lines)
    }

    fn tell(&self, program: &str, arguments: &[&str], lines: &str) -> io::Result<()> {
        self.inside(|| {
            let mut child = Command::new(program).args(arguments).stdin(Stdio::piped()).spawn()?;
            child.stdin.take().unwrap().write_all(lines.as_bytes())?;
            if child.wait()?.success() {
                Ok(())
            } else {
                Err(io::Error::other(format!("{program}: {lines}")))
            }
        })
    }

    /// What a program inside says.
    pub(crate) fn says(&self, program: &str, arguments: &str) -> String {
        let output = self.inside(|| Command::new(program).args(arguments.split(' ')).output().unwrap());
        String::from_utf8(output.stdout).unwrap()
    }

    /// Sets a kernel parameter.
    pub(crate) fn sysctl(&self, path: &str, value: &str) -> io::Result<()> {
        self.inside(|| fs::write(format!("/proc/sys/{path}"), value))
    }

    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}

/// Joins two namespaces: `10.NETWORK.0.HOST`, the left host and the right one.
pub(crate) fn join(
    left: (&Space, &str),
    right: (&Space, &str),
    network: u8,
    hosts: (u8, u8),
) -> io::Result<()> {
    left.0.ip(&format!("link add {} type veth peer name {} netns {}", left.1, right.1, right.0.path()))?;
    for ((space, link), host) in [(left, hosts.0), (right, hosts.1)] {
        space.ip(&format!("addr add 10.{network}.0.{host}/24 dev {link}\nlink set {link} up"))?;
        space.sysctl(&format!("net/ipv4/conf/{link}/rp_filter"), "0")?;
    }
    Ok(())
}
