//! Pools that are whole, and pools as a power failure leaves them: no error, and the right contents.

mod pool_writer;

use farside_check::{CheckOptions, JournalEnd, Report, Severity, What, check};
use pool_writer::*;

fn run(story: &Story) -> Report {
    check(&story.writer.disk, &CheckOptions::default()).expect("a superblock is left")
}

fn assert_replayed(report: &Report, story: &Story) {
    let versions = report.versions_after_replay.as_ref().expect("replay is on");
    assert_eq!(versions.len(), story.replayed.len(), "{report}");
    for version in versions {
        let (blocks, size) = &story.replayed[&version.id];
        assert_eq!(version.size_bytes, *size);
        assert_eq!(version.content_root, Some(root_of(blocks, *size)), "version {}\n{report}", version.id);
    }
}

#[test]
fn a_whole_pool_has_no_findings_and_the_contents_written() {
    let story = story(|_, _, _| {});
    let report = run(&story);
    assert_eq!(report.findings, [], "{report}");
    assert!(report.is_clean());
    assert_eq!(report.generation, 2);
    assert_eq!(report.snapshots().map(|s| s.snapshot.as_deref()).collect::<Vec<_>>(), [Some("monday")]);
    assert_eq!(report.versions.len(), 3);
    for version in &report.versions {
        let blocks = &story.contents.blocks[&version.id];
        assert_eq!(version.mapped_blocks, Some(blocks.len() as u64), "{report}");
        assert_eq!(version.content_root, Some(root_of(blocks, version.size_bytes)), "{report}");
    }
    assert_eq!((report.journal.batches, report.journal.records, report.journal.proven), (2, 3, Some(5)));
    assert_replayed(&report, &story);
    assert!(report.to_string().contains("alpha@monday"), "{report}");
}

#[test]
fn either_superblock_alone_gives_the_same_contents() {
    for slot in [0, 256] {
        let story = story(|_, _, _| {});
        story.writer.disk.damage(slot * BLOCK + 60, &[0xee]);
        let report = run(&story);
        let kinds: Vec<_> = report.findings.iter().map(|f| (f.severity, f.what)).collect();
        assert_eq!(kinds, [(Severity::Warning, What::Superblock)], "{report}");
        assert!(report.is_clean());
        assert_replayed(&report, &story);
    }
}

#[test]
fn a_lost_write_of_the_newest_superblock_loses_nothing() {
    let story = story(|_, _, _| {});
    let older = story.writer.disk.peek(0, BLOCK as usize);
    story.writer.disk.damage(256 * BLOCK, &older);
    let report = run(&story);
    assert_eq!(report.findings, [], "{report}");
    assert_eq!(report.generation, 1);
    assert_replayed(&report, &story);
}

#[test]
fn an_unproven_end_of_the_journal_is_no_error() {
    // The last batch torn: the superblock alone proves what is before it.
    let torn = story(|_, _, _| {});
    let (_, place) = *torn.writer.batches.last().unwrap();
    torn.writer.disk.damage(place * BLOCK + 140, &[0xee]);
    let report = run(&torn);
    assert_eq!(report.findings, [], "{report}");
    assert_eq!(report.journal.batches, 1);
    assert!(matches!(report.journal.end, JournalEnd::NoBatch(_)), "{report}");

    // Its data never arrived.
    let story = story(|_, _, _| {});
    story.writer.disk.damage(story.tail_data[1] * BLOCK, &[0; BLOCK as usize]);
    let report = run(&story);
    assert_eq!(report.findings, [], "{report}");
    assert_eq!(report.journal.batches, 1);
    assert!(matches!(report.journal.end, JournalEnd::Data(_)), "{report}");
}

#[test]
fn metadata_alone_costs_less_and_still_says_what_is_there() {
    let story = story(|_, _, _| {});
    let whole = run(&story);
    let options = CheckOptions { read_data: false, ..CheckOptions::default() };
    let quick = check(&story.writer.disk, &options).unwrap();
    assert_eq!(quick.findings, [], "{quick}");
    assert_eq!(quick.versions_after_replay, whole.versions_after_replay);
    // 206 blocks of data, read once though two points refer to most of them, and two blocks of a proven batch.
    assert!(quick.bytes_read + 206 * BLOCK <= whole.bytes_read, "{} {}", quick.bytes_read, whole.bytes_read);
    assert!(whole.bytes_read <= quick.bytes_read + 215 * BLOCK, "{} {}", quick.bytes_read, whole.bytes_read);
}

#[test]
fn a_device_that_holds_no_pool_is_refused() {
    let small = farside_platform::SimulatedDisk::new("small", 16 * BLOCK);
    assert!(
        check(&small, &CheckOptions::default()).unwrap_err().to_string().contains("holds no farside pool")
    );
    let zeros = farside_platform::SimulatedDisk::new("zeros", POOL_BLOCKS * BLOCK);
    assert!(
        check(&zeros, &CheckOptions::default()).unwrap_err().to_string().contains("no usable superblock")
    );
}
