//! One process of the accelerator: started, spoken to, ended.
//!
//! Its standard input is one end of a pair of sockets, the other is here. Nothing here waits for it: what it does not read is
//! queued, up to a limit that only a process that hangs can reach, and its end takes no longer than said.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use farside_accel::control::{Command, LINE_MAX, Line, Request};
use farside_accel::requests::write_request;
use farside_link::printable;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::lines::{LineError, Lines};

/// Requests that wait for being read. A process that lives reads them at once.
const REQUESTS_QUEUED_MAX: usize = 64;
/// Requests that wait for an answer.
const REQUESTS_UNANSWERED_MAX: usize = 256;
/// What is shown of an error in a line, bytes.
const SENSELESS_SHOWN_MAX: usize = 200;
/// How long the process may take to end when its socket is closed.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// How long a process that closed its socket may take to end by itself: its exit status says more than a signal of ours.
const EXIT_PATIENCE: Duration = Duration::from_millis(200);
/// How long a killed process is waited for. One that is stuck in the kernel takes longer, and is reaped when it has ended.
const REAP_PATIENCE: Duration = Duration::from_secs(5);

/// Why a process is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// There is nothing more to read.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The process is no more.
    #[error("it ended: {0}")]
    Ended(String),
    /// What was read is no line of the protocol.
    #[error("it wrote a line that makes no sense: {0}")]
    Senseless(String),
    /// It answers what nobody asked.
    #[error("it answered request {0}, which it was not asked")]
    NotAsked(u64),
    /// It does not read.
    #[error("it does not read what it is told")]
    Deaf,
    /// It does not say that it lives.
    #[error("it hung: it did not say that it lives for {0:?}")]
    Silent(Duration),
    /// It lives and does nothing.
    #[error("it did not start to work within {0:?}")]
    Idle(Duration),
}

/// What an answer is for.
pub(super) enum Purpose {
    /// It has been started.
    Started,
    /// It has been told of peers.
    Peers,
    /// It has been told of policies.
    Policies,
    /// It has been told of forwards.
    Forwards,
    /// Somebody asks.
    Asked(oneshot::Sender<Result<Value, String>>),
}

/// What a process has said.
pub(super) enum Said {
    /// It lives.
    Alive(Box<farside_accel::control::Status>),
    /// The answer to a request.
    Answer(Purpose, Result<Value, String>),
}

/// A request's line, and what goes with it.
type Queued = (Zeroizing<Vec<u8>>, Option<OwnedFd>);

/// A process that runs. Dropped it is killed.
pub(super) struct Child {
    process: process::Child,
    lines: Lines<OwnedReadHalf>,
    requests: mpsc::Sender<Queued>,
    next_id: u64,
    unanswered: HashMap<u64, Purpose>,
}

/// For glibc's allocator, which would otherwise raise this limit with each large block that is freed, up to 32 MiB, and keep
/// what is freed from then on: 5,000 connections that had each said something once held 590 MB for ever, instead of 100. Larger
/// blocks than this, bytes, go back to the kernel at once.
const MMAP_THRESHOLD: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "524288");

impl Child {
    /// Starts `program`, with these variables besides those of this process.
    pub(super) fn start(program: &Path, environment: &[(String, String)]) -> io::Result<Child> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = process::Command::new(program);
        if std::env::var_os(MMAP_THRESHOLD.0).is_none() {
            command.env(MMAP_THRESHOLD.0, MMAP_THRESHOLD.1);
        }
        let process = command
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // The daemon's own is for its one line; log lines go to stderr.
            .stdout(Stdio::null())
            // A Ctrl-C is for the daemon, which ends the process in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let (read, write) = UnixStream::from_std(ours)?.into_split();
        let (requests, queue) = mpsc::channel(REQUESTS_QUEUED_MAX);
        tokio::spawn(write_requests(write, queue));
        Ok(Child {
            process,
            lines: Lines::new(read, LINE_MAX),
            requests,
            next_id: 1,
            unanswered: HashMap::new(),
        })
    }

    /// Its process id, while it runs.
    pub(super) fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Queues a request.
    pub(super) fn request(&mut self, command: Command, purpose: Purpose) -> Result<(), Broken> {
        self.request_with(command, None, purpose)
    }

    /// Queues a request with a descriptor.
    pub(super) fn request_with(
        &mut self,
        command: Command,
        descriptor: Option<OwnedFd>,
        purpose: Purpose,
    ) -> Result<(), Broken> {
        if self.unanswered.len() >= REQUESTS_UNANSWERED_MAX {
            return Err(Broken::Deaf);
        }
        let request = Request { id: self.next_id, command };
        // The key is in it: one allocation that is wiped, not a row of them that grow.
        let mut line = Zeroizing::new(Vec::with_capacity(256 << 10));
        serde_json::to_writer(&mut *line, &request).map_err(senseless)?;
        line.push(b'\n');
        self.requests.try_send((line, descriptor)).map_err(|_| Broken::Deaf)?;
        self.unanswered.insert(request.id, purpose);
        self.next_id += 1;
        Ok(())
    }

    /// What it says next. Dropped before it is ready it has lost nothing.
    pub(super) async fn said(&mut self) -> Result<Said, Broken> {
        let line = tokio::select! {
            biased;
            line = self.lines.next() => line?,
            // Its socket may live on in a process that it has started.
            status = self.process.wait() => {
                return Err(Broken::Ended(status.map_or_else(|error| error.to_string(), |s| s.to_string())));
            }
        };
        match serde_json::from_slice(&line).map_err(senseless)? {
            Line::Alive(status) => Ok(Said::Alive(status)),
            Line::Answer { id, result } => {
                let purpose = self.unanswered.remove(&id).ok_or(Broken::NotAsked(id))?;
                Ok(Said::Answer(purpose, result))
            }
        }
    }

    /// Ends it in order: its socket is closed, and it is killed if it does not end then. Says how it ended.
    pub(super) async fn end(self) -> String {
        let Child { process, lines, requests, .. } = self;
        drop(requests);
        let ended = reap(process, END_PATIENCE).await;
        // Until now it could write; what it said is of no interest any more.
        drop(lines);
        ended
    }

    /// Ends one that is of no use any more. Says what happened.
    pub(super) async fn give_up(self, broken: Broken) -> String {
        match broken {
            Broken::Ended(status) => format!("its process ended: {status}"),
            // Most often it has ended.
            Broken::Line(LineError::Closed) => {
                format!("its process ended: {}", reap(self.process, EXIT_PATIENCE).await)
            }
            broken => {
                format!("its process was of no use ({broken}): {}", reap(self.process, Duration::ZERO).await)
            }
        }
    }
}

fn senseless(error: serde_json::Error) -> Broken {
    Broken::Senseless(printable(&error.to_string(), SENSELESS_SHOWN_MAX))
}

/// Waits for a process that ends by itself, with `patience`; then kills it. Says how it ended.
async fn reap(mut process: process::Child, patience: Duration) -> String {
    if let Ok(Ok(status)) = timeout(patience, process.wait()).await {
        return status.to_string();
    }
    // Fails only if it has ended already.
    let _ = process.start_kill();
    match timeout(REAP_PATIENCE, process.wait()).await {
        Ok(Ok(_)) => String::from("killed"),
        Ok(Err(error)) => format!("killed, and nobody knows whether it ended: {error}"),
        Err(_) => format!("killed, and it has not ended within {} s", REAP_PATIENCE.as_secs()),
    }
}

/// Writes requests until nobody makes any more, then closes the process's standard input.
async fn write_requests(mut to: OwnedWriteHalf, mut queue: mpsc::Receiver<Queued>) {
    while let Some((line, descriptor)) = queue.recv().await {
        if write_request(&mut to, line, descriptor).await.is_err() {
            // Whoever reads from it sees the same.
            return;
        }
    }
}
