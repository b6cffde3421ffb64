//! Any bytes as the file of a container: its chunks are right, or it is removed.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_chunks::fuzz::fuzz_container(bytes));
