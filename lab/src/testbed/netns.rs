//! Network namespaces: each a file (bound to the namespace) in the run's own tmpfs, so that `ip netns` of the machine
//! never sees them and they go with the run.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use super::error::TestBedError;

/// A network namespace that lives as long as this and the processes in it.
#[derive(Debug)]
pub(crate) struct Netns {
    path: PathBuf,
}

impl Netns {
    /// Makes one and binds it to the file `path`, which must not exist; its loopback is up and IPv6 is off, so that
    /// nothing but what hosts send is counted on a link.
    pub(crate) fn create(path: PathBuf) -> Result<Self, TestBedError> {
        let what = format!("make network namespace {}", path.display());
        File::create_new(&path).map_err(TestBedError::system(&*what))?;
        let bind = || -> nix::Result<()> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            mount(Some("/proc/thread-self/ns/net"), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        };
        // A thread of its own: its old namespace could not be entered again by name.
        let bound = on_thread(bind)?;
        if let Err(errno) = bound {
            let _: std::io::Result<()> = fs::remove_file(&path);
            return Err(TestBedError::errno(what)(errno));
        }
        let netns = Self { path };
        netns.sysctl("net.ipv6.conf.all.disable_ipv6", "1").or_else(without_ipv6)?;
        netns.sysctl("net.ipv6.conf.default.disable_ipv6", "1").or_else(without_ipv6)?;
        netns.ip("link set lo up\n")?;
        Ok(netns)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` on a thread inside the namespace.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, TestBedError> {
        let what = format!("enter network namespace {}", self.path.display());
        let file = File::open(&self.path).map_err(TestBedError::system(&*what))?;
        let entered = move || setns(file, CloneFlags::CLONE_NEWNET).map(|()| work());
        on_thread(entered)?.map_err(TestBedError::errno(what))
    }

    /// Sets a kernel parameter of the namespace (`net.…`).
    pub(crate) fn sysctl(&self, name: &str, value: &str) -> Result<(), TestBedError> {
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        self.inside(|| fs::write(path, value))?
            .map_err(TestBedError::system(format!("set {name} to {value}")))
    }

    /// Reads a kernel parameter of the namespace.
    pub(crate) fn read_sysctl(&self, name: &str) -> Result<String, TestBedError> {
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        let text = self
            .inside(|| fs::read_to_string(path))?
            .map_err(TestBedError::system(format!("read {name}")))?;
        Ok(text.trim().to_owned())
    }

    /// Runs lines of `ip -batch` in the namespace.
    pub(crate) fn ip(&self, batch: &str) -> Result<(), TestBedError> {
        let mut command = Command::new("nsenter");
        command.arg(net_argument(&self.path)).args(["--", "ip", "-batch", "-"]);
        feed(command, "ip", batch)
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // Both can only fail if the run's tmpfs is gone, and the namespace with it.
        let _: nix::Result<()> = umount2(&self.path, MntFlags::MNT_DETACH);
        let _: std::io::Result<()> = fs::remove_file(&self.path);
    }
}

/// The argument with which `nsenter` enters it.
pub(crate) fn net_argument(path: &Path) -> String {
    format!("--net={}", path.display())
}

/// Brings loopback of the calling process's own namespace up.
pub(crate) fn loopback_up() -> Result<(), TestBedError> {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]);
    feed(command, "ip", "link set lo up\n")
}

fn feed(mut command: Command, program: &str, input: &str) -> Result<(), TestBedError> {
    let failed = || TestBedError::system(format!("run {program}"));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed())?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends early says why on its standard error, which is told below.
        let _: std::io::Result<()> = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(TestBedError::Program {
        program: program.into(),
        message: if said.is_empty() { output.status.to_string() } else { said },
    })
}

fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, TestBedError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("netns".into()).spawn_scoped(scope, work);
        let thread = thread.map_err(TestBedError::system("start a thread"))?;
        thread.join().map_err(|_| TestBedError::System {
            what: "work in a network namespace".into(),
            source: std::io::Error::other("the thread panicked"),
        })
    })
}

/// A kernel without IPv6 has nothing to switch off.
fn without_ipv6(error: TestBedError) -> Result<(), TestBedError> {
    if Path::new("/proc/sys/net/ipv6").exists() { Err(error) } else { Ok(()) }
}
