//! The rules that hand connections to this process, as a value. Pure: nothing here talks to the kernel.
//!
//! ```text
//!  from the LAN ──► prerouting −150 "hold": a SYN waits in the queue until the far box has answered
//!                        │ accepted, with a mark or without
//!                        ▼
//!                   prerouting −149 "divert": TAKEN ──► the transparent listener; so do segments of sockets of this box that
//!                        │                              speak with another host's address
//!                        ▼
//!                   forward 0 "refused": REFUSED ──► the client gets a reset
//!                        │ no mark
//!                        ▼
//!                   its plain way
//! ```
//!
//! A connection of a program on this box goes through the same three steps at the hook *output* ("hold_own", "carry_own",
//! "refused_own"). The mark of its SYN has the kernel route it to `lo`, where "divert" takes it. Its further segments get the mark
//! because [`carry`] has named them in a set, and so do those with which such a program answers the box's own transparent socket.
//!
//! A [`Ruleset`] is rendered twice from the same terms: as text in nft's words ([`Ruleset::nft`], and everything else that is
//! installed by [`fmt::Display`]), and as netlink messages for [`crate::kernel::OwnedTable`]. What is printed is therefore what is
//! installed.
//!
//! Connections to the box itself and between its LANs are not held: the rules ask the kernel's own routing (`fib`). A kernel
//! without that expression holds them as well, and who decides must let them go plainly.

mod message;
mod ruleset;
mod sysctl;
mod term;
mod text;

pub(crate) use message::{batch, carry, text_of};
pub use ruleset::{Means, OWN, QueueBy, REFUSED, ROUTE_TABLE, RULE_PRIORITY, Ruleset, TABLE, TAKEN};
pub use sysctl::{Concerns, Sysctl, Wanted, sysctls};

#[cfg(test)]
mod tests;
