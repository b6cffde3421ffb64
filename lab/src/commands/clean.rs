//! `farside-lab clean`: removes what killed runs left on disk and in the machine.

use std::process::ExitCode;

use farside_lab::testbed::{TestBedError, stale};
use nix::unistd::Uid;

use crate::cli::{CleanArguments, Place};
use crate::commands::Outcome;

pub(crate) fn run(place: &Place, arguments: &CleanArguments) -> Outcome {
    if !Uid::effective().is_root() {
        return Err(TestBedError::not_root(&place.work()).into());
    }
    let removed = stale::sweep(&place.work())?;
    if arguments.json {
        println!("{}", serde_json::to_string(&removed)?);
    } else if removed.is_empty() {
        println!("nothing to remove: no killed run has left anything below {}", place.work().display());
    } else {
        for one in removed {
            println!("removed {one}");
        }
    }
    Ok(ExitCode::SUCCESS)
}
