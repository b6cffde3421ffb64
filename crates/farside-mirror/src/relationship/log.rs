//! The driver writes its mirror's log. A line that cannot be written is lost, and said so: nothing waits for it.

use farside_transfer::TransferKind;
use uuid::Uuid;

use super::driver::Driver;
use crate::limits::BREAK_PATIENCE;
use crate::log::{LogEntry, LogEvent};

impl Driver {
    pub(super) async fn log(&self, event: LogEvent, kind: Option<TransferKind>, transfer: Option<Uuid>) {
        let entry = LogEntry {
            at: self.parts.clock.now(),
            relationship: self.relationship.id,
            volume: self.relationship.destination.clone(),
            event,
            kind,
            transfer,
        };
        let written = tokio::time::timeout(BREAK_PATIENCE, self.parts.store.append_log(&entry)).await;
        let lost = match written {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the state database does not answer".into(),
        };
        tracing::error!(relationship = %entry.relationship, event = entry.event.name(), "one entry of mirror log \
             could not be saved; the mirror itself is not affected: {lost}");
    }
}
