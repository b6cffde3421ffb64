//! Who has a block device, as far as the kernel tells; for messages only.

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
    fn a_mount_is_found_by_its_device() {
        let text =
            "22 1 7:0 / /mnt rw,relatime - ext4 /dev/loop0 rw\n23 1 7:10 / /other rw - ext4 /dev/loop10 rw\n";
        assert_eq!(mounts_of(text, "7:0").collect::<Vec<_>>(), ["/mnt"]);
        assert_eq!(mounts_of(text, "8:0").count(), 0);
    }
}
