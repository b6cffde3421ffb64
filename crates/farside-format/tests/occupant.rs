//! What others leave on a device is recognised, whatever lies around it.

#![allow(missing_docs)]

use farside_format::occupant::{HEAD_BYTES, TAIL_BYTES, recognise};

const DEVICE: u64 = 64 << 20;

/// What is said, and what lies where.
type Case<'a> = (&'a str, &'a [(u64, &'a [u8])]);

/// What is said of a device with these bytes, written at places from its beginning.
fn said(writes: &[(u64, &[u8])]) -> String {
    let mut device = vec![0; DEVICE as usize];
    for (at, bytes) in writes {
        device[*at as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    recognise(&device[..HEAD_BYTES], &device[device.len() - TAIL_BYTES..], DEVICE).join(", ")
}

#[test]
fn each_is_called_by_its_name() {
    let md = &[0xfc, 0x4e, 0x2b, 0xa9];
    let zfs = &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0];
    let cases: &[Case<'_>] = &[
        ("", &[]),
        ("an ext2, ext3 or ext4 file system (labelled \"data\")", &[(1080, &[0x53, 0xef]), (1144, b"data")]),
        ("an xfs file system (labelled \"x\")", &[(0, b"XFSB"), (108, b"x")]),
        ("a btrfs file system", &[(0x10040, b"_BHRfS_M")]),
        ("an LVM2 physical volume", &[(512, b"LABELONE")]),
        ("a member of an md RAID", &[(0, md)]),
        ("a member of an md RAID", &[(4096, md)]),
        ("a member of an md RAID", &[(DEVICE - 0x2000, md)]),
        ("a member of an md RAID", &[(DEVICE - 0x10000, md)]),
        ("a LUKS encrypted device", &[(0, b"LUKS\xba\xbe")]),
        ("a LUKS encrypted device", &[(16384, b"SKUL\xba\xbe")]),
        ("swap space", &[(4086, b"SWAPSPACE2")]),
        (
            "a partition table (GPT)",
            &[(510, &[0x55, 0xaa]), (450, &[0xee]), (512, b"EFI PART"), (DEVICE - 512, b"EFI PART")],
        ),
        ("a partition table (GPT), its second copy", &[(DEVICE - 512, b"EFI PART")]),
        ("a partition table (MBR)", &[(510, &[0x55, 0xaa]), (450, &[0x83])]),
        (
            "a fat file system (labelled \"BOOT\")",
            &[(510, &[0x55, 0xaa]), (450, &[0x83]), (82, b"FAT32"), (71, b"BOOT       ")],
        ),
        ("an ntfs file system", &[(3, b"NTFS    "), (510, &[0x55, 0xaa])]),
        ("a member of a ZFS pool", &[(128 << 10, zfs), (129 << 10, zfs)]),
        ("a member of a ZFS pool", &[(DEVICE - (128 << 10), zfs), (DEVICE - (127 << 10), zfs)]),
        ("data that farside does not recognise (it is not all zeros)", &[(3 << 20, &[1])]),
        ("data that farside does not recognise (it is not all zeros)", &[(DEVICE - 1, &[1])]),
        ("a farside pool whose superblocks are damaged", &[(0, b"FARSIDE\0\x05\0\0\0")]),
        (
            "a farside pool of format version 3 (this farside knows version 5)",
            &[(1 << 20, b"FARSIDE\0\x03\0\0\0")],
        ),
        ("a farside pool whose superblocks are damaged", &[((2 << 20) + 8192, b"FSJBATCH")]),
    ];
    for (expected, writes) in cases {
        assert_eq!(said(writes), *expected);
    }
}

#[test]
fn a_device_of_any_size_is_looked_at() {
    for bytes in [0, 1, 511, 512, 4096, 5000, 1 << 20] {
        let device = vec![0; bytes];
        assert!(recognise(&device, &device, bytes as u64).is_empty());
        let device = vec![0xff; bytes];
        assert_eq!(recognise(&device, &device, bytes as u64).is_empty(), bytes == 0);
    }
}
