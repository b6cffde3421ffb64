//! What the nodes of this process have logged. One log for all tests: look for lines by a key or a port.

use std::io;
use std::sync::OnceLock;

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static STARTED: OnceLock<()> = OnceLock::new();

struct Sink;

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Sink;

    fn make_writer(&'a self) -> Sink {
        Sink
    }
}

/// Starts the log; call before the nodes start.
pub(super) fn start() {
    STARTED.get_or_init(|| {
        tracing_subscriber::fmt()
            .with_writer(Sink)
            .with_ansi(false)
            .with_max_level(tracing::Level::INFO)
            .init();
    });
}

/// Whether some line has all of `fragments`.
pub(super) fn has(fragments: &[&str]) -> bool {
    let lines = LINES.lock();
    String::from_utf8_lossy(&lines).lines().any(|line| fragments.iter().all(|f| line.contains(f)))
}

/// How many lines have all of `fragments`.
pub(super) fn count(fragments: &[&str]) -> usize {
    let lines = LINES.lock();
    let lines = String::from_utf8_lossy(&lines);
    lines.lines().filter(|line| fragments.iter().all(|f| line.contains(f))).count()
}

/// Waits for such a line.
pub(super) async fn wait_for(fragments: &[&str]) {
    let found = async {
        while !has(fragments) {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(super::site::PATIENCE, found)
        .await
        .unwrap_or_else(|_| panic!("no line with {fragments:?}"));
}

/// The whole log, to search it for what must not be there.
pub(super) fn all() -> String {
    String::from_utf8_lossy(&LINES.lock()).into_owned()
}
