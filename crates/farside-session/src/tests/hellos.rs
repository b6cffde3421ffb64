//! Hello, answer and control frames against spoilt bytes. The corpus in `corpus/` is where fuzzers start, too.

use std::path::PathBuf;

use farside_platform::{Randomness, SeededRandomness};

use crate::hello::{
    Answer, HELLO_BYTES, Hello, HelloError, Role, VERSIONS, Verdict, check_name, common_version,
    parse_answer, parse_hello,
};
use crate::{fuzz_control, fuzz_hello};

fn hello(role: Role) -> Hello {
    Hello {
        versions: (1, 1),
        role,
        session: [0x11; 16],
        ticket: [0x22; 16],
        instance: [0x33; 16],
        site_name: "hauptsitz-zürich".to_owned(),
    }
}

fn answer(verdict: Verdict) -> Answer {
    let version = u16::from(verdict == Verdict::Welcome);
    Answer { versions: (1, 1), verdict, version, instance: [0x44; 16], site_name: String::new() }
}

fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let mut newer = hello(Role::Control);
    newer.versions = (2, 9);
    vec![
        ("control", hello(Role::Control).encode().to_vec()),
        ("data", hello(Role::Data { asked_for: false }).encode().to_vec()),
        ("data-asked-for", hello(Role::Data { asked_for: true }).encode().to_vec()),
        ("pairing", hello(Role::Pairing).encode().to_vec()),
        ("newer-version", newer.encode().to_vec()),
        ("truncated", hello(Role::Control).encode()[..77].to_vec()),
        ("welcome", answer(Verdict::Welcome).encode().to_vec()),
        ("unknown-key", answer(Verdict::UnknownKey).encode().to_vec()),
    ]
}

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus/hello")
}

/// The layout is frozen with version 1: the committed bytes are what this build writes. Run with
/// `FARSIDE_WRITE_CORPUS=1` to write them anew.
#[test]
fn the_corpus_is_what_version_1_writes() {
    for (name, bytes) in samples() {
        let path = corpus().join(name);
        if std::env::var_os("FARSIDE_WRITE_CORPUS").is_some() {
            std::fs::create_dir_all(corpus()).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{}", path.display());
    }
}

#[test]
fn what_is_written_is_read_back() {
    for role in
        [Role::Control, Role::Data { asked_for: false }, Role::Data { asked_for: true }, Role::Pairing]
    {
        assert_eq!(parse_hello(&hello(role).encode(), &VERSIONS), Ok(hello(role)));
    }
    for verdict in
        [Verdict::Welcome, Verdict::Version, Verdict::UnknownKey, Verdict::Busy, Verdict::NoSuchSession]
    {
        assert_eq!(parse_answer(&answer(verdict).encode(), &VERSIONS), Ok(answer(verdict)));
    }
}

#[test]
fn versions_are_read_from_whatever_a_newer_site_sends() {
    let mut bytes = [0xee; HELLO_BYTES];
    bytes[..8].copy_from_slice(b"farsideH");
    bytes[8..12].copy_from_slice(&[2, 0, 9, 0]);
    assert_eq!(parse_hello(&bytes, &VERSIONS), Err(HelloError::OtherVersions(2, 9)));
    assert_eq!(common_version(&(1..=3), (2, 9)), Some(3));
    assert_eq!(common_version(&(1..=3), (1, 2)), Some(2));
    assert_eq!(common_version(&(1..=3), (4, 9)), None);
    assert_eq!(common_version(&(3..=4), (1, 2)), None);
}

#[test]
fn names_that_would_harm_a_log_are_refused() {
    for name in ["", "a b", "a\nb", "a/b", "a:b", "\u{1b}[31m", &"x".repeat(65)] {
        assert!(check_name(name).is_err(), "{name:?}");
    }
    let mut bytes = hello(Role::Control).encode();
    bytes[64] = b'\n';
    assert!(matches!(parse_hello(&bytes, &VERSIONS), Err(HelloError::Malformed(_))));
}

#[test]
fn spoilt_bytes_are_an_error_and_never_a_panic() {
    let seed = 0x68_65_6c_6c_6f;
    println!("seed {seed}");
    let random = SeededRandomness::new(seed);
    let mut seeds: Vec<Vec<u8>> = samples().into_iter().map(|(_, bytes)| bytes).collect();
    seeds.push(vec![0x0a, 0x05, 0x08, 0x07, 0x12, 0x01, 0x78]); // a call
    seeds.push(vec![0x1a, 0x09, 0x08, 0x07, 0x12, 0x01, 0x61, 0x1a, 0x02, 0xc3, 0xa4]); // a refusal
    for _ in 0..20_000 {
        let mut bytes = seeds[random.next_u64() as usize % seeds.len()].clone();
        for _ in 0..=random.next_u64() % 4 {
            let at = random.next_u64() as usize % bytes.len();
            match random.next_u64() % 4 {
                0 => bytes[at] ^= 1 << (random.next_u64() % 8),
                1 => bytes[at] = random.next_u64() as u8,
                2 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, random.next_u64() as u8),
            }
        }
        fuzz_hello(&bytes);
        fuzz_control(&bytes);
    }
}
