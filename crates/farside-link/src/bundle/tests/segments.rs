//! Segments against spoilt bytes, and the layout against the committed ones. The corpus in `corpus/segments` is where
//! fuzzers start, too.

use std::path::PathBuf;

use bytes::Bytes;
use farside_platform::{Randomness, SeededRandomness};

use crate::bundle::segment::{Ack, Attach, HEADER_BYTES, Header, encode_abort, fuzz_segments};
use crate::limits::{SEGMENT_PAYLOAD_MAX, STREAM_BYTES_MAX};

fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let segment = |header: Header, payload: &[u8]| [&header.encode(), payload].concat();
    let data = |crowded| Header::Data { offset: 0x0102_0304, bytes: 5, crowded };
    let ack = Ack { limit: 0x0011_2233, position: 0x0044_5566 };
    let attach = Attach { bundle: [0x77; 16], opening: Bytes::from_static(b"opening") };
    let several = [
        segment(Header::Ack { contiguous: 0 }, &ack.encode()),
        segment(Header::Ping(9), b""),
        segment(data(true), b"hello"),
        segment(Header::End { offset: 0x0102_0309 }, b""),
        segment(Header::Leave, b""),
    ];
    vec![
        ("data", segment(data(false), b"hello")),
        ("data-crowded", segment(data(true), b"hello")),
        ("ack", segment(Header::Ack { contiguous: 0x0099_8877 }, &ack.encode())),
        ("end", segment(Header::End { offset: 0x0102_0309 }, b"")),
        ("ping", segment(Header::Ping(0x0a0b), b"")),
        ("pong", segment(Header::Pong(0x0a0b), b"")),
        ("attach", attach.encode().to_vec()),
        ("leave", segment(Header::Leave, b"")),
        ("abort", encode_abort("the session was lost")),
        ("several", several.concat()),
    ]
}

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus/segments")
}

/// The layout is frozen with version 2 of the session protocol: the committed bytes are what this build writes. Run with
/// `FARSIDE_WRITE_CORPUS=1` to write them anew.
#[test]
fn the_corpus_is_what_version_2_writes() {
    for (name, bytes) in samples() {
        let path = corpus().join(name);
        if std::env::var_os("FARSIDE_WRITE_CORPUS").is_some() {
            std::fs::create_dir_all(corpus()).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{}", path.display());
    }
}

/// Everything that is committed, what a fuzzer found included.
#[test]
fn the_corpus_is_replayed() {
    let mut files = 0;
    for file in std::fs::read_dir(corpus()).unwrap() {
        fuzz_segments(&std::fs::read(file.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files >= samples().len(), "{files} files");
}

#[test]
fn what_is_written_is_read_back() {
    let headers = [
        Header::Data { offset: 7, bytes: SEGMENT_PAYLOAD_MAX, crowded: true },
        Header::Data { offset: STREAM_BYTES_MAX - 1, bytes: 1, crowded: false },
        Header::Ack { contiguous: STREAM_BYTES_MAX },
        Header::End { offset: 0 },
        Header::Ping(u64::MAX),
        Header::Pong(u64::MAX),
        Header::Attach { bytes: 16 },
        Header::Leave,
        Header::Abort { bytes: 0 },
    ];
    for header in headers {
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
}

#[test]
fn what_a_kind_cannot_have_is_refused_by_its_header() {
    let spoilt = |header: Header, at: usize, to: u8| {
        let mut bytes = header.encode();
        bytes[at] = to;
        Header::decode(&bytes)
    };
    let data = Header::Data { offset: 0, bytes: 1, crowded: false };
    // Kinds, flags, the zero, lengths, offsets.
    assert!(spoilt(data, 0, 0).is_err() && spoilt(data, 0, 9).is_err());
    assert!(spoilt(data, 1, 2).is_err() && spoilt(Header::Leave, 1, 1).is_err());
    assert!(spoilt(data, 2, 1).is_err() && spoilt(data, 3, 1).is_err());
    assert!(spoilt(data, 4, 0).is_err() && spoilt(data, 6, 1).is_err() && spoilt(data, 7, 0x80).is_err());
    assert!(spoilt(Header::Ping(1), 4, 1).is_err() && spoilt(Header::Leave, 8, 1).is_err());
    assert!(spoilt(Header::Ack { contiguous: 0 }, 4, 15).is_err());
    assert!(spoilt(Header::Attach { bytes: 16 }, 4, 15).is_err());
    assert!(spoilt(Header::Abort { bytes: 1 }, 5, 3).is_err());
    assert!(spoilt(data, 15, 0x40).is_err() && spoilt(Header::End { offset: 1 }, 15, 0x40).is_err());
    let mut limit = Ack { limit: 0, position: 0 }.encode();
    limit[7] = 0x80;
    assert!(Ack::decode(&limit).is_err());
}

#[tokio::test]
async fn an_idle_lane_waits_for_an_attach_and_nothing_else() {
    let attach = Attach { bundle: [3; 16], opening: Bytes::from_static(b"what for") };
    let bytes = [&attach.encode()[..], b"the next segment"].concat();
    let mut io = &bytes[..];
    assert_eq!(Attach::read(&mut io).await.unwrap(), Some(attach));
    assert_eq!(io, b"the next segment");
    assert_eq!(Attach::read(&mut &b""[..]).await.unwrap(), None);
    assert!(Attach::read(&mut &bytes[..HEADER_BYTES + 3]).await.is_err());
    assert!(Attach::read(&mut &Header::Ping(1).encode()[..]).await.is_err());
}

#[test]
fn a_reason_is_tamed_and_cut() {
    let long = "ü\n".repeat(1000);
    let abort = encode_abort(&long);
    let header = Header::decode(abort.first_chunk().unwrap()).unwrap();
    assert_eq!(header.payload_bytes(), abort.len() - HEADER_BYTES);
    fuzz_segments(&abort);
}

#[test]
fn spoilt_bytes_are_an_error_and_never_a_panic() {
    let seed = 0x73_65_67_6d;
    println!("seed {seed}");
    let random = SeededRandomness::new(seed);
    let seeds: Vec<Vec<u8>> = samples().into_iter().map(|(_, bytes)| bytes).collect();
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
        fuzz_segments(&bytes);
    }
}
