//! `farside-lab run`.

use crate::cli::{Place, RunArguments};
use crate::commands::Outcome;

pub(crate) fn run(place: &Place, arguments: &RunArguments) -> Outcome {
    Err(format!("not part of this build yet: {arguments:?} in {}", place.cache.display()).into())
}
