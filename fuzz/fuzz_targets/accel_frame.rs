//! Any bytes as what a peer's box says on a trunk: frames within their limits, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_accel::protocol::fuzz_frames(bytes));
