//! A script that runs: started in a process group (and control group) of its own, waited for within a limit, ended with all
//! that it started. Nothing here waits for ever, and every wait ends when the laboratory is asked to stop.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use super::cgroup::{self, Cgroup};
use super::error::TestBedError;
use super::interrupt::Interrupt;
use super::log::Log;
use crate::contender::Ready;

/// Between SIGTERM and SIGKILL: databases and daemons write their last in a second or two, and ten times that where the
/// machine has other work.
const STOP_GRACE: Duration = Duration::from_secs(15);
/// After SIGKILL: longer only where a process hangs in a device; it is left to the kernel then.
const KILL_LIMIT: Duration = Duration::from_secs(60);
/// How long a command that has the terminal may take to end after Ctrl-C.
const INTERRUPT_GRACE: Duration = Duration::from_secs(2);
/// How often the end of what is stopped is looked at.
const STOP_POLL: Duration = Duration::from_millis(10);
/// A wait without an end of its own looks around this often.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);
/// How often readiness is looked at.
const READY_POLL: Duration = Duration::from_millis(10);
/// Longest part of a script that messages show.
const SHOWN_CHARACTERS: usize = 60;

/// A script at a site, with what it started. Dropping it ends them.
#[derive(Debug)]
pub struct Running {
    child: Child,
    pidfd: OwnedFd,
    started: Instant,
    ended: Option<Ended>,
    stopped: bool,
    /// Whether the process group had members when it was last looked at.
    group_may_live: bool,
    label: Label,
    cgroup: Option<Cgroup>,
    log: Log,
    interrupt: Interrupt,
}

/// How a script ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// When that was noticed: at once while somebody waited.
    pub at: Instant,
}

/// What messages call a script, and where it runs.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    pub(crate) script: String,
    pub(crate) site: String,
    pub(crate) directory: PathBuf,
}

impl Label {
    pub(crate) fn new(script: &str, site: &str, directory: PathBuf) -> Self {
        let line = script
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty() && !line.starts_with('#'))
            .unwrap_or_default();
        let mut shown: String = line.chars().take(SHOWN_CHARACTERS).collect();
        if shown.len() < line.len() {
            shown.push('…');
        }
        Self { script: format!("`{shown}`"), site: site.to_owned(), directory }
    }
}

impl Running {
    /// Starts `command` as the head of a process group; what it prints on its standard output goes to `log`.
    pub(crate) fn start(
        mut command: Command,
        label: Label,
        cgroup: Option<Cgroup>,
        interrupt: Interrupt,
        log: Log,
    ) -> Result<Self, TestBedError> {
        let failed = || TestBedError::system(format!("start {} at {}", label.script, label.site));
        let child =
            command.process_group(0).stdin(Stdio::null()).stdout(log.writer()?).spawn().map_err(failed())?;
        let started = Instant::now();
        let pid = rustix::process::Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed()(error.into()))?;
        Ok(Self {
            child,
            pidfd,
            started,
            ended: None,
            stopped: false,
            group_may_live: true,
            label,
            cgroup,
            log,
            interrupt,
        })
    }

    /// When it was started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The system's.
    pub fn ended(&mut self) -> Result<Option<Ended>, TestBedError> {
        if self.ended.is_none() {
            let status = self.child.try_wait().map_err(TestBedError::system("wait for a process"))?;
            self.ended = status.map(|status| Ended { status, at: Instant::now() });
            // From here on the group's number is free for others once its last member has gone.
            self.group_may_live = status.is_none() || killpg(self.head(), None).is_ok();
        }
        Ok(self.ended)
    }

    /// Waits until it has ended, whatever its status; what it left in the background goes on until [`Running::stop`].
    ///
    /// # Errors
    /// `TooLong` after `limit`, `Interrupted` when the laboratory is asked to stop; it has been stopped then.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus, TestBedError> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(ended) = self.ended()? {
                return Ok(ended.status);
            }
            match pause(&[&*self], &self.interrupt, deadline)? {
                Pause::Event => {}
                Pause::Interrupted => {
                    self.stop();
                    return Err(TestBedError::Interrupted);
                }
                Pause::Over => return Err(self.too_long(limit)),
            }
        }
    }

    /// Waits until `ready` can be seen.
    ///
    /// # Errors
    /// `Failed` when it ends before, `TooLong` after `limit`, `Interrupted`; it has been stopped then.
    pub fn wait_ready(&mut self, ready: &Ready, limit: Duration) -> Result<(), TestBedError> {
        let deadline = Instant::now() + limit;
        loop {
            let ended = self.ended()?;
            if self.is_ready(ready)? {
                return Ok(());
            }
            if let Some(ended) = ended {
                return Err(self.failed(ended.status));
            }
            if Instant::now() >= deadline {
                return Err(self.too_long(limit));
            }
            let next = deadline.min(Instant::now() + READY_POLL);
            if let Pause::Interrupted = pause(&[&*self], &self.interrupt, next)? {
                self.stop();
                return Err(TestBedError::Interrupted);
            }
        }
    }

    fn is_ready(&self, ready: &Ready) -> Result<bool, TestBedError> {
        match ready {
            Ready::File(path) => Ok(self.label.directory.join(path).exists()),
            Ready::Tcp(port) => {
                for table in ["tcp", "tcp6"] {
                    match fs::read_to_string(format!("/proc/{}/net/{table}", self.child.id())) {
                        Ok(text) if Ready::is_listening(&text, *port) => return Ok(true),
                        Ok(_) => {}
                        // It has ended, or the kernel has no IPv6.
                        Err(error)
                            if matches!(
                                error.kind(),
                                io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
                            ) => {}
                        Err(error) => return Err(TestBedError::system("read the sockets of a site")(error)),
                    }
                }
                Ok(false)
            }
        }
    }

    /// Ends it and everything that it started: SIGTERM, and SIGKILL to what is still there after 15 seconds. Does
    /// nothing the second time.
    pub fn stop(&mut self) {
        self.stop_within(STOP_GRACE);
    }

    fn stop_within(&mut self, grace: Duration) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        self.signal(Signal::SIGTERM);
        if !self.is_gone_within(grace) {
            self.signal(Signal::SIGKILL);
            self.is_gone_within(KILL_LIMIT);
        }
        // Dropping it kills whoever came to it meanwhile.
        self.cgroup = None;
    }

    /// To the script and all that it started. Whoever has just ended needs none, so errors say nothing.
    fn signal(&self, signal: Signal) {
        let head = self.head();
        match &self.cgroup {
            // Also those that left the process group; and never an unrelated process that got the number of a group that is gone.
            Some(cgroup) => {
                let members = cgroup.members().unwrap_or_default();
                let head = Some(head).filter(|head| self.ended.is_none() && !members.contains(head));
                for pid in members.into_iter().chain(head) {
                    let _: nix::Result<()> = kill(pid, signal);
                }
            }
            None if self.group_may_live => {
                let _: nix::Result<()> = killpg(head, signal);
            }
            None => {}
        }
    }

    fn head(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Whether the script and all that it started have ended in time.
    fn is_gone_within(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let head_ended = matches!(self.ended(), Ok(Some(_)));
            let gone = head_ended
                && match &self.cgroup {
                    Some(cgroup) => matches!(cgroup::is_populated(cgroup.path()), Ok(false)),
                    None => !self.group_may_live || killpg(self.head(), None) == Err(nix::Error::ESRCH),
                };
            if gone || Instant::now() >= deadline {
                return gone;
            }
            let next = deadline.min(Instant::now() + STOP_POLL);
            if head_ended {
                thread::sleep(next.saturating_duration_since(Instant::now()));
            } else if poll_fds(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], next).is_err() {
                return false;
            }
        }
    }

    /// The beginning of what it printed, where that is kept in memory, and how many bytes followed.
    pub(crate) fn answer(&self) -> (String, u64) {
        self.log.answer()
    }

    /// The error for a script that ended with `status`.
    pub fn failed(&self, status: ExitStatus) -> TestBedError {
        TestBedError::Failed {
            script: self.label.script.clone(),
            site: self.label.site.clone(),
            status: describe(status),
            tail: self.log.last_lines(),
        }
    }

    fn too_long(&mut self, limit: Duration) -> TestBedError {
        self.stop();
        TestBedError::TooLong {
            script: self.label.script.clone(),
            site: self.label.site.clone(),
            limit,
            tail: self.log.last_lines(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits until all have ended with success; the order of the answer is theirs.
///
/// # Errors
/// `Failed` as soon as one ends otherwise, `TooLong` after `limit`, `Interrupted`; all have been stopped then.
pub fn wait_all(running: &mut [Running], limit: Duration) -> Result<Vec<Ended>, TestBedError> {
    let result = wait_each(running, limit);
    if result.is_err() {
        running.iter_mut().for_each(Running::stop);
    }
    result
}

fn wait_each(running: &mut [Running], limit: Duration) -> Result<Vec<Ended>, TestBedError> {
    let deadline = Instant::now() + limit;
    loop {
        let mut ended = Vec::with_capacity(running.len());
        for one in running.iter_mut() {
            match one.ended()? {
                Some(end) if !end.status.success() => return Err(one.failed(end.status)),
                Some(end) => ended.push(end),
                None => {}
            }
        }
        let pending: Vec<&Running> = running.iter().filter(|one| one.ended.is_none()).collect();
        let Some(first) = pending.first() else { return Ok(ended) };
        match pause(&pending, &first.interrupt, deadline)? {
            Pause::Event => {}
            Pause::Interrupted => return Err(TestBedError::Interrupted),
            Pause::Over => {
                let late = running.iter_mut().find(|one| one.ended.is_none());
                return Err(late.map_or(TestBedError::Interrupted, |one| one.too_long(limit)));
            }
        }
    }
}

/// Waits for a child that has the terminal. After Ctrl-C, which the child has got too, it has [`INTERRUPT_GRACE`] to end by
/// itself; then, and after any other signal at once, SIGTERM, and SIGKILL after [`STOP_GRACE`].
pub(crate) fn attend(mut child: Child, interrupt: &Interrupt) -> Result<ExitStatus, TestBedError> {
    let failed = || TestBedError::system("wait for a process");
    let pid = rustix::process::Pid::from_child(&child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed()(error.into()))?;
    let mut orders = [(Signal::SIGTERM, STOP_GRACE), (Signal::SIGKILL, KILL_LIMIT)].into_iter();
    let mut patience = None;
    loop {
        if let Some(status) = child.try_wait().map_err(failed())? {
            return Ok(status);
        }
        let mut fds = vec![PollFd::new(&pidfd, PollFlags::IN)];
        let Some(signal) = interrupt.signal() else {
            fds.push(PollFd::from_borrowed_fd(interrupt.fd(), PollFlags::IN));
            poll_fds(&mut fds, Instant::now() + LOOK_AGAIN).map_err(failed())?;
            continue;
        };
        let first = if signal == Signal::SIGINT { INTERRUPT_GRACE } else { Duration::ZERO };
        if poll_fds(&mut fds, Instant::now() + patience.unwrap_or(first)).map_err(failed())? {
            continue;
        }
        let Some((order, next)) = orders.next() else { return Err(TestBedError::Interrupted) };
        // It may just have ended, which is as good.
        let _: nix::Result<()> = kill(Pid::from_raw(child.id().cast_signed()), order);
        patience = Some(next);
    }
}

/// Why a pause is over.
enum Pause {
    /// One of the processes may have ended.
    Event,
    Interrupted,
    /// The deadline is there.
    Over,
}

fn pause(running: &[&Running], interrupt: &Interrupt, deadline: Instant) -> Result<Pause, TestBedError> {
    let mut fds: Vec<PollFd<'_>> =
        running.iter().map(|one| PollFd::from_borrowed_fd(one.pidfd.as_fd(), PollFlags::IN)).collect();
    fds.push(PollFd::from_borrowed_fd(interrupt.fd(), PollFlags::IN));
    let event = poll_fds(&mut fds, deadline).map_err(TestBedError::system("wait for processes"))?;
    Ok(match (interrupt.is_asked(), event) {
        (true, _) => Pause::Interrupted,
        (false, true) => Pause::Event,
        (false, false) => Pause::Over,
    })
}

/// Whether something happened before the deadline.
fn poll_fds(fds: &mut [PollFd<'_>], deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Durations beyond what the call can carry are cut to a day: the loop goes round then.
        let day = Duration::from_secs(86_400);
        let timeout = Timespec::try_from(left.min(day)).map_err(io::Error::other)?;
        match poll(fds, Some(&timeout)) {
            Ok(0) if left > day => {}
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// `status 3`, `SIGKILL`.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => {
            Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |signal| signal.to_string())
        }
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests;
