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
//! A box may also be *inline*: LAN and WAN are ports of one bridge. There a second table, of the family *bridge*, gives to IP what the
//! first has to see ("lift"): SYNs, probes, and the frames of connections that are taken, which [`carry`] names. Everything else is
//! bridged untouched. A SYN that is let go is routed on, and what follows it is bridged. (nf_tables could queue it in the bridge
//! where the kernel has CONFIG_NFT_QUEUE; the target of iptables cannot.) `net.bridge.bridge-nf-call-iptables` has to be 0: otherwise the
//! first table runs inside the bridge already, and the socket that `tproxy` finds there is lost before IP sees the packet.
//!
//! A [`Ruleset`] is rendered twice from the same terms: as text in nft's words ([`Ruleset::nft`], and everything else that is
//! installed by [`std::fmt::Display`]), and as netlink messages for [`crate::kernel::OwnedTable`]. What is printed is therefore what is
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
pub use ruleset::{
    Bridge, LIFTED, Means, OWN, QueueBy, REFUSED, ROUTE_TABLE, RULE_PRIORITY, Ruleset, TABLE, TAKEN,
};
pub use sysctl::{Concerns, Sysctl, Wanted, sysctls};
pub use term::Place;

#[cfg(test)]
mod tests;
