//! Loop devices: which hold which files, and releasing them.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::error::TestBedError;

/// How long a loop device may take to release its file after the last unmount.
const DETACH_LIMIT: Duration = Duration::from_secs(5);
/// How often to look.
const POLL: Duration = Duration::from_millis(20);

/// Detaches the loop devices whose files `is_ours`; returns them.
pub(crate) fn detach(is_ours: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, TestBedError> {
    let mut detached = Vec::new();
    for (device, backing) in loops().map_err(TestBedError::system("list the loop devices"))? {
        if !is_ours(&backing) {
            continue;
        }
        let status = Command::new("losetup").arg("-d").arg(&device).stderr(Stdio::null()).status();
        // Its own word says nothing: a device in use goes at its last unmount. What counts is that it is released.
        status.map_err(TestBedError::system("run losetup"))?;
        let deadline = Instant::now() + DETACH_LIMIT;
        while backing_file(&device).is_some_and(|now| now == backing) {
            if Instant::now() > deadline {
                return Err(TestBedError::Program {
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
