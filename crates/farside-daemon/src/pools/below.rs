//! The file system below a pool's file, where it is shorter than the pool: it is full first, so its level counts too. Pure.

use farside_api::{PoolFileSystem, PoolRoom};
use farside_engine::TO_MAKE_ROOM_BELOW;
use farside_store::LacksRoomBelow;

/// Of what the pool has and can still get: at this part of it, one in so many, it is nearly full.
const NEARLY_FULL_PART: u64 = 20;
/// And at this one it is filling. Both are those of a pool's own room.
const FILLING_PART: u64 = 5;
/// Less is nothing: it would be said as 0.0 MiB.
const FULL_BYTES: u64 = 64 << 10;

/// How much is left for the pool, by its file system alone. What is freed within the file is used again, so it is
/// [`PoolRoom::Full`] only where a write `was_refused` for want of room, until one is not.
pub(crate) fn level(below: PoolFileSystem, used_bytes: u64, was_refused: bool) -> PoolRoom {
    let all = used_bytes.saturating_add(below.free_bytes);
    let is_within = |part: u64| below.free_bytes <= all / part;
    if was_refused && is_within(NEARLY_FULL_PART) {
        PoolRoom::Full
    } else if is_within(NEARLY_FULL_PART) {
        PoolRoom::NearlyFull
    } else if is_within(FILLING_PART) {
        PoolRoom::Filling
    } else {
        PoolRoom::Enough
    }
}

/// What hosts can still write, of so much that is free in the pool: into what the file has and the pool does not use, and what the
/// file system has left.
pub(super) fn writable(below: PoolFileSystem, size_bytes: u64, used_bytes: u64, free_bytes: u64) -> u64 {
    let again = size_bytes.saturating_sub(below.may_take_bytes).saturating_sub(used_bytes);
    free_bytes.min(again.saturating_add(below.free_bytes))
}

/// What it means, and what to do. Where a write `was_refused` nothing is left, however little that is.
pub(super) fn warning(below: PoolFileSystem, path: &str, was_refused: bool) -> String {
    let size = |bytes: u64| match bytes >= 1 << 30 {
        true => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
        false => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    };
    let may_take = size(below.may_take_bytes);
    let what = match below.free_bytes {
        free if was_refused || free < FULL_BYTES => format!(
            "the file system of {path} is full, and the pool may still take {may_take} of it. Hosts are told that there is no space, \
             except where the file has room that can be used again"
        ),
        free => format!(
            "the file system of {path} has {} left, less than the pool may still take of it ({may_take}). When it is full, hosts are \
             told that there is no space",
            size(free)
        ),
    };
    format!("{what}. What was flushed is safe. What to do: {TO_MAKE_ROOM_BELOW}")
}

/// What to do about a device that refuses data. What it lacks below was looked at a moment ago.
pub(super) fn advice(path: &str, lacks: Option<LacksRoomBelow>) -> String {
    let what = match lacks {
        Some(lacks) => format!(
            "make room: {} MiB at least on the file system of {path} (df {path})",
            (lacks.needed_bytes - lacks.left_bytes).div_ceil(1 << 20)
        ),
        None => format!(
            "see whether the file system of {path} is full (df {path}) or the device in trouble (the kernel's log), and mend that"
        ),
    };
    format!(
        "{what}; afterwards nothing more has to be done: it is tried every 10 s, and this goes away. What was flushed is safe; what was \
         not waits in memory, and flushes and writes of hosts succeed again then"
    )
}

pub(super) fn room_wanted(lacks: &LacksRoomBelow, path: &str) -> String {
    let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
    format!(
        " The file system below {path} has {} MiB free, and the pool needs {}: free at least {} MiB there (df {path}).",
        lacks.left_bytes >> 20,
        mebibytes(lacks.needed_bytes),
        mebibytes(lacks.needed_bytes - lacks.left_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_fills_at_the_levels_of_a_pool() {
        const GIB: u64 = 1 << 30;
        let short = |free_bytes| PoolFileSystem { free_bytes, may_take_bytes: 1 << 40 };
        let of = |used, free_bytes| level(short(free_bytes), used * GIB, false);
        assert_eq!(of(0, 10 * GIB), PoolRoom::Enough);
        assert_eq!(of(79, 21 * GIB), PoolRoom::Enough);
        assert_eq!(of(80, 20 * GIB), PoolRoom::Filling);
        assert_eq!(of(95, 5 * GIB), PoolRoom::NearlyFull);
        assert_eq!(of(95, 0), PoolRoom::NearlyFull, "the file may have room that is used again");
        assert_eq!(level(short(0), 95 * GIB, true), PoolRoom::Full);
        assert_eq!(
            level(short(50 * GIB), 50 * GIB, true),
            PoolRoom::Enough,
            "it was a limit of another kind"
        );
        let below = PoolFileSystem { free_bytes: GIB, may_take_bytes: 9 * GIB };
        let said = warning(below, "/srv/p.pool", false);
        assert!(said.contains("/srv/p.pool has 1.0 GiB left") && said.contains("What to do"), "{said}");
        let said = warning(PoolFileSystem { free_bytes: 4096, ..below }, "/srv/p.pool", false);
        assert!(warning(below, "/srv/p.pool", true).contains("/srv/p.pool is full"));
        assert!(said.contains("/srv/p.pool is full") && !said.contains("0.0 MiB"), "{said}");
    }

    #[test]
    fn what_the_file_system_does_not_have_is_not_free() {
        const MIB: u64 = 1 << 20;
        let below = PoolFileSystem { free_bytes: 0, may_take_bytes: 960 * MIB };
        assert_eq!(writable(below, 1024 * MIB, 64 * MIB, 960 * MIB), 0);
        assert_eq!(
            writable(below, 1024 * MIB, 44 * MIB, 980 * MIB),
            20 * MIB,
            "what the file has is used again"
        );
        let below = PoolFileSystem { free_bytes: 100 * MIB, may_take_bytes: 960 * MIB };
        assert_eq!(writable(below, 1024 * MIB, 64 * MIB, 960 * MIB), 100 * MIB);
    }

    #[test]
    fn the_room_that_is_wanted_is_rounded_up() {
        let lacks = LacksRoomBelow { needed_bytes: (5 << 20) + 1, left_bytes: (1 << 20) + 4096 };
        let said = room_wanted(&lacks, "/srv/p.pool");
        assert!(said.contains("has 1 MiB free, and the pool needs 6: free at least 4 MiB"), "{said}");
        assert!(said.contains("df /srv/p.pool"));
        let said = advice("/srv/p.pool", Some(lacks));
        assert!(said.starts_with("make room: 4 MiB at least on the file system of /srv/p.pool"), "{said}");
        assert!(advice("/srv/p.pool", None).contains("df /srv/p.pool"));
    }
}
