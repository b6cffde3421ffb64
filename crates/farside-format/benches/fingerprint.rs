//! What fingerprinting costs: blocks from cache and from memory, and nodes.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use farside_format::{BLOCK_BYTES, FAN_OUT, Fingerprint};

/// Bytes that are no zeros and differ from block to block.
fn data(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

fn blocks(c: &mut Criterion) {
    let mut group = c.benchmark_group("fingerprint");
    group.sample_size(20);
    // 1 MiB stays in the second-level cache of most machines; 64 MiB comes from memory.
    for (name, length) in [("of_block 1 MiB in cache", 1 << 20), ("of_block 64 MiB", 64 << 20)] {
        let bytes = data(length);
        group.throughput(Throughput::Bytes(length as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                for block in black_box(&bytes).chunks_exact(BLOCK_BYTES) {
                    black_box(Fingerprint::of_block(block));
                }
            });
        });
    }
    let zeros = vec![0; 1 << 20];
    group.throughput(Throughput::Bytes(zeros.len() as u64));
    group.bench_function("of_block 1 MiB of zeros", |b| {
        b.iter(|| {
            for block in black_box(&zeros).chunks_exact(BLOCK_BYTES) {
                black_box(Fingerprint::of_block(block));
            }
        });
    });
    group.finish();
}

fn nodes(c: &mut Criterion) {
    let bytes = data(FAN_OUT * 16);
    let children: [Fingerprint; FAN_OUT] = std::array::from_fn(|i| {
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&bytes[i * 16..][..16]);
        Fingerprint(fingerprint)
    });
    let mut group = c.benchmark_group("fingerprint");
    group.throughput(Throughput::Elements(1));
    group.bench_function("of_node", |b| b.iter(|| Fingerprint::of_node(1, black_box(&children))));
    group.bench_function("raise from level 1 to 6", |b| b.iter(|| black_box(children[0]).raise(1, 6)));
    group.finish();
}

criterion_group!(benches, blocks, nodes);
criterion_main!(benches);
