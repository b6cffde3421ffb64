//! Commands that the site runs for its administrator: hooks around snapshots, and what alarms are handed to. Each has a process group
//! of its own, so that one that is ended ends with all that it started.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use farside_platform::group_and_session;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The variable in which a command and all that it starts have the mark of their run. It is there from their first instruction, so
/// there is no moment in which one runs that cannot be found after a kill of the daemon.
const MARK_VARIABLE: &str = "FARSIDE_RUN";
/// How much is kept of what a command writes to standard error. All of it is read: a pipe that nobody reads ends the command.
const SAID_BYTES_MAX: usize = 1024;
/// How long it is read after the command has ended: something that it started may have it open for ever.
const SAID_WITHIN: Duration = Duration::from_millis(200);

/// Why this program will not run, as far as its file tells.
pub(crate) fn why_not_run(program: &Path) -> Option<String> {
    match program.metadata() {
        Err(error) => Some(error.to_string()),
        Ok(found) if !found.is_file() => Some("it is no file".into()),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => Some("it may not be executed".into()),
        Ok(_) => None,
    }
}

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

/// A command that can be found again by `mark` after the daemon was killed.
pub(crate) fn marked(command: &mut Command, mark: Uuid) -> &mut Command {
    command.env(MARK_VARIABLE, mark.to_string())
}

/// How long what was left running may be looked for: what it froze has to be thawed in any case.
const FOUND_WITHIN: Duration = Duration::from_secs(5);

/// [`kill_left`], which reads what the kernel says of processes: on a thread that may block.
pub(crate) async fn end_left(mark: Uuid) -> bool {
    let found = tokio::task::spawn_blocking(move || kill_left(mark));
    matches!(tokio::time::timeout(FOUND_WITHIN, found).await, Ok(Ok(true)))
}

/// Kills the command that a killed daemon left running under `mark`, with its group. What has left the group, or goes on in it after the
/// command has ended, was meant to. Answers whether there was one.
fn kill_left(mark: Uuid) -> bool {
    let word = format!("{MARK_VARIABLE}={mark}");
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_it = |pid: &u32| {
        // It leads its group, and no session: whoever made one of its own is meant to stay. Others are not even looked at, since
        // what is frozen may not answer.
        if group_and_session(*pid).is_none_or(|(group, session)| group != *pid || session == *pid) {
            return false;
        }
        // Those of other users cannot be read, nor killed.
        let Ok(variables) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
        variables.split(|byte| *byte == 0).any(|variable| variable == word.as_bytes())
    };
    let mut left = pids.filter(is_it).peekable();
    let is_any = left.peek().is_some();
    left.for_each(|pid| Group(Some(pid)).kill());
    is_any
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
        let mark = Uuid::new_v4();
        let begin = |script: &str| {
            Running::begin(marked(Command::new("/bin/sh").args(["-c", script]), mark)).unwrap()
        };
        let running = begin("sleep 600 & wait");
        stop.cancel();
        assert!(matches!(running.end(b"", LONG, &stop).await, Err(Ended::Stopped)));
        assert!(!kill_left(mark), "it is gone");
        let (one, other) = (begin("exec sleep 600"), begin("sleep 600; sleep 600"));
        assert!(!kill_left(Uuid::new_v4()), "nobody has this mark");
        assert!(kill_left(mark));
        for left in [one, other] {
            assert!(matches!(left.end(b"", LONG, &CancellationToken::new()).await, Err(Ended::Failed(..))));
        }
        // What it leaves behind on purpose, a session of a database for example, is not its command.
        let behind = begin("sleep 60 >/dev/null 2>&1 & exit 0");
        behind.end(b"", LONG, &CancellationToken::new()).await.unwrap();
        assert!(!kill_left(mark));
    }
}
