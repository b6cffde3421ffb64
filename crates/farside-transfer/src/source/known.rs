//! What the destination knows already of what would travel: the planner of the questions (pure), and the stage that asks them.

mod planner;
mod stage;
mod unit;

pub(crate) use planner::{Metadata, Planner};
pub(crate) use stage::{Answers, Stage};
