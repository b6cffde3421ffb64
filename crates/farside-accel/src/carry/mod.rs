//! Carries a connection that is taken: its two directions between a socket and a trunk.
//!
//! ```text
//! socket ─ gather ─► encode ─ credit, slot ─► trunk      what the far side has room for, one part queued at a time   send.rs
//! trunk ─ inbox: parts in order ─► decode ─► socket      credit is given as the socket takes them                    receive.rs
//! ```
//!
//! Both directions speak for themselves: what is agreed for the connection says whether its bytes go as they are or as blocks of
//! the chunk store; `content.rs` says which of that is worth doing. What cannot be made of the store here is asked for, and the far side answers from what it keeps of blocks that
//! are not delivered yet.
//!
//! A reset does not overtake what was sent before it: it says after how many parts it comes, and is given to the host once that
//! has acknowledged them (pump.rs).

mod content;
mod cores;
mod pump;
mod receive;
mod send;
mod unsent;

pub(crate) use pump::{End, reset, run};
