//! What the chunk store makes of real streams: `streams OLD [NEW] [key=value ...]` prints one line of JSON per effort with
//! the bytes on the wire and the speed of both ends by their own processor time, for OLD with empty stores (cold), for OLD
//! once more (warm), and for NEW after it (update). Every byte is decoded and compared. The bound is `zstd -9 --long=27` of
//! the same bytes in one piece.
//!
//! Keys: `effort=fast|standard|thorough|strong` (default: all), `level=N`, `window=LOG`, `bound=no`, `most=BYTES` of each file.
//! `log:DAY` in place of a file is a web server's log of that day. Blocks are made as the accelerator makes them of a flow that always has something to send.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use farside_chunks::stream::BLOCK_BYTES_MAX;
use farside_chunks::{
    ChunkStore, Effort, KnownAtPeer, RealmId, StoreSettings, StreamDecoder, StreamEncoder, StreamSettings,
};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, zstd_sys::ZSTD_EndDirective};

type Failure = Box<dyn std::error::Error>;

const REALM: RealmId = RealmId([1; 16]);
/// As in `carry/send.rs` of the accelerator.
const GATHER_FIRST: usize = 64 << 10;
const ON_THE_WIRE: (usize, usize) = (16 << 10, 96 << 10);
const SETTINGS_EVERY: usize = 32;
/// As in `trunk/effort.rs`.
const WINDOW_LOG_FIRST: u32 = 20;
/// Kind, length, flow and number of a frame around a block.
const FRAME: usize = 12;

/// Time that this thread has spent on a core: other programs on the machine do not count.
fn on_core() -> Duration {
    let figures = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = figures.split(' ').next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

struct Site {
    store: ChunkStore,
    known: Arc<Mutex<KnownAtPeer>>,
    _directory: tempfile::TempDir,
}

impl Site {
    fn new() -> Result<Site, Failure> {
        let directory = tempfile::tempdir()?;
        let store = ChunkStore::open(directory.path(), StoreSettings { bytes: 4 << 30 })?;
        Ok(Site { store, known: Arc::default(), _directory: directory })
    }
}

#[derive(Default)]
struct Cost {
    bytes: usize,
    wire: usize,
    blocks: usize,
    encoding: Duration,
    decoding: Duration,
}

impl Cost {
    fn json(&self) -> String {
        let rate = |time: Duration| self.bytes as f64 / 1e6 / time.as_secs_f64().max(1e-9);
        format!(
            "{{\"bytes\":{},\"wire\":{},\"blocks\":{},\"encode_mb_s\":{:.0},\"decode_mb_s\":{:.0}}}",
            self.bytes,
            self.wire,
            self.blocks,
            rate(self.encoding),
            rate(self.decoding)
        )
    }
}

/// A flow from one site to the other.
fn send(from: &Site, to: &Site, settings: StreamSettings, stream: &[u8]) -> Result<Cost, Failure> {
    let news = to.store.realm(REALM).listen();
    let mut cost = Cost { bytes: stream.len(), ..Cost::default() };
    let began = on_core();
    let first = StreamSettings { window_log: settings.window_log.min(WINDOW_LOG_FIRST), ..settings };
    let mut encoder = StreamEncoder::new(from.store.realm(REALM), from.known.clone(), first);
    let (mut blocks, mut at, mut wanted) = (Vec::new(), 0, GATHER_FIRST);
    while at < stream.len() {
        let end = (at + wanted).min(stream.len());
        if blocks.len() == SETTINGS_EVERY {
            encoder.set(settings);
        }
        let mut block = Vec::new();
        let sent = encoder.encode(&stream[at..end], end == stream.len(), &mut block).consumed;
        if block.len() < ON_THE_WIRE.0 {
            wanted = (2 * wanted).min(BLOCK_BYTES_MAX);
        } else if block.len() > ON_THE_WIRE.1 {
            wanted = (wanted / 2).max(GATHER_FIRST);
        }
        at += sent;
        if sent > 0 {
            cost.wire += block.len() + FRAME;
            blocks.push(block);
        }
    }
    cost.encoding = on_core() - began;
    cost.blocks = blocks.len();
    drop(encoder);
    let began = on_core();
    let mut decoder = StreamDecoder::new(to.store.realm(REALM)).telling(to.known.clone());
    let (mut out, mut at, mut comparing) = (Vec::new(), 0, Duration::ZERO);
    for block in &blocks {
        out.clear();
        decoder.decode(block, &mut out)?;
        let since = on_core();
        if !stream[at..].starts_with(&out) {
            return Err("other bytes".into());
        }
        at += out.len();
        comparing += on_core() - since;
    }
    cost.decoding = on_core() - began - comparing;
    if at != stream.len() {
        return Err("fewer bytes".into());
    }
    from.known.lock().heed(&news.take());
    Ok(cost)
}

/// Bytes of `zstd -9 --long=27`.
fn bound(bytes: &[u8]) -> Result<usize, Failure> {
    let mut context = CCtx::create();
    let all = [
        CParameter::CompressionLevel(9),
        CParameter::WindowLog(27),
        CParameter::EnableLongDistanceMatching(true),
    ];
    for parameter in all {
        context.set_parameter(parameter).map_err(zstd_safe::get_error_name)?;
    }
    let (mut written, mut buffer) = (0, vec![0; 1 << 20]);
    let mut input = InBuffer::around(bytes);
    loop {
        let mut output = OutBuffer::around(&mut buffer[..]);
        let left = context
            .compress_stream2(&mut output, &mut input, ZSTD_EndDirective::ZSTD_e_end)
            .map_err(zstd_safe::get_error_name)?;
        written += output.pos();
        if left == 0 {
            return Ok(written);
        }
    }
}

/// Lines as a web server writes them; days have visitors and pages in common.
fn log(day: u64, bytes: usize) -> Vec<u8> {
    const AGENTS: [&str; 4] = [
        "Mozilla/5.0 (X11; Linux x86_64; rv:115.0) Gecko/20100101 Firefox/115.0",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
        "curl/7.88.1",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5",
    ];
    let mut common = SmallRng::seed_from_u64(0);
    let addresses: Vec<[u8; 4]> = (0..4000).map(|_| common.random()).collect();
    let pages: Vec<u32> = (0..3000).map(|_| common.random_range(0..100_000)).collect();
    let mut rng = SmallRng::seed_from_u64(day);
    let (mut out, mut millis) = (Vec::with_capacity(bytes + 512), 0u64);
    while out.len() < bytes {
        millis += rng.random_range(0..200);
        // Few are asked for often.
        let mut few = |of: usize| (of as f64 * rng.random::<f64>().powi(4)) as usize;
        let ([a, b, c, d], page) = (addresses[few(4000)], pages[few(3000)]);
        let (second, status) = (millis / 1000, if rng.random_ratio(9, 10) { 200 } else { 304 });
        let line = format!(
            "{a}.{b}.{c}.{d} - - [{day:02}/Nov/2026:{:02}:{:02}:{:02} +0000] \"GET /shop/item/{page}?s={:08x} HTTP/1.1\" \
             {status} {} \"-\" \"{}\"\n",
            second / 3600 % 24,
            second / 60 % 60,
            second % 60,
            rng.random::<u32>(),
            rng.random_range(200..90_000),
            AGENTS[rng.random_range(0..AGENTS.len())],
        );
        out.extend_from_slice(line.as_bytes());
    }
    out.truncate(bytes);
    out
}

fn main() -> Result<(), Failure> {
    let (mut files, mut keys) = (Vec::new(), HashMap::new());
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some((key, value)) => drop(keys.insert(key.to_owned(), value.to_owned())),
            None => files.push(argument),
        }
    }
    let most: u64 = keys.get("most").map_or(Ok(128 << 20), |most| most.parse())?;
    let read = |path: &String| -> Result<Vec<u8>, Failure> {
        if let Some(day) = path.strip_prefix("log:") {
            return Ok(log(day.parse()?, most.min(64 << 20) as usize));
        }
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let old = read(files.first().ok_or("usage: streams OLD [NEW] [key=value ...]")?)?;
    let new = files.get(1).map(read).transpose()?;
    let has_bound = keys.get("bound").is_none_or(|bound| bound != "no");
    let bound_of = |bytes: &[u8]| if has_bound { bound(bytes) } else { Ok(0) };
    let (old_bound, new_bound) = (bound_of(&old)?, new.as_deref().map(bound_of).transpose()?.unwrap_or(0));
    for effort in Effort::ALL
        .into_iter()
        .filter(|effort| keys.get("effort").is_none_or(|wanted| wanted == effort.name()))
    {
        let mut settings = StreamSettings::spending(effort);
        if let Some(level) = keys.get("level") {
            settings.level = level.parse()?;
        }
        if let Some(window) = keys.get("window") {
            settings.window_log = window.parse()?;
        }
        let (a, b) = (Site::new()?, Site::new()?);
        let cold = send(&a, &b, settings, &old)?;
        let warm = send(&a, &b, settings, &old)?;
        let update = new.as_deref().map(|new| send(&a, &b, settings, new)).transpose()?;
        println!(
            "{{\"effort\":\"{}\",\"bound\":{old_bound},\"of_bound\":{:.3},\"cold\":{},\"warm\":{}{}}}",
            effort.name(),
            old_bound as f64 / cold.wire as f64,
            cold.json(),
            warm.json(),
            update.map_or_else(String::new, |update| format!(
                ",\"update_bound\":{new_bound},\"update\":{}",
                update.json()
            )),
        );
    }
    Ok(())
}
