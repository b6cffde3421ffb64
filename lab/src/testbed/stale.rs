//! What a run has on disk and in the machine, by one name, and removing it: at the run's own end, by the next start after a
//! kill, or by `farside-lab clean`.
//!
//! A run's name is `farside-lab-` and 16 random digits. It has a directory of that name with a lock that its processes
//! hold (shared) as long as one of them lives, a control group of that name, and *scratch* directories elsewhere whose
//! names contain it. Whoever gets the lock alone knows that the run is over. Names are never reused, so nothing that
//! another run or another person has made can be taken for it.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, umount2};
use serde::Serialize;

use super::cgroup;
use super::error::TestBedError;
use super::loops;
use super::run::{LOCK, OUTER_LOCK, RunDirectory, SCRATCH, is_free, is_run_name, lock_place};

/// How long the kernel may take to end the processes of a run whose outer process was killed.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks at control groups without processes.
const SECOND_LOOK: Duration = Duration::from_millis(300);
/// How often to look.
const POLL: Duration = Duration::from_millis(20);

/// Something that was removed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Removed {
    /// `directory`, `control group`, `loop device`.
    pub what: &'static str,
    /// Which one.
    pub path: PathBuf,
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.path.display())
    }
}

/// Removes what killed runs below `place` have left; living runs are not touched.
///
/// # Errors
/// `Busy`, and the system's for the first thing that could not be removed; the rest is tried again the next time.
pub fn sweep(place: &Path) -> Result<Vec<Removed>, TestBedError> {
    let mut removed = Vec::new();
    if !place.exists() {
        remove_strays(&mut removed)?;
        return Ok(removed);
    }
    let _place = lock_place(place)?;
    let entries = fs::read_dir(place).map_err(TestBedError::system(format!("read {}", place.display())))?;
    for entry in entries {
        let entry = entry.map_err(TestBedError::system(format!("read {}", place.display())))?;
        let Some(name) = entry.file_name().to_str().filter(|name| is_run_name(name)).map(str::to_owned)
        else {
            continue;
        };
        let path = entry.path();
        if is_over(&path).map_err(TestBedError::system(format!("look at {}", path.display())))? {
            remove_run(&path, &name, &mut removed)?;
        }
    }
    remove_strays(&mut removed)?;
    Ok(removed)
}

/// At the run's end, by the outer process: all others have ended. Returns what is left, in words.
pub(crate) fn remove(run: RunDirectory) -> Vec<String> {
    let left = remove_run(run.path(), run.name(), &mut Vec::new()).err();
    // Its locks were held meanwhile, so that nobody else took it for stale.
    drop(run);
    left.iter().map(TestBedError::to_string).collect()
}

/// What killed runs left whose directories somebody else has removed meanwhile.
fn remove_strays(removed: &mut Vec<Removed>) -> Result<(), TestBedError> {
    let failed = || TestBedError::system("look for what killed runs left");
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
    for device in loops::detach(is_stray)? {
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
fn remove_run(path: &Path, name: &str, removed: &mut Vec<Removed>) -> Result<(), TestBedError> {
    if let Some(mounted) = cgroup::mount_point().map_err(TestBedError::system("read the mounts"))? {
        let group = mounted.join(name);
        if group.exists() {
            cgroup::remove(&group)
                .map_err(TestBedError::system(format!("remove the control group {}", group.display())))?;
            removed.push(Removed { what: "control group", path: group });
        }
    }
    for device in loops::detach(|backing| contains(backing, name))? {
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

fn scratch_list(path: &Path) -> Result<Vec<PathBuf>, TestBedError> {
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
        Err(error) => Err(TestBedError::system(format!("read {}", path.display()))(error)),
    }
}

/// Unmounts what is mounted at or below `path`, detaches loop devices with files there, and removes it.
pub(crate) fn clear(path: &Path) -> Result<(), TestBedError> {
    let path = match fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.map_err(TestBedError::system(format!("remove {}", path.display())))?,
    };
    let mounts =
        fs::read_to_string("/proc/self/mountinfo").map_err(TestBedError::system("read the mounts"))?;
    // The last mounted first.
    for point in mount_points(&mounts).into_iter().rev().filter(|point| point.starts_with(&path)) {
        umount2(&point, MntFlags::MNT_DETACH)
            .map_err(TestBedError::errno(format!("unmount {}", point.display())))?;
    }
    loops::detach(|backing| backing.starts_with(&path))?;
    remove_tree(&path)
}

fn remove_tree(path: &Path) -> Result<(), TestBedError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(TestBedError::system(format!("remove {}", path.display()))(error))
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// What was removed below `dir`; elsewhere on the machine others may have left something.
    fn swept(place: &Path, dir: &Path) -> Vec<PathBuf> {
        let removed = sweep(place).unwrap().into_iter().map(|one| one.path);
        removed.filter(|path| path.starts_with(dir)).collect()
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
        assert!(swept(&place, dir.path()).is_empty(), "the run lives");
        assert!(scratch.join("part").exists());

        let run_path = run.path().to_owned();
        drop(run);
        assert_eq!(swept(&place, dir.path()), [scratch.as_path(), run_path.as_path()]);
        assert!(!scratch.exists() && !run_path.exists());
        assert_eq!(fs::read_to_string(cache.join("set")).unwrap(), "whole");
        assert!(swept(&place, dir.path()).is_empty());
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
        assert_eq!(swept(dir.path(), dir.path()).len(), 1);
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
