//! What systemd is told: ready, alive, stopping. Without systemd every call does nothing.

use std::io::Write;
use std::time::Duration;

use sd_notify::NotifyState;

/// Everything serves.
pub(crate) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The same, and one line on standard output for whoever waits for it.
pub(crate) fn say_ready(line: String) {
    ready(&line);
    // A closed stdout is no reason to end, and one that nobody reads no reason to wait.
    std::thread::spawn(move || {
        let _ = writeln!(std::io::stdout(), "{line}");
    });
}

/// The stop has begun.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Feeds the watchdog, if systemd has set one, at a third of its interval, to the end of the stop. It runs on the async
/// runtime on purpose: a runtime that no longer turns is what the watchdog is for.
pub(crate) async fn feed_watchdog() {
    let Some(interval) = sd_notify::watchdog_enabled().map(|i| i / 3).filter(|i| !i.is_zero()) else {
        return;
    };
    let mut tick = tokio::time::interval(interval.max(Duration::from_millis(10)));
    loop {
        tick.tick().await;
        notify(&[NotifyState::Watchdog]);
    }
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}
