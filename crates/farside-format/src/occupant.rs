//! What lies on a device that is to become a pool: signatures of what others write there. Pure; believes nothing but bytes at
//! fixed places, since all that follows from it is a question to a person.

use crate::claim::Claim;
use crate::fingerprint::BLOCK_BYTES;
use crate::superblock::{JOURNAL_START, SUPERBLOCK_PLACES, Superblock};
use crate::{FORMAT_VERSION, FormatError, journal};

/// Bytes to look at from the beginning: the last thing looked for there is the beginning of a pool's journal.
pub const HEAD_BYTES: usize = 4 << 20;
/// And up to the end: ZFS keeps two labels in the last 512 KiB.
pub const TAIL_BYTES: usize = 1 << 20;

/// Where a signature lies.
#[derive(Clone, Copy)]
enum At {
    /// So many bytes from the beginning.
    Start(usize),
    /// So many bytes before the end.
    End(usize),
}
use At::{End, Start};

/// A label that people gave, to know it by: offset and length at most.
type Label = Option<(usize, usize)>;

/// Signatures at fixed places, the most telling first.
const SIGNATURES: &[(&str, At, &[u8], Label)] = &[
    ("an ext2, ext3 or ext4 file system", Start(1024 + 0x38), &[0x53, 0xef], Some((1024 + 0x78, 16))),
    ("an xfs file system", Start(0), b"XFSB", Some((108, 12))),
    ("a btrfs file system", Start(0x10040), b"_BHRfS_M", Some((0x1012b, 256))),
    ("an f2fs file system", Start(1024), &[0x10, 0x20, 0xf5, 0xf2], None),
    (
        "a bcachefs or bcache device",
        Start(4096 + 24),
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca],
        None,
    ),
    ("an ntfs file system", Start(3), b"NTFS    ", None),
    ("an exfat file system", Start(3), b"EXFAT   ", None),
    ("a fat file system", Start(54), b"FAT", Some((43, 11))),
    ("a fat file system", Start(82), b"FAT32", Some((71, 11))),
    ("an iso9660 file system", Start(0x8001), b"CD001", Some((0x8028, 32))),
    ("a squashfs file system", Start(0), b"hsqs", None),
    ("a gfs2 file system", Start(0x10000), &[0x01, 0x16, 0x19, 0x70], None),
    ("an ocfs2 file system", Start(8192), b"OCFSV2", None),
    ("a vmfs file system", Start(1 << 20), &[0x0d, 0xd0, 0x01, 0xc0], None),
    ("an LVM2 physical volume", Start(0), b"LABELONE", None),
    ("an LVM2 physical volume", Start(512), b"LABELONE", None),
    ("an LVM2 physical volume", Start(1024), b"LABELONE", None),
    ("an LVM2 physical volume", Start(1536), b"LABELONE", None),
    ("a member of an md RAID", Start(0), &[0xfc, 0x4e, 0x2b, 0xa9], None),
    ("a member of an md RAID", Start(4096), &[0xfc, 0x4e, 0x2b, 0xa9], None),
    ("a LUKS encrypted device", Start(0), b"LUKS\xba\xbe", None),
    ("a LUKS encrypted device", Start(16384), b"SKUL\xba\xbe", None),
    ("a LUKS encrypted device", Start(32768), b"SKUL\xba\xbe", None),
    ("swap space", Start(4096 - 10), b"SWAPSPACE2", Some((1052, 16))),
    ("swap space", Start(4096 - 10), b"SWAP-SPACE", None),
    ("swap space", Start(16384 - 10), b"SWAPSPACE2", None),
    ("swap space", Start(65536 - 10), b"SWAPSPACE2", None),
    ("a Ceph OSD", Start(0), b"bluestore block device", None),
    ("a partition table (GPT)", Start(512), b"EFI PART", None),
    ("a partition table (GPT)", Start(4096), b"EFI PART", None),
    ("a partition table (GPT), its second copy", End(512), b"EFI PART", None),
    ("a partition table (GPT), its second copy", End(4096), b"EFI PART", None),
    ("a DRBD device", End(4096 - 60), &[0x83, 0x74, 0x02, 0x6b], None),
];

const MD: [u8; 4] = [0xfc, 0x4e, 0x2b, 0xa9];
/// ZFS: 0x00bab10c, of either byte order, at the beginning of a slot of the uberblocks' ring.
const UBERBLOCK: [[u8; 8]; 2] = [[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c]];

/// What is recognised on a device of `device_bytes`: `head` are its first [`HEAD_BYTES`], `tail` its last [`TAIL_BYTES`], or all
/// of it where it is smaller. Nothing only if both are zeros all through: what nobody recognises is somebody's, too.
pub fn recognise(head: &[u8], tail: &[u8], device_bytes: u64) -> Vec<String> {
    let mut found: Vec<String> = farside(head).into_iter().collect();
    for (name, at, magic, label) in SIGNATURES {
        let there = match at {
            Start(offset) => head.get(*offset..),
            End(before) => tail.len().checked_sub(*before).and_then(|offset| tail.get(offset..)),
        };
        if there.is_some_and(|bytes| bytes.starts_with(magic)) {
            add(
                &mut found,
                name,
                label.and_then(|(offset, length)| text(head.get(offset..offset + length)?)),
            );
        }
    }
    if md_at_end(tail, device_bytes) {
        add(&mut found, "a member of an md RAID", None);
    }
    if zfs(head) || zfs(tail) {
        add(&mut found, "a member of a ZFS pool", None);
    }
    // The boot sectors of some file systems end as a partition table does.
    if mbr(head) && !found.iter().any(|name| name.contains("fat file") || name.contains("ntfs")) {
        add(&mut found, "a partition table (MBR)", None);
    }
    if found.is_empty() && !(is_zero(head) && is_zero(tail)) {
        found.push(String::from("data that farside does not recognise (it is not all zeros)"));
    }
    found
}

fn add(found: &mut Vec<String>, name: &str, label: Option<String>) {
    let is_table = |name: &str| name.contains("partition table");
    if found.iter().any(|known| known.starts_with(name) || (is_table(known) && is_table(name))) {
        return;
    }
    found.push(match label {
        Some(label) => format!("{name} ({label})"),
        None => name.to_owned(),
    });
}

/// A pool of ours, whole or not.
fn farside(head: &[u8]) -> Option<String> {
    let block = |place: u64| head.get(place as usize * BLOCK_BYTES..)?.get(..BLOCK_BYTES);
    let mut is_damaged = false;
    for place in SUPERBLOCK_PLACES {
        match block(place).map(Superblock::decode) {
            Some(Ok(superblock)) => return Some(format!("a farside pool ({})", superblock.identity())),
            Some(Err(FormatError::Version { found, .. })) => {
                return Some(format!(
                    "a farside pool of format version {found} (this farside knows version {FORMAT_VERSION})"
                ));
            }
            Some(Err(FormatError::Magic { .. })) | None => {}
            Some(Err(_)) => is_damaged = true,
        }
    }
    let journal = (JOURNAL_START..).map_while(block).any(|block| block.starts_with(&journal::BATCH_MAGIC));
    let is_claimed = block(crate::claim::CLAIM_PLACE).is_some_and(|block| Claim::decode(block).is_ok());
    (is_damaged || journal || is_claimed)
        .then(|| String::from("a farside pool whose superblocks are damaged"))
}

/// Versions 0.90 and 1.0 lie near the end: 64 KiB before it, rounded down to 64 KiB; 8 KiB before it, rounded down to 4 KiB.
fn md_at_end(tail: &[u8], device_bytes: u64) -> bool {
    let Some(first) = device_bytes.checked_sub(tail.len() as u64) else { return false };
    let places = [
        (device_bytes & !0xffff).checked_sub(0x10000),
        device_bytes.checked_sub(0x2000).map(|place| place & !0xfff),
    ];
    let bytes_at = |place: u64| tail.get(usize::try_from(place.checked_sub(first)?).ok()?..);
    places.into_iter().flatten().filter_map(bytes_at).any(|bytes| bytes.starts_with(&MD))
}

/// A label is 256 KiB, its second half the ring of uberblocks in slots of 1 KiB or more.
fn zfs(bytes: &[u8]) -> bool {
    let in_rings = |at: &usize| at % (256 << 10) >= (128 << 10);
    let slots = (0..bytes.len() / 1024).map(|slot| slot * 1024).filter(in_rings);
    // Several, so that no chance makes one.
    slots.filter(|at| UBERBLOCK.iter().any(|magic| bytes[*at..].starts_with(magic))).count() >= 2
}

/// The mark that ends the first sector, and a partition that has a type.
fn mbr(head: &[u8]) -> bool {
    head.get(510..512) == Some(&[0x55, 0xaa])
        && (0..4).any(|entry| head.get(446 + 16 * entry + 4).is_some_and(|kind| *kind != 0))
}

/// What people can read of a label.
fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text: String = bytes[..end]
        .iter()
        .filter(|byte| (0x20..0x7f).contains(*byte))
        .map(|byte| char::from(*byte))
        .collect();
    let text = text.trim();
    (!text.is_empty()).then(|| format!("labelled {text:?}"))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
