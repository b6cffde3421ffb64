//! What a transfer has left, once it has ended: its record, what is shown now, and what was set aside.

use farside_transfer::TransferKind;
use farside_transfer::destination::Outcome;
use farside_transfer::quiet::is_worth_a_line;
use farside_transfer::report::{TransferReport, TransferResult};
use uuid::Uuid;

use super::Driver;
use crate::error::blocking;
use crate::log::LogEvent;
use crate::relationship::inspect::{Inspected, inspect};
use crate::rescues;
use crate::schedule::Schedule;
use crate::state::{Event, Work};
use crate::store::Relationship;

impl Driver {
    /// One line for a transfer that brought something; those that did not are counted.
    fn say_ended(&mut self, report: &TransferReport) {
        let Relationship { id, source, destination, schedule, .. } = &self.relationship;
        let every = match schedule {
            Schedule::Every(every) => Some(*every),
            Schedule::OnRequest | Schedule::Cron(_) => None,
        };
        if report.result == TransferResult::Ok && is_worth_a_line(report, every) {
            tracing::info!(
                relationship = %id, transfer = %report.id, %source, %destination, kind = %report.kind,
                snapshots = report.snapshots, changed_bytes = report.changed_bytes,
                wire_bytes = report.wire_bytes_received, seconds = report.duration_seconds, "transfer done"
            );
        } else if report.result == TransferResult::Ok {
            tracing::debug!(relationship = %id, transfer = %report.id, %destination, "transfer done: nothing had changed");
            if let Some(updates) = self.quiet.one_more(self.parts.clock.monotonic()) {
                tracing::info!(
                    relationship = %id, %destination, updates,
                    "{updates} updates of {destination} found nothing changed in the last hour or more"
                );
            }
        }
    }

    /// Keeps the record of a transfer and looks at what it left.
    pub(super) async fn transfer_ended(&mut self, outcome: &Outcome) -> Event {
        let report = &outcome.report;
        self.say_ended(report);
        if let Err(error) = self.parts.store.append_history(self.relationship.id, report).await {
            tracing::error!(relationship = %self.relationship.id, transfer = %report.id, "one entry of mirror \
                 history could not be saved; the transfer itself is not affected: {error}");
        }
        // Even a transfer that failed may have published some of its snapshots.
        let (engine, relationship) = (self.parts.engine.clone(), self.relationship.clone());
        match blocking(move || inspect(&*engine, &relationship)).await {
            Ok(Inspected::SetBack) => {}
            Ok(Inspected::Found(found)) => {
                let found = *found;
                self.current = found.current;
                self.forgotten_fence = found.forgotten_fence;
                self.doubt_forgotten_fence();
                self.note_rescues(report, found.rescues).await;
            }
            Err(error) => tracing::warn!(relationship = %self.relationship.id, "{error}"),
        }
        self.why = report.reason.clone().or_else(|| self.behind_why(outcome));
        let event = match (report.result, &report.reason) {
            (TransferResult::Ok, _) => LogEvent::End { bytes: report.wire_bytes_received },
            (_, reason) => LogEvent::Abort { reason: reason.clone().unwrap_or_default() },
        };
        self.log(event, Some(report.kind), Some(report.id)).await;
        // A first copy or a resync that was cut short after its first snapshots leaves a base: updates bring the rest.
        let has_base = report.kind != TransferKind::Update && report.snapshots > 0;
        if report.result == TransferResult::Ok || has_base {
            self.drop_other_direction().await;
            if let (TransferKind::Resync, Some(of)) = (report.kind, self.forgotten_fence) {
                // A person has decided. With nothing to bring it still shows the last snapshot of that role change.
                match self.release_ended(of).await {
                    Ok(()) => self.forgotten_fence = None,
                    Err(error) => tracing::warn!(relationship = %self.relationship.id, "{error}"),
                }
            }
        }
        if report.result == TransferResult::Ok || has_base { Event::Done } else { Event::Failed }
    }

    /// Tells of what a transfer has set aside. A resync says so before; where an update does it, the source is not what it was.
    async fn note_rescues(&mut self, report: &TransferReport, now: Vec<(Uuid, String)>) {
        let before = std::mem::replace(&mut self.rescues, now.iter().map(|(uuid, _)| *uuid).collect());
        self.went_back = self.went_back.take().filter(|(uuid, _)| self.rescues.contains(uuid));
        for (uuid, snapshot) in now.into_iter().filter(|(uuid, _)| !before.contains(uuid)) {
            let Relationship { source, destination, .. } = &self.relationship;
            if report.kind == TransferKind::Update {
                tracing::warn!(
                    volume = %destination, %source, rescue = snapshot,
                    "the source went back to an earlier state, follows another site since, or two copies of it are alive (a \
                     restored backup, a clone). The replica follows it; what it showed until then is kept as a side branch"
                );
                let why = format!(
                    "{source} went back to an earlier state, follows another site since, or two copies of its site are alive: \
                     what {destination} showed until then is kept as {destination}@{snapshot}. Look at both before you delete it; farside mirror \
                     update {destination} ends this notice"
                );
                self.went_back = Some((uuid, why));
            }
            self.log(LogEvent::Rescue { snapshot }, Some(report.kind), Some(report.id)).await;
        }
        self.thin_rescues();
    }

    /// Deletes rescues that are too many. Nobody waits for it.
    pub(in crate::relationship) fn thin_rescues(&self) {
        let most = self.parts.limits.rescues;
        if most == 0 || self.rescues.len() <= most {
            return;
        }
        let (engine, volume) = (self.parts.engine.clone(), self.relationship.destination.clone());
        let span = tracing::Span::current();
        tokio::task::spawn_blocking(move || {
            let _entered = span.entered();
            if let Err(error) = rescues::thin(&*engine, &volume, most) {
                tracing::warn!(%volume, "cannot look for rescues that are too many: {error}");
            }
        });
    }

    /// That nothing asks for updates any more, because what said when is lost.
    pub(super) fn schedule_why(&self) -> Option<String> {
        let Relationship { destination, schedule_lost, .. } = &self.relationship;
        (*schedule_lost && self.state.work == Work::Idle).then(|| {
            format!(
                "no schedule: it was in the state database that was lost, so updates come only when they are asked for. To set \
                 it: farside mirror set {destination} --every TIME, or farside mirror create with the same names"
            )
        })
    }

    /// What a transfer that went well has left at the source.
    fn behind_why(&self, outcome: &Outcome) -> Option<String> {
        let source = &self.relationship.source;
        let (waiting, left_out) = (outcome.waiting, outcome.left_out);
        if waiting > 0 {
            return Some(format!("catching up: {waiting} more snapshots of {source} wait at the source"));
        }
        let most = self.parts.limits.snapshots;
        (left_out > 0).then(|| {
            format!(
                "{left_out} older snapshots of {source} were not taken: a replica has at most {most} (replicas.snapshots). \
                 The data is current. For newer ones to be taken, delete snapshots of {}",
                self.relationship.destination
            )
        })
    }
}
