//! The process of these tests: a shell script in a directory of its own.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use farside_peer::Identity;
use tempfile::TempDir;

/// Longer than anything takes, also on a machine that is too busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A directory with the program, what it shall do, and what it was told; it is a data directory, too.
pub(super) struct Fake {
    directory: TempDir,
}

impl Fake {
    pub(super) fn new(mode: &str) -> Fake {
        let fake = Fake { directory: tempfile::tempdir().unwrap() };
        let program = fake.program();
        std::fs::write(&program, include_str!("fake.sh")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Identity::load_or_create(fake.path()).unwrap();
        fake.becomes(mode);
        fake
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn program(&self) -> PathBuf {
        self.path().join("fake.sh")
    }

    /// What the next process does.
    pub(super) fn becomes(&self, mode: &str) {
        std::fs::write(self.path().join("mode"), mode).unwrap();
    }

    /// The process that runs hangs, or not.
    pub(super) fn hangs(&self, hangs: bool) {
        let file = self.path().join("hang");
        if hangs { std::fs::write(file, "").unwrap() } else { std::fs::remove_file(file).unwrap() }
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// What all processes were told.
    pub(super) fn requests(&self) -> Vec<String> {
        self.lines("requests")
    }

    /// Process ids and times in milliseconds of all that were started.
    pub(super) fn starts(&self) -> Vec<(u32, u64)> {
        let parse = |line: &String| {
            let (pid, at) = line.split_once(' ').unwrap();
            (pid.parse().unwrap(), at.parse().unwrap())
        };
        self.lines("starts").iter().map(parse).collect()
    }

    /// Whether the last process has ended in order: it saw its socket's end.
    pub(super) fn ended_in_order(&self) -> bool {
        self.lines("ended").last() == self.starts().last().map(|(pid, _)| pid.to_string()).as_ref()
    }

    /// Whether a process is there, be it dead and not reaped.
    pub(super) fn is_there(pid: u32) -> bool {
        Path::new("/proc").join(pid.to_string()).exists()
    }
}

/// Polls until it is so.
pub(super) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
