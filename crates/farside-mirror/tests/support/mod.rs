//! What the test targets of this crate share: a whole site in one process, and a pair of them.

#![allow(dead_code, reason = "no target uses all of it")]

pub(crate) mod embedded_storage;
pub(crate) mod memory_engine;
pub(crate) mod site;
pub(crate) mod trio;
