//! The accelerator as the daemon has it: a process of its own, `farside-accel`, which is started, told, watched and asked.
//!
//! ```text
//! farside.toml ─► settings ─┐
//! accel up, down ─► remembered ─► desired ─► supervisor ─► child ═ socket ═ farside-accel
//! peers of the registry ─► boxes ┘   seen ◄──────┘
//! ```
//!
//! Nothing of the daemon waits for the process, and what becomes of it is a line in the log and a status: it may hang, end or
//! never start. Read `desired` first, then `supervisor`, then `handle`, which is what requests see.

mod book;
mod boxes;
mod child;
mod desired;
mod documents;
mod forwards;
mod handle;
mod lines;
mod policies;
mod prepositions;
mod questions;
mod remembered;
pub(crate) mod settings;
mod supervisor;
#[cfg(test)]
mod tests;
mod under_way;

pub(crate) use handle::{Accelerator, AcceleratorParts, program};
pub(crate) use prepositions::{AskedFor, NewestSnapshot};
