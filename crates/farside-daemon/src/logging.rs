//! Log lines: to stderr, and the newest of them in memory for `farside support-bundle`.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use farside_platform::{LogOutput, LostLines};
use parking_lot::Mutex;
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::fmt::{FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::error::DaemonError;
use crate::options::{Config, LogFormat};

/// Lines kept in memory.
const KEPT_LINES_MAX: usize = 10_000;
/// Their bytes; whichever limit is met first.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// Longest kept line, bytes; the rest of it is cut. A reason that a peer gave has up to 1 KiB.
const KEPT_LINE_MAX: usize = 8 << 10;

/// Standard error is said to stand still when one line has been on its way for so long: a terminal that scrolls and a busy
/// journal take less.
const STANDS_STILL_AFTER: Duration = Duration::from_secs(5);
/// How long the last lines may make no progress before the process ends without them.
const LAST_LINES_PATIENCE: Duration = Duration::from_millis(500);

/// What libraries say of bytes that strangers sent: each connection would be a line. What came of it is said by whoever was
/// called. A filter that names them goes before it.
const QUIET: &str = "rustls=error";
/// What the names of farside's own modules begin with.
const OWN_MODULES: &str = "farside";
/// The module of the daemon, of which alarms are logged.
const OWN_TARGET: &str = "farside_daemon";

/// The process's log.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    /// The newest lines.
    pub(crate) kept: KeptLines,
    output: LogOutput,
}

impl Log {
    /// Lines that standard error did not take, since the start.
    pub(crate) fn lost_lines(&self) -> u64 {
        self.output.lost_lines()
    }

    /// What is wrong with the log, if something is.
    pub(crate) fn trouble(&self) -> Option<String> {
        let still = self.output.standing_still().filter(|still| *still >= STANDS_STILL_AFTER)?;
        Some(format!(
            "nobody has read the log (standard error of farsided) for {} s, {} lines are lost; look at what reads it. \
             Volumes and mirrors go on; farside support-bundle has the newest lines",
            still.as_secs(),
            self.lost_lines()
        ))
    }

    /// Waits until the last lines are written, or nobody reads them.
    pub(crate) fn finish(&self) {
        self.output.finish(LAST_LINES_PATIENCE);
    }
}

/// Sets up logging for the process, and answers where the newest lines are. If that has been done before (several
/// daemons in one process) nothing changes, and nothing is kept.
pub(crate) fn start(config: &Config) -> Result<Log, DaemonError> {
    let filter = filter_of(&config.log)?;
    let kept = KeptLines::default();
    let output = LogOutput::start(io::stderr(), tell_lost).map_err(DaemonError::Start)?;
    let to_output = output.clone();
    let to_stderr = tracing_subscriber::fmt::layer().with_writer(move || to_output.clone());
    let to_stderr = match config.log_format {
        LogFormat::Text => to_stderr.with_ansi(io::stderr().is_terminal()).boxed(),
        LogFormat::Json => to_stderr.json().boxed(),
    };
    let to_memory = tracing_subscriber::fmt::layer()
        .fmt_fields(PlainFields(DefaultFields::new()))
        .with_ansi(false)
        .with_writer(kept.clone());
    // An error here only says that a subscriber is there already.
    if tracing_subscriber::registry().with(filter).with(to_stderr).with(to_memory).try_init().is_ok() {
        log_panics();
    }
    Ok(Log { kept, output })
}

/// The filter that these words are.
///
/// # Errors
/// Which of them is none, with those that are.
pub(crate) fn filter_of(words: &str) -> Result<EnvFilter, DaemonError> {
    let refused = |why: String| {
        DaemonError::Config(format!("log = {words:?} is no log filter: {why}; use for example info"))
    };
    // A word alone is taken for a module, of which all is logged, and of all others nothing: a level that is mistyped would
    // put out the whole log, errors too. What has brackets is a span.
    let bare = words.split(',').map(str::trim).filter(|word| !word.contains(['=', '[']));
    for word in bare.filter(|word| !word.is_empty()) {
        if word.parse::<LevelFilter>().is_err() && !word.starts_with(OWN_MODULES) {
            return Err(refused(format!(
                "{word:?} is neither a level (off, error, warn, info, debug or trace) nor a part of farside (farside_mirror); a level \
                 for another module is written as {word}=info"
            )));
        }
    }
    EnvFilter::try_new(format!("{QUIET},{words}")).map_err(|error| refused(error.to_string()))
}

/// What the filter hides though somebody should see it; none if that is nothing, or cannot be told.
pub(crate) fn doubt_of(words: &str) -> Option<String> {
    let targets: Targets = words.parse().ok()?;
    let hides = |level: &Level| !targets.would_enable(OWN_TARGET, level);
    let hidden = match (hides(&Level::ERROR), hides(&Level::WARN)) {
        (true, _) => "errors and warnings",
        (false, true) => "warnings",
        (false, false) => return None,
    };
    Some(format!(
        "log = {words:?}: the {hidden} of farsided are not logged, alarms among them; with \"{words},farside=warn\" they are"
    ))
}

/// Called by the thread that writes lines, which must not wait for itself: a line of its own only joins the queue.
fn tell_lost(lost: LostLines) {
    tracing::warn!(
        lines = lost.lines,
        "{} log lines were lost: nobody read the log (standard error of farsided) for {:.1} s. Nothing else waited for it",
        lost.lines,
        lost.stood_still.as_secs_f64()
    );
}

/// A panic goes to the log, as all else: printed straight to standard error it would wait for a reader that stands still.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(thread = thread.name().unwrap_or("?"), "internal error (bug): {panic}");
        if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
            tracing::error!("where it happened:\n{backtrace}");
        }
    }));
}

/// The newest log lines, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptLines {
    ring: Arc<Mutex<Ring>>,
}

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<String>,
    bytes: usize,
    dropped: u64,
}

impl KeptLines {
    /// The lines, and how many older ones are gone.
    pub(crate) fn newest(&self) -> (Vec<String>, u64) {
        let ring = self.ring.lock();
        (ring.lines.iter().cloned().collect(), ring.dropped)
    }

    fn keep(&self, line: &[u8]) {
        let whole = String::from_utf8_lossy(line);
        let whole = whole.trim_end_matches('\n');
        let end = whole.floor_char_boundary(KEPT_LINE_MAX);
        let line = whole[..end].to_owned();
        let mut ring = self.ring.lock();
        ring.bytes += line.len();
        ring.lines.push_back(line);
        while ring.lines.len() > KEPT_LINES_MAX || ring.bytes > KEPT_BYTES_MAX {
            let Some(oldest) = ring.lines.pop_front() else { break };
            ring.bytes -= oldest.len();
            ring.dropped += 1;
        }
    }
}

impl<'a> MakeWriter<'a> for KeptLines {
    type Writer = Line;
    fn make_writer(&'a self) -> Line {
        Line(self.clone())
    }
}

/// One event is written with one call.
pub(crate) struct Line(KeptLines);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.keep(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A type of its own: layers share the fields of spans by type, and those of stderr may hold colours.
struct PlainFields(DefaultFields);

impl<'writer> FormatFields<'writer> for PlainFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> std::fmt::Result {
        self.0.format_fields(writer, fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_is_mistyped_is_refused() {
        for words in ["warning", "loud", "info,verbose", "farside_mirror=loud", "rustls"] {
            let refused = filter_of(words).unwrap_err().to_string();
            assert!(refused.contains("is no log filter"), "{words}: {refused}");
        }
        let refused = filter_of("warning").unwrap_err().to_string();
        assert!(refused.contains("off, error, warn, info, debug or trace"), "{refused}");
        let right =
            ["warn", "INFO", "info,farside_mirror=debug", "farside_mirror", "info,rustls=debug", "", "off"];
        for words in right.into_iter().chain(["info,farside_peer[session{a=1}]=debug"]) {
            filter_of(words).unwrap_or_else(|refused| panic!("{words}: {refused}"));
        }
    }

    #[test]
    fn a_filter_that_hides_warnings_is_doubted() {
        for words in ["info", "warn", "info,farside_mirror=error", "farside_daemon=warn", "farside"] {
            assert_eq!(doubt_of(words), None, "{words}");
        }
        for (words, hidden) in
            [("error", "the warnings of"), ("off", "errors and warnings"), ("rustls=debug", "errors")]
        {
            let doubt = doubt_of(words).unwrap();
            assert!(doubt.contains(hidden) && doubt.contains("alarms"), "{doubt}");
            assert_eq!(doubt_of(&format!("{words},farside=warn")), None, "as is advised");
        }
    }

    #[test]
    fn the_newest_lines_are_kept_and_both_limits_hold() {
        let kept = KeptLines::default();
        for number in 0..KEPT_LINES_MAX + 5 {
            kept.keep(format!("line {number}\n").as_bytes());
        }
        let (lines, dropped) = kept.newest();
        assert_eq!((lines.len(), dropped, lines[0].as_str()), (KEPT_LINES_MAX, 5, "line 5"));
        for _ in 0..1000 {
            kept.keep(&[b'x'; 3 * KEPT_LINE_MAX]);
        }
        let (lines, _) = kept.newest();
        let bytes: usize = lines.iter().map(String::len).sum();
        assert!(bytes <= KEPT_BYTES_MAX && lines.len() >= KEPT_BYTES_MAX / KEPT_LINE_MAX - 1, "{bytes}");
        assert!(lines.iter().all(|line| line.len() <= KEPT_LINE_MAX));
        // A cut within a letter of several bytes.
        let umlauts = "ü".repeat(KEPT_LINE_MAX);
        kept.keep(format!("x{umlauts}").as_bytes());
        assert!(kept.newest().0.last().unwrap().len() < KEPT_LINE_MAX);
    }
}
