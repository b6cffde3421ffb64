//! Any bytes as a journal batch: decoded, or the end of the journal.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_format::fuzz::fuzz_journal_record(bytes));
