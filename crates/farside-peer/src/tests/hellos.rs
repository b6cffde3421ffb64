//! Hello, answer, control frames and pairing messages against spoilt bytes. The corpora in `corpus/` are where fuzzers start, too.

use std::path::PathBuf;

use bytes::Bytes;
use farside_platform::{Randomness, SeededRandomness};
use prost::Message;

use crate::control::{self, Body, MoreLanes, OpenBundle, Opening, Payload, RefusedCall, RefusedStream};
use crate::hello::{
    Answer, HELLO_BYTES, Hello, HelloError, Role, Service, VERSIONS, Verdict, check_name, common_version,
    parse_answer, parse_hello,
};
use crate::pairing::protocol::samples as pairing_samples;
use crate::{fuzz_control, fuzz_hello, fuzz_pairing};

fn hello(role: Role) -> Hello {
    Hello {
        versions: (2, 2),
        role,
        service: Service::Storage,
        session: [0x11; 16],
        instance: [0x33; 16],
        site_name: "hauptsitz-zürich".to_owned(),
    }
}

fn answer(verdict: Verdict) -> Answer {
    let version = if verdict == Verdict::Welcome { 2 } else { 0 };
    Answer { versions: (2, 2), verdict, version, instance: [0x44; 16], says: String::new() }
}

fn key_in_use() -> Answer {
    Answer { says: "2001:db8::7".to_owned(), ..answer(Verdict::KeyInUse) }
}

fn of_accelerator() -> Hello {
    Hello { service: Service::Accelerator, ..hello(Role::Control) }
}

fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let mut newer = hello(Role::Control);
    newer.versions = (2, 9);
    vec![
        ("control", hello(Role::Control).encode().to_vec()),
        ("pairing", hello(Role::Pairing).encode().to_vec()),
        ("newer-version", newer.encode().to_vec()),
        ("truncated", hello(Role::Control).encode()[..77].to_vec()),
        ("welcome", answer(Verdict::Welcome).encode().to_vec()),
        ("lane", hello(Role::Lane).encode().to_vec()),
        ("unknown-key", answer(Verdict::UnknownKey).encode().to_vec()),
        ("accelerator", of_accelerator().encode().to_vec()),
        ("other-service", answer(Verdict::OtherService).encode().to_vec()),
        ("key-in-use", key_in_use().encode().to_vec()),
    ]
}

fn corpus(of: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(of)
}

/// An opening as a peer may write it that knows no more than these fields.
fn opening(low_priority: bool) -> Opening {
    let low_priority: &[u8] = if low_priority { b"\x18\x01" } else { b"" };
    Opening::decode(&[b"\x08\x01\x12\x04echo", low_priority].concat()[..]).unwrap()
}

/// Control frames of every kind, what opens a bundle, and pairing messages.
fn frames() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let id = 7;
    let bundle = || Bytes::from_static(&[0x22; 16]);
    let payload = || Payload { id, body: Bytes::from_static(b"request") };
    let refused = RefusedCall { id, code: "state".to_owned(), message: "später".to_owned() };
    let not_taken =
        RefusedStream { bundle: Bytes::from_static(&[0x22; 16]), reason: "unreachable".to_owned() };
    let control = [
        ("call", Body::Call(payload())),
        ("answer", Body::Answer(payload())),
        ("refused", Body::Refused(refused)),
        ("ping", Body::Ping(u64::MAX)),
        ("pong", Body::Pong(1)),
        ("stream-refused", Body::StreamRefused(not_taken)),
        ("close", Body::Close("the site is shutting down".to_owned())),
        ("open-bundle", Body::OpenBundle(OpenBundle { bundle: bundle(), opening: opening(true) })),
        ("more-lanes", Body::MoreLanes(MoreLanes { bundle: bundle(), lanes: 7 })),
    ];
    let openings = [("opening", opening(false)), ("opening-low-priority", opening(true))]
        .map(|(name, opening)| ("control", name, opening.encode_to_vec()));
    // The fuzzer's frames have no length before them.
    let control = control.map(|(name, body)| ("control", name, control::encode(body)[4..].to_vec()));
    let pairing = pairing_samples().map(|(name, bytes)| ("pairing", name, bytes));
    control.into_iter().chain(openings).chain(pairing).collect()
}

/// Frames and messages of this version are these bytes. `FARSIDE_WRITE_CORPUS=1` writes them anew.
#[test]
fn frames_and_pairing_messages_are_the_committed_bytes() {
    for (of, name, bytes) in frames() {
        let path = corpus(of).join(name);
        if std::env::var_os("FARSIDE_WRITE_CORPUS").is_some() {
            std::fs::create_dir_all(corpus(of)).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{}", path.display());
    }
}

/// Everything that is committed, what a fuzzer found included.
#[test]
fn the_corpora_are_replayed() {
    for of in ["hello", "control", "pairing"] {
        let mut files = 0;
        for file in std::fs::read_dir(corpus(of)).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            fuzz_hello(&bytes);
            fuzz_control(&bytes);
            fuzz_pairing(&bytes);
            files += 1;
        }
        assert!(files > 0, "{of}");
    }
}

/// The layout is frozen: the committed bytes are what this build writes. Run with
/// `FARSIDE_WRITE_CORPUS=1` to write them anew.
#[test]
fn the_corpus_is_what_this_build_writes() {
    for (name, bytes) in samples() {
        let path = corpus("hello").join(name);
        if std::env::var_os("FARSIDE_WRITE_CORPUS").is_some() {
            std::fs::create_dir_all(corpus("hello")).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{}", path.display());
    }
}

#[test]
fn what_is_written_is_read_back() {
    for role in [Role::Control, Role::Pairing, Role::Lane] {
        assert_eq!(parse_hello(&hello(role).encode(), &VERSIONS), Ok(hello(role)));
    }
    assert_eq!(parse_hello(&of_accelerator().encode(), &VERSIONS), Ok(of_accelerator()));
    // What version 1 had for its data streams is nobody's any more.
    for (at, byte) in [(12, 2), (13, 1), (15, 2), (32, 1), (47, 1)] {
        let mut bytes = hello(Role::Control).encode();
        bytes[at] = byte;
        assert!(matches!(parse_hello(&bytes, &VERSIONS), Err(HelloError::Malformed(_))), "byte {at}");
    }
    for verdict in [
        Verdict::Welcome,
        Verdict::Version,
        Verdict::UnknownKey,
        Verdict::Busy,
        Verdict::NoSuchSession,
        Verdict::OtherService,
        // Of a site of a later version: a refusal, whatever it is for.
        Verdict::Unknown(9),
        Verdict::Unknown(255),
    ] {
        assert_eq!(parse_answer(&answer(verdict).encode(), &VERSIONS), Ok(answer(verdict)));
    }
    assert_eq!(parse_answer(&key_in_use().encode(), &VERSIONS), Ok(key_in_use()));
    for says in ["a b", "a\nb", "ü"] {
        let spoilt = Answer { says: says.to_owned(), ..key_in_use() };
        assert!(
            matches!(parse_answer(&spoilt.encode(), &VERSIONS), Err(HelloError::Malformed(_))),
            "{says:?}"
        );
    }
}

#[test]
fn versions_are_read_from_whatever_a_newer_site_sends() {
    let mut bytes = [0xee; HELLO_BYTES];
    bytes[..8].copy_from_slice(b"farsideH");
    bytes[8..12].copy_from_slice(&[3, 0, 9, 0]);
    assert_eq!(parse_hello(&bytes, &VERSIONS), Err(HelloError::OtherVersions(3, 9)));
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
    seeds.extend(frames().into_iter().map(|(_, _, bytes)| bytes));
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
        fuzz_pairing(&bytes);
    }
}
