//! What a check is asked to do, and what it tells while it runs.

/// What to check.
pub struct CheckOptions {
    /// Read every data block and compare it with its fingerprint. Without it only metadata is read, about 1 % of
    /// the pool.
    pub read_data: bool,
    /// Apply the journal virtually and report the versions as an opening would find them.
    pub replay: bool,
    /// Findings beyond this many are counted, not kept.
    pub findings_max: usize,
    /// Called now and then, at least every 64 MiB read.
    pub progress: Option<ProgressCallback>,
}

/// See [`CheckOptions::progress`].
pub type ProgressCallback = Box<dyn Fn(Progress) + Send + Sync>;

impl Default for CheckOptions {
    fn default() -> Self {
        CheckOptions { read_data: true, replay: true, findings_max: 1000, progress: None }
    }
}

impl std::fmt::Debug for CheckOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckOptions")
            .field("read_data", &self.read_data)
            .field("replay", &self.replay)
            .field("findings_max", &self.findings_max)
            .finish_non_exhaustive()
    }
}

/// How far a check is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// What it is at, for people.
    pub stage: &'static str,
    /// Bytes read so far.
    pub bytes_read: u64,
    /// Bytes that the newest point has in use; nearly all of them are read once if data is read. 0 while unknown.
    pub bytes_in_use: u64,
}
