//! What travels of content that both sides hold somewhere: next to nothing, whether it was copied within what is sent or has
//! moved since the base; and what becomes of it when the index that finds it is lost.

use std::time::Duration;

use farside_engine::BLOCK_BYTES;
use farside_link::LinkSettings;
use farside_mirror::{Mirror, Schedule};
use farside_transfer::{Levels, TransferReport};
use rand::Rng;

use crate::embedded_storage::Embedded;
use crate::memory_engine::MemoryEngine;
use crate::site::{Pair, Storage, assert_ok, slow};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 16 * MIB;

/// Bytes that do not compress.
fn noise<S: Storage>(pair: &mut Pair<S>, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    pair.rng.fill(&mut bytes[..]);
    bytes
}

/// The first 6 MiB hold what does not compress, which is returned.
async fn mirrored<S: Storage>(seed: u64) -> (Pair<S>, Mirror, Vec<u8>) {
    let mut pair = Pair::<S>::with_storage(seed, SIZE, LinkSettings::default()).await;
    let content = noise(&mut pair, 6 * MIB);
    pair.write(0, &content);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    let report = pair.initialize(&mirror).await;
    assert_ok(&report);
    assert!(report.wire_bytes_received > 6 * MIB, "it does not compress");
    pair.check_replica();
    (pair, mirror, content)
}

fn levels(report: &TransferReport) -> Levels {
    let levels = report.levels.unwrap();
    assert_eq!(levels.in_bytes(), report.changed_bytes, "{levels:?}");
    levels
}

/// What an update costs whose new content the base holds elsewhere.
#[track_caller]
fn assert_cheap(report: &TransferReport) {
    assert_ok(report);
    let wire_bytes = report.wire_bytes_received;
    assert!(
        wire_bytes < report.changed_bytes / 25,
        "{wire_bytes} bytes for {} changed",
        report.changed_bytes
    );
}

async fn moved<S: Storage>(seed: u64) {
    let (mut pair, mirror, content) = mirrored::<S>(seed).await;
    // Copied by blocks, then by no multiple of anything, as a program writes a file anew.
    pair.write(8 * MIB, &content[..4 << 20]);
    let report = pair.update(&mirror).await;
    assert_cheap(&report);
    assert_eq!((report.changed_bytes, report.source_read_bytes), (4 * MIB, 4 * MIB));
    assert!(report.base_read_bytes > 0);
    pair.check_replica();
    let mut shifted = noise(&mut pair, 4 * MIB);
    shifted[777..].copy_from_slice(&content[2 << 20..(6 << 20) - 777]);
    pair.write(12 * MIB, &shifted);
    assert_cheap(&pair.update(&mirror).await);
    // Moved for good: where it was there is something else.
    let other = noise(&mut pair, 6 * MIB);
    pair.write(0, &other);
    let report = pair.update(&mirror).await;
    assert_ok(&report);
    assert!(report.wire_bytes_received > 6 * MIB, "nothing like it was there");
    pair.write(8 * MIB, &other[..4 << 20]);
    assert_cheap(&pair.update(&mirror).await);
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn content_that_moved_costs_about_nothing() {
    moved::<MemoryEngine>(700).await;
}

#[tokio::test(start_paused = true)]
async fn content_that_moved_costs_about_nothing_on_the_embedded_store() {
    moved::<Embedded>(701).await;
}

async fn moved_by_half_a_block<S: Storage>(seed: u64) {
    let (mut pair, mirror, content) = mirrored::<S>(seed).await;
    // A CD image whose files are compressed: the second is a little longer now, all that follow moved by a sector of 2 KiB, and
    // some MiB at the end are new.
    let mut image = content[..1 << 20].to_vec();
    image.extend(noise(&mut pair, 2048));
    image.extend_from_slice(&content[1 << 20..]);
    image.extend(noise(&mut pair, 6 * MIB - 2048));
    pair.write(0, &image);
    let report = pair.update(&mirror).await;
    assert_ok(&report);
    assert_eq!(report.changed_bytes, 11 * MIB);
    let moved_bytes = report.wire_bytes_received.saturating_sub(6 * MIB);
    assert!(moved_bytes < 5 * MIB / 25, "{moved_bytes} bytes for what moved");
    pair.check_replica();
    // Behind some MiB that are new the rest moves again, by 512 bytes.
    let mut image = [&noise(&mut pair, 6 * MIB), &image[(6 << 20) + 512..]].concat();
    image.extend(noise(&mut pair, 512));
    pair.write(0, &image);
    let report = pair.update(&mirror).await;
    assert_ok(&report);
    let moved_bytes = report.wire_bytes_received.saturating_sub(6 * MIB);
    assert!(moved_bytes < 6 * MIB / 25, "{moved_bytes} bytes for what moved");
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn compressed_content_that_moved_by_half_a_block_costs_about_nothing() {
    moved_by_half_a_block::<MemoryEngine>(705).await;
}

#[tokio::test(start_paused = true)]
async fn compressed_content_that_moved_by_half_a_block_costs_about_nothing_on_the_embedded_store() {
    moved_by_half_a_block::<Embedded>(706).await;
}

async fn repeated<S: Storage>(seed: u64) {
    let mut pair = Pair::<S>::with_storage(seed, SIZE, LinkSettings::default()).await;
    let content = noise(&mut pair, 4 * MIB);
    for copy in 0..3 {
        pair.write(copy * 5 * MIB, &content);
    }
    let mirror = pair.mirror(Schedule::OnRequest).await;
    let report = pair.initialize(&mirror).await;
    assert_ok(&report);
    assert_eq!((report.changed_bytes, report.source_read_bytes), (12 * MIB, 4 * MIB));
    let levels = levels(&report);
    assert_eq!((levels.repeat.in_bytes, levels.raw.in_bytes), (8 * MIB, 4 * MIB));
    assert!(levels.repeat.out_bytes < 200 && report.wire_bytes_received < 4 * MIB + 100_000, "{report:?}");
    pair.check_replica();
    // Another snapshot, of which everything repeats itself, block by block in another order.
    let blocks: Vec<&[u8]> = content.chunks(BLOCK_BYTES as usize).collect();
    let turned: Vec<u8> = blocks.iter().rev().take(512).flat_map(|b| b.to_vec()).collect();
    let fresh = noise(&mut pair, MIB);
    pair.write(0, &fresh);
    pair.write(2 * MIB, &turned);
    pair.write(10 * MIB, &turned);
    pair.write(14 * MIB, &fresh);
    let report = pair.update(&mirror).await;
    assert_ok(&report);
    assert_eq!((report.changed_bytes, report.source_read_bytes), (6 * MIB, 3 * MIB));
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_once_is_named_and_not_read_again() {
    repeated::<MemoryEngine>(710).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_once_is_named_and_not_read_again_on_the_embedded_store() {
    repeated::<Embedded>(711).await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_repeats_goes_on_where_it_was_cut() {
    let mut pair = Pair::new(720, SIZE, slow()).await;
    let content = noise(&mut pair, 4 * MIB);
    for copy in 0..3 {
        pair.write(copy * 5 * MIB, &content);
        let own = noise(&mut pair, MIB);
        pair.write(copy * 5 * MIB + 4 * MIB, &own);
    }
    let mirror = pair.mirror(Schedule::OnRequest).await;
    let asked = mirror.initialize(Duration::from_secs(60)).await.unwrap();
    let mut progress = mirror.progress();
    for cut_at in [2, 7, 9] {
        progress.wait_for(|p| p.as_ref().is_some_and(|p| p.done_bytes >= cut_at * MIB)).await.unwrap();
        pair.lose_session().await;
    }
    let report = asked.ended().await.unwrap();
    assert_ok(&report);
    assert!(report.resumed && report.resumed_bytes > 0);
    pair.model.insert(report.id, pair.live.clone());
    pair.check_replica();
}

/// Waits until the source has an index of its volume again that a restart would not lose.
async fn rebuilt<S: Storage>(pair: &Pair<S>) {
    let volume = pair.a.disk.engine.engine().volume(&pair.original).unwrap().uuid;
    let is_there = || pair.a.disk.similarity.files().get(&volume).is_some_and(|file| file.len() > 100);
    for _ in 0..1000 {
        if is_there() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the index was not rebuilt");
}

async fn lost<S: Storage>(seed: u64) {
    let (mut pair, mirror, content) = mirrored::<S>(seed).await;
    rebuilt(&pair).await;
    for (round, spoilt) in [None, Some(vec![7; 50]), Some(Vec::new())].into_iter().enumerate() {
        {
            let mut files = pair.a.disk.similarity.files();
            let volume = *files.keys().next().unwrap();
            match spoilt {
                None => files.remove(&volume),
                Some(garbage) => files.insert(volume, garbage),
            };
        }
        pair.a.disk.engine.flush();
        pair.crash_a(0).await;
        // Whatever it costs, the replica is right.
        let at = (7 + 3 * round as u64) * MIB;
        pair.write(at, &content[..1 << 20]);
        assert_ok(&pair.update(&mirror).await);
        pair.check_replica();
        rebuilt(&pair).await;
        pair.write(at + MIB, &content[1 << 20..3 << 20]);
        assert_cheap(&pair.update(&mirror).await);
        pair.check_replica();
    }
    // What was saved is there after a restart.
    pair.a.disk.engine.flush();
    pair.crash_a(0).await;
    let reversed: Vec<u8> = content[3 << 20..6 << 20].chunks(1 << 16).rev().flatten().copied().collect();
    pair.write(7 * MIB, &reversed);
    assert_cheap(&pair.update(&mirror).await);
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn an_index_that_is_lost_or_spoilt_is_rebuilt_and_costs_bytes_only() {
    lost::<MemoryEngine>(730).await;
}

#[tokio::test(start_paused = true)]
async fn an_index_that_is_lost_or_spoilt_is_rebuilt_on_the_embedded_store() {
    lost::<Embedded>(731).await;
}

#[tokio::test(start_paused = true)]
async fn what_frames_refer_to_may_be_damaged_on_either_side() {
    let (mut pair, mirror, content) = mirrored::<MemoryEngine>(740).await;
    for (round, damage) in ["other bytes", "unreadable", "unreadable at the source"].into_iter().enumerate() {
        let base = mirror.status().current.unwrap().uuid;
        pair.write((7 + 2 * round as u64) * MIB, &content[..1 << 20]);
        match damage {
            "other bytes" => pair.b.disk.engine.faults.lock().flip_reads_of = Some(base),
            "unreadable" => pair.b.disk.engine.faults.lock().fail_reads_of = Some(base),
            _ => pair.a.disk.engine.faults.lock().fail_reads_of = Some(base),
        }
        let report = pair.update(&mirror).await;
        assert_ok(&report);
        assert_eq!((report.delta_bytes, report.changed_bytes), (0, MIB), "{damage}");
        *pair.b.disk.engine.faults.lock() = Default::default();
        *pair.a.disk.engine.faults.lock() = Default::default();
        pair.check_replica();
    }
}
