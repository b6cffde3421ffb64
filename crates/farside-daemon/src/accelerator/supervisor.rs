//! Keeps a process of the accelerator running as long as there shall be one: starts it, tells it what changes, kills it when it
//! hangs, and starts another when it ends.
//!
//! ```text
//!            up                 it answers               it ends, hangs, talks nonsense
//!   Off ───────────► Starting ─────────────► Running ───────────────────────────────────► Down
//!    ▲                  ▲                       │  down, or the daemon stops               │
//!    └──────────────────│───────────────────────┘                                          │
//!                       └──────────────────────── after a pause that doubles ──────────────┘
//! ```
//!
//! A task of its own: whatever the process does, volumes and mirrors do not notice. One task owns all of it and handles one event
//! at a time.

use std::path::PathBuf;
use std::time::Duration;

use farside_accel::control::{Command, SILENCE_MAX, Secret};
use farside_peer::Identity;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::child::{Broken, Child, Purpose, Said};
use super::desired::{Ask, Desired, Phase, Seen};

/// The first pause before a process is started again.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A process that lived so long begins with the shortest pause again.
const PROVEN_AFTER: Duration = Duration::from_secs(30);
/// How long a new process may take until it first says that it lives, which is when it works: listeners and rules may take longer
/// than [`SILENCE_MAX`] on a busy machine, and it has nobody's connections yet.
const FIRST_SIGN_MAX: Duration = Duration::from_secs(10);
/// How long it may take to answer that it works, though it says that it lives.
const STARTED_MAX: Duration = Duration::from_secs(30);

/// What a supervisor works with.
pub(super) struct SupervisorParts {
    /// The program.
    pub(super) program: PathBuf,
    /// Its environment besides that of the daemon.
    pub(super) environment: Vec<(String, String)>,
    /// Where the site's identity is kept.
    pub(super) data_dir: PathBuf,
    /// What there shall be; none: no process.
    pub(super) desired: watch::Receiver<Option<Desired>>,
    /// What is asked.
    pub(super) asks: mpsc::Receiver<Ask>,
    /// What is known.
    pub(super) seen: watch::Sender<Seen>,
    /// The daemon stops.
    pub(super) stop: CancellationToken,
}

/// See the head of the module.
pub(super) struct Supervisor {
    parts: SupervisorParts,
    /// The next pause.
    pause: Duration,
    /// The last failure that was logged: one that repeats is logged once.
    logged: Option<String>,
}

/// What comes after a process, or after a pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// The daemon stops.
    Stop,
    /// There shall be another process, or none.
    Anew,
    /// The same once more.
    Again,
}

impl Supervisor {
    pub(super) fn new(parts: SupervisorParts) -> Supervisor {
        Supervisor { parts, pause: PAUSE_MIN, logged: None }
    }

    /// Runs until the daemon stops; no process is left then.
    pub(super) async fn run(mut self) {
        loop {
            let desired = self.parts.desired.borrow_and_update().clone();
            let next = match desired {
                None => {
                    self.show(|seen| (seen.number, seen.phase) = (0, Phase::Off));
                    self.wait(None, None).await
                }
                Some(desired) => {
                    let began = Instant::now();
                    match self.live(&desired).await {
                        Ok(next) => next,
                        Err(why) => self.recover(&desired, why, began.elapsed()).await,
                    }
                }
            };
            match next {
                Next::Stop => return,
                Next::Anew => (self.pause, self.logged) = (PAUSE_MIN, None),
                Next::Again => {}
            }
        }
    }

    /// Starts a process and keeps it as long as it works and is wanted; or says why it is of no use.
    async fn live(&mut self, desired: &Desired) -> Result<Next, String> {
        self.show(|seen| {
            (seen.number, seen.phase, seen.forwards_error) = (desired.number, Phase::Starting, None);
        });
        let (mut child, started) = self.start(desired).await?;
        let watched = self.watch(&mut child, desired.clone(), started).await;
        self.show(|seen| {
            if let Phase::Running(last) = std::mem::replace(&mut seen.phase, Phase::Starting) {
                seen.before = seen.before.after(&last);
            }
        });
        match watched {
            Ok(next) => {
                let ended = child.end().await;
                tracing::info!("the accelerator's process was ended: {ended}");
                Ok(next)
            }
            Err(Failure::Broken(broken)) => Err(child.give_up(broken).await),
            Err(Failure::Refused(why)) => {
                child.end().await;
                Err(why)
            }
        }
    }

    async fn start(&self, desired: &Desired) -> Result<(Child, Instant), String> {
        let data_dir = self.parts.data_dir.clone();
        // A file read at once; but its disk may be slow.
        let read = tokio::task::spawn_blocking(move || Identity::read_pem(&data_dir)).await;
        let mut pem = match read {
            Ok(Ok(pem)) => pem,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(error) => return Err(format!("this site's identity was not read: {error}")),
        };
        let settings = desired.settings(Secret::new(std::mem::take(&mut *pem)));
        let program = &self.parts.program;
        let mut child = Child::start(program, &self.parts.environment)
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let started = Instant::now();
        let command = Command::Start(Box::new(settings));
        match child.request(command, Purpose::Started) {
            Ok(()) => Ok((child, started)),
            Err(broken) => Err(child.give_up(broken).await),
        }
    }

    /// Follows a process until it is not wanted any more, or is of no use.
    async fn watch(
        &mut self,
        child: &mut Child,
        mut told: Desired,
        started: Instant,
    ) -> Result<Next, Failure> {
        let mut works = false;
        let mut silence = (FIRST_SIGN_MAX, started + FIRST_SIGN_MAX);
        loop {
            tokio::select! {
                // What it has said counts before the clock: a daemon that stood still itself must not kill for it.
                biased;
                () = self.parts.stop.cancelled() => return Ok(Next::Stop),
                changed = self.parts.desired.changed() => {
                    let now = self.parts.desired.borrow_and_update().clone();
                    match now {
                        // The sender is gone: the daemon stops.
                        _ if changed.is_err() => return Ok(Next::Stop),
                        Some(now) if now.number == told.number => tell(child, &mut told, now)?,
                        _ => return Ok(Next::Anew),
                    }
                }
                said = child.said() => match said? {
                    Said::Alive(status) => {
                        silence = (SILENCE_MAX, Instant::now() + SILENCE_MAX);
                        if works {
                            self.show(|seen| {
                                seen.reports += 1;
                                seen.phase = Phase::Running(status);
                            });
                        }
                    }
                    Said::Answer(Purpose::Started, Ok(_)) => {
                        works = true;
                        self.logged = None;
                        tracing::info!(pid = child.id(), "the accelerator's process works");
                        child.request(Command::Forwards(told.forwards.clone()), Purpose::Forwards)?;
                    }
                    Said::Answer(Purpose::Started, Err(why)) => return Err(Failure::Refused(why)),
                    Said::Answer(purpose, result) => self.hear(purpose, result),
                },
                Some(ask) = self.parts.asks.recv() => {
                    // Its first command has to be answered before others.
                    if works {
                        if let Command::Forwards(forwards) = &ask.command {
                            told.forwards.clone_from(forwards);
                        }
                        child.request_with(ask.command, ask.descriptor, Purpose::Asked(ask.answer))?;
                    }
                }
                () = sleep_until(silence.1) => return Err(Broken::Silent(silence.0).into()),
                () = sleep_until(started + STARTED_MAX), if !works => {
                    return Err(Broken::Idle(STARTED_MAX).into());
                }
            }
        }
    }

    /// Hears the answer of a process that works.
    fn hear(&mut self, purpose: Purpose, result: Result<Value, String>) {
        match purpose {
            // Whoever asked may have left.
            Purpose::Asked(answer) => drop(answer.send(result)),
            Purpose::Peers => {
                if let Err(why) = result {
                    tracing::warn!("the accelerator does not take the peers as they are now: {why}");
                }
            }
            Purpose::Policies => {
                if let Err(why) = result {
                    tracing::warn!("the accelerator keeps the policies that it had: {why}");
                }
            }
            Purpose::Forwards => {
                let error = result.err();
                if let Some(why) = &error {
                    tracing::warn!("not every forward of the accelerator works; all others do: {why}");
                }
                self.show(|seen| seen.forwards_error = error);
            }
            Purpose::Started => {}
        }
    }

    /// Waits before a process is started again.
    async fn recover(&mut self, desired: &Desired, why: String, lived: Duration) -> Next {
        if lived >= PROVEN_AFTER {
            self.pause = PAUSE_MIN;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        if self.logged.as_ref() != Some(&why) {
            tracing::warn!(
                "the accelerator is down: {why}. Connections go their plain way; volumes and mirrors are not touched. It \
                 is started again until it works, next in {:.1} s",
                pause.as_secs_f64()
            );
            self.logged = Some(why.clone());
        }
        self.show(|seen| {
            seen.restarts += 1;
            seen.phase = Phase::Down { why };
        });
        self.wait(Some(desired.number), Some(Instant::now() + pause)).await
    }

    /// Waits without a process: until another one than `number` is wanted, or until a moment. Whoever asks meanwhile gets no
    /// answer.
    async fn wait(&mut self, number: Option<u64>, until: Option<Instant>) -> Next {
        loop {
            let pause_ends = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.parts.stop.cancelled() => return Next::Stop,
                changed = self.parts.desired.changed() => {
                    let now = self.parts.desired.borrow_and_update().as_ref().map(|desired| desired.number);
                    match changed {
                        Ok(()) if now == number => {}
                        Ok(()) => return Next::Anew,
                        // The sender is gone: the daemon stops.
                        Err(_) => return Next::Stop,
                    }
                }
                Some(ask) = self.parts.asks.recv() => drop(ask),
                () = pause_ends => return Next::Again,
            }
        }
    }

    fn show(&self, change: impl FnOnce(&mut Seen)) {
        self.parts.seen.send_modify(change);
    }
}

/// Why a process is given up.
enum Failure {
    Broken(Broken),
    /// It says itself that it cannot work.
    Refused(String),
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Failure {
        Failure::Broken(broken)
    }
}

/// Tells a process what is new of peers, policies and forwards.
fn tell(child: &mut Child, told: &mut Desired, now: Desired) -> Result<(), Broken> {
    if told.peers != now.peers {
        child.request(Command::Peers(now.peers.clone()), Purpose::Peers)?;
    }
    if told.policies != now.policies || told.otherwise != now.otherwise {
        let (policies, otherwise) = (now.policies.clone(), now.otherwise);
        child.request(Command::Policies { policies, otherwise }, Purpose::Policies)?;
    }
    if told.forwards != now.forwards {
        child.request(Command::Forwards(now.forwards.clone()), Purpose::Forwards)?;
    }
    *told = now;
    Ok(())
}
