//! The accelerator's process: what `farsided` says on its standard input, it does.

use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use farside_platform::log_output::last_word;
use farside_platform::{LogOutput, LostLines};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use crate::accelerator::Running;
use crate::control::{ALIVE_EVERY, Command, Line, Request, Settings};
use crate::requests::{Received, RequestReader};

/// How log lines look, in the environment: like those of `farsided`, which go to the same place.
pub const LOG_FORMAT_VARIABLE: &str = "FARSIDE_LOG_FORMAT";
/// One JSON document a line.
pub const LOG_FORMAT_JSON: &str = "json";
/// How long the last lines of the log may make no progress.
const LAST_LINES_PATIENCE: Duration = Duration::from_millis(200);
/// For the first line: `farsided` sends it at once.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// Runs the process until its standard input ends, or a signal comes.
pub fn main() -> ExitCode {
    let filter = std::env::var("FARSIDE_LOG").unwrap_or_else(|_| "info".to_owned());
    let filter = tracing_subscriber::EnvFilter::try_new(filter).unwrap_or_default();
    let Ok(output) = LogOutput::start(io::stderr(), tell_lost) else {
        return failed("no thread for the log");
    };
    let to_output = output.clone();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || to_output.clone())
        .with_ansi(false);
    if std::env::var(LOG_FORMAT_VARIABLE).is_ok_and(|format| format == LOG_FORMAT_JSON) {
        log.json().init();
    } else {
        log.init();
    }
    raise_descriptors();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("no threads: {error}")),
    };
    let served = runtime.block_on(serve());
    // A blocked thread must not keep a process that holds connections.
    runtime.shutdown_timeout(Duration::from_millis(200));
    output.finish(LAST_LINES_PATIENCE);
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(why: &str) -> ExitCode {
    last_word(format!("farside-accel: {why}"), LAST_LINES_PATIENCE);
    ExitCode::FAILURE
}

fn tell_lost(lost: LostLines) {
    tracing::warn!(
        lines = lost.lines,
        "{} log lines were lost: nobody read the log (standard error of farside-accel) for {:.1} s. Nothing else waited for it",
        lost.lines,
        lost.stood_still.as_secs_f64()
    );
}

/// Two descriptors for each connection: as many as this process may have.
fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the number of open files stays as it is");
    }
}

/// A person who starts it by hand is told who does.
fn standard_input() -> Result<UnixStream, String> {
    let by_farsided = "it is started by farsided, when the accelerator is on: farside accel up";
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(|_| by_farsided.to_owned())?;
    let socket = std::os::unix::net::UnixStream::from(socket);
    let is_socket = socket.local_addr().is_ok() && socket.set_nonblocking(true).is_ok();
    if !is_socket {
        return Err(by_farsided.to_owned());
    }
    UnixStream::from_std(socket).map_err(|_| by_farsided.to_owned())
}

async fn serve() -> Result<(), String> {
    let (from, to) = standard_input()?.into_split();
    let mut from = RequestReader::new(from);
    let to = Arc::new(Mutex::new(to));
    let first = tokio::time::timeout(START_PATIENCE, from.next()).await;
    let first = first.map_err(|_| "nobody says what to do".to_owned())??;
    let Some(Received { request, .. }) = first else { return Ok(()) };
    let Command::Start(settings) = request.command else {
        return Err("the first command is not the start".to_owned());
    };
    let running = match start(*settings).await {
        Ok(running) => running,
        Err(error) => {
            say(&to, &Line::Answer { id: request.id, result: Err(error.clone()) }).await?;
            return Err(error);
        }
    };
    say(&to, &Line::Answer { id: request.id, result: Ok(serde_json::Value::Null) }).await?;
    let failed = running.failed.clone();
    let ended = tokio::select! {
        ended = obey(&running, &mut from, &to) => ended,
        ended = live(&running, &to) => ended,
        () = failed.cancelled() => Err("the queue of connections that begin has failed".to_owned()),
        () = signalled() => Ok(()),
    };
    running.stop().await;
    ended
}

async fn start(settings: Settings) -> Result<Running, String> {
    let here = env!("CARGO_PKG_VERSION");
    if settings.release != here {
        return Err(format!(
            "farsided is release {} and farside-accel release {here}; install both from the same release, and restart farsided",
            settings.release
        ));
    }
    Running::start(settings).await.map_err(|error| error.to_string())
}

/// Says that it lives, as long as the part that could hold connections goes round.
async fn live(running: &Running, to: &Mutex<OwnedWriteHalf>) -> Result<(), String> {
    let mut tick = interval(ALIVE_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if running.accelerator.goes_round() {
            say(to, &Line::Alive(Box::new(running.accelerator.status()))).await?;
        }
    }
}

async fn obey(
    running: &Running,
    from: &mut RequestReader,
    to: &Arc<Mutex<OwnedWriteHalf>>,
) -> Result<(), String> {
    while let Some(Received { request: Request { id, command }, descriptor }) = from.next().await? {
        if let Command::Preposition { id: number, peer } = command {
            // It takes as long as it takes; others do not wait for it.
            let (accelerator, to) = (Arc::clone(&running.accelerator), Arc::clone(to));
            tokio::spawn(async move {
                let result = match descriptor {
                    Some(feed) => serde_json::to_value(accelerator.preposition(number, &peer, feed).await)
                        .map_err(|error| error.to_string()),
                    None => Err("nothing came with it that could be sent".to_owned()),
                };
                if let Err(error) = say(&to, &Line::Answer { id, result }).await {
                    tracing::debug!(error, "nobody hears how it ended");
                }
            });
            continue;
        }
        let result = command_result(running, command).await;
        say(to, &Line::Answer { id, result }).await?;
    }
    Ok(())
}

async fn command_result(running: &Running, command: Command) -> Result<serde_json::Value, String> {
    let accelerator = &running.accelerator;
    match command {
        Command::Start(_) | Command::Preposition { .. } => Err("it has started already".to_owned()),
        Command::Peers(peers) => {
            running.set_peers(peers).await.map_err(|error| error.to_string())?;
            Ok(serde_json::Value::Null)
        }
        Command::Forwards(forwards) => {
            accelerator.set_forwards(forwards).await?;
            Ok(serde_json::Value::Null)
        }
        Command::Policies { policies, otherwise } => {
            accelerator.set_policies(&policies, otherwise).map_err(|error| error.to_string())?;
            Ok(serde_json::Value::Null)
        }
        Command::Connections => {
            serde_json::to_value(accelerator.connections.shown()).map_err(|error| error.to_string())
        }
        Command::ClearStore(peer) => {
            // It may take a while, and this process has to say meanwhile that it lives.
            let accelerator = Arc::clone(accelerator);
            let cleared = tokio::task::spawn_blocking(move || accelerator.clear_store(peer.as_deref()));
            cleared.await.map_err(|error| error.to_string())??;
            Ok(serde_json::Value::Null)
        }
        Command::Reset { client, server } => Ok(accelerator.connections.reset(client, server).into()),
    }
}

async fn say(to: &Mutex<OwnedWriteHalf>, line: &Line) -> Result<(), String> {
    let mut text = serde_json::to_vec(line).map_err(|error| error.to_string())?;
    text.push(b'\n');
    to.lock().await.write_all(&text).await.map_err(|error| format!("farsided does not listen: {error}"))
}

/// Ends with SIGTERM. Ctrl-C and the end of a terminal reach the whole group of processes; `farsided` decides when this one
/// ends.
async fn signalled() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(_interrupt), Ok(_hangup)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()), signal(SignalKind::hangup()))
    else {
        return std::future::pending().await;
    };
    terminate.recv().await;
}
