//! Control groups (version 2): what processes cost together, and a way to end them all, those too that left their
//! process group. No controller is switched on, so nothing is limited by them.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// How long a killed group may take to be empty: the kernel ends processes in milliseconds unless one hangs in a device.
const EMPTY_LIMIT: Duration = Duration::from_secs(5);
/// How often to look.
const EMPTY_POLL: Duration = Duration::from_millis(5);

/// A directory of cgroup2, made here; killed and removed when dropped.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    pub(crate) fn create(path: PathBuf) -> io::Result<Self> {
        fs::create_dir(&path)?;
        Ok(Self { path })
    }

    pub(crate) fn child(&self, name: &str) -> io::Result<Self> {
        Self::create(self.path.join(name))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The processes in it, those in groups below it left out; one of another PID namespace is not seen.
    pub(crate) fn members(&self) -> io::Result<Vec<Pid>> {
        members(&self.path)
    }

    /// Processor seconds, user and system, of all that ever ran in it and below it.
    pub(crate) fn cpu_seconds(&self) -> io::Result<f64> {
        let text = fs::read_to_string(self.path.join("cpu.stat"))?;
        let microseconds = text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "))
            .and_then(|number| number.trim().parse::<u64>().ok())
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "no usage_usec in cpu.stat"))?;
        Ok(Duration::from_micros(microseconds).as_secs_f64())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // What cannot be removed is found by the next start.
        let _: io::Result<()> = remove(&self.path);
    }
}

/// Where cgroup2 is mounted: `/sys/fs/cgroup` on most machines, `/sys/fs/cgroup/unified` where version 1 is used beside it.
pub(crate) fn mount_point() -> io::Result<Option<PathBuf>> {
    Ok(mount_point_in(&fs::read_to_string("/proc/self/mountinfo")?))
}

fn mount_point_in(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(4);
        let (point, options) = (fields.next()?, fields.next()?);
        let writable = options.split(',').any(|option| option == "rw");
        (writable && file_system.starts_with("cgroup2 ")).then(|| PathBuf::from(point))
    })
}

/// Moves the calling process.
pub(crate) fn join(path: &Path) -> io::Result<()> {
    fs::write(path.join("cgroup.procs"), "0")
}

/// Sends SIGKILL to every process in the group and below it.
pub(crate) fn kill(path: &Path) -> io::Result<()> {
    match fs::write(path.join("cgroup.kill"), "1") {
        Err(error) if error.kind() == ErrorKind::NotFound && path.exists() => kill_each(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// For kernels before 5.14, which have no `cgroup.kill`.
fn kill_each(path: &Path) -> io::Result<()> {
    for child in children(path)? {
        kill_each(&child)?;
    }
    for pid in members(path)? {
        // It may just have ended.
        let _: nix::Result<()> = nix::sys::signal::kill(pid, Signal::SIGKILL);
    }
    Ok(())
}

fn members(path: &Path) -> io::Result<Vec<Pid>> {
    let text = fs::read_to_string(path.join("cgroup.procs"))?;
    // 0 stands for a process that is not seen from here; as an argument of kill it would be this process's own group.
    Ok(text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).map(Pid::from_raw).collect())
}

/// Whether processes are in it or below it.
pub(crate) fn is_populated(path: &Path) -> io::Result<bool> {
    match fs::read_to_string(path.join("cgroup.events")) {
        Ok(text) => Ok(text.lines().any(|line| line == "populated 1")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Ends all processes in it and removes it with all groups below.
///
/// # Errors
/// `TimedOut` when a process has not gone after [`EMPTY_LIMIT`]; the directories are still there then.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + EMPTY_LIMIT;
    while is_populated(path)? {
        if Instant::now() > deadline {
            return Err(io::Error::new(
                ErrorKind::TimedOut,
                format!("processes in {} do not end", path.display()),
            ));
        }
        // Again each time: a process that was being forked while the first went round.
        kill(path)?;
        thread::sleep(EMPTY_POLL);
    }
    remove_directories(path, deadline)
}

fn remove_directories(path: &Path, deadline: Instant) -> io::Result<()> {
    for child in children(path)? {
        remove_directories(&child, deadline)?;
    }
    loop {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            // A process that ended counts a moment longer.
            Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < deadline => {
                thread::sleep(EMPTY_POLL)
            }
            result => return result,
        }
    }
}

/// The groups directly below.
pub(crate) fn children(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut children = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            children.push(entry.path());
        }
    }
    Ok(children)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup2_is_found_beside_version_1_and_alone() {
        let hybrid = "33 32 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                      42 32 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point_in(hybrid), Some("/sys/fs/cgroup/unified".into()));
        let alone = "35 25 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(mount_point_in(alone), Some("/sys/fs/cgroup".into()));
        let container = "35 25 0:30 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n";
        assert_eq!(mount_point_in(container), None, "one that cannot be written is none");
    }
}
