//! What the words of the command line do. Each returns the status to end with, or the error that `main` tells.

pub(crate) mod clean;
pub(crate) mod copy_changed;
pub(crate) mod data;
pub(crate) mod interactive;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod wan;

use std::error::Error;
use std::process::ExitCode;

/// What a command ends with.
pub(crate) type Outcome = Result<ExitCode, Box<dyn Error>>;

/// An error with its causes, the ones left out that the text before them already tells.
pub(crate) fn story(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    text
}
