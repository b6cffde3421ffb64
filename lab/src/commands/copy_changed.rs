//! `farside-lab copy-changed`: for contenders' scripts.

use std::process::ExitCode;

use farside_lab::contender::copy_changed;

use crate::cli::CopyChangedArguments;
use crate::commands::Outcome;

pub(crate) fn run(arguments: &CopyChangedArguments) -> Outcome {
    let copied = copy_changed(&arguments.old, &arguments.new, &arguments.target)?;
    println!("{}", serde_json::to_string(&copied)?);
    Ok(ExitCode::SUCCESS)
}
