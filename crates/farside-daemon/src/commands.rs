//! Commands that the site runs for its administrator: hooks around snapshots, and what alarms are handed to. Each has a process group
//! of its own, so that one that is ended ends with all that it started.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

/// How much is kept of what a command writes to standard error. All of it is read: a pipe that nobody reads ends the command.
const SAID_BYTES_MAX: usize = 1024;
/// How long it is read after the command has ended: something that it started may have it open for ever.
const SAID_WITHIN: Duration = Duration::from_millis(200);

/// A command that runs. Dropped too early, it is killed.
pub(crate) struct Running {
    child: Child,
    group: Group,
}

/// How a command came to no good end.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It took too long, and was killed.
    TooLong,
    /// It was killed because nobody wants its work any more.
    Stopped,
    /// Nobody knows what became of it.
    Lost(io::Error),
    /// It says that it failed.
    Failed(ExitStatus, String),
}

/// A process, as it can be found again after the daemon was killed: ids of processes are used again, moments of their start are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Leader {
    pid: u32,
    /// In ticks since the machine's start.
    started: u64,
}

impl Running {
    /// Begins it in a process group of its own.
    pub(crate) fn begin(command: &mut Command) -> io::Result<Running> {
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let group = Group(child.id());
        Ok(Running { child, group })
    }

    /// None: it has ended already.
    pub(crate) fn leader(&self) -> Option<Leader> {
        let pid = self.child.id()?;
        Some(Leader { pid, started: started(pid)? })
    }

    /// Hands it `input` on its standard input, and waits for it: so long at most, and until `stop`.
    pub(crate) async fn end(
        mut self,
        input: &[u8],
        within: Duration,
        stop: &CancellationToken,
    ) -> Result<(), Ended> {
        let (mut stdin, mut stderr) = (self.child.stdin.take(), self.child.stderr.take());
        let mut said = Vec::new();
        let talk = async {
            let write = async {
                if let Some(mut stdin) = stdin.take() {
                    // One that does not read it has what it needs from its environment.
                    let _ = stdin.write_all(input).await;
                }
            };
            tokio::join!(write, read(&mut stderr, &mut said));
        };
        let child = &mut self.child;
        let ended = async {
            tokio::pin!(talk);
            let early = tokio::select! {
                status = child.wait() => Some(status),
                () = &mut talk => None,
            };
            match early {
                Some(status) => {
                    let _ = tokio::time::timeout(SAID_WITHIN, talk).await;
                    status
                }
                None => child.wait().await,
            }
        };
        let status = tokio::select! {
            () = stop.cancelled() => Err(Ended::Stopped),
            status = tokio::time::timeout(within, ended) => status.map_err(|_| Ended::TooLong),
        };
        match status {
            Err(why) => {
                self.group.kill();
                let _ = self.child.wait().await;
                Err(why)
            }
            Ok(status) => {
                self.group.0 = None;
                let status = status.map_err(Ended::Lost)?;
                let said = String::from_utf8_lossy(&said).trim().replace(char::is_control, " ");
                if status.success() { Ok(()) } else { Err(Ended::Failed(status, said)) }
            }
        }
    }
}

impl Leader {
    /// Kills it with its group if it still runs. Answers whether it did.
    pub(crate) fn kill(self) -> bool {
        let runs = started(self.pid) == Some(self.started);
        if runs {
            Group(Some(self.pid)).kill();
        }
        runs
    }
}

/// When a process started, in ticks since the machine's start: the 22nd word of its `stat` (proc(5)).
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second word is its name in parentheses, and may have any characters.
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Reads to the end, and keeps the beginning.
async fn read(from: &mut Option<impl AsyncRead + Unpin>, said: &mut Vec<u8>) {
    let Some(from) = from else { return };
    let mut part = [0; 1024];
    while let Ok(n @ 1..) = from.read(&mut part).await {
        let room = SAID_BYTES_MAX.saturating_sub(said.len());
        said.extend_from_slice(&part[..n.min(room)]);
    }
}

/// The processes of a command, which are killed when this is dropped too early.
struct Group(Option<u32>);

impl Group {
    fn kill(&mut self) {
        let pid = self.0.take().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended in this moment.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn begin(script: &str) -> Running {
        Running::begin(Command::new("/bin/sh").args(["-c", script])).unwrap()
    }

    #[tokio::test]
    async fn one_that_says_much_is_read_to_its_end() {
        let never = CancellationToken::new();
        begin("head -c 1000000 /dev/zero >&2").end(b"", LONG, &never).await.unwrap();
        let failed = begin("head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 3").end(b"", LONG, &never).await;
        assert!(matches!(failed, Err(Ended::Failed(_, said)) if said.len() == SAID_BYTES_MAX));
    }

    #[tokio::test]
    async fn one_that_leaves_its_error_output_open_is_not_waited_for() {
        let begun = std::time::Instant::now();
        begin("sleep 40 & exit 0").end(b"", LONG, &CancellationToken::new()).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[tokio::test]
    async fn one_that_nobody_wants_any_more_ends_at_once_and_one_of_before_is_found_again() {
        let stop = CancellationToken::new();
        let running = begin("sleep 600 & wait");
        let leader = running.leader().unwrap();
        stop.cancel();
        assert!(matches!(running.end(b"", LONG, &stop).await, Err(Ended::Stopped)));
        assert!(!leader.kill(), "it is gone");
        let other = begin("exec sleep 600");
        let leader = other.leader().unwrap();
        assert!(!Leader { started: leader.started + 1, ..leader }.kill(), "another process has its id now");
        assert!(leader.kill());
        assert!(matches!(other.end(b"", LONG, &CancellationToken::new()).await, Err(Ended::Failed(..))));
    }
}
