//! Any bytes as lines on the socket between the daemon and the accelerator's process, of either side.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_accel::requests::fuzz_control(bytes));
