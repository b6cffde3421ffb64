//! `farside-lab report` and `farside-lab codec`: reports anew, from the results beside them.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use farside_lab::experiment::outputs;
use farside_lab::report::codec::{self, Measurement};

use crate::cli::{CodecArguments, ReportArguments};
use crate::commands::Outcome;

pub(crate) fn run(arguments: &ReportArguments) -> Outcome {
    let result = outputs::read(&arguments.out)?;
    for path in outputs::write(&arguments.out, &result)? {
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn codec(arguments: &CodecArguments) -> Outcome {
    let told = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| format!("{path}: {error}")
    };
    let path = arguments.out.join(outputs::RESULT_FILE);
    let text = fs::read_to_string(&path).map_err(told(&path))?;
    let wrong = |error| format!("{}: {error}; scripts/bench-codec writes such a file", path.display());
    let mut lines = text.lines();
    let head = serde_json::from_str(lines.next().unwrap_or_default()).map_err(wrong)?;
    let measurements: Vec<Measurement> =
        lines.map(serde_json::from_str).collect::<Result<_, _>>().map_err(wrong)?;
    let report = codec::page(&head, &measurements)?;
    for (name, text) in report.plots.into_iter().chain([(outputs::REPORT_FILE.to_owned(), report.markdown)]) {
        let path = arguments.out.join(name);
        fs::write(&path, text).map_err(told(&path))?;
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
