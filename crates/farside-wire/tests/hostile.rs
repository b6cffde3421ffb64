//! Frames made to cost their reader memory: every number that a frame claims is held against its limit first.
//!
//! In a file of its own, because it counts what the whole process allocates (zstd's own state, about 160 KiB, is not Rust's
//! and not counted). What is claimed for a lie is megabytes at least; what the test's harness allocates beside it is
//! below [`NOTHING`].

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::{Mutex, PoisonError};

use farside_format::Fingerprint;
use farside_wire::layout::{DECODING_BYTES_MAX, TABLE_BYTES_MAX, WINDOW_BYTES_MAX};
use farside_wire::{
    BLOCK_BYTES, DATA_BLOCKS_MAX, Decoder, Effort, Encoder, FrameError, FrameLevel, Origin,
    PREFIX_BLOCKS_MAX, PREFIX_RANGES_MAX, Prefix, REPEAT_BLOCKS_MAX, RUNS_MAX, Regions, Run, RunKind, varint,
};
use peak_alloc::PeakAlloc;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// One test at a time counts.
static COUNTS: Mutex<()> = Mutex::new(());

const NOTHING: usize = 64 << 10;

/// What `work` allocates at most, beside what was there before.
fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let result = work();
    (result, MEMORY.peak_usage().saturating_sub(before))
}

/// Every block has bytes of its own, none is zero.
struct Blocks;

impl Blocks {
    fn block(position: u64) -> [u8; BLOCK_BYTES] {
        let mut block = [1; BLOCK_BYTES];
        block[..8].copy_from_slice(&position.to_le_bytes());
        block
    }

    fn bytes(positions: impl IntoIterator<Item = u64>) -> Vec<u8> {
        positions.into_iter().flat_map(Blocks::block).collect()
    }
}

impl Regions for Blocks {
    fn read(&mut self, _: Origin, position: u64, buffer: &mut [u8]) -> Result<(), String> {
        for (position, block) in (position..).zip(buffer.chunks_mut(BLOCK_BYTES)) {
            block.copy_from_slice(&Blocks::block(position));
        }
        Ok(())
    }
}

/// Of a frame that is to be refused before anything is read.
struct NotAsked;

impl Regions for NotAsked {
    fn read(&mut self, _: Origin, position: u64, buffer: &mut [u8]) -> Result<(), String> {
        panic!("{} bytes at block {position} are read for a frame that must be refused", buffer.len());
    }
}

/// The numbers of a header, and what follows it. Its digests are zero: that of an empty prefix is so, the frame's never.
#[derive(Clone, Default)]
struct Crafted {
    codec: u8,
    repeat_blocks: u16,
    data_blocks: u32,
    prefix_blocks: u32,
    runs: u32,
    prefix_ranges: u32,
    table: Vec<u8>,
    payload: Vec<u8>,
}

impl Crafted {
    /// A zstd payload for so many data blocks.
    fn zstd(data_blocks: u32, payload: Vec<u8>) -> Crafted {
        let table = numbers(&[0, u64::from(data_blocks) << 2]);
        Crafted { codec: 1, data_blocks, runs: 1, table, payload, ..Crafted::default() }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut frame = b"FSWF\x02".to_vec();
        frame.push(self.codec);
        frame.extend(self.repeat_blocks.to_le_bytes());
        let lengths = [self.table.len() as u32, self.payload.len() as u32];
        let counts = [self.data_blocks, self.prefix_blocks, self.runs, self.prefix_ranges];
        frame.extend(lengths.iter().chain(&counts).flat_map(|number| number.to_le_bytes()));
        frame.resize(64, 0);
        [frame, self.table.clone(), self.payload.clone()].concat()
    }
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    numbers.iter().for_each(|number| varint::put(&mut out, *number));
    out
}

/// `data` as payloads are coded.
fn compressed(data: &[u8]) -> Vec<u8> {
    let mut context = CCtx::create();
    let magicless = CParameter::Format(FrameFormat::Magicless);
    for parameter in [magicless, CParameter::ContentSizeFlag(false), CParameter::ChecksumFlag(false)] {
        context.set_parameter(parameter).unwrap();
    }
    let mut out = Vec::with_capacity(zstd_safe::compress_bound(data.len()));
    context.compress2(&mut out, data).unwrap();
    out
}

#[test]
fn every_number_of_a_header_is_held_against_its_limit_before_anything_is_claimed() {
    let _alone = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let data_blocks = 3;
    let payload = compressed(&Blocks::bytes(0..data_blocks));
    let frame = Crafted::zstd(data_blocks as u32, payload).bytes();
    let payload_max = data_blocks as u32 * BLOCK_BYTES as u32;
    for (what, at, bytes, limit) in [
        ("repeat blocks", 6, 2, REPEAT_BLOCKS_MAX),
        ("table bytes", 8, 4, TABLE_BYTES_MAX),
        ("payload bytes", 12, 4, payload_max),
        ("data blocks", 16, 4, DATA_BLOCKS_MAX),
        ("prefix blocks", 20, 4, PREFIX_BLOCKS_MAX),
        ("runs", 24, 4, RUNS_MAX),
        ("prefix ranges", 28, 4, PREFIX_RANGES_MAX),
    ] {
        let decode = |number: u32| {
            let mut frame = frame.clone();
            frame[at..at + bytes].copy_from_slice(&number.to_le_bytes()[..bytes]);
            let mut decoder = Decoder::new();
            peak_of(|| decoder.decode(&frame, &mut NotAsked).unwrap_err())
        };
        let most = if bytes == 2 { u16::MAX.into() } else { u32::MAX };
        for number in [limit + 1, most] {
            let (refused, peak) = decode(number);
            let expected = FrameError::Limit { what, found: number.into(), limit: limit.into() };
            assert_eq!(refused, expected, "{what}");
            assert!(refused.to_string().contains(what) && peak < NOTHING, "{what}: {peak} bytes");
        }
        // The limit itself is none too many: what is wrong with the frame then is something else.
        let (refused, peak) = decode(limit);
        assert!(
            !matches!(refused, FrameError::Limit { .. }) && peak < 2 * NOTHING,
            "{refused}: {peak} bytes"
        );
    }
}

#[test]
fn a_table_that_says_more_than_its_header_is_refused_before_anything_is_claimed() {
    let _alone = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let most = (1 << 42) - 1;
    let one = Crafted { data_blocks: 1, runs: 1, payload: vec![0, 0], codec: 1, ..Crafted::default() };
    let prefix = Crafted { prefix_blocks: PREFIX_BLOCKS_MAX, prefix_ranges: 1, ..one.clone() };
    let after_run = |range: &[u64]| numbers(&[&[0, 1 << 2], range].concat());
    let tables = [
        ("data of all that there can be", Crafted { table: numbers(&[0, most << 2]), ..one.clone() }),
        ("repeats of all that there can be", {
            let table = numbers(&[0, most << 2 | 2, 0]);
            let nothing = Crafted { data_blocks: 0, payload: Vec::new(), ..one.clone() };
            Crafted { table, repeat_blocks: REPEAT_BLOCKS_MAX as u16, ..nothing }
        }),
        (
            "one run more than there is room for",
            Crafted { runs: RUNS_MAX, table: after_run(&[]), ..one.clone() },
        ),
        ("a range of the base of all that there can be", {
            Crafted { table: after_run(&[0, most]), ..prefix.clone() }
        }),
        ("a range of one block too many", {
            Crafted { table: after_run(&[0, u64::from(PREFIX_BLOCKS_MAX) + 1]), ..prefix.clone() }
        }),
        ("a range of the frame's own blocks, more than it has", {
            Crafted { table: after_run(&[2, u64::from(PREFIX_BLOCKS_MAX)]), ..prefix.clone() }
        }),
        (
            "fewer ranges than said",
            Crafted { prefix_ranges: PREFIX_RANGES_MAX, table: after_run(&[]), ..prefix },
        ),
    ];
    for (what, crafted) in tables {
        let frame = crafted.bytes();
        let mut decoder = Decoder::new();
        let (refused, peak) = peak_of(|| decoder.decode(&frame, &mut NotAsked).unwrap_err());
        assert!(matches!(refused, FrameError::Malformed(_)), "{what}: {refused}");
        // Room for as many runs and ranges as a frame may have is claimed by their counts.
        assert!(peak < 5 * NOTHING, "{what}: {peak} bytes");
    }
}

#[test]
fn a_payload_claims_no_window_and_no_output_beyond_its_limits() {
    let _alone = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let data = Blocks::bytes(0..2);
    let payload = compressed(&data);
    let decode = |crafted: &Crafted| {
        let frame = crafted.bytes();
        let mut decoder = Decoder::new();
        peak_of(|| decoder.decode(&frame, &mut NotAsked).unwrap_err())
    };
    // As it is it decodes: only the digest is none.
    assert_eq!(decode(&Crafted::zstd(2, payload.clone())).0, FrameError::Digest);
    let asks_for = |window: u8| {
        let mut payload = payload.clone();
        payload[1] = window;
        // Nothing is wrong with it for zstd.
        let mut context = DCtx::create();
        context.set_parameter(DParameter::Format(FrameFormat::Magicless)).unwrap();
        let mut out = vec![0; data.len()];
        assert_eq!(context.decompress(&mut out[..], &payload), Ok(data.len()));
        decode(&Crafted::zstd(2, payload)).0
    };
    let log = WINDOW_BYTES_MAX.ilog2() as u8;
    assert_eq!((log, asks_for((log - 10) << 3)), (25, FrameError::Digest));
    for (window, found) in [((log - 10) << 3 | 1, 36 << 20), ((log - 9) << 3, 64 << 20), (21 << 3, 2 << 30)] {
        let expected = FrameError::Limit { what: "window bytes", found, limit: WINDOW_BYTES_MAX };
        assert_eq!(asks_for(window), expected);
    }
    // A header that says how long the content is, and so has no window.
    let mut with_size = payload.clone();
    with_size[0] = 1 << 5;
    for begins_otherwise in [with_size, vec![0], Vec::new()] {
        let refused = decode(&Crafted::zstd(2, begins_otherwise)).0;
        assert_eq!(refused, FrameError::Payload("it does not begin as a payload does"));
    }

    // More than the data blocks: by one block, by a thousand times as much, and by a second frame behind the first.
    let second = [payload.clone(), payload.clone()].concat();
    for (blocks, payload) in [(1, payload.clone()), (2, compressed(&vec![0; 8 << 20])), (2, second)] {
        let (refused, peak) = decode(&Crafted::zstd(blocks, payload));
        assert!(matches!(refused, FrameError::Payload(_)), "{refused}");
        assert!(peak < NOTHING, "{peak} bytes for {blocks} blocks");
    }
    let refused = decode(&Crafted::zstd(3, payload)).0;
    assert_eq!(refused, FrameError::Payload("it is shorter than the data blocks"));
}

#[test]
fn the_largest_frame_there_can_be_costs_no_more_than_it_may() {
    let _alone = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let (data_blocks, repeats) = (u64::from(DATA_BLOCKS_MAX), u64::from(REPEAT_BLOCKS_MAX));
    let data = Blocks::bytes((0..data_blocks).map(|n| 2 * n));
    // Of as many runs, and of as many ranges, as there may be.
    let data_runs = (0..data_blocks).map(|n| Run { position: 2 * n, blocks: 1, kind: RunKind::Data });
    let of_repeat = RUNS_MAX as u64 - data_blocks;
    let repeat_runs = (0..of_repeat).map(|n| {
        let kind = RunKind::Repeat { origin: Origin::Base, from: 10 * n };
        Run { position: (1 << 20) + 8 * n, blocks: repeats / of_repeat, kind }
    });
    let runs: Vec<Run> = data_runs.chain(repeat_runs).collect();
    let mut known: Vec<Fingerprint> = data.chunks(BLOCK_BYTES).map(Fingerprint::of_block).collect();
    let repeated = (0..of_repeat).flat_map(|n| 10 * n..10 * n + repeats / of_repeat);
    known.extend(repeated.map(|position| Fingerprint::of_block(&Blocks::block(position))));
    let mut prefix = Prefix::new();
    for n in 0..u64::from(PREFIX_RANGES_MAX) {
        prefix.add(Origin::Base, (1 << 30) + 3 * n, &Blocks::block((1 << 30) + 3 * n));
    }
    let mut frame = Vec::new();
    let encoded = Encoder::new().encode(&runs, &data, &known, &mut prefix, Effort::Fast, &mut frame).unwrap();
    let size = (encoded.level, encoded.data_blocks, encoded.repeat_blocks);
    assert_eq!(size, (FrameLevel::Delta, data_blocks, repeats));
    assert_eq!(prefix.ranges().len(), PREFIX_RANGES_MAX as usize);
    drop((prefix, known, data));

    let mut decoder = Decoder::new();
    let before = MEMORY.current_usage();
    for _ in 0..2 {
        MEMORY.reset_peak_usage();
        let decoded = decoder.decode(&frame, &mut Blocks).unwrap();
        let peak = MEMORY.peak_usage() - before;
        println!("{peak} bytes beside the frame's own {}", frame.len());
        assert_eq!(decoded.bytes.len() as u64, (data_blocks + repeats) * BLOCK_BYTES as u64);
        assert!(peak <= DECODING_BYTES_MAX, "{peak} bytes");
        // And not much less: else the limit says nothing.
        assert!(peak > DECODING_BYTES_MAX - (1 << 20), "{peak} bytes");
    }
    // What it keeps is prefix and data.
    let kept = MEMORY.current_usage() - before;
    assert!(kept <= (20 << 20) + NOTHING, "{kept} bytes are kept");
}
