//! Any bytes as a queued packet: read, or let pass as it is.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drop(farside_accel::packet::parse(bytes)));
