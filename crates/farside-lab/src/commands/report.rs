//! `farside-lab report`.

use crate::cli::{Place, ReportArguments};
use crate::commands::Outcome;

pub(crate) fn run(place: &Place, arguments: &ReportArguments) -> Outcome {
    Err(format!("not part of this build yet: {arguments:?} in {}", place.cache.display()).into())
}
