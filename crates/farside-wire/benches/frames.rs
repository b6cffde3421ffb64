//! Encode and decode of one 1 MiB frame: alone, against the base at the same place.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use farside_format::Fingerprint;
use farside_wire::{
    BLOCK_BYTES, Decoder, Effort, Encoder, Origin, Prefix, Regions, Run, RunKind, TARGET_BLOCKS,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const SEED: u64 = 7;

/// Rows of a table: text that repeats in parts, as databases and logs do.
fn rows(rng: &mut SmallRng, bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes + 100);
    while out.len() < bytes {
        let (id, amount) = (rng.random_range(0..50_000u32), rng.random::<u32>());
        out.extend_from_slice(
            format!("order {id:08} customer {:05} amount {amount} open;", id / 7).as_bytes(),
        );
    }
    out.truncate(bytes);
    out
}

struct Base(Vec<u8>);

impl Regions for Base {
    fn read(&mut self, _: Origin, position: u64, buffer: &mut [u8]) -> Result<(), String> {
        let from = position as usize * BLOCK_BYTES;
        buffer.copy_from_slice(&self.0[from..from + buffer.len()]);
        Ok(())
    }
}

fn frames(criterion: &mut Criterion) {
    let mut rng = SmallRng::seed_from_u64(SEED);
    let bytes = TARGET_BLOCKS as usize * BLOCK_BYTES;
    let old = rows(&mut rng, bytes);
    let mut new = old.clone();
    for block in new.chunks_mut(BLOCK_BYTES) {
        let at = rng.random_range(0..BLOCK_BYTES - 100);
        rng.fill(&mut block[at..at + 100]);
    }
    let runs = [Run { position: 0, blocks: TARGET_BLOCKS.into(), kind: RunKind::Data }];
    let mut with_base = Prefix::new();
    with_base.add_same_place(&runs, &old);

    let mut group = criterion.benchmark_group("frame");
    group.throughput(Throughput::Bytes(bytes as u64)).sample_size(20);
    let known: Vec<Fingerprint> = new.chunks_exact(BLOCK_BYTES).map(Fingerprint::of_block).collect();
    for (name, mut prefix) in [("alone", Prefix::new()), ("same_place", with_base)] {
        let (mut encoder, mut frame) = (Encoder::new(), Vec::new());
        group.bench_function(format!("encode/{name}"), |b| {
            b.iter(|| {
                encoder
                    .encode(&runs, black_box(&new), &known, &mut prefix, Effort::Standard, &mut frame)
                    .expect("the input is well-formed")
            });
        });
        let mut decoder = Decoder::new();
        let mut base = Base(old.clone());
        group.bench_function(format!("decode/{name}"), |b| {
            b.iter(|| decoder.decode(black_box(&frame), &mut base).expect("the frame is whole"));
        });
    }
    group.finish();
}

criterion_group!(benches, frames);
criterion_main!(benches);
