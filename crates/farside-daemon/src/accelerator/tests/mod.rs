//! The supervisor and what requests see of it, with a process that speaks the protocol and does what a test wants.

mod fake;
mod handle;
mod supervisor;
