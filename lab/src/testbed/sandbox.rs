//! Entering the laboratory's own namespaces: three processes, see [`super`]. The program starts itself twice more, and each
//! knows from its zeroth argument which of them it is; arguments and environment are the user's in all of them.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, exit};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, Uid, getppid};
use signal_hook::consts::{SIGCHLD, SIGINT};
use signal_hook::iterator::Signals;

use super::cgroup::{self, Cgroup};
use super::error::TestBedError;
use super::interrupt::{INTERRUPTED_STATUS, Interrupt, Requests, Response, STOP_SIGNALS};
use super::netns;
use super::run::RunDirectory;
use super::stale;

/// Begins the zeroth argument of the first process of the new namespaces; the run's directory follows.
const INIT: &[u8] = b"farside-lab-init:";
/// Begins the zeroth argument of the process that does the work; the run's directory follows.
const INNER: &[u8] = b"farside-lab-inner:";
/// This program, however it was called and wherever its file is by now.
const MYSELF: &str = "/proc/self/exe";
/// What the outer processes end with when they could not do their part.
const FAILED: i32 = 2;
/// What shells add to a signal's number.
const SIGNALLED: i32 = 128;
/// Programs that the test bed calls, with the Debian package each is in.
const PROGRAMS: [(&str, &str); 4] =
    [("ip", "iproute2"), ("nsenter", "util-linux"), ("losetup", "mount"), ("bash", "bash")];

/// The laboratory's own namespaces, entered.
#[derive(Debug)]
pub struct TestBed {
    run: RunDirectory,
    interrupt: Interrupt,
    /// Why there is none, where there is none.
    cgroup: Result<PathBuf, String>,
    laid: AtomicU32,
}

/// Must be the first call of `main`: the first process of the new namespaces does its work in it and never comes back.
pub fn begin() {
    if let Some(directory) = summoned(INIT).filter(|_| process::id() == 1) {
        if let Err(error) = serve_as_init(&directory) {
            eprintln!("farside-lab: {error}");
        }
        exit(FAILED);
    }
}

/// Enters the laboratory's own namespaces; the run's own directory is made below `work`. To be called before any thread
/// is started and anything is printed: the process that calls it first stays behind, waits, removes what the run has
/// left on disk, and ends with the status of the one that comes back from here.
///
/// # Errors
/// `NotRoot`, `Missing`, `Busy`, or the system's; nothing has been changed then.
pub fn enter(work: &Path) -> Result<TestBed, TestBedError> {
    if let Some(directory) = summoned(INNER).filter(|_| getppid() == Pid::from_raw(1)) {
        return TestBed::resume(&directory);
    }
    check(work)?;
    let removed = stale::sweep(work)?;
    for line in &removed {
        eprintln!("removed what a killed run left: {line}");
    }
    exit(i32::from(stay_behind(work)?))
}

/// A status as shells tell it: a signal's number goes on top of 128.
pub fn shell_status(status: ExitStatus) -> u8 {
    let status = status.code().unwrap_or_else(|| SIGNALLED + status.signal().unwrap_or_default());
    u8::try_from(status).unwrap_or(u8::MAX)
}

/// The run's directory, if this process was started with `mark`.
fn summoned(mark: &[u8]) -> Option<PathBuf> {
    let zeroth = env::args_os().next()?;
    let directory = zeroth.as_bytes().strip_prefix(mark)?;
    Some(PathBuf::from(OsString::from_vec(directory.to_vec())))
}

/// Starts this program once more, as the process that `mark` tells.
fn start_myself(mark: &[u8], directory: &Path) -> Result<Child, TestBedError> {
    let mut zeroth = mark.to_vec();
    zeroth.extend_from_slice(directory.as_os_str().as_bytes());
    let mut command = Command::new(MYSELF);
    command.arg0(OsStr::from_bytes(&zeroth)).args(env::args_os().skip(1));
    command.spawn().map_err(TestBedError::system("start the laboratory in its own namespaces"))
}

/// Says all that is missing at once.
fn check(work: &Path) -> Result<(), TestBedError> {
    if !Uid::effective().is_root() {
        return Err(TestBedError::not_root(work));
    }
    let mut missing = Vec::new();
    if let Err(error) = fs::File::options().read(true).write(true).open("/dev/net/tun") {
        missing.push(format!(
            "  /dev/net/tun cannot be opened ({error}). It carries the emulated links. On a machine: modprobe tun. In a \
             container: start it with --device /dev/net/tun and --cap-add NET_ADMIN"
        ));
    }
    for (program, package) in PROGRAMS {
        if !is_on_path(program) {
            missing.push(format!(
                "  the program {program} on PATH (sbin is part of root's): apt-get install {package}"
            ));
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(TestBedError::Missing(missing)) }
}

fn is_on_path(program: &str) -> bool {
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|directory| directory.join(program).is_file()))
}

/// What to do where the kernel or the container refuses a namespace.
fn refused(kind: &str) -> impl FnOnce(nix::Error) -> TestBedError {
    let kind = kind.to_owned();
    move |errno| {
        TestBedError::Missing(vec![format!(
            "  a {kind} namespace of its own ({errno}). In a container: start it with --privileged (or --cap-add SYS_ADMIN, \
             NET_ADMIN and a seccomp profile that allows unshare and mount). On a machine: the kernel needs CONFIG_PID_NS \
             and CONFIG_NET_NS, and /proc/sys/user/max_{kind}_namespaces above 0"
        )])
    }
}

// ---- the outer process ----

/// The status to end with.
fn stay_behind(work: &Path) -> Result<u8, TestBedError> {
    let run = RunDirectory::create(work)?;
    let outcome = start_and_wait(&run);
    for line in stale::remove(run) {
        eprintln!("could not be removed, the next start tries again: {line}");
    }
    outcome
}

fn start_and_wait(run: &RunDirectory) -> Result<u8, TestBedError> {
    // Signals are taken by this one thread, between waits: a process that has unshared its PID namespace can start no more.
    let mut signals = listen()?;
    let failed = || TestBedError::system("wait for the laboratory");
    let own = fs::File::open("/proc/self/ns/pid").map_err(failed())?;
    unshare(CloneFlags::CLONE_NEWPID).map_err(refused("pid"))?;
    let child = start_myself(INIT, run.path());
    // Programs that clean up later could not start in a PID namespace that is over. In a user namespace the way back is
    // barred; there are no loop devices to release either.
    let _: nix::Result<()> = setns(own, CloneFlags::CLONE_NEWPID);
    let mut child = child?;
    let mut requests = Requests::default();
    let mut ended_at_once = false;
    loop {
        if let Some(status) = child.try_wait().map_err(failed())? {
            let killed = status.signal() == Some(Signal::SIGKILL as i32);
            return Ok(if ended_at_once && killed { INTERRUPTED_STATUS } else { shell_status(status) });
        }
        for signal in signals.wait().filter(|signal| *signal != SIGCHLD) {
            match requests.note(signal) {
                Response::PassOn => {
                    if signal == SIGINT {
                        tell_of_the_second();
                    }
                    pass_on(signal, Pid::from_raw(child.id().cast_signed()));
                }
                // With the first process of a PID namespace the kernel ends all others in it, whatever they wait for.
                Response::EndAtOnce => {
                    child.kill().map_err(failed())?;
                    ended_at_once = true;
                }
            }
        }
    }
}

/// The terminal may be gone; then nobody wants to know.
fn tell_of_the_second() {
    let _: io::Result<()> = writeln!(io::stderr(), "stops in order; Ctrl-C once more ends it at once");
}

fn listen() -> Result<Signals, TestBedError> {
    Signals::new(STOP_SIGNALS.into_iter().chain([SIGCHLD])).map_err(TestBedError::system("listen to signals"))
}

fn pass_on(signal: i32, child: Pid) {
    if let Ok(signal) = Signal::try_from(signal) {
        // It may just have ended; then there is nobody to tell.
        let _: nix::Result<()> = kill(child, signal);
    }
}

// ---- the first process of the namespaces ----

/// Makes the namespaces' inside, starts the process that works, reaps, and ends with its status. Returns errors only.
fn serve_as_init(directory: &Path) -> Result<(), TestBedError> {
    set_pdeathsig(Signal::SIGKILL).map_err(TestBedError::errno("tie the sandbox to its parent"))?;
    // Only now is a look conclusive: a parent that dies from here on takes this process along.
    let run = RunDirectory::join(directory)?;
    if run.is_abandoned()? {
        exit(FAILED);
    }
    unshare(CloneFlags::CLONE_NEWNS).map_err(refused("mnt"))?;
    unshare(CloneFlags::CLONE_NEWNET).map_err(refused("net"))?;
    run.write_pid()?;
    furnish(&run)?;
    netns::loopback_up()?;
    let mut signals = listen()?;
    let child = start_myself(INNER, run.path())?;
    let inner = Pid::from_raw(child.id().cast_signed());
    loop {
        reap(inner)?;
        for signal in signals.wait().filter(|signal| *signal != SIGCHLD) {
            pass_on(signal, inner);
        }
    }
}

/// Mounts of the run's own. What the machine unmounts goes here too (slave propagation), so that a long run pins no file
/// system of others; nothing that is mounted here is seen outside.
fn furnish(run: &RunDirectory) -> Result<(), TestBedError> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none).map_err(refused("mnt"))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, none).map_err(TestBedError::errno("mount /proc"))?;
    mount(Some("farside-lab"), &run.namespaces(), Some("tmpfs"), flags, Some("size=64k,mode=0755"))
        .map_err(TestBedError::errno("mount a tmpfs"))?;
    if Path::new("/run/netns").is_dir() {
        // `ip netns` inside shows the run's own alone.
        mount(Some(&run.namespaces()), "/run/netns", none, MsFlags::MS_BIND, none)
            .map_err(TestBedError::errno("mount on /run/netns"))?;
    }
    Ok(())
}

/// Reaps everything that has ended; ends with the status of `inner` when that is among it.
fn reap(inner: Pid) -> Result<(), TestBedError> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == inner => exit(code),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == inner => exit(SIGNALLED + signal as i32),
            Ok(WaitStatus::StillAlive) => return Ok(()),
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(errno) => return Err(TestBedError::errno("wait for the laboratory")(errno)),
        }
    }
}

// ---- the process that works ----

impl TestBed {
    fn resume(directory: &Path) -> Result<Self, TestBedError> {
        // The end of the sandbox's first process is the end of this one; the kernel sees to that.
        if getppid() != Pid::from_raw(1) {
            return Err(TestBedError::Missing(vec![
                "  the sandbox that should be around this process".into(),
            ]));
        }
        let run = RunDirectory::join(directory)?;
        let interrupt = Interrupt::new()?;
        interrupt.listen()?;
        let cgroup = make_cgroup(&run);
        Ok(Self { run, interrupt, cgroup, laid: AtomicU32::new(0) })
    }

    /// The run's own directory on disk, empty at the start; it goes with the run. Below the `work` given to [`enter`].
    pub fn work(&self) -> PathBuf {
        self.run.files()
    }

    /// Whether a signal asked the laboratory to stop. Every wait of [`super::Running`] ends by itself then.
    pub fn interrupted(&self) -> bool {
        self.interrupt.is_asked()
    }

    /// [`TestBed::interrupted`] as an error, for loops.
    ///
    /// # Errors
    /// `Interrupted`.
    pub fn check(&self) -> Result<(), TestBedError> {
        if self.interrupted() { Err(TestBedError::Interrupted) } else { Ok(()) }
    }

    /// Waits until a signal asks the laboratory to stop.
    ///
    /// # Errors
    /// The system's.
    pub fn wait_for_interrupt(&self) -> Result<(), TestBedError> {
        self.interrupt.wait()
    }

    /// A process of the run as the machine outside sees it: `nsenter -t` enters the run's mounts and processes by it.
    ///
    /// # Errors
    /// The system's.
    pub fn pid_outside(&self) -> Result<u32, TestBedError> {
        self.run.read_pid()
    }

    /// A directory inside `parent` (on its file system, to be renamed to its place when it is whole), which goes when it
    /// is dropped, and by the next start after a kill, both with the loop devices in it.
    ///
    /// # Errors
    /// The system's.
    pub fn scratch_in(&self, parent: &Path) -> Result<Scratch, TestBedError> {
        self.run.scratch_in(parent).map(|path| Scratch { path })
    }

    /// Unmounts what the run has mounted at or below `path`, detaches loop devices whose files are there, and removes the
    /// directory.
    ///
    /// # Errors
    /// The system's; it can be tried again.
    pub fn clear(&self, path: &Path) -> Result<(), TestBedError> {
        stale::clear(path)
    }

    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    pub(crate) fn namespaces(&self) -> PathBuf {
        self.run.namespaces()
    }

    pub(crate) fn next_number(&self) -> u32 {
        self.laid.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn site_group(&self, name: &str) -> Result<Cgroup, String> {
        let parent = self.cgroup.as_ref().map_err(Clone::clone)?;
        Cgroup::create(parent.join(name)).map_err(|error| format!("no control group can be made: {error}"))
    }
}

/// The run's control group, this process in it; why not, where not.
fn make_cgroup(run: &RunDirectory) -> Result<PathBuf, String> {
    let mounted = cgroup::mount_point().map_err(|error| format!("mounts cannot be read: {error}"))?;
    let mounted = mounted.ok_or("no cgroup2 is mounted that can be written")?;
    let path = mounted.join(run.name());
    let make = || {
        fs::create_dir_all(path.join("lab"))?;
        cgroup::join(&path.join("lab"))
    };
    // Until this process is in it, another start may take it for one that was left behind; once is all it can.
    make()
        .or_else(|_| make())
        .map_err(|error| format!("no control group can be made at {}: {error}", path.display()))?;
    Ok(path)
}

/// A directory that goes; see [`TestBed::scratch_in`].
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = stale::clear(&self.path) {
            eprintln!("farside-lab: {error}; the next start tries again");
        }
    }
}
