//! Where log lines go: standard error, which may stand still.
//!
//! A reader that does not read (a terminal after ^S, a log driver that hangs, a disk of the log that hangs) blocks whoever
//! writes to it once the pipe is full. So one thread writes, and everybody else queues lines for it. The queue is
//! bounded: what does not fit is dropped and counted, and a line says so as soon as the reader goes on.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Lines that wait to be written: several seconds of a daemon that logs every detail.
const QUEUED_LINES_MAX: usize = 16 << 10;
/// Their bytes; whichever limit is met first.
const QUEUED_BYTES_MAX: usize = 4 << 20;
/// Pause before the next try where somebody made the stream non-blocking and it is full.
const FULL_RETRY: Duration = Duration::from_millis(20);

/// Lines that nobody will read there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostLines {
    /// How many.
    pub lines: u64,
    /// How long the reader did not read.
    pub stood_still: Duration,
}

/// The way to a stream of log lines. Clones lead to the same stream.
#[derive(Clone)]
pub struct LogOutput {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for LogOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogOutput").field("lost", &self.lost_lines()).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// A line was queued, or written.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lines: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// Since when the thread has been writing one line.
    writing_since: Option<Instant>,
    /// Lines written, and lost for ever.
    written: u64,
    lost: u64,
    /// Of these, how many no line has told of yet.
    untold: u64,
}

impl LogOutput {
    /// Starts the thread that writes to `to`. After lines were lost it calls `tell` as soon as one can be written again.
    ///
    /// # Errors
    /// The kernel gave no thread.
    pub fn start(
        mut to: impl Write + Send + 'static,
        tell: impl Fn(LostLines) + Send + 'static,
    ) -> io::Result<LogOutput> {
        let shared = Arc::new(Shared::default());
        let output = LogOutput { shared: Arc::clone(&shared) };
        let run = move || {
            loop {
                let line = shared.next();
                write_whole(&mut to, &line);
                if let Some(lost) = shared.written() {
                    tell(lost);
                }
            }
        };
        std::thread::Builder::new().name("log".into()).spawn(run)?;
        Ok(output)
    }

    /// Queues a line, which has its own end. Never waits.
    pub fn line(&self, line: &[u8]) {
        let mut state = self.shared.state.lock();
        if state.lines.len() >= QUEUED_LINES_MAX || state.bytes + line.len() > QUEUED_BYTES_MAX {
            state.lost += 1;
            state.untold += 1;
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line.into());
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Since when the reader has not read, if it does not: so long has one line been on its way.
    pub fn standing_still(&self) -> Option<Duration> {
        self.shared.state.lock().writing_since.map(|since| since.elapsed())
    }

    /// Lines lost since the start.
    pub fn lost_lines(&self) -> u64 {
        self.shared.state.lock().lost
    }

    /// Waits until everything queued is written, or nothing has been for `patience`.
    pub fn finish(&self, patience: Duration) {
        let mut state = self.shared.state.lock();
        while !state.lines.is_empty() || state.writing_since.is_some() {
            let before = state.written;
            let until = Instant::now() + patience;
            while state.written == before {
                if self.shared.changed.wait_until(&mut state, until).timed_out() {
                    return;
                }
            }
        }
    }
}

/// One call is one line.
impl Write for LogOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn next(&self) -> Box<[u8]> {
        let mut state = self.state.lock();
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.bytes -= line.len();
                state.writing_since = Some(Instant::now());
                return line;
            }
            self.changed.wait(&mut state);
        }
    }

    /// A line was written, or nobody reads any more, which is the same here.
    fn written(&self) -> Option<LostLines> {
        let mut state = self.state.lock();
        let stood_still = state.writing_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        state.written += 1;
        let lines = std::mem::take(&mut state.untold);
        drop(state);
        self.changed.notify_all();
        (lines > 0).then_some(LostLines { lines, stood_still })
    }
}

fn write_whole(to: &mut impl Write, mut line: &[u8]) {
    while !line.is_empty() {
        match to.write(line) {
            // The reader is gone for good. The daemon goes on.
            Ok(0) => return,
            Ok(written) => line = &line[written..],
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => std::thread::sleep(FULL_RETRY),
                _ => return,
            },
        }
    }
}

/// Prints a last word of a program that ends, and waits no longer than `patience` for a reader that does not read.
pub fn last_word(text: String, patience: Duration) {
    let (done, printed) = std::sync::mpsc::channel();
    let print = move || {
        let _ = writeln!(io::stderr(), "{text}");
        let _ = done.send(());
    };
    if std::thread::Builder::new().spawn(print).is_ok() {
        let _ = printed.recv_timeout(patience);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Takes a line when it is let to.
    struct Gate {
        open: mpsc::Receiver<()>,
        taken: mpsc::Sender<String>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.open.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            let _ = self.taken.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stands_still_costs_lines_and_no_time() {
        let (open, gate) = mpsc::channel();
        let (taken, lines) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let output = LogOutput::start(Gate { open: gate, taken }, move |lost: LostLines| {
            let _ = tell.send(lost);
        });
        let output = output.unwrap();
        let total = QUEUED_LINES_MAX as u64 + 10;
        for number in 0..total {
            output.line(format!("{number}").as_bytes());
        }
        let lost = output.lost_lines();
        assert!((9..=10).contains(&lost), "one may be on its way: {lost}");
        let began = Instant::now();
        while output.standing_still().is_none() {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        output.finish(Duration::from_millis(1));
        for number in 0..total - lost {
            open.send(()).unwrap();
            assert_eq!(lines.recv().unwrap(), number.to_string(), "what was kept is whole and in order");
        }
        assert_eq!(told.recv().unwrap().lines, lost);
        output.finish(Duration::from_secs(60));
        assert_eq!(output.standing_still(), None);
        // A reader that is gone keeps nobody.
        drop(open);
        output.line(b"nobody reads this");
        output.finish(Duration::from_secs(60));
        assert_eq!((output.lost_lines(), output.standing_still()), (lost, None));
    }

    #[test]
    fn lines_are_bounded_in_bytes() {
        let (_open, gate) = mpsc::channel();
        let (taken, _lines) = mpsc::channel();
        let output = LogOutput::start(Gate { open: gate, taken }, |_| {}).unwrap();
        let line = vec![b'x'; QUEUED_BYTES_MAX / 4];
        (0..8).for_each(|_| output.line(&line));
        assert!((3..=4).contains(&output.lost_lines()), "{}", output.lost_lines());
    }
}
