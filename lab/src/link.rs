//! What an emulated link is, and what it does to each packet. Pure: no device, no clock of its own.
//!
//! A link has two directions, [`Direction::Forward`] (a to b) and [`Direction::Back`]; each is shaped by itself. Rates count the bits of IP
//! packets, headers included, nothing below IP. [`LinkTerms`] makes a link of a profile and what is asked besides;
//! [`Line`] says of each packet when it comes out, or why it does not.

mod limits;
mod line;
mod loss;
mod profile;
mod shape;
pub mod units;

pub use limits::{
    DELAY_MAX, HELD_BYTES_MAX, LimitError, MEAN_BURST_MAX, MTU_MAX, MTU_MIN, RATE_BITS_MAX, RATE_BITS_MIN,
    REORDER_MAX,
};
pub use line::{Line, LineTime, Passage, Verdict};
pub use profile::{LinkError, LinkTerms, MTU_DEFAULT, PROFILES, Profile, QUEUE_PACKETS_MIN};
pub use shape::{Change, Direction, Event, Link, Loss, Shape};
