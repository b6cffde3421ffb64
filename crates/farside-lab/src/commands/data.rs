//! `farside-lab data`.

use crate::cli::{DataArguments, Place};
use crate::commands::Outcome;

pub(crate) fn run(place: &Place, arguments: &DataArguments) -> Outcome {
    Err(format!("not part of this build yet: {arguments:?} in {}", place.cache.display()).into())
}
