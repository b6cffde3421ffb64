//! Alarms: what is wrong with the site, or soon will be, told once when it begins and once when it is over.
//!
//! ```text
//!  mirrors, pools, peers ──► observe ──► conditions (pure) ──► book (pure) ──► edges ──► log, database,
//!  transfers that end ─────► history, signature (pure) ──┘                             webhook, command
//! ```
//!
//! One task (`watch`) looks every two seconds and owns what conditions remember. Guarantees: an alarm that is raised stays so across
//! restarts, and is told once. Telling holds up nothing: webhook and command have queues and tasks of their own.
//!
//! Read in this order: `kind`, `book`, `conditions`, `signature`; then `watch`, `observe` and `history`, which hand them what there is;
//! then `webhook` and `command`.

mod book;
mod command;
mod conditions;
mod history;
mod kind;
mod last_good;
mod observe;
mod secret;
pub(crate) mod settings;
mod signature;
pub(crate) mod watch;
mod webhook;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use farside_api::{self as api, AlarmEvent, AlarmNotice, AlarmTest, ErrorBody, ErrorCode};
use farside_mirror::ClockReading;
use farside_platform::{Clock, Timestamp};
use parking_lot::Mutex;
use tokio::sync::broadcast;
use uuid::Uuid;

use self::book::{Alarm, Book, Edge, OPEN_MAX};
use self::command::Runner;
use self::conditions::{Conditions, Seen};
use self::kind::Kind;
use self::settings::{AlarmsConfig, STORED_WITHIN};
use self::webhook::Webhook;
use crate::convert;
use crate::failure::Failure;
use crate::state::{AlarmRow, EndedTransfer, State, StateError};

/// How long a cleared alarm is kept.
const KEPT_FOR: Duration = Duration::from_secs(30 * 86_400);

/// The alarms of this site.
pub(crate) struct Alarms {
    config: AlarmsConfig,
    site_name: String,
    /// A copy of the site that meets nobody tells nobody: the original does.
    is_isolated: bool,
    book: Mutex<Book>,
    webhook: Option<Webhook>,
    command: Option<Runner>,
    state: State,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Alarms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alarms").field("open", &self.book.lock().open().len()).finish_non_exhaustive()
    }
}

impl Alarms {
    /// As they were when the daemon ended.
    pub(crate) async fn load(
        config: AlarmsConfig,
        site_name: &str,
        is_isolated: bool,
        state: State,
        clock: Arc<dyn Clock>,
    ) -> Result<Alarms, StateError> {
        if !is_isolated {
            for doubt in config.doubts() {
                tracing::error!("{doubt}");
            }
        }
        // A kind of a later version, or a row that cannot be read: raised anew if it is still so.
        let open = state.open_alarms().await?.iter().filter_map(alarm).collect();
        let next_id = u64::try_from(state.next_alarm_id().await?).unwrap_or(1);
        let webhook = match config.webhook.clone().filter(|_| !is_isolated) {
            Some(webhook) => Some(Webhook::load(webhook, state.clone(), Arc::clone(&clock)).await),
            None => None,
        };
        Ok(Alarms {
            command: config.command.clone().filter(|_| !is_isolated).map(Runner::new),
            site_name: site_name.to_owned(),
            is_isolated,
            book: Mutex::new(Book::new(open, next_id)),
            webhook,
            config,
            state,
            clock,
        })
    }

    /// What it was told.
    pub(crate) fn configuration(&self) -> api::AlarmConfiguration {
        let AlarmsConfig { webhook, command, limits, clear_after } = &self.config;
        api::AlarmConfiguration {
            webhook: webhook.as_ref().map(settings::WebhookConfig::shown),
            webhook_signed: webhook.as_ref().is_some_and(|webhook| webhook.secret_file.is_some()),
            command: command.as_ref().and_then(|command| command.words.first().cloned()),
            peer_gone_after_seconds: limits.peer_gone_after.as_secs(),
            daemon_gone_after_seconds: Some(limits.daemon_gone_after.as_secs()),
            no_progress_after_seconds: limits.no_progress_after.as_secs(),
            failing_transfers: limits.failing_transfers,
            clear_after_seconds: clear_after.as_secs(),
        }
    }

    /// Those that are raised, oldest first, as they were when they were seen last.
    pub(crate) fn raised(&self) -> Vec<api::Alarm> {
        self.book.lock().open().iter().map(document).collect()
    }

    /// The same; what only waits to be cleared says so.
    pub(crate) fn open(&self) -> Vec<api::Alarm> {
        self.told().iter().map(document).collect()
    }

    fn told(&self) -> Vec<Alarm> {
        let now = ClockReading::of(&*self.clock).monotonic;
        self.book.lock().told(now, |kind| self.config.times(kind))
    }

    /// Those, and the ones that were cleared of late.
    pub(crate) async fn all(&self) -> Result<Vec<api::Alarm>, StateError> {
        let cleared = self.state.cleared_alarms().await?;
        let open = self.told();
        let mut all: Vec<Alarm> = cleared.iter().filter_map(alarm).chain(open).collect();
        all.sort_by_key(|alarm| alarm.id);
        // One that was cleared between the two questions is told as cleared.
        all.dedup_by_key(|alarm| alarm.id);
        Ok(all.iter().map(document).collect())
    }

    /// How many of each kind are raised; every kind is there.
    pub(crate) fn count(&self) -> Vec<AlarmCount> {
        let mut counts: BTreeMap<Kind, u64> = Kind::ALL.into_iter().map(|kind| (kind, 0)).collect();
        for alarm in self.book.lock().open() {
            *counts.entry(alarm.kind).or_default() += 1;
        }
        let count = |(kind, open): (Kind, u64)| AlarmCount {
            kind: kind.name(),
            severity: kind.severity().name(),
            open,
        };
        counts.into_iter().map(count).collect()
    }

    /// What nobody has acknowledged, a line each, without what health says by itself.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let open = self.told().into_iter();
        let told = open.filter(|alarm| alarm.acknowledged_at.is_none() && !alarm.kind.is_said_by_health());
        told.map(|alarm| {
            format!(
                "alarm {} ({}): {}. What to do: {}",
                alarm.id,
                alarm.kind.name(),
                alarm.message,
                alarm.hint
            )
        })
        .collect()
    }

    /// Notes that a person knows of one that is raised.
    pub(crate) async fn acknowledge(&self, id: &str) -> Result<api::Alarm, ErrorBody> {
        let unknown = || {
            ErrorBody::new(ErrorCode::NotFound, format!("no alarm {id} is raised")).hint(
                "farside alarm list shows those that are; farside alarm list --all those that are over, too",
            )
        };
        let number: u64 = id.parse().map_err(|_| unknown())?;
        let at = self.clock.now();
        let acknowledged = self.book.lock().acknowledge(number, at).ok_or_else(unknown)?;
        self.state.keep_alarm(&row(&acknowledged)).await.map_err(Failure::into_error_body)?;
        tracing::info!(
            id = number,
            kind = acknowledged.kind.name(),
            subject = acknowledged.subject,
            "alarm acknowledged"
        );
        Ok(document(&acknowledged))
    }

    /// Tries every way on which alarms go out, and says what came of each.
    pub(crate) async fn test(&self) -> Result<Vec<AlarmTest>, ErrorBody> {
        if self.is_isolated {
            let message =
                "this site runs isolated (farsided --isolated): its alarms are told to nobody but the log";
            return Err(ErrorBody::new(ErrorCode::Refused, message));
        }
        let alarm = Alarm {
            id: 0,
            kind: Kind::Test,
            subject: self.site_name.clone(),
            raised_at: self.clock.now(),
            cleared_at: None,
            acknowledged_at: None,
            message: format!("a test of the alarms of site {}: nothing is wrong", self.site_name),
            hint: String::from("nothing is to be done"),
        };
        tracing::info!(kind = alarm.kind.name(), "alarm: {}", alarm.message);
        let notice = self.notice(AlarmEvent::Test, &alarm);
        let arrived = |way: &str, target: Option<String>, said: Result<(), String>| AlarmTest {
            way: way.to_owned(),
            target,
            ok: said.is_ok(),
            result: said.err().unwrap_or_else(|| String::from("ok")),
        };
        let post = async {
            let webhook = self.webhook.as_ref()?;
            Some(arrived("webhook", Some(webhook.shown()), webhook.try_once(&notice).await))
        };
        let run = async {
            let command = self.command.as_ref()?;
            Some(arrived("command", Some(command.shown()), command.try_once(&notice).await))
        };
        let (posted, ran) = tokio::join!(post, run);
        Ok([Some(arrived("log", None, Ok(()))), posted, ran].into_iter().flatten().collect())
    }

    /// Hands alarms to webhook and command for as long as the site lives.
    pub(crate) async fn keep_delivering(&self) {
        let post = async {
            if let Some(webhook) = &self.webhook {
                webhook.keep_posting().await;
            }
        };
        let run = async {
            if let Some(command) = &self.command {
                command.keep_running().await;
            }
        };
        tokio::join!(post, run);
    }

    /// Transfers that end from now on.
    pub(crate) fn transfers_ended(&self) -> broadcast::Receiver<EndedTransfer> {
        self.state.transfers_ended()
    }

    /// What alarms of this kind that are raised are about.
    pub(crate) fn subjects(&self, kind: Kind) -> Vec<String> {
        let open = self.book.lock().open().into_iter();
        open.filter(|alarm| alarm.kind == kind).map(|alarm| alarm.subject).collect()
    }

    /// When a person said that this is known, if it is raised and somebody has.
    pub(crate) fn acknowledged_at(&self, kind: Kind, subject: &str) -> Option<Timestamp> {
        let open = self.book.lock().open();
        open.into_iter().find(|alarm| alarm.kind == kind && alarm.subject == subject)?.acknowledged_at
    }

    /// Whether an alarm of this kind is raised, and if so, whether somebody knows.
    pub(crate) fn is_acknowledged(&self, kind: Kind, subject: &str) -> Option<bool> {
        self.book.lock().is_acknowledged(kind, subject)
    }

    /// Judges what was seen, and tells what is new. Answers whether no further alarm can be raised until some are over.
    pub(crate) async fn judge(&self, seen: &Seen, conditions: &mut Conditions) -> bool {
        let now = ClockReading::of(&*self.clock);
        let findings = conditions.look(now.monotonic, seen, &self.config.limits);
        let (edges, open) = {
            let mut book = self.book.lock();
            let edges = book.look(now, findings, |kind| self.config.times(kind));
            (edges, book.open().len())
        };
        for edge in &edges {
            self.tell(edge).await;
        }
        open >= OPEN_MAX
    }

    async fn tell(&self, edge: &Edge) {
        let (event, alarm) = match edge {
            Edge::Raised(alarm) => {
                tracing::warn!(
                    id = alarm.id,
                    kind = alarm.kind.name(),
                    severity = alarm.kind.severity().name(),
                    subject = alarm.subject,
                    "alarm raised: {}. What to do: {}",
                    alarm.message,
                    alarm.hint
                );
                (AlarmEvent::Raised, alarm)
            }
            Edge::Cleared(alarm) => {
                tracing::info!(
                    id = alarm.id,
                    kind = alarm.kind.name(),
                    subject = alarm.subject,
                    "alarm cleared, it was: {}",
                    alarm.message
                );
                (AlarmEvent::Cleared, alarm)
            }
        };
        let notice = self.notice(event, alarm);
        if let Some(command) = &self.command {
            command.add(&notice);
        }
        if let Some(webhook) = &self.webhook {
            webhook.add(&notice).await;
        }
        let why = match tokio::time::timeout(STORED_WITHIN, self.keep(alarm)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => String::from("the state database does not answer"),
        };
        tracing::error!(
            id = alarm.id,
            kind = alarm.kind.name(),
            subject = alarm.subject,
            "this alarm is not stored: after a restart it may be told once more, or not as cleared: {why}"
        );
    }

    fn notice(&self, event: AlarmEvent, alarm: &Alarm) -> AlarmNotice {
        let alarm = document(alarm);
        AlarmNotice { event, site: self.site_name.clone(), notice_id: Uuid::now_v7(), alarm }
    }

    async fn keep(&self, alarm: &Alarm) -> Result<(), StateError> {
        self.state.keep_alarm(&row(alarm)).await?;
        let now = self.clock.now();
        let kept_for = u64::try_from(KEPT_FOR.as_nanos()).unwrap_or(u64::MAX);
        self.state.prune_alarms(Timestamp(now.0.saturating_sub(kept_for))).await
    }
}

/// How many alarms of a kind are raised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AlarmCount {
    pub(crate) kind: &'static str,
    pub(crate) severity: &'static str,
    pub(crate) open: u64,
}

/// As people and programs are told of it. Of one that is over the words are not those of one that is not: a tired reader acts on them.
fn document(alarm: &Alarm) -> api::Alarm {
    let (message, hint) = match alarm.cleared_at.map(convert::time) {
        None => (alarm.message.clone(), alarm.hint.clone()),
        Some(at) => (
            format!("over since {at}, and was raised because: {}", alarm.message),
            String::from("farside status says what is wrong now, if anything is"),
        ),
    };
    api::Alarm {
        id: alarm.id.to_string(),
        kind: alarm.kind.name().to_owned(),
        subject: alarm.subject.clone(),
        severity: alarm.kind.severity(),
        raised_at: convert::time(alarm.raised_at),
        cleared_at: alarm.cleared_at.map(convert::time),
        acknowledged: alarm.acknowledged_at.is_some(),
        message,
        hint,
    }
}

fn row(alarm: &Alarm) -> AlarmRow {
    let time = |time: Timestamp| i64::try_from(time.0).unwrap_or(i64::MAX);
    AlarmRow {
        id: i64::try_from(alarm.id).unwrap_or(i64::MAX),
        kind: alarm.kind.name().to_owned(),
        subject: alarm.subject.clone(),
        severity: alarm.kind.severity().name().to_owned(),
        raised_at: time(alarm.raised_at),
        cleared_at: alarm.cleared_at.map(time),
        acknowledged_at: alarm.acknowledged_at.map(time),
        message: alarm.message.clone(),
        hint: alarm.hint.clone(),
    }
}

/// An alarm as its row has it; none of a kind that this version does not know.
fn alarm(row: &AlarmRow) -> Option<Alarm> {
    let time = |nanoseconds: i64| Timestamp(u64::try_from(nanoseconds).unwrap_or(0));
    Some(Alarm {
        id: u64::try_from(row.id).ok()?,
        kind: Kind::named(&row.kind)?,
        subject: row.subject.clone(),
        raised_at: time(row.raised_at),
        cleared_at: row.cleared_at.map(time),
        acknowledged_at: row.acknowledged_at.map(time),
        message: row.message.clone(),
        hint: row.hint.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_comes_back_as_it_was_stored() {
        let stored = Alarm {
            id: 7,
            kind: Kind::PeerGone,
            subject: "north".into(),
            raised_at: Timestamp(5),
            cleared_at: Some(Timestamp(6)),
            acknowledged_at: None,
            message: "m".into(),
            hint: "h".into(),
        };
        assert_eq!(alarm(&row(&stored)), Some(stored.clone()));
        let told = document(&stored);
        assert!(told.message.starts_with("over since ") && told.message.ends_with(": m"), "{}", told.message);
        assert!(told.hint.contains("farside status"), "{}", told.hint);
        assert_eq!(alarm(&AlarmRow { kind: "from-the-future".into(), ..row(&stored) }), None);
    }
}
