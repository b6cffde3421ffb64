//! Any bytes as a guest's request, an inviter's reply, or a pairing code: decoded within their limits, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_peer::fuzz_pairing(bytes));
