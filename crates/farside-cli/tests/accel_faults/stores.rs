//! A chunk store that is damaged, cleared, lost or full, at either end; a peer that is another one now.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::bed::{Bed, End, Wanted};
use crate::support::{Site, eventually};
use crate::traffic::{MIB, Transfer, fetch, fetch_slowly, send, send_slowly};
use crate::watch::{MARGIN, Seen, THIRD_TRY, UNNOTICED, report};

/// Bytes of a file.
const BYTES: u32 = 5 * MIB;
/// What two files cost on the wire at most that both ends have, bytes: 3 %, and a tenth of that where nothing else goes on.
const KNOWN: u64 = 6 * BYTES as u64 / 100;
/// So many passes at most until everything is known again.
const PASSES_MAX: usize = 4;

/// Carries a file in each direction. Bytes on the wire.
fn both_ways(bed: &Bed) -> u64 {
    let before = bed.wire_bytes();
    bed.optimises(fetch(1, BYTES));
    bed.optimises(send(2, BYTES));
    bed.wire_bytes() - before
}

fn every_container(bed: &Bed, at: End, harm: fn(&Path)) {
    let containers = bed.at(at).containers();
    assert!(containers.len() >= 2, "{containers:?}");
    containers.iter().for_each(|path| harm(path));
}

/// A byte in 5,000: in most of the chunks, of 8 KiB.
fn flip_bytes(path: &Path) {
    let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else { return };
    for at in (2_500..file.metadata().unwrap().len()).step_by(5_000) {
        let mut byte = [0];
        // Its owner may have noticed already, and thrown it away.
        if file.read_exact_at(&mut byte, at).is_err() {
            return;
        }
        file.write_all_at(&[!byte[0]], at).unwrap();
    }
}

fn cut_in_half(path: &Path) {
    let Ok(file) = OpenOptions::new().write(true).open(path) else { return };
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
}

fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}

/// Harm while transfers of what the store holds go on, both ways.
fn while_it_runs(cell: &str, harm: impl FnOnce(&Bed)) {
    let Some(bed) = Bed::new() else { return };
    both_ways(&bed);
    assert!(both_ways(&bed) < KNOWN, "it was not known");
    let open = [fetch_slowly(1, BYTES), send_slowly(2, BYTES)];
    let open = open.map(|request| Transfer::start(&bed.client, request));
    let watch = bed.watch();
    open.iter().for_each(|transfer| transfer.is_at(MIB));
    let at = Instant::now();
    harm(&bed);
    let open = open.map(|transfer| bed.whole_or_reset(transfer));
    let seen = watch.end(at, || bed.plain_ports());
    end(cell, &bed, &seen);
    assert_eq!(open, [true; 2], "whole");
    assert!(seen.is_mostly_optimised(), "{seen:?}");
}

/// Harm to a store that nobody has open.
fn while_it_is_stopped(cell: &str, at: End, harm: impl FnOnce(&Bed)) {
    let Some(mut bed) = Bed::new() else { return };
    both_ways(&bed);
    assert_eq!(bed.at_mut(at).site.stop(), Some(0));
    let watch = bed.watch();
    sleep(Duration::from_millis(100));
    let began = Instant::now();
    harm(&bed);
    bed.restart(at);
    bed.meet();
    sleep(Duration::from_millis(500));
    let seen = watch.end(began, || bed.plain_ports());
    end(cell, &bed, &seen);
    assert!(seen.again.is_some(), "{seen:?}");
}

/// Everything is right, if not known; and then it is known again.
fn end(cell: &str, bed: &Bed, seen: &Seen) {
    // What is damaged in a container is found when it is looked for: a later pass may look where the one before did not.
    let mut passes = vec![both_ways(bed), both_ways(bed)];
    while passes.last().is_some_and(|last| *last >= KNOWN) && passes.len() < PASSES_MAX {
        passes.push(both_ways(bed));
    }
    let shown: Vec<String> = passes.iter().map(u64::to_string).collect();
    let note = format!("of {} bytes {} on the wire", 2 * BYTES, shown.join(", then "));
    report(cell, bed.resets() + seen.resets, seen, &note);
    assert!(passes.last().is_some_and(|last| *last < KNOWN), "it has not become known again: {passes:?}");
    assert_eq!((bed.resets(), seen.resets), (0, 0), "{seen:?}");
    assert!(seen.slowest <= UNNOTICED, "{seen:?}");
}

#[test]
fn flipped_bytes_at_the_near_end() {
    while_it_runs("near store damaged while it runs", |bed| every_container(bed, End::Near, flip_bytes));
}

#[test]
fn flipped_bytes_at_the_far_end() {
    while_it_runs("far store damaged while it runs", |bed| every_container(bed, End::Far, flip_bytes));
}

#[test]
fn truncated_containers() {
    while_it_runs("containers of both stores cut in half while they run", |bed| {
        every_container(bed, End::Near, cut_in_half);
        every_container(bed, End::Far, cut_in_half);
    });
}

#[test]
fn deleted_containers() {
    while_it_runs("containers of both stores deleted while they run", |bed| {
        every_container(bed, End::Near, remove);
        every_container(bed, End::Far, remove);
    });
}

#[test]
fn the_near_store_is_cleared() {
    while_it_runs("near store cleared", |bed| drop(bed.near.site.ok("accel cache clear")));
}

#[test]
fn the_far_store_is_cleared() {
    while_it_runs("far store cleared", |bed| drop(bed.far.site.ok("accel cache clear")));
}

#[test]
fn flipped_bytes_while_the_near_end_is_stopped() {
    let harm = |bed: &Bed| every_container(bed, End::Near, flip_bytes);
    while_it_is_stopped("near store damaged while it is stopped", End::Near, harm);
}

#[test]
fn flipped_bytes_while_the_far_end_is_stopped() {
    let harm = |bed: &Bed| every_container(bed, End::Far, flip_bytes);
    while_it_is_stopped("far store damaged while it is stopped", End::Far, harm);
}

#[test]
fn truncated_containers_while_the_near_end_is_stopped() {
    let harm = |bed: &Bed| every_container(bed, End::Near, cut_in_half);
    while_it_is_stopped("containers cut in half while the near end is stopped", End::Near, harm);
}

#[test]
fn a_container_is_deleted_while_the_far_end_is_stopped() {
    let harm = |bed: &Bed| remove(&bed.far.containers()[0]);
    while_it_is_stopped("a container deleted while the far end is stopped", End::Far, harm);
}

#[test]
fn the_near_store_is_lost() {
    let harm = |bed: &Bed| fs::remove_dir_all(bed.near.store()).unwrap();
    while_it_is_stopped("near store's directory deleted", End::Near, harm);
}

#[test]
fn the_far_store_is_lost() {
    let harm = |bed: &Bed| fs::remove_dir_all(bed.far.store()).unwrap();
    while_it_is_stopped("far store's directory deleted", End::Far, harm);
}

#[test]
fn the_peer_is_another_one_now() {
    let Some(mut bed) = Bed::new() else { return };
    both_ways(&bed);
    let open = Transfer::start(&bed.client, fetch_slowly(1, BYTES));
    open.is_at(MIB);
    let watch = bed.watch();
    let at = Instant::now();
    bed.far.site.kill();
    fs::remove_dir_all(&bed.far.site.dir).unwrap();
    bed.restart(End::Far);
    bed.up(End::Far);
    assert!(!bed.whole_or_reset(open));
    // Nobody has said that this one may be trusted.
    sleep(Duration::from_secs(2));
    let strangers = watch.end(at, || bed.plain_ports());
    assert!(strangers.all_flow <= 0.6 && strangers.slowest <= THIRD_TRY + MARGIN, "{strangers:?}");
    let (_, port) = bed.whole(Transfer::start(&bed.client, fetch(1, BYTES)));
    assert!(bed.plain_ports().contains(&port) && strangers.again.is_none(), "{strangers:?}");

    let (watch, paired) = (bed.watch(), Instant::now());
    bed.near.site.ok("peer remove far --yes");
    bed.pair();
    bed.meet();
    sleep(Duration::from_millis(500));
    let seen = watch.end(paired, || bed.plain_ports());
    let first = both_ways(&bed);
    let second = both_ways(&bed);
    let note = format!("plain until paired; of {} bytes {first}, then {second} on the wire", 2 * BYTES);
    assert!(seen.slowest <= UNNOTICED, "{seen:?}");
    let seen = Seen { slowest: seen.slowest.max(strangers.slowest), flow: strangers.flow, ..seen };
    report("peer replaced: another identity, an empty store", bed.resets() + strangers.resets, &seen, &note);
    assert!(first > u64::from(BYTES) && second < KNOWN, "{first}, {second}");
}

/// Mounts a small file system, for the daemon that is started next on this thread, where its store is to be.
fn mount(site: &Site, mebibytes: u32) {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
    let store = site.dir.join("chunks");
    fs::create_dir_all(&store).unwrap();
    let size = format!("size={mebibytes}m");
    for arguments in
        [&["--make-rprivate", "/"][..], &["-t", "tmpfs", "-o", &size, "tmpfs", store.to_str().unwrap()]]
    {
        assert!(Command::new("mount").args(arguments).status().unwrap().success(), "{arguments:?}");
    }
}

#[test]
fn the_disk_gets_full() {
    let prepare = |site: &Site| mount(site, 24);
    let Some(bed) = Bed::wanted(Wanted { prepare, ..Wanted::default() }) else { return };
    let watch = bed.watch();
    let at = Instant::now();
    let before = bed.wire_bytes();
    for number in 0..6 {
        bed.optimises(fetch(10 + number, 2 * BYTES));
    }
    let first = bed.wire_bytes() - before;
    for number in 0..6 {
        bed.optimises(fetch(10 + number, 2 * BYTES));
    }
    let seen = watch.end(at, || bed.plain_ports());
    let second = bed.wire_bytes() - first - before;
    let note = format!("of {} bytes {first}, then {second} on the wire", 12 * BYTES);
    report("disk of both stores full", bed.resets() + seen.resets, &seen, &note);
    assert!(seen.resets == 0 && seen.is_mostly_optimised(), "{seen:?}");
    assert!(second < 12 * u64::from(BYTES) * 101 / 100, "{note}");
}

/// Fills the disk of the near store before a start, if this file is there.
const FILL: &str = "fill-the-disk";

#[test]
fn the_disk_is_full_at_the_start() {
    let prepare = |site: &Site| {
        mount(site, 64);
        if site.dir.join(FILL).exists() {
            let filled = fs::write(site.dir.join("chunks/other"), vec![1; 65 << 20]);
            assert_eq!(filled.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        }
    };
    let Some(mut bed) = Bed::wanted(Wanted { prepare, ..Wanted::default() }) else { return };
    both_ways(&bed);
    assert_eq!(bed.near.site.stop(), Some(0));
    fs::write(bed.near.site.dir.join(FILL), "").unwrap();
    let (watch, at) = (bed.watch(), Instant::now());
    bed.restart(End::Near);
    let is_told =
        || bed.near.site.json("accel status")["why"].as_str().is_some_and(|why| why.contains("space"));
    eventually("it says that the disk is full", is_told);
    bed.whole(Transfer::start(&bed.client, fetch(1, BYTES)));
    // As the daemon sees it.
    let other = format!("/proc/{}/root{}/other", bed.near.site.pid(), bed.near.store().display());
    fs::remove_file(other).unwrap();
    bed.meet();
    sleep(Duration::from_millis(500));
    let seen = watch.end(at, || bed.plain_ports());
    let (first, second) = (both_ways(&bed), both_ways(&bed));
    let note =
        format!("plain until there is room; of {} bytes {first}, then {second} on the wire", 2 * BYTES);
    report("disk of the near store full at the start", bed.resets() + seen.resets, &seen, &note);
    assert_eq!(seen.resets, 0, "{seen:?}");
    assert!(seen.slowest <= UNNOTICED && seen.again.is_some() && second < KNOWN, "{note} {seen:?}");
}
