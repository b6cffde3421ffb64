//! `farside-lab links`: what experiments about links showed, as a section of the manual.

use std::fs;
use std::process::ExitCode;

use farside_lab::experiment::outputs;
use farside_lab::report::links;

use crate::cli::LinksArguments;
use crate::commands::Outcome;

pub(crate) fn run(arguments: &LinksArguments) -> Outcome {
    let results =
        arguments.results.iter().map(|path| outputs::read_file(path)).collect::<Result<Vec<_>, _>>()?;
    let section = links::section(&results)?;
    let files = [("link.md".to_owned(), section.markdown)].into_iter().chain(section.pictures);
    for (name, text) in files {
        let path = arguments.out.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
