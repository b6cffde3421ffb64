//! A policy: an application and what is done for it.

use super::action::Action;
use super::rule::Rule;

/// An application: what its connections look like, and what is done for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// As people call it.
    pub application: String,
    /// Any of these fits.
    pub rules: Vec<Rule>,
    /// What is done.
    pub action: Action,
}
