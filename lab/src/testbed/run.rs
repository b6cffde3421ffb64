//! The directory of a run on disk: its name, its locks, what is where in it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::TryRngCore;
use rand::rngs::OsRng;
use serde::Serialize;

use super::error::TestBedError;

/// Begins the name of everything that belongs to a run.
const PREFIX: &str = "farside-lab-";
/// Digits that follow; 64 random bits.
const DIGITS: usize = 16;
/// Held shared by the processes of a run, alone by whoever removes it.
pub(crate) const LOCK: &str = "lock";
/// Held by the outer process: free, it says that nobody waits for the run any more.
pub(crate) const OUTER_LOCK: &str = "outer";
/// For people: who made the directory.
const ABOUT: &str = "about.json";
/// Paths of scratch directories, each ended by a zero byte.
pub(crate) const SCRATCH: &str = "scratch";
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
/// How often a lock is tried.
const POLL: Duration = Duration::from_millis(20);
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
    pub(crate) fn create(place: &Path) -> Result<Self, TestBedError> {
        let _place = lock_place(place)?;
        let number = OsRng
            .try_next_u64()
            .map_err(|error| TestBedError::system("random digits")(io::Error::other(error)))?;
        let name = format!("{PREFIX}{number:016x}");
        // The sandbox's processes and their scripts work in other directories than this one.
        let place =
            fs::canonicalize(place).map_err(TestBedError::system(format!("find {}", place.display())))?;
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
                Err(TestBedError::system(format!("make {}", path.display()))(error))
            }
        }
    }

    /// Takes part in the lock of one that the outer process has made.
    pub(crate) fn join(path: &Path) -> Result<Self, TestBedError> {
        let name = path.file_name().and_then(|name| name.to_str()).filter(|name| is_run_name(name));
        let name = name.ok_or_else(|| {
            TestBedError::Missing(vec![format!("  a run's directory at {}", path.display())])
        })?;
        let lock = || -> io::Result<File> {
            let lock = File::open(path.join(LOCK))?;
            lock.try_lock_shared()?;
            Ok(lock)
        };
        let lock =
            lock().map_err(TestBedError::system(format!("take part in the run at {}", path.display())))?;
        Ok(Self {
            path: path.to_owned(),
            name: name.to_owned(),
            _locks: vec![lock],
            scratches: AtomicU32::new(0),
        })
    }

    /// Whether the outer process is gone.
    pub(crate) fn is_abandoned(&self) -> Result<bool, TestBedError> {
        let failed = || TestBedError::system(format!("look at {}", self.path.display()));
        let outer = File::open(self.path.join(OUTER_LOCK)).map_err(failed())?;
        is_free(&outer).map_err(failed())
    }

    /// Writes down this process's number as the machine outside counts; while `/proc` is still the outside's.
    pub(crate) fn write_pid(&self) -> Result<(), TestBedError> {
        let write = || fs::write(self.path.join(PID), fs::read_link("/proc/self")?.as_os_str().as_bytes());
        write().map_err(TestBedError::system("write down the sandbox's pid"))
    }

    pub(crate) fn read_pid(&self) -> Result<u32, TestBedError> {
        let read = || fs::read_to_string(self.path.join(PID))?.parse().map_err(io::Error::other);
        read().map_err(TestBedError::system("read the sandbox's pid"))
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
    pub(crate) fn scratch_in(&self, parent: &Path) -> Result<PathBuf, TestBedError> {
        let make = || -> io::Result<PathBuf> {
            let number = self.scratches.fetch_add(1, Ordering::Relaxed);
            let path = fs::canonicalize(parent)?.join(format!(".{}-{number}", self.name));
            let mut line = path.as_os_str().as_bytes().to_vec();
            line.push(0);
            File::options().append(true).create(true).open(self.path.join(SCRATCH))?.write_all(&line)?;
            fs::create_dir(&path)?;
            Ok(path)
        };
        make().map_err(TestBedError::system(format!("make a directory in {}", parent.display())))
    }
}

/// Whether it is the name of a run, of this or another laboratory.
pub(crate) fn is_run_name(name: &str) -> bool {
    name.strip_prefix(PREFIX)
        .is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Whether nobody holds a lock on the file.
pub(crate) fn is_free(file: &File) -> io::Result<bool> {
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
pub(crate) fn lock_place(place: &Path) -> Result<File, TestBedError> {
    let failed = || TestBedError::system(format!("use {} (--cache names another place)", place.display()));
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
                return Err(TestBedError::Busy { place: place.to_owned(), waited: PLACE_LIMIT });
            }
            Err(TryLockError::Error(error)) => return Err(failed()(error)),
        }
    }
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
}
