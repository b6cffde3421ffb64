//! The lease of the daemon that leads a site, and by what the server knows its connections.

use uuid::Uuid;

/// A lease that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lead {
    pub(crate) daemon: Uuid,
    /// Rises with each that begins to lead.
    pub(crate) number: i64,
}

/// `application_name` of the connections that a daemon has for the state while it leads.
pub(super) fn connections_of(lead: Lead) -> String {
    format!("farsided {} {}", &lead.daemon.simple().to_string()[..12], lead.number)
}
