//! The lease while this daemon leads: it is renewed, and work stops when that fails.
//!
//! Two clocks look after it. A task renews; a thread of its own watches how long ago that was, whatever the runtime does: a process that
//! was stopped and wakes up finds its time over there. It has the daemon stop in order, and begins the process anew if that takes too long.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use farside_platform::log_output::last_word;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::again::begin_again;
use super::lease::{ENDS_AFTER, RENEWED_EVERY, STOPS_AFTER};
use super::member::Member;
use crate::error::DaemonError;
use crate::state::{Card, Desk, Leading, Renewal};

/// How often the thread looks.
const WATCHED_EVERY: Duration = Duration::from_millis(100);
/// A process whose threads did not run for so long was stopped, or its machine was.
const STOOD_STILL: Duration = Duration::from_secs(1);
/// How long it may take to renew after that, before it stops its work.
const WOKEN_WITHIN: Duration = Duration::from_millis(500);
/// What a daemon that has lost its lease has left to stop.
const LEFT: Duration = Duration::from_secs(2);

/// Milliseconds since the machine started, its sleep included.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// The lease of the daemon that leads.
pub(crate) struct Keeper {
    pub(crate) leading: Leading,
    directory: PathBuf,
    member: Mutex<Member>,
    /// For the lease alone: nothing that somebody asks holds up a renewal.
    desk: tokio::sync::Mutex<Desk>,
    questions: tokio::sync::Mutex<Desk>,
    card: Mutex<Card>,
    /// When the renewal was asked for that counts.
    renewed: AtomicU64,
    others: AtomicI64,
    /// Others that were not seen lately, and how many of the rest are not to lead; none before the first renewal.
    gone: Mutex<Option<(Vec<String>, i64)>>,
    /// Somebody else may lead: what cannot be renewed ends.
    is_enforced: AtomicBool,
    /// It was given back.
    is_over: AtomicBool,
    /// Where peers meet whichever daemon leads.
    peer_addresses: watch::Sender<Vec<String>>,
    /// Why the daemon stops, if that is not because somebody told the process so.
    stands_again: AtomicBool,
}

impl Keeper {
    pub(crate) fn new(
        leading: Leading,
        directory: PathBuf,
        member: Member,
        desk: Desk,
        card: Card,
    ) -> Arc<Keeper> {
        let others = leading.others;
        Arc::new(Keeper {
            leading,
            directory,
            member: Mutex::new(member),
            questions: tokio::sync::Mutex::new(desk.another()),
            desk: tokio::sync::Mutex::new(desk),
            card: Mutex::new(card),
            renewed: AtomicU64::new(now()),
            others: AtomicI64::new(others),
            gone: Mutex::default(),
            is_enforced: AtomicBool::new(others > 0),
            is_over: AtomicBool::new(false),
            peer_addresses: watch::Sender::new(Vec::new()),
            stands_again: AtomicBool::new(false),
        })
    }

    /// What this daemon is called.
    pub(crate) fn name(&self) -> String {
        self.card.lock().name.clone()
    }

    /// How many other daemons the site has.
    pub(crate) fn others(&self) -> i64 {
        self.others.load(Ordering::SeqCst)
    }

    /// How many of the others are active, draining, and gone.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let (gone, draining) = {
            let gone = self.gone.lock();
            gone.as_ref().map_or((0, 0), |(gone, draining)| (gone.len() as i64, *draining))
        };
        let active = self.others().saturating_sub(gone).saturating_sub(draining);
        (active.max(0) as u64, draining.max(0) as u64, gone as u64)
    }

    /// The other daemons that were not seen lately; none: nobody knows yet.
    pub(crate) fn gone(&self) -> Option<Vec<String>> {
        self.gone.lock().as_ref().map(|(gone, _)| gone.clone())
    }

    /// What is all right yet: a daemon that is missing, and that no other could lead.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = Vec::new();
        for name in &self.gone().unwrap_or_default() {
            warnings.push(format!(
                "the daemon {name} of this site is gone: start it, or take it off the list (farside site remove {name})"
            ));
        }
        if self.others() > 0 && self.counts().0 == 0 {
            warnings.push(format!(
                "no other daemon of this site could take over from {}: the others are gone or draining",
                self.name()
            ));
        }
        warnings
    }

    /// Where peers meet whichever daemon leads.
    pub(crate) fn peer_addresses(&self) -> watch::Receiver<Vec<String>> {
        self.peer_addresses.subscribe()
    }

    /// Whether the daemon stands by again once it has stopped.
    pub(crate) fn stands_again(&self) -> bool {
        self.stands_again.load(Ordering::SeqCst)
    }

    /// For what is asked of the list of daemons, one after the other.
    pub(crate) async fn desk(&self) -> tokio::sync::MutexGuard<'_, Desk> {
        self.questions.lock().await
    }

    /// Says what this daemon is reached by, now that it is known.
    pub(crate) async fn introduce(&self, change: impl FnOnce(&mut Card)) {
        let card = {
            let mut card = self.card.lock();
            change(&mut card);
            card.clone()
        };
        if let Err(error) = self.questions.lock().await.introduce(&card).await {
            tracing::warn!("the other daemons do not learn where this one is: {error}");
        }
    }

    /// Begins to watch, on a thread of its own. `stop` has the daemon stop.
    pub(crate) fn watch(self: &Arc<Self>, stop: CancellationToken) -> Result<(), DaemonError> {
        let this = Arc::clone(self);
        let watching =
            std::thread::Builder::new().name("lease".into()).spawn(move || this.keep_watching(&stop));
        watching.map(drop).map_err(DaemonError::Start)
    }

    fn keep_watching(&self, stop: &CancellationToken) {
        let mut looked = now();
        let mut may_renew_until = 0;
        while !self.is_over.load(Ordering::SeqCst) {
            std::thread::sleep(WATCHED_EVERY);
            // The process stood still: the task that renews has just woken up, too, and the lease may hold.
            if now().saturating_sub(looked) > STOOD_STILL.as_millis() as u64 {
                may_renew_until = now() + WOKEN_WITHIN.as_millis() as u64;
            }
            looked = now();
            if !self.is_enforced.load(Ordering::SeqCst) {
                continue;
            }
            let since = Duration::from_millis(now().saturating_sub(self.renewed.load(Ordering::SeqCst)));
            if since > ENDS_AFTER && !self.is_over.load(Ordering::SeqCst) {
                last_word(
                    format!(
                        "farsided: the lease was not renewed for {} s, and work has not ended: this process begins again",
                        since.as_secs()
                    ),
                    Duration::from_millis(200),
                );
                begin_again();
            }
            if since > STOPS_AFTER && now() > may_renew_until && !stop.is_cancelled() {
                self.stands_again.store(true, Ordering::SeqCst);
                tracing::error!(
                    "the lease was not renewed for {} s: another daemon of the site may take its work. This one stops it, and stands by",
                    since.as_secs()
                );
                stop.cancel();
            }
        }
    }

    /// Renews the lease until it is given back.
    pub(crate) async fn keep(&self, stop: &CancellationToken) {
        let mut is_failing = false;
        loop {
            let asked = now();
            let renewed = {
                let mut desk = self.desk.lock().await;
                // It was given back: that nobody has it now is no loss.
                if self.is_over.load(Ordering::SeqCst) {
                    return;
                }
                desk.renew(self.leading.lead).await
            };
            match renewed {
                Ok(Renewal::Holds { others, is_draining, peer_addresses, gone, draining }) => {
                    *self.gone.lock() = Some((gone, draining));
                    self.renewed.store(asked, Ordering::SeqCst);
                    self.others.store(others, Ordering::SeqCst);
                    self.is_enforced.store(others > 0, Ordering::SeqCst);
                    self.peer_addresses.send_if_modified(|known| {
                        let is_new = *known != peer_addresses;
                        *known = peer_addresses;
                        is_new
                    });
                    self.remember(others > 0);
                    if std::mem::take(&mut is_failing) {
                        tracing::info!("the lease is renewed again");
                    }
                    if is_draining && others > 0 && !stop.is_cancelled() {
                        tracing::info!("this daemon is drained: it hands its work over, and stands by");
                        self.stands_again.store(true, Ordering::SeqCst);
                        stop.cancel();
                    }
                }
                Ok(Renewal::Lost) => {
                    tracing::error!(
                        "another daemon has this site's lease: this one stops its work, and stands by"
                    );
                    self.stands_again.store(true, Ordering::SeqCst);
                    let left = ENDS_AFTER.saturating_sub(LEFT).as_millis() as u64;
                    self.renewed.store(now().saturating_sub(left), Ordering::SeqCst);
                    self.is_enforced.store(true, Ordering::SeqCst);
                    stop.cancel();
                    return;
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        tracing::warn!("the lease cannot be renewed just now: {error}");
                    }
                }
            }
            tokio::time::sleep(RENEWED_EVERY.saturating_sub(Duration::from_millis(now() - asked))).await;
        }
    }

    /// Keeps that the site has other daemons: a daemon of several waits for its database, one that is alone ends without it.
    fn remember(&self, several: bool) {
        let mut member = self.member.lock();
        if member.several == several {
            return;
        }
        member.several = several;
        if let Err(error) = member.keep(&self.directory) {
            tracing::error!(%error, "cannot keep that this site has other daemons");
        }
    }

    /// Gives the lease back, once nothing is done under it any more: another may lead at once.
    pub(crate) async fn release(&self) {
        let stops = !self.stands_again();
        let mut desk = self.desk.lock().await;
        let released = desk.release(self.leading.lead, stops).await;
        self.is_over.store(true, Ordering::SeqCst);
        match released {
            Ok(()) => {
                desk.close().await;
                self.questions.lock().await.close().await;
            }
            Err(error) => tracing::warn!("the lease ends by itself: it was not given back: {error}"),
        }
    }
}
