//! Which process this is, so that another can tell whether it still lives.

use std::path::Path;

/// A process, as another on the same kernel can look it up. Zeros are *not known*: of such a one nothing is ever proved.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ProcessIdentity {
    /// The kernel's boot.
    pub boot: [u8; 16],
    /// The namespace that `pid` is counted in.
    pub pid_namespace: u64,
    /// Its number.
    pub pid: u32,
    /// When it began, in the kernel's ticks: a number is given again.
    pub began: u64,
}

impl ProcessIdentity {
    /// This process.
    pub fn this() -> ProcessIdentity {
        let pid = std::process::id();
        ProcessIdentity {
            boot: boot().unwrap_or_default(),
            pid_namespace: pid_namespace().unwrap_or_default(),
            pid,
            began: began(pid).unwrap_or_default(),
        }
    }

    /// Whether this process is proved to have ended: it ran under this very boot, in this namespace, and is not there any
    /// more. Of a process of another machine, or before a reboot, nobody here can say.
    pub fn has_ended(&self) -> bool {
        self.began != 0
            && Some(self.boot) == boot()
            && Some(self.pid_namespace) == pid_namespace()
            && (is_gone(self.pid) || (began(1).is_some() && began(self.pid) != Some(self.began)))
    }
}

/// Open files that this process wants at most: sockets of hosts and peers, mostly.
const OPEN_FILES: u64 = 65_536;

/// Raises the limit of this process's open files as far as it may, to [`OPEN_FILES`] at most. The usual 1024 is less than
/// hosts and peers may have connections.
pub fn raise_open_files() -> std::io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(OPEN_FILES, |maximum| maximum.min(OPEN_FILES));
    if current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum })?;
    }
    Ok(())
}

/// How many files this process may have open; `None`: there is no limit.
pub fn open_files_max() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Lowers the priority of the calling thread, and of those that it starts, to `nice` (0 to 19, the lowest). There is no way back.
///
/// # Errors
/// The kernel refuses; the thread goes on as it was.
pub fn lower_priority(nice: u8) -> std::io::Result<()> {
    // On Linux this is of a thread: its number is what the kernel calls a process here.
    Ok(rustix::process::setpriority_process(None, i32::from(nice.min(19)))?)
}

/// Has the calling thread, and those that it starts, run only when no other wants the processor; whoever wakes takes it at once. Not
/// for a thread with a lock that others wait for. There is no way back.
///
/// # Errors
/// The kernel refuses; the thread goes on as it was.
pub fn run_when_idle() -> std::io::Result<()> {
    use thread_priority::{NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy};
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    let thread = thread_priority::thread_native_id();
    thread_priority::set_thread_priority_and_policy(thread, ThreadPriority::Min, idle)
        .map_err(std::io::Error::other)
}

/// The name of this machine, for people.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Nobody has the number. Known also where `/proc` hides the processes of others, as it does from a service.
fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

fn boot() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

fn pid_namespace() -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").ok().map(|namespace| namespace.ino())
}

/// `/proc/PID/stat` (proc(5)) from its third field on: the second is the name in parentheses, which may hold anything.
fn stat(pid: u32) -> Option<String> {
    let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    Some(text.rsplit_once(") ")?.1.to_owned())
}

/// The process group and the session of a process: fields 5 and 6. Kernel threads have 0 for both.
pub fn group_and_session(pid: u32) -> Option<(u32, u32)> {
    let stat = stat(pid)?;
    let mut fields = stat.split(' ').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Field 22. A process that ended and was not waited for has ended.
fn began(pid: u32) -> Option<u64> {
    let stat = stat(pid)?;
    let mut fields = stat.split(' ');
    let state = fields.next()?;
    let began = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X" | "x")).then_some(began)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_ended_only_where_that_can_be_known() {
        let this = ProcessIdentity::this();
        assert!(!this.has_ended() && this.began > 0);
        assert_eq!(this, ProcessIdentity::this());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let other = ProcessIdentity { pid: child.id(), began: began(child.id()).unwrap(), ..this };
        assert!(!other.has_ended());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(other.has_ended());
        assert!(ProcessIdentity { began: this.began + 1, ..this }.has_ended(), "the number was given again");
        assert!(!ProcessIdentity { boot: [1; 16], ..other }.has_ended(), "another machine's");
        assert!(!ProcessIdentity { pid_namespace: 1, ..other }.has_ended(), "another container's");
        assert!(!ProcessIdentity::default().has_ended(), "nobody knows whose");
    }
}
