//! Watching an operation until it ends: a bar on a terminal, silence elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use farside_api::{
    ErrorBody, ErrorCode, Mirror, Operation, OperationKind, OperationState, PeerStatus, Role, SwapPhase,
    Transfer, TransferPhase,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use reqwest::Method;

use crate::client::Client;
use crate::quantities;

/// How soon the daemon is asked the first time. An update of a quiet volume ends within two round trips, and whoever waits for it
/// should not wait for the bar.
const FIRST_POLL: Duration = Duration::from_millis(5);

/// How often it is asked about work that takes long: twenty times a second cost nothing over a local socket.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Whoever waits learns of the end this part of what it took later, at most: 2 %. With 50 ms from the beginning an update of 0.37 s
/// at 1 Gb/s seemed to take 0.42 s.
const LATE_PART: u32 = 50;

/// How long to wait before the daemon is asked again, if work has gone on for so long.
fn pause(elapsed: Duration) -> Duration {
    (elapsed / LATE_PART).clamp(FIRST_POLL, POLL_INTERVAL)
}

/// A session that is lost for so long is told of where there is no bar.
const SAY_AFTER: Duration = Duration::from_secs(2);

/// That there is no session with a peer and it is waited for: why, and for how long, as far as that is known.
pub fn waits_for_session(peer: &str, why: Option<&str>, wait: Option<Duration>) -> String {
    let because = why.map(|why| format!(" ({why})")).unwrap_or_default();
    let within = wait.map(|wait| format!(", for up to {} s", wait.as_secs_f64())).unwrap_or_default();
    format!("no session with {peer}{because}; waiting for one{within}")
}

/// Says so of what an operation waits for; what cannot be asked is left out.
async fn say_waits(client: &Client, operation: &Operation, wait: Option<Duration>) {
    let query = [("volume", operation.volume.as_str())];
    let mirrors: Vec<Mirror> = client.get_with(&["mirrors"], &query).await.unwrap_or_default();
    let mirror = mirrors.iter().find(|m| m.role == Role::Destination);
    let peer = mirror.and_then(|m| m.source.split_once(':')).map(|(peer, _)| peer);
    let known = match peer {
        Some(peer) => client.get::<PeerStatus>(&["peers", peer]).await.ok(),
        None => None,
    };
    let why = known.and_then(|known| known.peer.why);
    eprintln!("farside: {}", waits_for_session(peer.unwrap_or("the peer"), why.as_deref(), wait));
}

/// Waits for the operation to end. How long it waits for a lost session, the daemon was told when it was started.
pub async fn watch(client: &Client, operation: Operation) -> Result<Operation, ErrorBody> {
    watch_for(client, operation, None).await
}

/// The same of one of several that were begun together: who ends the command gives up all of them that have changed nothing yet.
pub async fn watch_among(
    client: &Client,
    operation: Operation,
    all: &[&str],
) -> Result<Operation, ErrorBody> {
    watching(client, operation, None, None, all).await
}

/// The same of one of several, of which the others are begun later: `rest` is said of them to whoever ends the command.
pub async fn watch_one(client: &Client, operation: Operation, rest: &str) -> Result<Operation, ErrorBody> {
    watching(client, operation, None, Some(rest), &[]).await
}

/// The same; with what the daemon was told.
pub async fn watch_for(
    client: &Client,
    operation: Operation,
    wait: Option<Duration>,
) -> Result<Operation, ErrorBody> {
    watching(client, operation, wait, None, &[]).await
}

async fn watching(
    client: &Client,
    mut operation: Operation,
    wait: Option<Duration>,
    rest: Option<&str>,
    among: &[&str],
) -> Result<Operation, ErrorBody> {
    // One listener from the first moment: one for each pause would miss what comes between two of them.
    let mut interrupts = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())
        .map_err(|error| ErrorBody::new(ErrorCode::Failed, format!("cannot listen for Ctrl-C: {error}")))?;
    let mut display = Display::new(&operation.volume);
    let begun = Instant::now();
    let mut is_to_say = !std::io::stderr().is_terminal();
    let ended = loop {
        if operation.state != OperationState::Running {
            break Ok(operation);
        }
        display.show(&operation);
        if is_to_say && operation.session_lost_seconds.is_some() && begun.elapsed() >= SAY_AFTER {
            is_to_say = false;
            say_waits(client, &operation, wait).await;
        }
        // An update that another had begun waits as long as that one was told to; whoever asked for this does not.
        if let (OperationKind::Update, Some(wait), Some(lost)) =
            (operation.kind, wait, operation.session_lost_seconds)
            && begun.elapsed() >= SAY_AFTER
            && lost >= wait.as_secs_f64()
        {
            let message = format!(
                "no session with the peer for {lost:.0} s; the replica {} is unchanged",
                operation.volume
            );
            break Err(ErrorBody::new(ErrorCode::PeerUnreachable, message).hint(
                "the mirror goes on trying by itself, if it has a schedule; farside peer list shows when there is a session",
            ));
        }
        tokio::select! {
            () = tokio::time::sleep(pause(begun.elapsed())) => {}
            Some(()) = interrupts.recv() => {
                display.bar.finish_and_clear();
                let others = among.iter().copied().filter(|other| *other != operation.volume);
                for volume in std::iter::once(operation.volume.as_str()).chain(others) {
                    // What is over is no matter; of what goes on it is said how to end it.
                    let may_wait = volume != operation.volume || operation.waits_to_begin;
                    if may_wait && give_up(client, volume).await {
                        eprintln!("farside: given up before it had begun; nothing of {volume} was changed");
                    } else {
                        // An abort leaves a resync pending, and the volume read-only.
                        let ends = match operation.kind {
                            OperationKind::Resync => format!(
                                "farside mirror break {volume} gives it up (farside mirror abort stops its transfer, and leaves it pending)"
                            ),
                            _ => format!("farside mirror abort {volume} ends it"),
                        };
                        eprintln!(
                            "farside: this command ends, and what it began goes on: farside mirror wait {volume} waits for it, {ends}"
                        );
                    }
                }
                if let Some(rest) = rest {
                    eprintln!("farside: {rest}");
                }
                std::process::exit(INTERRUPTED);
            }
        }
        match client.get(&["operations", &operation.id.to_string()]).await {
            Ok(newer) => operation = newer,
            Err(error) if error.code == ErrorCode::DaemonUnreachable => {
                let volume = &operation.volume;
                break Err(error.hint(match operation.kind {
                    OperationKind::Swap => format!(
                        "a swap that had not changed the roles yet is given up when farsided runs again, and nothing is changed; one \
                         that had is finished: farside mirror status {volume}, then farside mirror swap {volume} again if it is \
                         still a replica"
                    ),
                    _ => format!(
                        "what was begun goes on when farsided runs again, if it was accepted: farside mirror status {volume}, farside \
                         mirror log {volume}"
                    ),
                }));
            }
            Err(error) => break Err(error),
        }
    };
    display.bar.finish_and_clear();
    ended
}

/// Gives up what has changed nothing yet: who ends the command that waits for it does not expect it later. Answers whether it is.
pub async fn give_up(client: &Client, volume: &str) -> bool {
    let Some((pool, volume)) = volume.split_once('/') else { return false };
    let (path, nothing) = (["mirrors", pool, volume, "abort"], None::<&()>);
    let given_up = client.request::<Mirror>(Method::POST, &path, &[("unbegun", "true")], nothing).await;
    given_up.is_ok()
}

/// What shells say of a command that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// What is on the screen.
struct Display {
    bar: ProgressBar,
    /// Whether it has a length now; without, it spins.
    is_measured: bool,
}

/// Both are known to parse; should they not, the plain default is shown.
const MEASURED: &str = "{prefix} [{wide_bar}] {percent:>3}%  {msg}";
const SPINNING: &str = "{prefix} {spinner} {msg}";

impl Display {
    fn new(volume: &str) -> Display {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_prefix(volume.to_owned());
        let display = Display { bar, is_measured: false };
        display.set_style(SPINNING);
        display
    }

    fn set_style(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("=> "));
        }
    }

    fn show(&mut self, operation: &Operation) {
        let measured = match &operation.transfer {
            Some(transfer) if transfer.phase == TransferPhase::Transfer => {
                transfer.changed_bytes.map(|changed| (transfer, changed))
            }
            _ => None,
        };
        let measured = measured.filter(|_| operation.session_lost_seconds.is_none());
        if measured.is_some() != self.is_measured {
            self.is_measured = measured.is_some();
            self.set_style(if self.is_measured { MEASURED } else { SPINNING });
        }
        let message = match (measured, &operation.transfer) {
            (Some((transfer, changed)), _) => {
                self.bar.update(|state| {
                    state.set_len(changed);
                    state.set_pos(transfer.done_bytes.min(changed));
                });
                figures(transfer, changed)
            }
            (None, _) if operation.waits_to_begin && operation.session_lost_seconds.is_some() => {
                String::from(
                    "waiting for the session with the peer; Ctrl-C gives it up, nothing is changed yet",
                )
            }
            (None, _) if operation.session_lost_seconds.is_some() => {
                String::from("waiting for the session with the peer")
            }
            (None, Some(transfer)) => phase(transfer.phase).to_owned(),
            (None, None) => phase(TransferPhase::Waiting).to_owned(),
        };
        let message = match operation.phase {
            Some(step) => format!("{}: {message}", swap_phase(step)),
            None => message,
        };
        self.bar.set_message(message);
        self.bar.tick();
    }
}

/// What stands behind the bar: done of all, rate, reduction, time that remains.
fn figures(transfer: &Transfer, changed: u64) -> String {
    let mut text = format!("{} / {}", quantities::size(transfer.done_bytes), quantities::size(changed));
    if let Some(rate) = transfer.rate_bytes_per_second {
        text += &format!("  {}", quantities::rate(rate));
    }
    if let Some(reduction) = reduction(transfer.done_bytes, transfer.wire_bytes) {
        text += &format!("  {reduction}");
    }
    if let Some(eta) = transfer.eta_seconds {
        text += &format!("  ETA {}", quantities::duration(eta));
    }
    text
}

/// How many times fewer bytes travelled: `5.1x`; nothing before anything did.
pub fn reduction(changed_bytes: u64, wire_bytes: u64) -> Option<String> {
    (wire_bytes > 0 && changed_bytes > 0).then(|| format!("{:.1}x", changed_bytes as f64 / wire_bytes as f64))
}

/// A phase for people.
pub fn phase(phase: TransferPhase) -> &'static str {
    match phase {
        TransferPhase::Waiting => "waiting",
        TransferPhase::Snapshot => "taking the snapshot",
        TransferPhase::Difference => "finding what changed",
        TransferPhase::Transfer => "transferring",
        TransferPhase::Verify => "comparing content roots",
        TransferPhase::Group => "waiting for its group",
        TransferPhase::Commit => "publishing",
    }
}

/// A step of a role change for people.
pub fn swap_phase(phase: SwapPhase) -> &'static str {
    match phase {
        SwapPhase::Update => "1/5 update, hosts go on",
        SwapPhase::Fence => "2/5 the source takes no more writes",
        SwapPhase::LastUpdate => "3/5 last update",
        SwapPhase::Takeover => "4/5 taking over",
        SwapPhase::Notify => "5/5 notifying the former source",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_learns_of_the_end_within_two_per_cent_or_a_tick() {
        let ms = Duration::from_millis;
        assert_eq!([0, 100, 400, 1000, 60_000].map(|e| pause(ms(e))), [5, 5, 8, 20, 50].map(ms));
    }

    #[test]
    fn what_is_waited_for_is_said_with_reason_and_limit() {
        let said =
            waits_for_session("haus", Some("cannot reach haus:7440: refused"), Some(Duration::from_secs(15)));
        assert_eq!(
            said,
            "no session with haus (cannot reach haus:7440: refused); waiting for one, for up to 15 s"
        );
        assert_eq!(waits_for_session("haus", None, None), "no session with haus; waiting for one");
    }

    #[test]
    fn figures_name_rate_reduction_and_eta() {
        let transfer = Transfer {
            kind: farside_api::TransferKind::Update,
            phase: TransferPhase::Transfer,
            changed_bytes: Some(40 << 20),
            done_bytes: 20 << 20,
            wire_bytes: 5 << 20,
            rate_bytes_per_second: Some(10.0 * 1024.0 * 1024.0),
            eta_seconds: Some(2.0),
            levels: farside_api::Levels::default(),
        };
        assert_eq!(figures(&transfer, 40 << 20), "20.0 MiB / 40.0 MiB  10.0 MiB/s  4.0x  ETA 2.00 s");
        assert_eq!(reduction(4096, 0), None);
        assert_eq!(reduction(0, 4096), None);
    }
}
