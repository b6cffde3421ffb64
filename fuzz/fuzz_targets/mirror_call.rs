//! Any bytes as a call between the sides of a mirror, or an answer to one: taken in form, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_transfer::fuzz::fuzz_call(bytes));
