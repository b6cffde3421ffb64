//! `farside-lab contenders`.

use crate::cli::{ContendersArguments, Place};
use crate::commands::Outcome;

pub(crate) fn run(place: &Place, arguments: &ContendersArguments) -> Outcome {
    Err(format!("not part of this build yet: {arguments:?} in {}", place.cache.display()).into())
}
