//! The fuzz entry points on stable Rust: the committed corpus, then seeded mutations of it for about a second.
#![allow(clippy::unwrap_used)] // a failure here is a failed test

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use farside_nbd::fuzz::{fuzz_option, fuzz_request};
use farside_platform::{OsRandomness, Randomness};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const HALF: Duration = Duration::from_millis(500);

/// No input grows beyond this by mutation.
const INPUT_BYTES_MAX: usize = 8192;

fn corpus(kind: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(kind);
    let entries =
        std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 5, "the corpus in {} is gone", directory.display());
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// Numbers on which lengths and offsets turn.
const EDGES: [u32; 8] = [0, 1, 4095, 4096, 4097, 32 << 20, (32 << 20) + 1, u32::MAX];

fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut StdRng) {
    for _ in 0..random.random_range(1..=4) {
        let at = random.random_range(0..=bytes.len());
        match random.random_range(0..6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
            1 if at + 4 <= bytes.len() => {
                let edge = EDGES[random.random_range(0..EDGES.len())];
                bytes[at..at + 4].copy_from_slice(&edge.to_be_bytes());
            }
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.random()),
            4 => {
                let from = random.random_range(0..=other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => bytes.extend_from_within(at..),
        }
        bytes.truncate(INPUT_BYTES_MAX);
    }
}

fn run(kind: &str, entry: fn(&[u8])) {
    let seed = std::env::var("FARSIDE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| OsRandomness.next_u64());
    println!("{kind}: seed {seed} (FARSIDE_SEED={seed} repeats this run)");
    let corpus = corpus(kind);
    corpus.iter().for_each(|input| entry(input));
    let mut random = StdRng::seed_from_u64(seed);
    let begin = Instant::now();
    let mut inputs = 0;
    while begin.elapsed() < HALF {
        let mut input = corpus[random.random_range(0..corpus.len())].clone();
        let other = &corpus[random.random_range(0..corpus.len())];
        mutate(&mut input, other, &mut random);
        let outcome = std::panic::catch_unwind(|| entry(&input));
        assert!(outcome.is_ok(), "{kind} input {input:02x?} breaks a promise (seed {seed})");
        inputs += 1;
    }
    println!("{kind}: {inputs} mutations");
}

#[test]
fn requests() {
    run("request", fuzz_request);
}

#[test]
fn options() {
    run("option", fuzz_option);
}
