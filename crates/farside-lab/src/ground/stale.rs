//! What a run has on disk and in the machine, by one name, and removing it: at the run's own end, by the next start after a
//! kill, or by `farside-lab clean`.
//!
//! A run's name is `farside-lab-` and 16 random digits. It has a directory of that name with a lock that its processes
//! hold (shared) as long as one of them lives, a control group of that name, and *scratch* directories elsewhere whose
//! names contain it. Whoever gets the lock alone knows that the run is over. Names are never reused, so nothing that
//! another run or another person has made can be taken for it.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, umount2};
use rand::TryRngCore;
use rand::rngs::OsRng;
use serde::Serialize;

use super::cgroup;
use super::error::GroundError;

/// Begins the name of everything that belongs to a run.
const PREFIX: &str = "farside-lab-";
/// Digits that follow; 64 random bits.
const DIGITS: usize = 16;
/// Held shared by the processes of a run, alone by whoever removes it.
const LOCK: &str = "lock";
/// Held by the outer process: free, it says that nobody waits for the run any more.
const OUTER_LOCK: &str = "outer";
/// For people: who made the directory.
const ABOUT: &str = "about.json";
/// Paths of scratch directories, each ended by a zero byte.
const SCRATCH: &str = "scratch";
/// The number of the sandbox's first process, as the machine outside counts.
const PID: &str = "pid";
/// Where namespaces are bound, on a tmpfs of the run's own.
const NAMESPACES: &str = "namespaces";
/// The run's files.
const FILES: &str = "files";
/// Held alone while runs are looked through and while one is made.
const PLACE_LOCK: &str = ".lock";
/// How long to wait for that: removing a killed run's files takes seconds.
const PLACE_LIMIT: Duration = Duration::from_secs(60);
/// How long the kernel may take to end the processes of a run whose outer process was killed.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks at control groups without processes.
const SECOND_LOOK: Duration = Duration::from_millis(300);
/// How long a loop device may take to let go of its file after the last unmount.
const DETACH_LIMIT: Duration = Duration::from_secs(5);
/// How often to look.
const POLL: Duration = Duration::from_millis(20);

/// Something that was removed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Removed {
    /// `directory`, `control group`, `loop device`, `processes of`.
    pub what: &'static str,
    /// Which one.
    pub path: PathBuf,
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.path.display())
    }
}

/// The directory of one run, with its lock held.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    name: String,
    /// Shared; and, in the outer process, the one that only it holds.
    _locks: Vec<File>,
    scratches: AtomicU32,
}

#[derive(Serialize)]
struct About {
    pid: u32,
    boot_id: String,
    started: String,
    command: Vec<String>,
}

impl RunDirectory {
    /// Makes one below `place`, for the outer process.
    pub(crate) fn create(place: &Path) -> Result<Self, GroundError> {
        let _place = lock_place(place)?;
        let number = OsRng
            .try_next_u64()
            .map_err(|error| GroundError::system("random digits")(io::Error::other(error)))?;
        let name = format!("{PREFIX}{number:016x}");
        // The sandbox's processes and their scripts work in other directories than this one.
        let place =
            fs::canonicalize(place).map_err(GroundError::system(format!("find {}", place.display())))?;
        let path = place.join(&name);
        let make = || -> io::Result<Vec<File>> {
            fs::create_dir(&path)?;
            let lock = File::create_new(path.join(LOCK))?;
            lock.try_lock_shared()?;
            let outer = File::create_new(path.join(OUTER_LOCK))?;
            outer.try_lock()?;
            let about = About {
                pid: process::id(),
                boot_id: fs::read_to_string("/proc/sys/kernel/random/boot_id")
                    .unwrap_or_default()
                    .trim()
                    .to_owned(),
                started: jiff::Timestamp::now().to_string(),
                command: std::env::args().collect(),
            };
            fs::write(path.join(ABOUT), serde_json::to_vec_pretty(&about)?)?;
            fs::create_dir(path.join(NAMESPACES))?;
            fs::create_dir(path.join(FILES))?;
            Ok(vec![lock, outer])
        };
        match make() {
            Ok(locks) => Ok(Self { path, name, _locks: locks, scratches: AtomicU32::new(0) }),
            Err(error) => {
                let _: io::Result<()> = fs::remove_dir_all(&path);
                Err(GroundError::system(format!("make {}", path.display()))(error))
            }
        }
    }

    /// Takes part in the lock of one that the outer process has made.
    pub(crate) fn join(path: &Path) -> Result<Self, GroundError> {
        let name = path.file_name().and_then(|name| name.to_str()).filter(|name| is_run_name(name));
        let name = name.ok_or_else(|| {
            GroundError::Missing(vec![format!("  a run's directory at {}", path.display())])
        })?;
        let lock = || -> io::Result<File> {
            let lock = File::open(path.join(LOCK))?;
            lock.try_lock_shared()?;
            Ok(lock)
        };
        let lock =
            lock().map_err(GroundError::system(format!("take part in the run at {}", path.display())))?;
        Ok(Self {
            path: path.to_owned(),
            name: name.to_owned(),
            _locks: vec![lock],
            scratches: AtomicU32::new(0),
        })
    }

    /// Whether the outer process is gone.
    pub(crate) fn is_abandoned(&self) -> Result<bool, GroundError> {
        let failed = || GroundError::system(format!("look at {}", self.path.display()));
        let outer = File::open(self.path.join(OUTER_LOCK)).map_err(failed())?;
        is_free(&outer).map_err(failed())
    }

    /// Writes down this process's number as the machine outside counts; while `/proc` is still the outside's.
    pub(crate) fn write_pid(&self) -> Result<(), GroundError> {
        let write = || fs::write(self.path.join(PID), fs::read_link("/proc/self")?.as_os_str().as_bytes());
        write().map_err(GroundError::system("write down the sandbox's pid"))
    }

    pub(crate) fn read_pid(&self) -> Result<u32, GroundError> {
        let read = || fs::read_to_string(self.path.join(PID))?.parse().map_err(io::Error::other);
        read().map_err(GroundError::system("read the sandbox's pid"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn namespaces(&self) -> PathBuf {
        self.path.join(NAMESPACES)
    }

    pub(crate) fn files(&self) -> PathBuf {
        self.path.join(FILES)
    }

    /// Makes a directory inside `parent` that is removed with the run. It is written down before it is made.
    pub(crate) fn scratch_in(&self, parent: &Path) -> Result<PathBuf, GroundError> {
        let make = || -> io::Result<PathBuf> {
            let number = self.scratches.fetch_add(1, Ordering::Relaxed);
            let path = fs::canonicalize(parent)?.join(format!(".{}-{number}", self.name));
            let mut line = path.as_os_str().as_bytes().to_vec();
            line.push(0);
            File::options().append(true).create(true).open(self.path.join(SCRATCH))?.write_all(&line)?;
            fs::create_dir(&path)?;
            Ok(path)
        };
        make().map_err(GroundError::system(format!("make a directory in {}", parent.display())))
    }

    /// At the run's end, by the outer process: all of its processes have ended. Returns what is left, in words.
    pub(crate) fn remove(self) -> Vec<String> {
        // The lock is held on meanwhile, so that nobody else takes it for stale.
        let mut removed = Vec::new();
        match remove_run(&self.path, &self.name, &mut removed) {
            Ok(()) => Vec::new(),
            Err(error) => vec![error.to_string()],
        }
    }
}

fn is_run_name(name: &str) -> bool {
    name.strip_prefix(PREFIX)
        .is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Whether nobody holds a lock on the file.
fn is_free(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => {
            file.unlock()?;
            Ok(true)
        }
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Held while runs are made or looked through, so that nobody takes one that is just being made for stale.
fn lock_place(place: &Path) -> Result<File, GroundError> {
    let failed = || GroundError::system(format!("use {} (--cache names another place)", place.display()));
    fs::create_dir_all(place).map_err(failed())?;
    let lock = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(place.join(PLACE_LOCK))
        .map_err(failed())?;
    let deadline = Instant::now() + PLACE_LIMIT;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(POLL),
            Err(TryLockError::WouldBlock) => {
                return Err(GroundError::Busy { place: place.to_owned(), waited: PLACE_LIMIT });
            }
            Err(TryLockError::Error(error)) => return Err(failed()(error)),
        }
    }
}

/// Removes what killed runs below `place` have left; living runs are not touched.
///
/// # Errors
/// `Busy`, and the system's for the first thing that could not be removed; the rest is tried again the next time.
pub fn sweep(place: &Path) -> Result<Vec<Removed>, GroundError> {
    let _place = lock_place(place)?;
    let mut removed = Vec::new();
    let entries = fs::read_dir(place).map_err(GroundError::system(format!("read {}", place.display())))?;
    for entry in entries {
        let entry = entry.map_err(GroundError::system(format!("read {}", place.display())))?;
        let Some(name) = entry.file_name().to_str().filter(|name| is_run_name(name)).map(str::to_owned)
        else {
            continue;
        };
        let path = entry.path();
        if is_over(&path).map_err(GroundError::system(format!("look at {}", path.display())))? {
            remove_run(&path, &name, &mut removed)?;
        }
    }
    remove_strays(&mut removed)?;
    Ok(removed)
}

/// What killed runs left whose directories somebody else has removed meanwhile.
fn remove_strays(removed: &mut Vec<Removed>) -> Result<(), GroundError> {
    let failed = || GroundError::system("look for what killed runs left");
    let groups = empty_groups().map_err(failed())?;
    if !groups.is_empty() {
        // A run that lives has processes in its group, but for the moments in which it makes and removes it.
        thread::sleep(SECOND_LOOK);
        let still = empty_groups().map_err(failed())?;
        for group in groups.into_iter().filter(|group| still.contains(group)) {
            cgroup::remove(&group).map_err(failed())?;
            removed.push(Removed { what: "control group", path: group });
        }
    }
    for device in detach_loops(is_stray)? {
        removed.push(Removed { what: "loop device", path: device });
    }
    Ok(())
}

/// Control groups of runs without a process.
fn empty_groups() -> io::Result<Vec<PathBuf>> {
    let Some(mounted) = cgroup::mount_point()? else { return Ok(Vec::new()) };
    let mut groups = cgroup::children(&mounted)?;
    groups.retain(|group| group.file_name().and_then(|name| name.to_str()).is_some_and(is_run_name));
    let mut empty = Vec::new();
    for group in groups {
        if !cgroup::is_populated(&group)? {
            empty.push(group);
        }
    }
    Ok(empty)
}

/// Whether a loop device's file was a run's and has been deleted: nobody can mean to go on with it.
fn is_stray(backing: &Path) -> bool {
    let path = backing.as_os_str().as_bytes().strip_suffix(b" (deleted)");
    path.is_some_and(|path| {
        path.split(|byte| *byte == b'/').filter_map(|part| std::str::from_utf8(part).ok()).any(is_run_name)
    })
}

/// Whether no process of the run lives. One whose outer process was killed is just coming to its end: that is waited for.
fn is_over(path: &Path) -> io::Result<bool> {
    let open = |name| match File::open(path.join(name)) {
        Ok(file) => Ok(Some(file)),
        // Killed before it had one: while it is made, the place's lock is held.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let Some(lock) = open(LOCK)? else { return Ok(true) };
    if is_free(&lock)? {
        return Ok(true);
    }
    let abandoned = match open(OUTER_LOCK)? {
        Some(outer) => is_free(&outer)?,
        None => true,
    };
    let deadline = Instant::now() + END_LIMIT;
    while abandoned && Instant::now() < deadline {
        thread::sleep(POLL);
        if is_free(&lock)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes all that has the run's name.
fn remove_run(path: &Path, name: &str, removed: &mut Vec<Removed>) -> Result<(), GroundError> {
    if let Some(mounted) = cgroup::mount_point().map_err(GroundError::system("read the mounts"))? {
        let group = mounted.join(name);
        if group.exists() {
            cgroup::remove(&group)
                .map_err(GroundError::system(format!("remove the control group {}", group.display())))?;
            removed.push(Removed { what: "control group", path: group });
        }
    }
    for device in detach_loops(|backing| contains(backing, name))? {
        removed.push(Removed { what: "loop device", path: device });
    }
    for scratch in scratch_list(path)? {
        // Whatever stands in the list: only what bears the run's name is removed.
        let own = scratch.file_name().is_some_and(|file| contains(Path::new(file), name));
        if own && scratch.exists() {
            remove_tree(&scratch)?;
            removed.push(Removed { what: "directory", path: scratch });
        }
    }
    remove_tree(path)?;
    removed.push(Removed { what: "directory", path: path.to_owned() });
    Ok(())
}

fn contains(path: &Path, name: &str) -> bool {
    path.as_os_str().as_bytes().windows(name.len()).any(|part| part == name.as_bytes())
}

fn scratch_list(path: &Path) -> Result<Vec<PathBuf>, GroundError> {
    match fs::read(path.join(SCRATCH)) {
        Ok(list) => {
            let mut paths: Vec<&[u8]> = list.split(|byte| *byte == 0).collect();
            // A line without its end was never acted upon.
            paths.pop();
            Ok(paths
                .into_iter()
                .map(|path| PathBuf::from(std::ffi::OsString::from_vec(path.to_vec())))
                .collect())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(GroundError::system(format!("read {}", path.display()))(error)),
    }
}

/// Unmounts what is mounted at or below `path`, detaches loop devices with files there, and removes it.
pub(crate) fn clear(path: &Path) -> Result<(), GroundError> {
    let path = match fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.map_err(GroundError::system(format!("remove {}", path.display())))?,
    };
    let mounts =
        fs::read_to_string("/proc/self/mountinfo").map_err(GroundError::system("read the mounts"))?;
    // The last mounted first.
    for point in mount_points(&mounts).into_iter().rev().filter(|point| point.starts_with(&path)) {
        umount2(&point, MntFlags::MNT_DETACH)
            .map_err(GroundError::errno(format!("unmount {}", point.display())))?;
    }
    detach_loops(|backing| backing.starts_with(&path))?;
    remove_tree(&path)
}

fn remove_tree(path: &Path) -> Result<(), GroundError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(GroundError::system(format!("remove {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}

fn mount_points(mountinfo: &str) -> Vec<PathBuf> {
    mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape).collect()
}

/// Space, tab, line end and backslash stand as `\040` and so on in the kernel's lists.
fn unescape(field: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let [first, after @ ..] = rest {
        let octal =
            after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// Detaches the loop devices whose files `is_ours`; returns them.
fn detach_loops(is_ours: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, GroundError> {
    let mut detached = Vec::new();
    for (device, backing) in loops().map_err(GroundError::system("list the loop devices"))? {
        if !is_ours(&backing) {
            continue;
        }
        let status = Command::new("losetup").arg("-d").arg(&device).stderr(Stdio::null()).status();
        // Its own word says nothing: a device in use goes at its last unmount. What counts is that it lets go.
        status.map_err(GroundError::system("run losetup"))?;
        let deadline = Instant::now() + DETACH_LIMIT;
        while backing_file(&device).is_some_and(|now| now == backing) {
            if Instant::now() > deadline {
                return Err(GroundError::Program {
                    program: "losetup".into(),
                    message: format!("{} still holds {}", device.display(), backing.display()),
                });
            }
            thread::sleep(POLL);
        }
        detached.push(device);
    }
    Ok(detached)
}

/// Loop devices in use, with their files.
fn loops() -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let mut loops = Vec::new();
    let entries = match fs::read_dir("/sys/block") {
        // Where no block device is shown, none is in use.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(loops),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        if name.as_bytes().starts_with(b"loop") {
            let device = Path::new("/dev").join(name);
            if let Some(backing) = backing_file(&device) {
                loops.push((device, backing));
            }
        }
    }
    Ok(loops)
}

fn backing_file(device: &Path) -> Option<PathBuf> {
    let path = Path::new("/sys/block").join(device.file_name()?).join("loop/backing_file");
    let mut bytes = fs::read(path).ok()?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_of_runs_are_theirs() {
        assert!(is_run_name("farside-lab-0123456789abcdef"));
        for other in
            ["farside-lab-", "farside-lab-0123456789abcde", "farside-lab-0123456789abcdefg", "data", ".lock"]
        {
            assert!(!is_run_name(other), "{other}");
        }
    }

    #[test]
    fn a_killed_runs_scratch_is_found_and_only_that() {
        let dir = tempfile::tempdir().unwrap();
        let (place, cache) = (dir.path().join("work"), dir.path().join("cache"));
        fs::create_dir(&cache).unwrap();
        fs::write(cache.join("set"), "whole").unwrap();
        let run = RunDirectory::create(&place).unwrap();
        let scratch = run.scratch_in(&cache).unwrap();
        fs::write(scratch.join("part"), "half").unwrap();
        // What others wrote into the list, or half a line that was being written, removes nothing.
        let mut list = File::options().append(true).open(run.path().join(SCRATCH)).unwrap();
        list.write_all(cache.as_os_str().as_bytes()).unwrap();
        list.write_all(b"\0").unwrap();
        list.write_all(scratch.parent().unwrap().as_os_str().as_bytes()).unwrap();
        assert_eq!(sweep(&place).unwrap(), [], "the run lives");
        assert!(scratch.join("part").exists());

        let run_path = run.path().to_owned();
        drop(run);
        let removed = sweep(&place).unwrap();
        let paths: Vec<&Path> = removed.iter().map(|one| one.path.as_path()).collect();
        assert_eq!(paths, [scratch.as_path(), run_path.as_path()]);
        assert!(!scratch.exists() && !run_path.exists());
        assert_eq!(fs::read_to_string(cache.join("set")).unwrap(), "whole");
        assert_eq!(sweep(&place).unwrap(), []);
    }

    #[test]
    fn a_run_knows_whether_somebody_waits_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let outer = RunDirectory::create(dir.path()).unwrap();
        let inner = RunDirectory::join(outer.path()).unwrap();
        assert!(!inner.is_abandoned().unwrap());
        drop(outer);
        assert!(inner.is_abandoned().unwrap());
        let ending = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            drop(inner);
        });
        // One that is just ending is waited for.
        assert_eq!(sweep(dir.path()).unwrap().len(), 1);
        ending.join().unwrap();
    }

    #[test]
    fn a_loop_device_is_astray_when_its_run_has_been_deleted() {
        let run = "farside-lab-0123456789abcdef";
        assert!(is_stray(Path::new(&format!("/tmp/x/{run}/files/image (deleted)"))));
        assert!(!is_stray(Path::new(&format!("/tmp/x/{run}/files/image"))), "it may live");
        assert!(!is_stray(Path::new("/srv/farside-lab/image (deleted)")), "somebody else's");
    }

    #[test]
    fn mount_points_are_read_with_spaces() {
        let text = "22 1 254:0 / / rw - ext4 /dev/vda rw\n40 22 7:0 / /mnt/a\\040b rw shared:3 - ext4 /dev/loop0 rw\n";
        assert_eq!(mount_points(text), [PathBuf::from("/"), PathBuf::from("/mnt/a b")]);
        assert_eq!(unescape("a\\1"), PathBuf::from("a\\1"));
    }
}
