use std::collections::BTreeMap;

use super::*;
use crate::record::Cell;

fn record(repetition: u32) -> RunRecord {
    RunRecord {
        version: RECORD_VERSION,
        cell: Cell {
            link: "l".to_owned(),
            data: None,
            contender: "ping".to_owned(),
            congestion: "cubic".to_owned(),
        },
        repetition,
        seed: (1 << 53) - 1,
        digest: "d".to_owned(),
        started: "2026-11-22T00:00:00Z".to_owned(),
        whole_seconds: 1.25,
        versions: BTreeMap::new(),
        phases: Vec::new(),
        failed: None,
        slow: None,
    }
}

/// A directory with a journal of three records, and the journal's bytes.
fn three() -> (tempfile::TempDir, Vec<u8>) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut journal = Journal::open(directory.path()).expect("a new journal");
    for repetition in 1..=3 {
        journal.append(record(repetition)).expect("append");
    }
    let bytes = fs::read(directory.path().join(JOURNAL_FILE)).expect("the journal");
    (directory, bytes)
}

fn repetitions(records: &[RunRecord]) -> Vec<u32> {
    records.iter().map(|record| record.repetition).collect()
}

#[test]
fn what_is_appended_is_there_when_opened_again() {
    let (directory, _) = three();
    let journal = Journal::open(directory.path()).expect("open again");
    assert_eq!(journal.records(), [record(1), record(2), record(3)]);
    assert!(!journal.dropped_torn_line());
    assert_eq!(read_records(directory.path()).expect("read beside"), journal.records());
}

#[test]
fn wherever_the_last_line_is_torn_the_records_before_it_stay_and_the_next_one_is_whole() {
    let (directory, bytes) = three();
    let path = directory.path().join(JOURNAL_FILE);
    let second_ends =
        bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(1).expect("two lines").0 + 1;
    for length in second_ends..=bytes.len() {
        fs::write(&path, &bytes[..length]).expect("tear");
        let whole = length + 1 >= bytes.len(); // with or without its end of line
        let expected = if whole { vec![1, 2, 3] } else { vec![1, 2] };
        assert_eq!(repetitions(&read_records(directory.path()).expect("read")), expected, "{length} bytes");
        let mut journal = Journal::open(directory.path()).expect("open a torn journal");
        assert_eq!(repetitions(journal.records()), expected, "{length} bytes");
        assert_eq!(journal.dropped_torn_line(), length > second_ends && !whole, "{length} bytes");
        journal.append(record(9)).expect("append after a tear");
        drop(journal);
        let again = Journal::open(directory.path()).expect("open");
        assert_eq!(again.records().last(), Some(&record(9)), "{length} bytes");
        assert_eq!(again.records().len(), expected.len() + 1);
    }
}

#[test]
fn zeros_that_a_crash_left_in_place_of_the_last_line_are_dropped_too() {
    let (directory, bytes) = three();
    let path = directory.path().join(JOURNAL_FILE);
    for tail in [&[0; 100][..], b"\0\0\0\n", b"{\"version\":1\n"] {
        fs::write(&path, [&bytes[..], tail].concat()).expect("write");
        let journal = Journal::open(directory.path()).expect("open");
        assert!(journal.dropped_torn_line());
        drop(journal);
        assert_eq!(fs::read(&path).expect("read"), bytes);
    }
}

#[test]
fn damage_before_the_last_line_is_an_error_that_changes_nothing() {
    let (directory, mut bytes) = three();
    let path = directory.path().join(JOURNAL_FILE);
    bytes[0] = b'#';
    fs::write(&path, &bytes).expect("damage");
    let error = Journal::open(directory.path()).expect_err("damaged");
    assert!(matches!(error, JournalError::Damaged { line: 1, .. }), "{error}");
    assert!(error.to_string().contains("--fresh"), "{error}");
    assert_eq!(fs::read(&path).expect("read"), bytes);
    let aside = set_all_aside(directory.path()).expect("set aside").expect("there was one");
    assert_eq!(fs::read(aside).expect("read"), bytes);
    assert_eq!(Journal::open(directory.path()).expect("open").records(), []);
    assert_eq!(set_all_aside(directory.path()).expect("nothing to do"), None);
}

#[test]
fn records_of_another_version_are_refused() {
    let (directory, _) = three();
    let path = directory.path().join(JOURNAL_FILE);
    let mut newer = record(4);
    newer.version = RECORD_VERSION + 1;
    let mut text = serde_json::to_string(&newer).expect("json");
    text.push('\n');
    fs::write(&path, text).expect("write");
    let error = Journal::open(directory.path()).expect_err("another version");
    assert!(matches!(error, JournalError::Version { line: 1, .. }), "{error}");
}

#[test]
fn what_is_set_aside_is_moved_and_kept_under_the_next_number() {
    let (directory, _) = three();
    let mut journal = Journal::open(directory.path()).expect("open");
    let first = journal.set_aside(|record| record.repetition == 2).expect("set aside").expect("one");
    assert_eq!(first, directory.path().join("runs.jsonl.1"));
    assert_eq!(repetitions(journal.records()), [1, 3]);
    journal.append(record(4)).expect("append after");
    assert_eq!(journal.set_aside(|_| false).expect("nothing"), None);
    let second = journal.set_aside(|_| true).expect("set aside").expect("all");
    assert_eq!(second, directory.path().join("runs.jsonl.2"));
    drop(journal);
    let read_back = |path: &Path| {
        let text = fs::read(path).expect("read");
        repetitions(&read(path, &text).expect("records").records)
    };
    assert_eq!(read_back(&first), [2]);
    assert_eq!(read_back(&second), [1, 3, 4]);
    assert_eq!(Journal::open(directory.path()).expect("open").records(), []);
}

#[test]
fn two_processes_do_not_write_one_journal() {
    let (directory, _) = three();
    let _first = Journal::open(directory.path()).expect("open");
    let second = Journal::open(directory.path()).expect_err("locked");
    assert!(matches!(second, JournalError::Busy { .. }), "{second}");
    assert!(matches!(set_all_aside(directory.path()), Err(JournalError::Busy { .. })));
    assert_eq!(read_records(directory.path()).expect("reading needs no lock").len(), 3);
}
