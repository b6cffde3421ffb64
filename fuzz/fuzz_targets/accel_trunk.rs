//! Any bytes as frames of a peer's box, in any order, on a trunk that carries flows: what is held of them is bounded, or the trunk ends.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_accel::trunk::fuzz_trunk(bytes));
