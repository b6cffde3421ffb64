//! What requests see of the accelerator: it is switched on and off, asked, and shown.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use farside_accel::control::{StorePlace, StoreStatus};
use farside_accel::process::{LOG_FORMAT_JSON, LOG_FORMAT_VARIABLE};
use farside_api::{
    AcceleratorConfiguration, AcceleratorPlan, AcceleratorStatus, ErrorBody, ErrorCode, StartAccelerator,
};
use farside_peer::{PeerRecord, PeerRegistry, SessionError};
use farside_platform::Clock;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::book::Book;
use super::desired::{Ask, Desired, Phase, Seen};
use super::remembered::{Remembered, RememberedForward, Setup};
use super::settings::AcceleratorConfig;
use super::supervisor::{Supervisor, SupervisorParts};
use super::under_way::Prepositions;
use super::{boxes, documents};
use crate::failure::Failure;
use crate::options::LogFormat;
use crate::state::{State, StateError};

/// The program, beside the daemon's own.
const PROGRAM: &str = "farside-accel";
/// Names another program: tests of the daemon have theirs.
const PROGRAM_VARIABLE: &str = "FARSIDE_ACCEL_BIN";
/// What the process logs.
const LOG_VARIABLE: &str = "FARSIDE_LOG";
/// The chunk store's directory within the data directory.
const STORE: &str = "chunks";
/// Questions that wait for the process.
const ASKS_QUEUED_MAX: usize = 64;
/// How long a report is waited for: longer than from one to the next.
const REPORT_PATIENCE: Duration = Duration::from_millis(500);
/// How long `accel up` waits until the process works, or has said why not.
const UP_PATIENCE: Duration = Duration::from_secs(8);
/// How long `accel down` waits for the process's end: its own time, and that of a kill.
const DOWN_PATIENCE: Duration = Duration::from_secs(4);
/// Stands in a dry run for the port of the transparent listener, which is drawn at the start.
const LISTENER_PORT_SHOWN: u16 = 7443;

/// The accelerator of this site.
pub(crate) struct Accelerator {
    config: AcceleratorConfig,
    site_name: String,
    /// Where the chunk store is.
    store: String,
    pub(super) state: State,
    clock: Arc<dyn Clock>,
    /// One change at a time, so that database, memory and process agree.
    pub(super) memory: tokio::sync::Mutex<Memory>,
    /// The administrator's policies; changed under the lock of `memory`.
    pub(super) book: parking_lot::Mutex<Book>,
    pub(super) reread: Reread,
    /// What it runs with, or would.
    setup: parking_lot::Mutex<Setup>,
    pub(super) desired: watch::Sender<Option<Desired>>,
    seen: watch::Receiver<Seen>,
    pub(super) asks: mpsc::Sender<Ask>,
    pub(super) prepositions: Arc<Prepositions>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Reads `[accelerator]` of the file as it is now, or says what is wrong there.
pub(crate) type Reread = Box<dyn Fn() -> Result<AcceleratorConfig, String> + Send + Sync>;

/// What the accelerator is made of.
pub(crate) struct AcceleratorParts<'a> {
    /// What the file says.
    pub(crate) config: &'a AcceleratorConfig,
    /// The site meets no peer: what was on stays off.
    pub(crate) isolated: bool,
    /// Reads the file again.
    pub(crate) reread: Reread,
    /// The site's name for itself.
    pub(crate) site_name: &'a str,
    /// The daemon's log filter; the process has the same.
    pub(crate) log: &'a str,
    /// How its lines look; those of the process look the same.
    pub(crate) log_format: LogFormat,
    /// Where the site's identity is kept.
    pub(crate) data_dir: &'a Path,
    /// What times are told by.
    pub(crate) clock: Arc<dyn Clock>,
    /// The database.
    pub(crate) state: &'a State,
    /// The program of the process.
    pub(crate) program: PathBuf,
}

/// What the database has of it.
#[derive(Debug, Default)]
pub(super) struct Memory {
    remembered: Remembered,
    pub(super) forwards: Vec<RememberedForward>,
    /// The number of the last [`Desired`].
    number: u64,
}

impl Accelerator {
    /// As the file and the database have it. If it is on, the process is started in the background.
    pub(crate) async fn load(parts: AcceleratorParts<'_>) -> Result<Accelerator, StateError> {
        let AcceleratorParts {
            config,
            isolated,
            reread,
            site_name,
            log,
            log_format,
            data_dir,
            clock,
            state,
            program,
        } = parts;
        let mut memory = Memory {
            remembered: stored(state.accelerator().await?, "settings"),
            forwards: stored(state.accelerator_forwards().await?, "forwards"),
            number: 0,
        };
        let book = Book::new(stored(state.accelerator_policies().await?, "policies"), config);
        let setup = Setup::new(&memory.remembered, config).unwrap_or_else(|why| {
            tracing::error!(
                "what was set by farside accel up does not fit farside.toml, and the file counts: {why}. Set it again with \
                 farside accel up"
            );
            memory.remembered = memory.remembered.without_words();
            Setup::of_file(config)
        });
        let (asks, asked) = mpsc::channel(ASKS_QUEUED_MAX);
        let (seen_sender, seen) = watch::channel(Seen::default());
        let accelerator = Accelerator {
            config: config.clone(),
            site_name: site_name.to_owned(),
            store: data_dir.join(STORE).display().to_string(),
            state: state.clone(),
            clock,
            memory: tokio::sync::Mutex::new(memory),
            book: parking_lot::Mutex::new(book),
            reread,
            setup: parking_lot::Mutex::new(setup),
            desired: watch::Sender::new(None),
            seen,
            asks,
            prepositions: Arc::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        {
            let mut memory = accelerator.memory.lock().await;
            if !isolated && memory.remembered.is_on(config) {
                // A registry that cannot be read would have kept the daemon from its start.
                let records = state.list().await.unwrap_or_default();
                accelerator.apply(&mut memory, &records);
            }
        }
        let mut environment = vec![(LOG_VARIABLE.to_owned(), log.to_owned())];
        if log_format == LogFormat::Json {
            environment.push((LOG_FORMAT_VARIABLE.to_owned(), LOG_FORMAT_JSON.to_owned()));
        }
        let supervisor = Supervisor::new(SupervisorParts {
            program,
            environment,
            data_dir: data_dir.to_path_buf(),
            desired: accelerator.desired.subscribe(),
            asks: asked,
            seen: seen_sender,
            stop: accelerator.stop.clone(),
        });
        accelerator.tasks.spawn(supervisor.run());
        Ok(accelerator)
    }

    /// Takes up changes of the peers, for as long as it is polled.
    pub(crate) async fn follow_peers(&self) {
        let mut changed = self.state.peers_changed();
        loop {
            if let Err(error) = self.refresh_peers().await {
                tracing::warn!(
                    "the accelerator does not know of a change among the peers: {}",
                    error.message
                );
            }
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    async fn refresh_peers(&self) -> Result<(), ErrorBody> {
        let mut memory = self.memory.lock().await;
        let records = self.records().await?;
        // A forward ends with its peer.
        let mut kept = memory.forwards.clone();
        kept.retain(|forward| forward.forward(&records).is_some());
        if kept.len() < memory.forwards.len() {
            self.remember_forwards(&kept).await?;
            memory.forwards = kept;
        }
        let peers = boxes::peers(&records, &self.config.peers);
        let forwards = boxes::forwards(&memory.forwards, &records);
        self.desired.send_if_modified(|desired| {
            let Some(desired) = desired.as_mut().filter(|d| d.peers != peers || d.forwards != forwards)
            else {
                return false;
            };
            (desired.peers, desired.forwards) = (peers, forwards);
            true
        });
        Ok(())
    }

    /// Switches it on with these words, now and after every restart. Waits a little for the process.
    pub(crate) async fn up(&self, words: StartAccelerator) -> Result<AcceleratorStatus, ErrorBody> {
        let number = {
            let mut memory = self.memory.lock().await;
            let must_be_bridge = words.bridge;
            let remembered = memory.remembered.up(words);
            let setup = Setup::new(&remembered, &self.config).map_err(wrong)?;
            check_interfaces(&setup)?;
            check_bridge(&setup, must_be_bridge, true)?;
            let records = self.records().await?;
            self.remember(&remembered).await?;
            tracing::info!(?setup, "the accelerator is switched on");
            memory.remembered = remembered;
            *self.setup.lock() = setup;
            self.apply(&mut memory, &records)
        };
        let mut seen = self.seen.clone();
        let is_decided = |seen: &Seen| {
            seen.number == number && matches!(seen.phase, Phase::Running(_) | Phase::Down { .. })
        };
        let down = match timeout(UP_PATIENCE, seen.wait_for(is_decided)).await {
            Ok(Ok(seen)) => match &seen.phase {
                Phase::Down { why } => Some(why.clone()),
                Phase::Off | Phase::Starting | Phase::Running(_) => None,
            },
            _ => None,
        };
        if let Some(why) = down {
            return Err(ErrorBody::new(ErrorCode::Failed, format!("the accelerator does not start: {why}")).hint(
                "it stays switched on, also after a restart of farsided, and is tried again until it works or you say farside \
                 accel down; until then connections go their plain way, and volumes and mirrors are not touched",
            ));
        }
        Ok(self.status())
    }

    /// Switches it off, now and after every restart.
    pub(crate) async fn down(&self) -> Result<AcceleratorStatus, ErrorBody> {
        {
            let mut memory = self.memory.lock().await;
            let remembered = memory.remembered.down();
            self.remember(&remembered).await?;
            tracing::info!("the accelerator is switched off");
            memory.remembered = remembered;
            self.desired.send_replace(None);
        }
        let mut seen = self.seen.clone();
        // A process that is stuck in the kernel may take longer; what it held is let go by then.
        let _ = timeout(DOWN_PATIENCE, seen.wait_for(|seen| seen.phase == Phase::Off)).await;
        Ok(self.status())
    }

    /// Has the supervisor do what memory says. Answers the number under which it does.
    fn apply(&self, memory: &mut Memory, records: &[PeerRecord]) -> u64 {
        let setup = self.setup.lock().clone();
        let book = self.book.lock().clone();
        let next = Desired {
            number: memory.number,
            site_name: self.site_name.clone(),
            listen: setup.listen,
            interception: setup.interception,
            store: StorePlace { path: self.store.clone(), bytes: setup.store_size_bytes },
            forward_to: setup.forward_to,
            policies: book.own(),
            otherwise: book.otherwise(),
            peers: boxes::peers(records, &self.config.peers),
            forwards: boxes::forwards(&memory.forwards, records),
        };
        // Somebody who says `up` again does not want to wait for the end of a pause.
        let is_down = matches!(self.seen.borrow().phase, Phase::Off | Phase::Down { .. });
        let is_same =
            self.desired.borrow().as_ref().is_some_and(|now| !is_down && now.is_same_process(&next));
        memory.number += u64::from(!is_same);
        self.desired.send_replace(Some(Desired { number: memory.number, ..next }));
        memory.number
    }

    /// How it goes, no older than the question: a process that works reports several times a second.
    pub(crate) async fn fresh_status(&self) -> AcceleratorStatus {
        let mut seen = self.seen.clone();
        let before = seen.borrow().reports;
        let is_newer = |seen: &Seen| seen.reports > before || !matches!(seen.phase, Phase::Running(_));
        let _ = timeout(REPORT_PATIENCE, seen.wait_for(is_newer)).await;
        self.status()
    }

    /// How it goes with the chunk store, no older than this question; none while there is no process.
    pub(super) async fn fresh_store(&self) -> Option<StoreStatus> {
        self.fresh_status().await;
        match &self.seen.borrow().phase {
            Phase::Running(status) => status.store.clone(),
            _ => None,
        }
    }

    /// How far the process is with each preposition.
    pub(super) fn seen_prepositions(&self) -> Vec<farside_accel::control::PrepositionStatus> {
        match &self.seen.borrow().phase {
            Phase::Running(status) => status.prepositions.clone(),
            _ => Vec::new(),
        }
    }

    /// How it goes, as last reported.
    pub(crate) fn status(&self) -> AcceleratorStatus {
        let setup = self.setup.lock().clone();
        let desired = self.desired.borrow().clone();
        documents::status(&self.seen.borrow(), desired.as_ref(), &setup, self.clock.now())
    }

    /// What `up` with these words would install.
    pub(crate) async fn plan(&self, words: StartAccelerator) -> Result<AcceleratorPlan, ErrorBody> {
        let must_be_bridge = words.bridge;
        let remembered = self.memory.lock().await.remembered.up(words);
        let setup = Setup::new(&remembered, &self.config).map_err(wrong)?;
        check_bridge(&setup, must_be_bridge, false)?;
        let rules = setup.interception.as_ref().map(|interception| {
            farside_accel::accelerator::plan(interception, LISTENER_PORT_SHOWN, &setup.listen)
        });
        let rules = rules.transpose().map_err(|error| wrong(error.to_string()))?;
        let (lan, wan) = setup.interception.map(|i| (i.lan, i.wan)).unzip();
        Ok(AcceleratorPlan {
            lan: lan.unwrap_or_default(),
            wan,
            listen: setup.listen,
            forward_to: setup.forward_to,
            rules,
        })
    }

    /// What the file says.
    pub(crate) fn configuration(&self) -> AcceleratorConfiguration {
        documents::configuration(&self.config, &self.book.lock(), &Setup::of_file(&self.config))
    }

    /// Ends the process, if there is one. Takes at most as long as a process may take that has to be killed.
    pub(crate) async fn shut_down(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    pub(super) async fn records(&self) -> Result<Vec<PeerRecord>, ErrorBody> {
        self.state.list().await.map_err(SessionError::into_error_body)
    }

    async fn remember(&self, remembered: &Remembered) -> Result<(), ErrorBody> {
        self.state.set_accelerator(&text(remembered)?).await.map_err(Failure::into_error_body)
    }

    pub(super) async fn remember_forwards(&self, forwards: &[RememberedForward]) -> Result<(), ErrorBody> {
        self.state.set_accelerator_forwards(&text(&forwards)?).await.map_err(Failure::into_error_body)
    }
}

/// The program of the process: beside that of the daemon.
pub(crate) fn program() -> PathBuf {
    if let Some(program) = std::env::var_os(PROGRAM_VARIABLE) {
        return PathBuf::from(program);
    }
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PROGRAM)));
    // What the search path has, if it has any.
    beside.unwrap_or_else(|| PathBuf::from(PROGRAM))
}

/// What was stored must not keep the daemon from its start: what cannot be read is logged, and counts as never said.
fn stored<T: DeserializeOwned + Default>(text: Option<String>, what: &str) -> T {
    let read = |text: String| {
        serde_json::from_str(&text).unwrap_or_else(|error| {
            tracing::error!(%error, "the stored {what} of the accelerator are invalid; set them again with farside accel");
            T::default()
        })
    };
    text.map(read).unwrap_or_default()
}

pub(super) fn text(value: &impl serde::Serialize) -> Result<String, ErrorBody> {
    serde_json::to_string(value).map_err(|error| ErrorBody::new(ErrorCode::Failed, error.to_string()))
}

pub(super) fn wrong(why: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::WrongUsage, why)
}

/// Whether the box is, or may be, a bridge. What keeps it from starting as one is in a plan among what is wrong now.
fn check_bridge(setup: &Setup, must_be: bool, to_start: bool) -> Result<(), ErrorBody> {
    let bridge = match &setup.interception {
        Some(interception) => farside_accel::kernel::bridge_of(&interception.lan, &interception.wan)
            .map_err(|error| wrong(error.to_string()))?,
        None => None,
    };
    if must_be && bridge.is_none() {
        let why = "LAN and WAN are no ports of one bridge; nothing was changed";
        return Err(ErrorBody::new(ErrorCode::Refused, why).hint("bridge link shows the ports of bridges"));
    }
    if to_start && bridge.is_some() {
        farside_accel::kernel::interfaces::bridges_are_apart()
            .map_err(|error| ErrorBody::new(ErrorCode::Refused, error.to_string()))?;
    }
    Ok(())
}

/// A misspelt interface would be a rule that never fits anything.
fn check_interfaces(setup: &Setup) -> Result<(), ErrorBody> {
    // Of the daemon's own network namespace, which /sys may not show.
    let Ok(listed) = std::fs::read_to_string("/proc/net/dev") else { return Ok(()) };
    let is_there =
        |name: &String| listed.lines().any(|line| line.trim_start().starts_with(&format!("{name}:")));
    let mut interfaces = setup.interception.iter().flat_map(|i| i.lan.iter().chain([&i.wan]));
    match interfaces.find(|name| !is_there(name)) {
        None => Ok(()),
        Some(name) => Err(ErrorBody::new(
            ErrorCode::NotFound,
            format!("this host has no interface {name}; nothing was changed"),
        )
        .hint("ip link shows the interfaces of this host")),
    }
}
