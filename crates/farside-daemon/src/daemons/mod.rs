//! Several daemons that are one site: one of them leads and does the site's work, the others stand by.
//!
//! ```text
//!  stand: turn at the database's desk ──► leads ──► run: rooms open, keeper renews the lease ──► ends, or stands again
//!                                    └──► waits ──► standby: answers, and passes on what it is asked to the one that leads
//! ```
//!
//! The site's state is in PostgreSQL, its volumes are in clusters, its key is every daemon's. Who leads has a lease with a number that
//! only rises ([`lease`]: times and decision, pure). A daemon that leads and cannot renew stops its work before the lease ends; one that
//! hangs is fenced: whoever follows ends its connections to the database and puts its clients on the clusters' blocklists
//! ([`fence`]) before it begins.
//!
//! * [`member`]: what a daemon knows of itself. [`invitation`]: how one comes to be of a site. [`roster`]: the list.
//! * [`stand`]: until it is this daemon's turn. [`standby`], [`pass_on`]: what it answers meanwhile.
//! * [`keeper`]: the lease while it leads. [`again`]: the process begins anew.
//! * [`announce`]: peers learn where the other daemons are.

pub(crate) mod again;
pub(crate) mod announce;
pub(crate) mod fence;
pub(crate) mod invitation;
pub(crate) mod keeper;
pub(crate) mod lease;
pub(crate) mod member;
pub(crate) mod pass_on;
pub(crate) mod roster;
pub(crate) mod stand;
pub(crate) mod standby;

/// What a daemon that stands by says to the one that leads, to be believed.
pub(crate) const PASS_HEADER: &str = "x-farside-pass";
/// Where the request that it passes on has come from: `socket UID`, `socket` or `network`.
pub(crate) const FROM_HEADER: &str = "x-farside-from";
