//! What frames make of real data: `frame_sizes NEW [OLD]` prints the bytes that a first copy of the image NEW, or its
//! update from the image OLD, would put on the wire. Compare with `zstd -3 NEW`. Every frame is decoded and compared.

use std::time::{Duration, Instant};

use farside_format::fingerprint::is_zero;
use farside_wire::{BLOCK_BYTES, Decoder, Encoder, FramePlans, History, Prefix, PrefixSource, Run, RunKind};

struct Old(Vec<u8>);

impl PrefixSource for Old {
    fn read_base(&mut self, position: u64, buffer: &mut [u8]) -> Result<(), String> {
        copy(&self.0, position, buffer);
        Ok(())
    }
}

fn copy(image: &[u8], position: u64, buffer: &mut [u8]) {
    buffer.fill(0);
    let from = (position as usize * BLOCK_BYTES).min(image.len());
    let to = (from + buffer.len()).min(image.len());
    buffer[..to - from].copy_from_slice(&image[from..to]);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let new = std::fs::read(arguments.next().ok_or("usage: frame_sizes NEW [OLD]")?)?;
    let old = arguments.next().map(std::fs::read).transpose()?;
    let is_update = old.is_some();
    let mut old = Old(old.unwrap_or_default());

    let mut runs: Vec<Run> = Vec::new();
    let mut before = vec![0; BLOCK_BYTES];
    for (position, block) in new.chunks_exact(BLOCK_BYTES).enumerate() {
        copy(&old.0, position as u64, &mut before);
        if before == block {
            continue;
        }
        let kind = if is_zero(block) { RunKind::Hole } else { RunKind::Data };
        match runs.last_mut() {
            Some(last) if last.kind == kind && last.end() == position as u64 => last.blocks += 1,
            _ => runs.push(Run { position: position as u64, blocks: 1, kind }),
        }
    }

    let (mut encoder, mut decoder, mut history) = (Encoder::new(), Decoder::new(), History::new());
    let (mut prefix, mut frame) = (Prefix::new(), Vec::new());
    let (mut frames, mut changed, mut wire, mut payload, mut same_place) = (0, 0, 0, 0, 0);
    let (mut encoding, mut decoding) = (Duration::ZERO, Duration::ZERO);
    for plan in FramePlans::new(runs.iter().map(|r| Ok::<_, std::convert::Infallible>(*r))) {
        let plan = plan?;
        let (mut data, mut was) = (Vec::new(), Vec::new());
        for run in plan.data_runs() {
            let from = data.len();
            let bytes = run.blocks as usize * BLOCK_BYTES;
            data.resize(from + bytes, 0);
            copy(&new, run.position, &mut data[from..]);
            was.resize(from + bytes, 0);
            copy(&old.0, run.position, &mut was[from..]);
        }
        let start = Instant::now();
        prefix.clear();
        prefix.add_history(&history);
        if is_update {
            prefix.add_same_place(&plan.runs, &was);
        }
        let encoded = encoder.encode(&plan.runs, &data, &prefix, &mut frame)?;
        history.push(&data);
        encoding += start.elapsed();
        let start = Instant::now();
        let decoded = decoder.decode(&frame, &mut old)?;
        decoding += start.elapsed();
        assert_eq!((decoded.runs, decoded.data), (plan.runs, data));
        frames += 1;
        changed += plan.data_blocks as usize * BLOCK_BYTES;
        wire += encoded.frame_bytes;
        payload += encoded.payload_bytes;
        same_place += prefix.base_blocks();
    }
    let rate = |time: Duration| changed as f64 / 1e6 / time.as_secs_f64();
    println!(
        "{frames} frames, {changed} bytes of data, {same_place} old blocks in prefixes: {payload} bytes of payload, {wire} of \
         frames; encode {:.0} MB/s, decode {:.0} MB/s",
        rate(encoding),
        rate(decoding)
    );
    Ok(())
}
