//! The search and its index through the public interface: what moved is found, memory is bounded, what was written comes back,
//! damage is refused, and where nothing is to be found nothing is read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;

use farside_format::Fingerprint;
use farside_wire::fuzz::fuzz_index;
use farside_wire::{
    Anchors, BLOCK_BYTES, Decoder, Effort, Encoder, FramePlan, FramePlans, IndexError, Indexes, Origin,
    Prefix, Region, Regions, Run, RunKind, Search, SimilarityIndex,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const MIB: usize = 1 << 20;
const SEED: u64 = 20_261_122;

/// What both sides hold: the base, and of the incremental what frames brought; nothing else of it can be read.
struct Both {
    base: Vec<u8>,
    staged: Vec<Option<Vec<u8>>>,
}

impl Regions for Both {
    fn read(&mut self, origin: Origin, position: u64, buffer: &mut [u8]) -> Result<(), String> {
        for (i, block) in buffer.chunks_mut(BLOCK_BYTES).enumerate() {
            let at = position as usize + i;
            match origin {
                Origin::Base => match self.base.get(at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES) {
                    Some(bytes) => block.copy_from_slice(bytes),
                    None => block.fill(0),
                },
                Origin::Incremental => {
                    let bytes = self.staged.get(at).and_then(Option::as_ref);
                    block.copy_from_slice(bytes.ok_or_else(|| format!("block {at} did not arrive"))?);
                }
                Origin::Other(number) => return Err(format!("nobody has offered volume {number}")),
            }
        }
        Ok(())
    }
}

struct Sent {
    frames: usize,
    frame_bytes: usize,
    segments_read: u64,
    /// Blocks of the incremental that prefixes named.
    of_incremental: u64,
}

/// Sends `runs` of `new` against `base`, decoding each frame as the destination would.
fn send(base: &[u8], new: &[u8], runs: &[Run], index: &SimilarityIndex, effort: Effort) -> Sent {
    // The source's incremental is whole; reads of segments may touch all of it.
    struct Source<'a>(&'a [u8], &'a [u8]);
    impl Regions for Source<'_> {
        fn read(&mut self, origin: Origin, position: u64, buffer: &mut [u8]) -> Result<(), String> {
            let image = if origin == Origin::Base { self.0 } else { self.1 };
            for (i, block) in buffer.chunks_mut(BLOCK_BYTES).enumerate() {
                let at = (position as usize + i) * BLOCK_BYTES;
                match image.get(at..at + BLOCK_BYTES) {
                    Some(bytes) => block.copy_from_slice(bytes),
                    None => block.fill(0),
                }
            }
            Ok(())
        }
    }
    let mut source = Source(base, new);
    let mut both = Both { base: base.to_vec(), staged: vec![None; new.len() / BLOCK_BYTES] };
    let (mut search, mut encoder, mut decoder) = (Search::new(), Encoder::new(), Decoder::new());
    let mut sent = Sent { frames: 0, frame_bytes: 0, segments_read: 0, of_incremental: 0 };
    for plan in FramePlans::new(runs.iter().map(|r| Ok::<_, ()>(*r))) {
        let plan: FramePlan = plan.unwrap();
        let of = |image: &[u8]| {
            let mut bytes = Vec::with_capacity(plan.data_bytes() as usize);
            for run in plan.data_runs() {
                bytes.extend_from_slice(
                    &image[run.position as usize * BLOCK_BYTES..run.end() as usize * BLOCK_BYTES],
                );
            }
            bytes
        };
        let data = of(new);
        let mut prefix = Prefix::new();
        if effort >= Effort::Standard {
            let anchors = anchors_of(&plan, &data);
            let mut found = search.regions(&plan, &anchors, index, &mut source);
            found.extend(search.recent(&found, effort));
            assert_eq!(prefix.add_regions(&found, &mut source), None);
            search.carried(&plan, &anchors);
        }
        if !base.is_empty() {
            let old = of(base);
            if search.wants_old(&data) && search.resembles_old(&data, &old) {
                prefix.add_same_place(&plan.runs, &old);
            }
        }
        let known: Vec<Fingerprint> = data.chunks_exact(BLOCK_BYTES).map(Fingerprint::of_block).collect();
        let mut frame = Vec::new();
        encoder.encode(&plan.runs, &data, &known, &mut prefix, effort, &mut frame).unwrap();
        let decoded = decoder.decode(&frame, &mut both).unwrap();
        assert!(decoded.runs == plan.runs && decoded.bytes == data);
        for (run, bytes) in decoded.pieces() {
            for (i, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
                both.staged[run.position as usize + i] = Some(block.to_vec());
            }
        }
        let of_incremental = prefix.ranges().iter().filter(|r| r.origin == Origin::Incremental);
        sent.of_incremental += of_incremental.map(|r| u64::from(r.blocks)).sum::<u64>();
        sent.frames += 1;
        sent.frame_bytes += frame.len();
    }
    sent.segments_read = search.segments_read();
    sent
}

fn noise(bytes: usize, rng: &mut SmallRng) -> Vec<u8> {
    let mut out = vec![0; bytes];
    rng.fill(&mut out[..]);
    out
}

fn anchors_of(plan: &FramePlan, data: &[u8]) -> Anchors {
    let mut anchors = Anchors::new();
    anchors.find(plan, data);
    anchors
}

fn data_run(position: usize, blocks: usize) -> Run {
    Run { position: position as u64, blocks: blocks as u64, kind: RunKind::Data }
}

fn index_of(image: &[u8]) -> SimilarityIndex {
    let mut index = SimilarityIndex::new(1 << 20);
    for (i, segment) in image.chunks(MIB).enumerate() {
        index.enter((i * MIB / BLOCK_BYTES) as u64, segment);
    }
    index
}

#[test]
fn what_moved_and_was_rewritten_is_found() {
    let mut rng = SmallRng::seed_from_u64(SEED);
    // 8 MiB of files, of which 4 are written anew to places that were empty, shifted by some bytes and changed here and there.
    let mut base = noise(8 * MIB, &mut rng);
    base.resize(16 * MIB, 0);
    let mut new = base.clone();
    let mut moved = base[MIB..5 * MIB - 777].to_vec();
    for _ in 0..200 {
        let at = rng.random_range(0..moved.len());
        moved[at] ^= 0x55;
    }
    new[9 * MIB + 777..13 * MIB].copy_from_slice(&moved);
    let runs = [data_run(9 * 256, 4 * 256)];
    let found = send(&base, &new, &runs, &index_of(&base), Effort::Standard);
    let without = send(&base, &new, &runs, &SimilarityIndex::new(0), Effort::Standard);
    println!(
        "{} bytes, {} without an index, {} segments",
        found.frame_bytes, without.frame_bytes, found.segments_read
    );
    assert!(found.frame_bytes < 4 * MIB / 20, "{} bytes for 200 changed ones", found.frame_bytes);
    assert!(without.frame_bytes > 4 * MIB - MIB / 8);
    assert!(found.segments_read <= 8, "{} segments of 1 MiB for 4 MiB of data", found.segments_read);
}

/// A base of which some segments cannot be read. Counts the calls that read segments.
struct Damaged<'a> {
    base: &'a [u8],
    unreadable: std::ops::Range<u64>,
    calls: usize,
}

impl Regions for Damaged<'_> {
    fn read(&mut self, origin: Origin, position: u64, buffer: &mut [u8]) -> Result<(), String> {
        self.read_ranges(origin, &[(position, (buffer.len() / BLOCK_BYTES) as u64)], buffer)
    }

    fn read_ranges(
        &mut self,
        origin: Origin,
        ranges: &[(u64, u64)],
        mut buffer: &mut [u8],
    ) -> Result<(), String> {
        assert_eq!(origin, Origin::Base);
        self.calls += 1;
        for (first, blocks) in ranges {
            if *first < self.unreadable.end && self.unreadable.start < first + blocks {
                return Err("the device reports an error".into());
            }
            let (bytes, rest) = buffer.split_at_mut(*blocks as usize * BLOCK_BYTES);
            bytes.copy_from_slice(&self.base[*first as usize * BLOCK_BYTES..][..bytes.len()]);
            buffer = rest;
        }
        Ok(())
    }
}

#[test]
fn segments_are_read_together_and_one_that_cannot_be_read_keeps_no_other_from_being_found() {
    let mut rng = SmallRng::seed_from_u64(SEED + 40);
    // A file, twice, and what is written anew elsewhere is parts of it that lie in four segments.
    let file = noise(4 * MIB, &mut rng);
    let mut base = [&file[..], &file[..]].concat();
    base.resize(9 * MIB, 0);
    let plan = FramePlan { runs: vec![data_run(8 * 256, 256)], data_blocks: 256, repeat_blocks: 0 };
    let data: Vec<u8> = (0..4).flat_map(|n| &file[n * MIB..n * MIB + MIB / 4]).copied().collect();
    let index = index_of(&base);
    let of = |unreadable: std::ops::Range<u64>| {
        let mut regions = Damaged { base: &base, unreadable, calls: 0 };
        let mut search = Search::new();
        let found = search.regions(&plan, &anchors_of(&plan, &data), &index, &mut regions);
        (found, regions.calls, search.segments_read())
    };
    let blocks = |found: &[farside_wire::Region]| found.iter().map(|r| u64::from(r.blocks)).sum::<u64>();
    let (found, calls, segments) = of(0..0);
    assert!(calls == 1 && (4..=8).contains(&segments), "{calls} calls, {segments} segments");
    assert!(blocks(&found) >= 256);
    // A block of one segment is damaged: the others are found all the same.
    let (whole, unreadable) = (blocks(&found), 1100..1101);
    let (found, calls, segments) = of(unreadable.clone());
    assert!(calls > 1 && segments <= 8, "{calls} calls, {segments} segments");
    assert!(found.iter().all(|r| r.end() <= unreadable.start || unreadable.end <= r.position));
    assert!(blocks(&found) + 80 >= whole && blocks(&found) >= 192, "{} of {whole} blocks", blocks(&found));
}

#[test]
fn a_first_copy_refers_to_what_it_carried_and_to_nothing_else() {
    let mut rng = SmallRng::seed_from_u64(SEED + 1);
    // Between the runs stand blocks that do not travel: `Both` refuses them.
    let file = noise(2 * MIB, &mut rng);
    let mut new = vec![0; 313 * MIB];
    new[..2 * MIB].copy_from_slice(&file);
    // Once soon, once behind more segments than dense anchors are kept of, each time at another offset within a block.
    new[3 * MIB + 100..5 * MIB + 100].copy_from_slice(&file);
    let far = 310 * MIB + 2000;
    new[far..far + 2 * MIB].copy_from_slice(&file);
    let mut runs = vec![data_run(0, 250), data_run(252, 260), data_run(3 * 256, 513)];
    for segment in 6..306 {
        rng.fill(&mut new[segment * MIB..segment * MIB + BLOCK_BYTES]);
        runs.push(data_run(segment * 256, 1));
    }
    runs.push(data_run(310 * 256, 513));
    let data_bytes = runs.iter().map(|r| r.blocks as usize * BLOCK_BYTES).sum::<usize>();
    for effort in [Effort::Standard, Effort::Thorough, Effort::Strong] {
        let sent = send(&[], &new, &runs, &SimilarityIndex::new(0), effort);
        println!("{} of {data_bytes} bytes, {} segments read again", sent.frame_bytes, sent.segments_read);
        assert!(sent.frame_bytes < data_bytes - 4 * MIB + MIB / 4, "{} bytes", sent.frame_bytes);
        assert!((1..=8).contains(&sent.segments_read) && sent.of_incremental > 900);
    }
}

/// What was carried last goes before a frame: the more, the more its bytes count, and nothing twice.
#[test]
fn a_first_copy_looks_back_as_far_as_its_effort_says() {
    let bytes = vec![b'a'; 6 * MIB];
    let mut search = Search::new();
    for plan in FramePlans::new([Ok::<_, Infallible>(data_run(100, 6 * 256))].into_iter()) {
        let plan = plan.unwrap();
        search.carried(&plan, &anchors_of(&plan, &bytes[..plan.data_bytes() as usize]));
    }
    let end = 100 + 6 * 256;
    let recent = |found: &[Region], effort| {
        let regions = search.recent(found, effort);
        assert!(regions.iter().all(|r| r.origin == Origin::Incremental));
        regions.iter().flat_map(|r| r.position..r.end()).collect::<Vec<u64>>()
    };
    for (effort, blocks) in [
        (Effort::Raw, 0),
        (Effort::Fast, 0),
        (Effort::Standard, 0),
        (Effort::Thorough, 128),
        (Effort::Strong, 1024),
    ] {
        assert_eq!(recent(&[], effort), (end - blocks..end).collect::<Vec<_>>(), "{effort:?}");
    }
    let of = |origin| Region { origin, position: end - 50, blocks: 20 };
    let without: Vec<u64> = (end - 128..end - 50).chain(end - 30..end).collect();
    assert_eq!(recent(&[of(Origin::Incremental)], Effort::Thorough), without);
    assert_eq!(recent(&[of(Origin::Base)], Effort::Thorough).len(), 128, "the base's are others");
}

#[test]
fn noise_that_is_nowhere_is_neither_read_for_nor_compressed() {
    // Small volumes, in whose indexes one anchor in twenty names a place by chance, and these are few.
    for seed in 0..8 {
        println!("seed {}", SEED + 2 + (seed << 32));
        let mut rng = SmallRng::seed_from_u64(SEED + 2 + (seed << 32));
        let base = noise(24 * MIB, &mut rng);
        let new = noise(24 * MIB, &mut rng);
        let sent = send(&base, &new, &[data_run(0, 24 * 256)], &index_of(&base), Effort::Standard);
        assert_eq!(sent.frames, 24);
        assert_eq!(sent.segments_read, 0, "read for nothing");
        assert!(sent.frame_bytes * 1000 <= new.len() * 1005, "{}", sent.frame_bytes);
    }
}

/// An image of compressed files of odd lengths: each begins at a multiple of `align` bytes, as in an archive (512) or on a CD (2048).
fn image(files: &[Vec<u8>], align: usize) -> Vec<u8> {
    let mut image = Vec::new();
    for file in files {
        image.extend_from_slice(file);
        image.resize(image.len().next_multiple_of(align), 0);
    }
    image.resize(image.len().next_multiple_of(BLOCK_BYTES), 0);
    image
}

#[test]
fn compressed_files_that_moved_by_less_than_a_block_are_found() {
    for (seed, align) in [(SEED + 11, 512), (SEED + 12, 2048)] {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let file = |rng: &mut SmallRng| {
            let length = rng.random_range(20 << 10..1500 << 10);
            noise(length, rng)
        };
        // Several MiB in a row are new, so that frame after frame resembles nothing.
        let mut files: Vec<Vec<u8>> = (0..64).map(|_| file(&mut rng)).collect();
        let mut base = image(&files, align);
        let mut renewed = 0;
        for n in (4..12).chain([20, 29, 30, 41, 50, 51]) {
            files[n] = file(&mut rng);
            renewed += files[n].len();
        }
        let new = image(&files, align);
        base.resize(new.len(), 0);
        let runs = [data_run(0, new.len() / BLOCK_BYTES)];
        let sent = send(&base, &new, &runs, &index_of(&base), Effort::Standard);
        println!(
            "{} of {} bytes are new: {} travel, {} segments",
            renewed,
            new.len(),
            sent.frame_bytes,
            sent.segments_read
        );
        let moved = new.len() - renewed;
        assert!(sent.frame_bytes < renewed + moved / 20, "{} bytes, {renewed} of them new", sent.frame_bytes);
        assert!(sent.segments_read as usize <= 2 * moved / MIB, "{} segments", sent.segments_read);
    }
}

#[test]
fn noise_that_moved_within_its_own_blocks_is_coded_against_the_old_bytes_there() {
    println!("seed {}", SEED + 13);
    let mut rng = SmallRng::seed_from_u64(SEED + 13);
    let base = noise(8 * MIB, &mut rng);
    let mut new = base.clone();
    new[2 * MIB + 2048..6 * MIB].copy_from_slice(&base[2 * MIB..6 * MIB - 2048]);
    let sent = send(&base, &new, &[data_run(2 * 256, 4 * 256)], &index_of(&base), Effort::Standard);
    assert!(sent.frame_bytes < 4 * MIB / 100, "{} bytes", sent.frame_bytes);
    assert_eq!(sent.segments_read, 0, "the anchors in memory say where it is");
}

#[test]
fn a_first_copy_finds_noise_again_after_noise_that_was_new() {
    println!("seed {}", SEED + 14);
    let mut rng = SmallRng::seed_from_u64(SEED + 14);
    let mut new = noise(24 * MIB, &mut rng);
    new.copy_within(7 * MIB..9 * MIB, 20 * MIB + 512);
    let sent = send(&[], &new, &[data_run(0, 24 * 256)], &SimilarityIndex::new(0), Effort::Standard);
    assert!(sent.frame_bytes < 22 * MIB + MIB / 8, "{} bytes", sent.frame_bytes);
}

#[test]
fn scattered_change_stops_the_reading() {
    let mut rng = SmallRng::seed_from_u64(SEED + 3);
    let base = noise(64 * MIB, &mut rng);
    let mut new = base.clone();
    // Every fifth block: 20 frames, each over 5 MiB, whose old bytes at the same place say all.
    let runs: Vec<Run> = (0..64 * 256 / 5).map(|n| data_run(n * 5, 1)).collect();
    for run in &runs {
        let at = run.position as usize * BLOCK_BYTES + rng.random_range(0..BLOCK_BYTES - 100);
        rng.fill(&mut new[at..at + 100]);
    }
    let searched = send(&base, &new, &runs, &index_of(&base), Effort::Standard);
    let plain = send(&base, &new, &runs, &SimilarityIndex::new(0), Effort::Fast);
    println!(
        "{} frames, {} segments, {} and {} bytes",
        searched.frames, searched.segments_read, searched.frame_bytes, plain.frame_bytes
    );
    assert!(
        searched.segments_read <= 8 * 6,
        "{} segments read for {} frames",
        searched.segments_read,
        searched.frames
    );
    assert!(searched.frame_bytes * 100 < plain.frame_bytes * 110);
}

/// The frame's own volume and others.
struct Volumes(Vec<Vec<u8>>);

impl Regions for Volumes {
    fn read(&mut self, origin: Origin, position: u64, buffer: &mut [u8]) -> Result<(), String> {
        let image = match origin {
            Origin::Other(number) => self.0.get(usize::from(number) + 1).ok_or("no such volume")?,
            _ => &self.0[0],
        };
        let from = position as usize * BLOCK_BYTES;
        buffer.copy_from_slice(image.get(from..from + buffer.len()).ok_or("beyond")?);
        Ok(())
    }
}

/// Theirs, in the same order.
struct VolumeIndexes(Vec<SimilarityIndex>);

impl Volumes {
    fn indexes(&self) -> VolumeIndexes {
        VolumeIndexes(self.0.iter().map(|image| index_of(image)).collect())
    }
}

impl Indexes for VolumeIndexes {
    fn each(&self, look: &mut dyn FnMut(Origin, &SimilarityIndex)) {
        look(Origin::Base, &self.0[0]);
        for (number, index) in (0..).zip(&self.0[1..]) {
            look(Origin::Other(number), index);
        }
    }
}

#[test]
fn what_lies_in_other_volumes_is_found_and_named_by_their_numbers() {
    let mut rng = SmallRng::seed_from_u64(SEED + 8);
    println!("seed {}", SEED + 8);
    let mut volumes = Volumes([0; 3].map(|_: u8| noise(4 * MIB, &mut rng)).into());
    // Half of it lies in one of them, half in the other, at no multiple of a block.
    let mut data = volumes.0[1][MIB / 2 + 77..MIB + 77].to_vec();
    data.extend_from_slice(&volumes.0[2][3 * MIB + 333..3 * MIB + MIB / 2 + 333]);
    let indexes = volumes.indexes();
    let plan = FramePlan { runs: vec![data_run(0, 256)], data_blocks: 256, ..FramePlan::default() };
    let mut search = Search::new();
    let found = search.regions(&plan, &anchors_of(&plan, &data), &indexes, &mut volumes);
    assert!(found.iter().all(|region| region.origin != Origin::Base), "{found:?}");
    assert!(search.segments_read() <= 3, "{} segments read", search.segments_read());
    let (mut prefix, mut frame) = (Prefix::new(), Vec::new());
    assert_eq!(prefix.add_regions(&found, &mut volumes), None);
    let known: Vec<Fingerprint> = data.chunks_exact(BLOCK_BYTES).map(Fingerprint::of_block).collect();
    Encoder::new().encode(&plan.runs, &data, &known, &mut prefix, Effort::Standard, &mut frame).unwrap();
    assert!(frame.len() < MIB / 50, "{} bytes", frame.len());
    assert!(Decoder::new().decode(&frame, &mut volumes).unwrap().bytes == data);
}

/// Ten volumes that began as one name the same segment ten times: it is read once, and what else the frame is like is found.
#[test]
fn volumes_that_are_alike_are_read_once() {
    const VOLUMES: usize = 10;
    const SEGMENTS: usize = 7;
    let mut rng = SmallRng::seed_from_u64(SEED + 9);
    println!("seed {}", SEED + 9);
    let common = noise(SEGMENTS * MIB, &mut rng);
    let mut volumes = Volumes(vec![vec![0; SEGMENTS * MIB]]);
    volumes.0.extend(vec![common.clone(); VOLUMES]);
    // One of them has something of its own.
    let own = noise(MIB, &mut rng);
    volumes.0[VOLUMES].extend_from_slice(&own);
    let piece = MIB / (SEGMENTS + 1);
    let mut data = Vec::new();
    for number in 0..SEGMENTS {
        data.extend_from_slice(&common[number * MIB + 333..][..piece]);
    }
    data.extend_from_slice(&own[555..][..MIB - SEGMENTS * piece]);
    let plan = FramePlan { runs: vec![data_run(0, 256)], data_blocks: 256, ..FramePlan::default() };
    let mut search = Search::new();
    let found = search.regions(&plan, &anchors_of(&plan, &data), &volumes.indexes(), &mut volumes);
    assert_eq!(search.segments_read() as usize, SEGMENTS + 1);
    let (mut prefix, mut frame) = (Prefix::new(), Vec::new());
    assert_eq!(prefix.add_regions(&found, &mut volumes), None);
    let known: Vec<Fingerprint> = data.chunks_exact(BLOCK_BYTES).map(Fingerprint::of_block).collect();
    Encoder::new().encode(&plan.runs, &data, &known, &mut prefix, Effort::Standard, &mut frame).unwrap();
    assert!(frame.len() < MIB / 50, "{} bytes", frame.len());
    // Nothing of it stood at the frame's own places.
    assert_eq!(search.alike(&plan, &found, 2), []);
    // A later frame of the same finds it in what was read.
    let plan = FramePlan { runs: vec![data_run(256, 256)], ..plan };
    let again = search.regions(&plan, &anchors_of(&plan, &data), &volumes.indexes(), &mut volumes);
    assert!(!again.is_empty());
    assert_eq!(search.segments_read() as usize, SEGMENTS + 1, "nothing is read twice");
}

/// Where another volume has the same layout, its blocks at a frame's own places are of use though nothing in them is found.
#[test]
fn the_same_place_of_a_volume_of_the_same_layout_is_of_use() {
    const BLOCKS: usize = 256;
    let mut rng = SmallRng::seed_from_u64(SEED + 10);
    println!("seed {}", SEED + 10);
    // Records of 64 bytes that have 24 in common with those at the same place, which is too little for an anchor; and between
    // them stretches that are found.
    let records = |rng: &mut SmallRng, like: &[u8]| {
        let mut out = like.to_vec();
        out.chunks_exact_mut(64).for_each(|record| rng.fill(&mut record[24..]));
        out
    };
    let image = noise(2 * MIB, &mut rng);
    let mut data = image[..MIB].to_vec();
    let (found_bytes, rest) = data.split_at_mut(MIB / 4);
    found_bytes[100] ^= 1;
    rest.copy_from_slice(&records(&mut rng, rest));
    let unrelated = noise(2 * MIB, &mut rng);
    let mut volumes = Volumes(vec![vec![0; 2 * MIB], unrelated, image]);
    let plan =
        FramePlan { runs: vec![data_run(0, BLOCKS)], data_blocks: BLOCKS as u64, ..FramePlan::default() };
    let mut search = Search::new();
    let found = search.regions(&plan, &anchors_of(&plan, &data), &volumes.indexes(), &mut volumes);
    let alike = search.alike(&plan, &found, 2);
    assert!(!alike.is_empty() && alike.iter().all(|r| r.origin == Origin::Other(1)), "{alike:?}");
    // Each block of that volume once, and none that is not at the frame's places.
    let mut named = vec![0; BLOCKS];
    for region in found.iter().chain(&alike).filter(|r| r.origin == Origin::Other(1)) {
        for position in region.position..region.end().min(BLOCKS as u64) {
            named[position as usize] += 1;
        }
    }
    assert!(named.iter().all(|times| *times == 1), "{named:?}");
    assert!(alike.iter().all(|r| r.end() <= BLOCKS as u64));
    let known: Vec<Fingerprint> = data.chunks_exact(BLOCK_BYTES).map(Fingerprint::of_block).collect();
    let mut frame_of = |regions: &[Region]| {
        let (mut prefix, mut frame) = (Prefix::new(), Vec::new());
        assert_eq!(prefix.add_regions(regions, &mut volumes), None);
        let mut encoder = Encoder::new();
        encoder.encode(&plan.runs, &data, &known, &mut prefix, Effort::Standard, &mut frame).unwrap();
        assert!(Decoder::new().decode(&frame, &mut volumes).unwrap().bytes == data);
        frame.len()
    };
    let (without, with) = (frame_of(&found), frame_of(&[&found[..], &alike].concat()));
    println!("{without} bytes without, {with} with the same place");
    assert!(with * 100 < without * 85);
}

#[test]
fn the_index_grows_with_content_and_no_further_than_its_budget() {
    let mut rng = SmallRng::seed_from_u64(SEED + 4);
    let budget = 100_000;
    let mut index = SimilarityIndex::new(budget);
    let first = index.bytes();
    assert!(first <= 32 << 10, "an empty index takes {first} bytes");
    let mut sizes = vec![first];
    // More than there is room for, in a volume that is written again and again.
    let mut base = vec![0; 18 * MIB];
    for n in 0..500 {
        let at = n % 16;
        let content = noise(MIB, &mut rng);
        index.enter((at * 256) as u64, &content);
        base[at * MIB..(at + 1) * MIB].copy_from_slice(&content);
        assert!(index.bytes() <= budget && index.anchors() <= index.bytes() / 4);
        if index.bytes() > sizes[sizes.len() - 1] {
            sizes.push(index.bytes());
        }
    }
    println!("{sizes:?}, {} anchors", index.anchors());
    assert!(sizes.len() == 3 && index.anchors() * 4 > budget / 2);
    // What came last is found.
    let mut new = base.clone();
    new.copy_within(15 * MIB..16 * MIB, 16 * MIB + 5);
    let sent = send(&base, &new, &[data_run(16 * 256, 257)], &index, Effort::Standard);
    assert!(sent.frame_bytes < MIB / 10, "{} bytes", sent.frame_bytes);

    // The volume has grown; a smaller budget takes nothing away.
    let full = index.bytes();
    index.raise_budget(4 * budget);
    index.raise_budget(budget / 2);
    assert_eq!((index.bytes(), index.budget_bytes()), (full, 4 * budget));
    for n in 16..40 {
        index.enter(n * 256, &noise(MIB, &mut rng));
    }
    println!("{} bytes, {} anchors", index.bytes(), index.anchors());
    assert!(index.bytes() >= 2 * full && index.bytes() <= 4 * budget);
}

#[test]
fn what_lies_far_behind_is_found_in_coarser_places() {
    let mut rng = SmallRng::seed_from_u64(SEED + 5);
    let content = noise(MIB, &mut rng);
    let mut index = SimilarityIndex::new(1 << 20);
    // 5 TiB into the volume: places of 64 KiB reach 1 TiB.
    let position = 5u64 << 28;
    index.enter(position, &content);
    // 20 TiB: no place reaches there, and nothing breaks.
    index.enter(20 << 28, &content);
    struct Far(u64, Vec<u8>, u64);
    impl Regions for Far {
        fn read(&mut self, _: Origin, position: u64, buffer: &mut [u8]) -> Result<(), String> {
            self.2 += 1;
            let inside = position.checked_sub(self.0).filter(|p| *p < 256).ok_or("not there")?;
            let from = inside as usize * BLOCK_BYTES;
            let bytes = self.1.get(from..from + buffer.len()).ok_or("beyond")?;
            buffer.copy_from_slice(bytes);
            Ok(())
        }
    }
    let mut far = Far(position, content.clone(), 0);
    let runs = vec![data_run(3, 256)];
    let plan = FramePlan { runs, data_blocks: 256, ..FramePlan::default() };
    let found = Search::new().regions(&plan, &anchors_of(&plan, &content), &index, &mut far);
    let blocks: u64 = found.iter().map(|r| u64::from(r.blocks)).sum();
    assert!(blocks >= 250 && found.iter().all(|r| r.position + 8 >= position), "{found:?}");
    assert_eq!(far.2, 1);
}

fn written() -> (SimilarityIndex, Vec<u8>) {
    let mut rng = SmallRng::seed_from_u64(SEED + 6);
    let index = index_of(&noise(8 * MIB, &mut rng));
    let mut bytes = Vec::new();
    index.write_to(&mut bytes).unwrap();
    (index, bytes)
}

#[test]
fn a_written_index_comes_back_and_a_damaged_one_does_not() {
    let (index, bytes) = written();
    let read = SimilarityIndex::read_from(&mut &bytes[..], 1 << 20).unwrap();
    assert_eq!((read.bytes(), read.anchors()), (index.bytes(), index.anchors()));
    let mut again = Vec::new();
    read.write_to(&mut again).unwrap();
    assert!(again == bytes);
    let refused = |bytes: &[u8]| SimilarityIndex::read_from(&mut &bytes[..], 1 << 20).unwrap_err();
    for at in (0..bytes.len()).filter(|at| *at < 64 || at % 97 == 0 || at + 20 > bytes.len()) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        refused(&damaged);
        refused(&bytes[..at]);
    }
    let mut newer = bytes.clone();
    newer[4] = 2;
    assert!(matches!(refused(&newer), IndexError::Version { found: 2 }));
    let over = SimilarityIndex::read_from(&mut &bytes[..], index.bytes() - 1).unwrap_err();
    assert!(matches!(over, IndexError::Budget { .. }), "{over}");
}

#[test]
fn the_index_corpus_and_mutations_of_it() {
    println!("seed {SEED}");
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/index");
    if std::env::var_os("FARSIDE_WRITE_CORPUS").is_some() {
        let mut empty = Vec::new();
        SimilarityIndex::new(64).write_to(&mut empty).unwrap();
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("empty"), empty).unwrap();
        let mut small = SimilarityIndex::new(256);
        small.enter(7, &noise(MIB, &mut SmallRng::seed_from_u64(SEED + 7)));
        let mut bytes = Vec::new();
        small.write_to(&mut bytes).unwrap();
        std::fs::write(directory.join("small"), bytes).unwrap();
    }
    let corpus: Vec<Vec<u8>> =
        std::fs::read_dir(directory).unwrap().map(|e| std::fs::read(e.unwrap().path()).unwrap()).collect();
    assert!(corpus.len() >= 2, "the corpus is missing");
    for bytes in &corpus {
        assert!(SimilarityIndex::read_from(&mut &bytes[..], 1 << 20).is_ok(), "version 1 is read no more");
    }
    let mut rng = SmallRng::seed_from_u64(SEED);
    for _ in 0..5_000 {
        let mut bytes = corpus[rng.random_range(0..corpus.len())].clone();
        for _ in 0..rng.random_range(0..4) {
            let at = rng.random_range(0..bytes.len());
            match rng.random_range(0..3) {
                0 => bytes[at] = rng.random(),
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, rng.random()),
            }
        }
        fuzz_index(&bytes);
    }
}
