//! `farside-lab copy-changed` and `rbd-diff`: for contenders' scripts.

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use farside_lab::contender::{copy_changed, write_rbd_diff};

use crate::cli::{CopyChangedArguments, RbdDiffArguments};
use crate::commands::Outcome;

pub(crate) fn run(arguments: &CopyChangedArguments) -> Outcome {
    let copied = copy_changed(&arguments.old, &arguments.new, &arguments.target)?;
    println!("{}", serde_json::to_string(&copied)?);
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn rbd_diff(arguments: &RbdDiffArguments) -> Outcome {
    let mut out = BufWriter::new(std::io::stdout().lock());
    write_rbd_diff(&arguments.old, &arguments.new, &mut out)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
