//! An export in memory, thin, in 4 KiB blocks, whose calls a test can watch, delay, fail or make panic.

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_nbd::{
    ErrorKind, Export, ExportDescription, ExportListing, ExportSource, Extent, Marked, MetadataContext,
    NbdError, Write, ZeroMode,
};
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

const BLOCK: u64 = 4096;

/// A call as it reached the export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    pub name: &'static str,
    pub offset: u64,
    pub length: u64,
    pub fua: bool,
}

type Hook = Box<dyn Fn(&Call) -> Result<(), NbdError> + Send + Sync>;

pub struct MemoryExport {
    description: RwLock<ExportDescription>,
    blocks: RwLock<BTreeMap<u64, Box<[u8; BLOCK as usize]>>>,
    calls: Mutex<Vec<Call>>,
    joined: Mutex<Vec<usize>>,
    /// Says at once what lies at these offsets.
    remembered: Option<fn(u64) -> bool>,
    hook: Hook,
    pub closed: CancellationToken,
}

impl MemoryExport {
    pub fn new(size_bytes: u64) -> Self {
        let about = "in memory".to_owned();
        MemoryExport {
            description: RwLock::new(ExportDescription {
                size_bytes,
                read_only: false,
                multi_conn: true,
                about,
            }),
            blocks: RwLock::default(),
            calls: Mutex::default(),
            joined: Mutex::default(),
            remembered: None,
            hook: Box::new(|_| Ok(())),
            closed: CancellationToken::new(),
        }
    }

    /// The same, with `hook` run at the beginning of each call, on the thread that makes it.
    pub fn with_hook(
        size_bytes: u64,
        hook: impl Fn(&Call) -> Result<(), NbdError> + Send + Sync + 'static,
    ) -> Self {
        MemoryExport { hook: Box::new(hook), ..MemoryExport::new(size_bytes) }
    }

    pub fn read_only(self) -> Self {
        self.description.write().read_only = true;
        self
    }

    /// Reads go on at the same time, and what lies at some offsets is read without a call.
    pub fn remembering(self, remembered: fn(u64) -> bool) -> Self {
        MemoryExport { remembered: Some(remembered), ..self }
    }

    pub fn single_conn(self) -> Self {
        self.description.write().multi_conn = false;
        self
    }

    /// All calls so far, reads of status included.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().clone()
    }

    pub fn count(&self, wanted: impl Fn(&Call) -> bool) -> usize {
        self.calls.lock().iter().filter(|call| wanted(call)).count()
    }

    /// How many writes came together, each time.
    pub fn joined(&self) -> Vec<usize> {
        self.joined.lock().clone()
    }

    /// The bytes at `offset`, not counted as a call.
    pub fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.copy_out(offset, &mut bytes);
        bytes
    }

    /// Puts `bytes` at `offset`, not counted as a call.
    pub fn fill(&self, offset: u64, bytes: &[u8]) {
        let mut blocks = self.blocks.write();
        for (block, within, from, length) in pieces(offset, bytes.len() as u64) {
            let block = blocks.entry(block).or_insert_with(|| Box::new([0; BLOCK as usize]));
            block[within..within + length].copy_from_slice(&bytes[from..from + length]);
        }
    }

    pub fn allocated_bytes(&self) -> u64 {
        self.blocks.read().len() as u64 * BLOCK
    }

    fn copy_out(&self, offset: u64, buffer: &mut [u8]) {
        let blocks = self.blocks.read();
        for (block, within, to, length) in pieces(offset, buffer.len() as u64) {
            match blocks.get(&block) {
                Some(block) => buffer[to..to + length].copy_from_slice(&block[within..within + length]),
                None => buffer[to..to + length].fill(0),
            }
        }
    }

    fn enter(&self, name: &'static str, offset: u64, length: u64, fua: bool) -> Result<(), NbdError> {
        let size = self.description.read().size_bytes;
        assert!(offset + length <= size, "{name} of {length} bytes at {offset} was let through");
        let call = Call { name, offset, length, fua };
        self.calls.lock().push(call);
        (self.hook)(&call)
    }

    fn drop_whole_blocks(&self, offset: u64, length: u64) {
        let (first, end) = (offset.div_ceil(BLOCK), (offset + length) / BLOCK);
        if first < end {
            let mut blocks = self.blocks.write();
            let gone: Vec<u64> = blocks.range(first..end).map(|(&block, _)| block).collect();
            gone.iter().for_each(|block| drop(blocks.remove(block)));
        }
    }
}

/// Blocks touched by a range: number, first byte within it, position in the buffer, length.
fn pieces(offset: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        (at < length).then(|| {
            let (block, within) = ((offset + at) / BLOCK, (offset + at) % BLOCK);
            let piece = (BLOCK - within).min(length - at);
            let from = at as usize;
            at += piece;
            (block, within as usize, from, piece as usize)
        })
    })
}

impl Export for MemoryExport {
    fn description(&self) -> ExportDescription {
        self.description.read().clone()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), NbdError> {
        assert_eq!(buffer.as_ptr() as usize % 4096, 0, "buffers are aligned");
        self.enter("read", offset, buffer.len() as u64, false)?;
        self.copy_out(offset, buffer);
        Ok(())
    }

    fn read_at_once(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<bool> {
        let is_remembered = |offset: u64| self.remembered.is_some_and(|remembered| remembered(offset));
        let read = |(offset, buffer): &mut (u64, &mut [u8])| {
            // A call that fills a buffer and then does without.
            self.copy_out(*offset, buffer);
            is_remembered(*offset)
        };
        reads.iter_mut().map(read).collect()
    }

    fn overlaps_reads(&self) -> bool {
        self.remembered.is_some()
    }

    fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> Result<(), NbdError> {
        assert_eq!(bytes.as_ptr() as usize % 4096, 0, "buffers are aligned");
        self.enter("write", offset, bytes.len() as u64, fua)?;
        self.fill(offset, bytes);
        Ok(())
    }

    fn write_many(&self, writes: &[Write<'_>]) -> Vec<Result<(), NbdError>> {
        self.joined.lock().push(writes.len());
        writes.iter().map(|write| self.write(write.offset, write.bytes, write.fua)).collect()
    }

    fn flush(&self) -> Result<(), NbdError> {
        self.enter("flush", 0, 0, false)
    }

    fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), NbdError> {
        self.enter("trim", offset, length, fua)?;
        self.drop_whole_blocks(offset, length);
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, length: u64, mode: ZeroMode) -> Result<(), NbdError> {
        self.enter("write_zeroes", offset, length, mode.fua)?;
        if mode.fast_only && !mode.may_trim {
            return Err(NbdError::new(ErrorKind::NotSupported, "zeros that take room are slow here"));
        }
        if mode.may_trim {
            self.drop_whole_blocks(offset, length);
        }
        let end = offset + length;
        let head = (offset.next_multiple_of(BLOCK)).min(end);
        let tail = (end / BLOCK * BLOCK).max(head);
        let filled = if mode.may_trim { [(offset, head), (tail, end)] } else { [(offset, end), (end, end)] };
        for (from, to) in filled {
            self.fill(from, &vec![0; (to - from) as usize]);
        }
        Ok(())
    }

    fn block_status(&self, offset: u64, length: u64, extents_max: usize) -> Result<Vec<Extent>, NbdError> {
        self.enter("block_status", offset, length, false)?;
        let blocks = self.blocks.read();
        let mut extents: Vec<Extent> = Vec::new();
        for (block, _, _, length) in pieces(offset, length) {
            let hole = !blocks.contains_key(&block);
            let is_full = extents.len() == extents_max;
            match extents.last_mut() {
                Some(last) if last.hole == hole => last.length += length as u64,
                _ if is_full => break,
                _ => extents.push(Extent { length: length as u64, hole, zero: hole }),
            }
        }
        Ok(extents)
    }

    fn context(&self, name: &str) -> Result<Arc<dyn MetadataContext>, NbdError> {
        match name.strip_prefix(MULTIPLES).and_then(|number| number.parse().ok()) {
            Some(number) => Ok(Arc::new(Multiples(number))),
            None => Err(NbdError::new(ErrorKind::Invalid, name)),
        }
    }

    fn cache(&self, offset: u64, length: u64) -> Result<(), NbdError> {
        self.enter("cache", offset, length, false)
    }

    fn closed(&self) -> CancellationToken {
        self.closed.clone()
    }
}

/// Contexts of every export begin so; a number from 1 to 99 follows.
pub const MULTIPLES: &str = "test:multiples:";

/// Says of each block whether its number is a multiple.
struct Multiples(u64);

impl MetadataContext for Multiples {
    fn status(&self, offset: u64, length: u64, runs_max: usize) -> Result<Vec<Marked>, NbdError> {
        let blocks = pieces(offset, length).take(runs_max);
        Ok(blocks
            .map(|(block, _, _, length)| Marked {
                length: length as u64,
                flags: block.is_multiple_of(self.0).into(),
            })
            .collect())
    }
}

/// Exports by name.
#[derive(Default)]
pub struct MemorySource {
    exports: BTreeMap<String, Arc<MemoryExport>>,
}

impl MemorySource {
    pub fn with(mut self, name: &str, export: &Arc<MemoryExport>) -> Self {
        self.exports.insert(name.to_owned(), Arc::clone(export));
        self
    }
}

impl ExportSource for MemorySource {
    fn list(&self) -> Vec<ExportListing> {
        let listing = |(name, export): (&String, &Arc<MemoryExport>)| ExportListing {
            name: name.clone(),
            about: export.description().about,
        };
        self.exports.iter().map(listing).collect()
    }

    fn contexts(&self, _: &str, queries: &[String], set: bool) -> Result<Vec<String>, NbdError> {
        let all: Vec<String> = (1..100).map(|number| format!("{MULTIPLES}{number}")).collect();
        if !set && (queries.is_empty() || queries.iter().any(|query| query == "test:")) {
            return Ok(all);
        }
        Ok(queries.iter().filter(|query| all.contains(query)).cloned().collect())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Export>, NbdError> {
        match self.exports.get(name) {
            Some(export) => Ok(Arc::clone(export) as Arc<dyn Export>),
            None => Err(NbdError::new(ErrorKind::UnknownExport, format_args!("no export named {name:?}"))),
        }
    }
}
