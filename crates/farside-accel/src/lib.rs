//! The transparent accelerator for TCP applications. What is here so far is what decides: which connection gets what
//! ([`policy`]). Nothing uses it yet.

pub mod policy;
