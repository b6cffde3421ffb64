//! Who has a file or a block device, as far as the kernel tells; for messages only.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// By what the device at `path` is in use: mount points, swap, the devices above it.
pub(crate) fn of(path: &Path) -> String {
    let mut found = Vec::new();
    if let Ok(metadata) = path.metadata() {
        let device = metadata.rdev();
        let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        found.extend(mounts_of(&mounts, &number).map(|at| format!("mounted at {at}")));
        let above = |directory: String| {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let holders = above(format!("/sys/dev/block/{number}/holders"));
        found.extend(
            holders.into_iter().map(|name| format!("part of /dev/{name} (LVM, md or device mapper)")),
        );
        let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
        let names = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        let is_it = |name: &&str| Path::new(name).metadata().is_ok_and(|m| m.rdev() == device);
        found.extend(names.filter(is_it).map(|_| String::from("used as swap")));
    }
    if found.is_empty() {
        return String::from(
            "another program has it, or one of its partitions, open for itself alone (another farsided?)",
        );
    }
    found.join(", ")
}

/// The process that has `file` locked, with its name.
pub(crate) fn of_lock(file: &File) -> Option<String> {
    let metadata = file.metadata().ok()?;
    let (device, inode) = (metadata.dev(), metadata.ino());
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = holder_among(&locks, &format!("{major:02x}:{minor:02x}:{inode}"))?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(match name.trim() {
        "" => format!("process {pid}"),
        name => format!("process {pid} ({name})"),
    })
}

/// The process with a lock of the whole file `id`, `MAJOR:MINOR:INODE`, among the lines of `/proc/locks`. One of another
/// namespace has the number 0 there.
fn holder_among(locks: &str, id: &str) -> Option<u32> {
    let mut holders = locks.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (kind, pid, at) = (fields.next()?, fields.nth(2)?, fields.next()?);
        (kind == "FLOCK" && at == id).then(|| pid.parse::<u32>().ok()).flatten()
    });
    holders.find(|pid| *pid != 0)
}

/// Mount points of the device `major:minor` among the lines of `mountinfo`.
fn mounts_of<'a>(mountinfo: &'a str, number: &'a str) -> impl Iterator<Item = &'a str> {
    mountinfo.lines().filter_map(move |line| {
        let mut fields = line.split(' ').skip(2);
        let (device, at) = (fields.next()?, fields.nth(1)?);
        (device == number).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_found_by_its_file() {
        let text = "1: POSIX  ADVISORY  WRITE 300 fe:00:77 128 128\n2: FLOCK  ADVISORY  WRITE 400 fe:00:77 0 EOF\n\
                    2: -> FLOCK  ADVISORY  WRITE 401 fe:00:78 0 EOF\n3: FLOCK  ADVISORY  READ 0 fe:00:79 0 EOF\n";
        assert_eq!(holder_among(text, "fe:00:77"), Some(400));
        assert_eq!(holder_among(text, "fe:00:78"), None, "it only waits");
        assert_eq!(holder_among(text, "fe:00:79"), None, "of another namespace");
        let file = tempfile::tempfile().unwrap();
        assert_eq!(of_lock(&file), None);
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let said = of_lock(&file).unwrap();
        assert!(said.starts_with(&format!("process {} (", std::process::id())), "{said}");
    }

    #[test]
    fn a_mount_is_found_by_its_device() {
        let text =
            "22 1 7:0 / /mnt rw,relatime - ext4 /dev/loop0 rw\n23 1 7:10 / /other rw - ext4 /dev/loop10 rw\n";
        assert_eq!(mounts_of(text, "7:0").collect::<Vec<_>>(), ["/mnt"]);
        assert_eq!(mounts_of(text, "8:0").count(), 0);
    }
}
