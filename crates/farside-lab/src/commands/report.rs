//! `farside-lab report`: table and page anew, from the result that `run` wrote.

use std::process::ExitCode;

use farside_lab::experiment::outputs;

use crate::cli::ReportArguments;
use crate::commands::Outcome;

pub(crate) fn run(arguments: &ReportArguments) -> Outcome {
    let result = outputs::read(&arguments.out)?;
    for path in outputs::write(&arguments.out, &result)? {
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
