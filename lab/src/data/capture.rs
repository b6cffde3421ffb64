//! Writes a volume's image and measures it in the same pass: holes, SHA-256, what changed since the generation before,
//! and what `zstd -3` makes of it. Memory: two batches.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::JoinHandle;

use super::error::DataError;
use super::manifest::{BLOCK_BYTES, Changed, Volume};
use super::program;

/// Bytes handled at once: large enough that the pipes to the measuring programs cost nothing, small enough for the cache.
const BATCH_BYTES: usize = 1024 * 1024;

/// An image that is being written from its first byte to its last.
pub(super) struct VolumeWriter {
    path: PathBuf,
    image: File,
    size_bytes: u64,
    /// Bytes that were handled already; a whole number of batches until the last.
    handled: u64,
    batch: Vec<u8>,
    data_blocks: u64,
    sha256: Meter,
    zstd: Meter,
    before: Option<Before>,
}

/// The same volume in the generation before.
struct Before {
    path: PathBuf,
    image: File,
    batch: Vec<u8>,
    blocks: u64,
    blocks_from_zero: u64,
    zstd: Meter,
}

impl VolumeWriter {
    /// An image of that size at `path`, compared with `before` where there is one (of the same size).
    pub(super) fn create(path: &Path, size_bytes: u64, before: Option<&Path>) -> Result<Self, DataError> {
        let image = File::create_new(path).map_err(DataError::io("create", path))?;
        let before = match before {
            None => None,
            Some(path) => Some(Before {
                path: path.to_owned(),
                image: File::open(path).map_err(DataError::io("open", path))?,
                batch: Vec::new(),
                blocks: 0,
                blocks_from_zero: 0,
                zstd: Meter::zstd()?,
            }),
        };
        Ok(Self {
            path: path.to_owned(),
            image,
            size_bytes,
            handled: 0,
            batch: Vec::with_capacity(BATCH_BYTES),
            data_blocks: 0,
            sha256: Meter::sha256()?,
            zstd: Meter::zstd()?,
            before,
        })
    }

    /// Appends bytes, any number.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<(), DataError> {
        while !bytes.is_empty() {
            let taken = bytes.len().min(BATCH_BYTES - self.batch.len());
            self.batch.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if self.batch.len() == BATCH_BYTES {
                self.handle_batch()?;
            }
        }
        Ok(())
    }

    /// Fills the rest with zeros up to the image's size, and tells what it is.
    pub(super) fn finish(mut self) -> Result<Volume, DataError> {
        self.handle_batch()?;
        let zeros = vec![0; BATCH_BYTES];
        while self.handled < self.size_bytes {
            let missing = usize::try_from(self.size_bytes - self.handled).unwrap_or(usize::MAX);
            self.batch.extend_from_slice(&zeros[..missing.min(BATCH_BYTES)]);
            self.handle_batch()?;
        }
        assert_eq!(self.handled, self.size_bytes, "the recipe wrote more than the volume holds");
        self.image.set_len(self.size_bytes).map_err(DataError::io("set the length of", &self.path))?;
        let changed = match self.before {
            None => None,
            Some(before) => Some(Changed {
                blocks: before.blocks,
                blocks_from_zero: before.blocks_from_zero,
                zstd3_bytes: before.zstd.finish()?.bytes,
            }),
        };
        let sha256 = self.sha256.finish()?;
        Ok(Volume {
            file: self.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            size_bytes: self.size_bytes,
            data_bytes: self.data_blocks * BLOCK_BYTES,
            sha256: sha256.first_word(),
            zstd3_bytes: self.zstd.finish()?.bytes,
            changed,
        })
    }

    fn handle_batch(&mut self) -> Result<(), DataError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.sha256.write(&self.batch)?;
        self.zstd.write(&self.batch)?;
        if let Some(before) = &mut self.before {
            before.batch.resize(self.batch.len(), 0);
            before
                .image
                .read_exact_at(&mut before.batch, self.handled)
                .map_err(DataError::io("read", &before.path))?;
        }
        let block_bytes = BLOCK_BYTES as usize;
        // Where the run of blocks began that is not written yet.
        let mut run_start = None;
        for (number, block) in self.batch.chunks(block_bytes).enumerate() {
            let start = number * block_bytes;
            if is_zero(block) {
                if let Some(run_start) = run_start.take() {
                    write_run(
                        &self.image,
                        &self.path,
                        &self.batch[run_start..start],
                        self.handled + run_start as u64,
                    )?;
                }
            } else {
                self.data_blocks += 1;
                run_start.get_or_insert(start);
            }
            if let Some(before) = &mut self.before {
                let old = &before.batch[start..start + block.len()];
                if old != block {
                    before.blocks += 1;
                    before.blocks_from_zero += u64::from(is_zero(old));
                    before.zstd.write(block)?;
                }
            }
        }
        if let Some(run_start) = run_start {
            write_run(&self.image, &self.path, &self.batch[run_start..], self.handled + run_start as u64)?;
        }
        self.handled += self.batch.len() as u64;
        self.batch.clear();
        Ok(())
    }
}

fn write_run(image: &File, path: &Path, bytes: &[u8], at: u64) -> Result<(), DataError> {
    image.write_all_at(bytes, at).map_err(DataError::io("write", path))
}

/// Whether a block, or less, is all zero. Comparing memory is fast in every build.
fn is_zero(block: &[u8]) -> bool {
    const ZERO: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];
    *block == ZERO[..block.len()]
}

/// A program that reads what is measured and whose output is the measure.
pub(super) struct Meter {
    name: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    output: Option<JoinHandle<std::io::Result<Output>>>,
}

/// What a measuring program put out.
pub(super) struct Output {
    /// How many bytes.
    pub(super) bytes: u64,
    /// The first of them, at most [`HEAD_BYTES`].
    head: Vec<u8>,
}

/// A SHA-256 in hex and what `sha256sum` writes behind it.
const HEAD_BYTES: usize = 128;

impl Output {
    /// The first word: the sum, of `sha256sum`.
    pub(super) fn first_word(&self) -> String {
        String::from_utf8_lossy(&self.head).split_whitespace().next().unwrap_or_default().to_owned()
    }
}

impl Meter {
    pub(super) fn sha256() -> Result<Self, DataError> {
        Self::start("sha256sum", &[])
    }

    /// One thread, and no more memory than level 3 takes.
    pub(super) fn zstd() -> Result<Self, DataError> {
        Self::start("zstd", &["-3", "-q", "-c"])
    }

    fn start(name: &'static str, arguments: &[&str]) -> Result<Self, DataError> {
        let mut command = Command::new(name);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = program::spawn(name, &mut command)?;
        let input = child.stdin.take();
        let output = child.stdout.take().map(|output| std::thread::spawn(move || drain(output)));
        Ok(Self { name, child, input, output })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        let Some(input) = &mut self.input else { return Ok(()) };
        input.write_all(bytes).map_err(DataError::io("write to the program", Path::new(self.name)))
    }

    pub(super) fn finish(mut self) -> Result<Output, DataError> {
        drop(self.input.take());
        let failed = |said: &str, status: String| DataError::Program {
            what: self.name.to_owned(),
            status,
            said: said.to_owned(),
        };
        let output = match self.output.take().map(JoinHandle::join) {
            Some(Ok(Ok(output))) => output,
            _ => return Err(failed("its output could not be read", "unknown status".to_owned())),
        };
        let status = self.child.wait().map_err(DataError::io("wait for", Path::new(self.name)))?;
        if !status.success() {
            return Err(failed("nothing", status.to_string()));
        }
        Ok(output)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        drop(self.input.take());
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn drain(mut output: impl Read) -> std::io::Result<Output> {
    let mut drained = Output { bytes: 0, head: Vec::new() };
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = output.read(&mut buffer)?;
        if read == 0 {
            return Ok(drained);
        }
        let wanted = read.min(HEAD_BYTES.saturating_sub(drained.head.len()));
        drained.head.extend_from_slice(&buffer[..wanted]);
        drained.bytes += read as u64;
    }
}
