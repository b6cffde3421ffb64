//! `farside-lab curves`: what the codec's measurements say, as a section of the manual.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use farside_lab::report::breakeven;

use crate::cli::CurvesArguments;
use crate::commands::Outcome;

pub(crate) fn run(arguments: &CurvesArguments) -> Outcome {
    let told = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| format!("{path}: {error}")
    };
    let text = fs::read_to_string(&arguments.file).map_err(told(&arguments.file))?;
    let measured = serde_json::from_str(&text).map_err(|error| {
        format!("{}: {error}; scripts/bench-codec writes such a file", arguments.file.display())
    })?;
    let section = breakeven::section(&measured)?;
    let files = [("codec.md".to_owned(), section.markdown)].into_iter().chain(section.pictures);
    for (name, text) in files {
        let path = arguments.out.join(name);
        fs::write(&path, text).map_err(told(&path))?;
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
