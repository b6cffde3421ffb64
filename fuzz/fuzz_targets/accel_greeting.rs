//! Any bytes as what comes before a trunk: a probe's datagram, and the header of a stream.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    farside_accel::protocol::fuzz_probe(bytes);
    farside_accel::trunk::fuzz_header(bytes);
});
