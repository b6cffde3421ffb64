//! 16 MiB of a stream through the chunk store: said for the first time (noise, text), said again, and read back.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use farside_chunks::cut::first_chunk;
use farside_chunks::stream::BLOCK_BYTES_MAX;
use farside_chunks::{
    ChunkStore, KnownAtPeer, RealmId, StoreSettings, StreamDecoder, StreamEncoder, StreamSettings,
};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

const BYTES: usize = 16 << 20;
const REALM: RealmId = RealmId([1; 16]);

/// Rows of a table: text that repeats in parts, as databases and logs do.
fn rows(rng: &mut SmallRng) -> Vec<u8> {
    let mut out = Vec::with_capacity(BYTES + 100);
    while out.len() < BYTES {
        let (id, amount) = (rng.random_range(0..50_000u32), rng.random::<u32>());
        let row = format!("order {id:08} customer {:05} amount {amount} open;", id / 7);
        out.extend_from_slice(row.as_bytes());
    }
    out.truncate(BYTES);
    out
}

struct Site {
    store: ChunkStore,
    known: Arc<Mutex<KnownAtPeer>>,
    _directory: tempfile::TempDir,
}

impl Site {
    fn new() -> Site {
        let directory = tempfile::tempdir().expect("a directory for files of a benchmark");
        let store = ChunkStore::open(directory.path(), StoreSettings { bytes: 1 << 30 });
        Site { store: store.expect("an empty directory"), known: Arc::default(), _directory: directory }
    }

    fn encode(&self, stream: &[u8]) -> Vec<Vec<u8>> {
        let mut encoder =
            StreamEncoder::new(self.store.realm(REALM), self.known.clone(), StreamSettings::default());
        let (mut blocks, mut at) = (Vec::new(), 0);
        while at < stream.len() {
            let mut block = Vec::new();
            let is_end = stream.len() - at <= BLOCK_BYTES_MAX;
            at += encoder.encode(&stream[at..], is_end, &mut block).consumed;
            blocks.push(block);
        }
        blocks
    }

    fn decode(&self, blocks: &[Vec<u8>]) -> usize {
        let mut decoder = StreamDecoder::new(self.store.realm(REALM));
        let (mut out, mut bytes) = (Vec::new(), 0);
        for block in blocks {
            out.clear();
            decoder.decode(black_box(block), &mut out).expect("a block of this benchmark");
            bytes += out.len();
        }
        bytes
    }
}

fn streams(criterion: &mut Criterion) {
    let mut rng = SmallRng::seed_from_u64(7);
    let mut noise = vec![0; BYTES];
    rng.fill_bytes(&mut noise);
    let text = rows(&mut rng);

    let mut group = criterion.benchmark_group("stream");
    group.throughput(Throughput::Bytes(BYTES as u64)).sample_size(10);
    group.bench_function("cut", |b| {
        b.iter(|| {
            let mut at = 0;
            while let Some(length) = first_chunk(black_box(&noise[at..]), true) {
                at += length;
            }
            at
        });
    });
    for (name, stream) in [("noise", &noise), ("text", &text)] {
        group.bench_function(format!("encode/cold/{name}"), |b| {
            b.iter_batched_ref(Site::new, |a| a.encode(stream), BatchSize::PerIteration);
        });
        let (a, b) = (Site::new(), Site::new());
        let cold = a.encode(stream);
        group.bench_function(format!("decode/cold/{name}"), |bencher| {
            bencher.iter_batched_ref(Site::new, |b| b.decode(&cold), BatchSize::PerIteration);
        });
        let news = b.store.realm(REALM).listen();
        b.decode(&cold);
        a.known.lock().heed(&news.take());
        group.bench_function(format!("encode/warm/{name}"), |b| b.iter(|| a.encode(stream)));
        let warm = a.encode(stream);
        group.bench_function(format!("decode/warm/{name}"), |bencher| bencher.iter(|| b.decode(&warm)));
    }
    group.finish();
}

criterion_group!(benches, streams);
criterion_main!(benches);
