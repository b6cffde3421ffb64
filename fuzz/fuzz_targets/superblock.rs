//! Any 4 KiB as a superblock: decoded, or refused with an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_format::fuzz::fuzz_superblock(bytes));
