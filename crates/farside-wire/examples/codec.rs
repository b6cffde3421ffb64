//! What frames make of real images: `codec NEW [OLD] [key=value ...]` prints one line of JSON per effort with the bytes
//! that a first copy of the image NEW, or its update from the image OLD, puts on the wire, and the speed of each part
//! by its CPU time. Every frame is decoded and compared. Bounds: `zstd -9 --long=27 NEW`, `zstd -3 --long=28 --patch-from OLD NEW`.
//!
//! Keys: `effort=raw|fast|standard|thorough|strong` (default: all; `zstd`: the same bytes as one stream of `zstd -3`),
//! `index=BYTES` per TiB of the image (default 171 MiB), `others=IMAGE,IMAGE,...` (images of other
//! volumes that both sides hold), `decode=no`.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use farside_format::Fingerprint;
use farside_format::fingerprint::is_zero;
use farside_wire::{
    Anchors, BLOCK_BYTES, Decoder, Effort, Encoder, FrameLevel, FramePlan, FramePlans, Indexes, Origin,
    Prefix, Regions, Run, RunKind, Search, SimilarityIndex,
};

type Failure = Box<dyn std::error::Error>;

/// Both images; as the destination sees the new one, only what has arrived of it differs from the old.
struct Images<'a> {
    old: &'a [u8],
    new: &'a [u8],
    others: &'a [(Vec<u8>, SimilarityIndex)],
}

impl Regions for Images<'_> {
    fn read(&mut self, origin: Origin, position: u64, buffer: &mut [u8]) -> Result<(), String> {
        let image = match origin {
            Origin::Base => self.old,
            Origin::Incremental => self.new,
            Origin::Other(number) => &self.others[usize::from(number)].0,
        };
        copy(image, position, buffer);
        Ok(())
    }
}

/// Indexes of the old image and of the others.
struct All<'a> {
    index: &'a SimilarityIndex,
    others: &'a [(Vec<u8>, SimilarityIndex)],
}

impl Indexes for All<'_> {
    fn each(&self, look: &mut dyn FnMut(Origin, &SimilarityIndex)) {
        look(Origin::Base, self.index);
        for (number, (_, index)) in (0..).zip(self.others) {
            look(Origin::Other(number), index);
        }
    }
}

/// Time that this thread has spent on a core: other programs on the machine do not count.
fn on_core() -> Duration {
    let figures = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = figures.split(' ').next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

fn copy(image: &[u8], position: u64, buffer: &mut [u8]) {
    let from = (position as usize).saturating_mul(BLOCK_BYTES).min(image.len());
    let to = (from + buffer.len()).min(image.len());
    buffer[..to - from].copy_from_slice(&image[from..to]);
    buffer[to - from..].fill(0);
}

fn difference(old: &[u8], new: &[u8]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut before = vec![0; BLOCK_BYTES];
    for (position, block) in new.chunks_exact(BLOCK_BYTES).enumerate() {
        copy(old, position as u64, &mut before);
        if before == block {
            continue;
        }
        let kind = if is_zero(block) { RunKind::Hole } else { RunKind::Data };
        match runs.last_mut() {
            Some(last) if last.kind == kind && last.end() == position as u64 => last.blocks += 1,
            _ => runs.push(Run { position: position as u64, blocks: 1, kind }),
        }
    }
    runs
}

/// What is left of `runs` where the destination makes no frame carry what it holds of the other volumes.
fn without_known(runs: Vec<Run>, new: &[u8], others: &[(Vec<u8>, SimilarityIndex)]) -> Vec<Run> {
    let blocks = others.iter().flat_map(|(image, _)| image.chunks_exact(BLOCK_BYTES));
    let known: HashSet<&[u8]> = blocks.collect();
    let mut left: Vec<Run> = Vec::new();
    for run in runs {
        for position in run.position..run.end() {
            let from = position as usize * BLOCK_BYTES;
            if run.kind == RunKind::Data && known.contains(&new[from..from + BLOCK_BYTES]) {
                continue;
            }
            match left.last_mut() {
                Some(last) if last.kind == run.kind && last.end() == position => last.blocks += 1,
                _ => left.push(Run { position, blocks: 1, kind: run.kind }),
            }
        }
    }
    left
}

/// The plan with blocks that earlier frames carried as repeats.
fn with_repeats(
    plan: FramePlan,
    known: &[Fingerprint],
    carried: &mut HashMap<Fingerprint, u64>,
) -> FramePlan {
    let mut out = FramePlan::default();
    let (mut next, mut new) = (known.iter(), Vec::new());
    for run in plan.runs {
        if run.kind != RunKind::Data {
            out.runs.push(run);
            continue;
        }
        for (position, fingerprint) in (run.position..run.end()).zip(&mut next) {
            let kind = match carried.get(fingerprint) {
                Some(from) => RunKind::Repeat { origin: Origin::Incremental, from: *from },
                None => RunKind::Data,
            };
            if kind == RunKind::Data {
                out.data_blocks += 1;
                new.push((*fingerprint, position));
            } else {
                out.repeat_blocks += 1;
            }
            match out.runs.last_mut() {
                Some(last) if last.end() == position && last.after(last.blocks).kind == kind => {
                    last.blocks += 1
                }
                _ => out.runs.push(Run { position, blocks: 1, kind }),
            }
        }
    }
    carried.extend(new);
    out
}

#[derive(Default)]
struct Figures {
    frames: u64,
    data: u64,
    repeat: u64,
    frame_bytes: u64,
    payload: u64,
    table: u64,
    raw: u64,
    compressed: u64,
    delta: u64,
    prefix: u64,
    search: Duration,
    encode: Duration,
    decode: Duration,
}

/// MB per second; 0 for what was not done, or took no time that the clock can tell.
fn rate_of(bytes: f64, time: Duration) -> u64 {
    if time.as_secs_f64() < 1e-4 { 0 } else { (bytes / 1e6 / time.as_secs_f64()) as u64 }
}

fn main() -> Result<(), Failure> {
    let (keys, paths): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|a| a.contains('='));
    let key =
        |name: &str| keys.iter().find_map(|k| k.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned);
    let new = std::fs::read(paths.first().ok_or("usage: codec NEW [OLD] [key=value ...]")?)?;
    let old = paths.get(1).map(std::fs::read).transpose()?.unwrap_or_default();
    let per_tib: u64 = key("index").map(|n| n.parse()).transpose()?.unwrap_or(171 << 20);
    let decodes = key("decode").as_deref() != Some("no");
    let mut runs = difference(&old, &new);
    let index_of = |image: &[u8]| {
        let mut index = SimilarityIndex::new((new.len() as u64 / 1024 * per_tib) >> 30);
        for (i, segment) in image.chunks(1 << 20).enumerate() {
            index.enter(i as u64 * 256, segment);
        }
        index
    };
    let mut others = Vec::new();
    for path in key("others").iter().flat_map(|list| list.split(',')) {
        let image = std::fs::read(path)?;
        let index = index_of(&image);
        others.push((image, index));
    }

    runs = without_known(runs, &new, &others);

    let start = on_core();
    let index = index_of(&old);
    let entering = on_core() - start;

    if key("effort").as_deref() == Some("zstd") {
        let (data_bytes, frame_bytes, time) = plain(&runs, &new)?;
        println!(
            "{{\"effort\":\"zstd -3\",\"data_bytes\":{data_bytes},\"repeat_bytes\":0,\"frame_bytes\":{frame_bytes},\
             \"index_bytes\":0,\"both_mbs\":{}}}",
            rate_of(data_bytes as f64, time)
        );
        return Ok(());
    }
    for (name, effort) in [
        ("raw", Effort::Raw),
        ("fast", Effort::Fast),
        ("standard", Effort::Standard),
        ("thorough", Effort::Thorough),
        ("strong", Effort::Strong),
    ] {
        if key("effort").is_some_and(|wanted| wanted != name) {
            continue;
        }
        let figures = Figures::default();
        let (figures, search) =
            run(&runs, &Images { old: &old, new: &new, others: &others }, &index, effort, decodes, figures)?;
        let rate = |time: Duration| rate_of((figures.data * BLOCK_BYTES as u64) as f64, time);
        println!(
            "{{\"effort\":\"{name}\",\"frames\":{},\"data_bytes\":{},\"repeat_bytes\":{},\"frame_bytes\":{},\"payload_bytes\":{},\
             \"table_bytes\":{},\"raw_in\":{},\"compressed_in\":{},\"delta_in\":{},\"prefix_bytes\":{},\"segments_read\":{},\
             \"index_bytes\":{},\"enter_mbs\":{},\"search_mbs\":{},\"encode_mbs\":{},\"both_mbs\":{},\"decode_mbs\":{}}}",
            figures.frames,
            figures.data * BLOCK_BYTES as u64,
            figures.repeat * BLOCK_BYTES as u64,
            figures.frame_bytes,
            figures.payload,
            figures.table,
            figures.raw * BLOCK_BYTES as u64,
            figures.compressed * BLOCK_BYTES as u64,
            figures.delta * BLOCK_BYTES as u64,
            figures.prefix,
            search.segments_read(),
            index.bytes(),
            rate_of(old.len() as f64, entering),
            rate(figures.search),
            rate(figures.encode),
            rate(figures.search + figures.encode),
            rate(figures.decode)
        );
    }
    Ok(())
}

/// What `zstd -3` makes of the bytes that frames would carry, as one stream: bytes in and out, and its time.
fn plain(runs: &[Run], new: &[u8]) -> Result<(u64, u64, Duration), Failure> {
    let failed = |code| format!("zstd: {}", zstd_safe::get_error_name(code));
    let mut repeats = HashMap::new();
    let mut context = zstd_safe::CCtx::create();
    context.set_parameter(zstd_safe::CParameter::CompressionLevel(3)).map_err(failed)?;
    let (mut data_bytes, mut frame_bytes, mut time) = (0, 0, Duration::ZERO);
    let mut room = vec![0; zstd_safe::CCtx::out_size()];
    for plan in FramePlans::new(runs.iter().map(|r| Ok::<_, std::convert::Infallible>(*r))) {
        let plan = plan?;
        let of = |run: &Run| &new[run.position as usize * BLOCK_BYTES..run.end() as usize * BLOCK_BYTES];
        let bytes: Vec<u8> = plan.data_runs().flat_map(|run| of(run).to_vec()).collect();
        let known: Vec<Fingerprint> = bytes.chunks_exact(BLOCK_BYTES).map(Fingerprint::of_block).collect();
        let plan = with_repeats(plan, &known, &mut repeats);
        let data: Vec<u8> = plan.data_runs().flat_map(|run| of(run).to_vec()).collect();
        data_bytes += data.len() as u64;
        let start = on_core();
        let mut input = zstd_safe::InBuffer::around(&data);
        while input.pos() < data.len() {
            let mut output = zstd_safe::OutBuffer::around(&mut room[..]);
            context.compress_stream(&mut output, &mut input).map_err(failed)?;
            frame_bytes += output.pos() as u64;
        }
        time += on_core() - start;
    }
    let start = on_core();
    loop {
        let mut output = zstd_safe::OutBuffer::around(&mut room[..]);
        let left = context.end_stream(&mut output).map_err(failed)?;
        frame_bytes += output.pos() as u64;
        if left == 0 {
            return Ok((data_bytes, frame_bytes, time + (on_core() - start)));
        }
    }
}

fn run(
    runs: &[Run],
    images: &Images<'_>,
    index: &SimilarityIndex,
    effort: Effort,
    decodes: bool,
    mut figures: Figures,
) -> Result<(Figures, Search), Failure> {
    let (mut encoder, mut decoder, mut search, mut repeats) =
        (Encoder::new(), Decoder::new(), Search::new(), HashMap::new());
    let (mut prefix, mut frame, mut anchors) = (Prefix::new(), Vec::new(), Anchors::new());
    let Images { old, new, others } = *images;
    let (mut images, mut index) = (Images { old, new, others }, index.clone());
    for plan in FramePlans::new(runs.iter().map(|r| Ok::<_, std::convert::Infallible>(*r))) {
        let mut plan = plan?;
        let of = |run: &Run| &new[run.position as usize * BLOCK_BYTES..run.end() as usize * BLOCK_BYTES];
        let bytes: Vec<u8> = plan.data_runs().flat_map(|run| of(run).to_vec()).collect();
        let known: Vec<Fingerprint> = bytes.chunks_exact(BLOCK_BYTES).map(Fingerprint::of_block).collect();
        plan = with_repeats(plan, &known, &mut repeats);
        let (mut data, mut was) = (Vec::new(), Vec::new());
        for run in plan.data_runs() {
            let from = data.len();
            data.extend_from_slice(of(run));
            was.resize(data.len(), 0);
            copy(old, run.position, &mut was[from..]);
        }
        let start = on_core();
        prefix.clear();
        anchors.find(&plan, &data);
        if effort >= Effort::Standard {
            let list = search.regions(&plan, &anchors, &All { index: &index, others }, &mut images);
            prefix.add_regions(&list, &mut images);
            if old.is_empty() {
                let is_strong = effort == Effort::Strong;
                prefix.add_regions(&search.recent(&list, effort), &mut images);
                let alike = search.alike(&plan, &list, if is_strong { 2 } else { 1 });
                prefix.add_regions(&alike, &mut images);
            }
        }
        let has_old = effort >= Effort::Fast && !old.is_empty();
        if has_old && search.wants_old(&data) && search.resembles_old(&data, &was) {
            prefix.add_same_place(&plan.runs, &was);
        }
        if effort >= Effort::Standard {
            search.carried(&plan, &anchors);
        }
        // What leads to similar content without a base is what the search remembers of the stream.
        if !old.is_empty() {
            index.enter_anchors(&anchors);
        }
        figures.search += on_core() - start;
        let start = on_core();
        let encoded = encoder.encode(&plan.runs, &data, &known, &mut prefix, effort, &mut frame)?;
        figures.encode += on_core() - start;
        if decodes {
            let start = on_core();
            let decoded = decoder.decode(&frame, &mut images)?;
            figures.decode += on_core() - start;
            assert!(decoded.runs == plan.runs && decoded.bytes == bytes, "a frame came back otherwise");
        }
        figures.frames += 1;
        figures.data += encoded.data_blocks;
        figures.repeat += encoded.repeat_blocks;
        figures.frame_bytes += encoded.frame_bytes as u64;
        figures.payload += encoded.payload_bytes as u64;
        figures.table += encoded.table_bytes as u64;
        *match encoded.level {
            FrameLevel::Raw => &mut figures.raw,
            FrameLevel::Compressed => &mut figures.compressed,
            FrameLevel::Delta => &mut figures.delta,
        } += encoded.data_blocks;
        figures.prefix += prefix.bytes().len() as u64;
    }
    Ok((figures, search))
}
