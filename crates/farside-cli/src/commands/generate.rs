//! Completions and manual pages, from the same definition as the parser.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use farside_api::{ErrorBody, ErrorCode};

use crate::arguments::Arguments;
use crate::arguments::daemon::DaemonArguments;
use crate::output;

pub(super) fn completions(shell: Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "farside", &mut script);
    output::print(&String::from_utf8_lossy(&script));
}

pub(super) fn man(to: Option<&Path>) -> Result<(), ErrorBody> {
    let failed = |error: std::io::Error| {
        ErrorBody::new(ErrorCode::Failed, format!("cannot write manual pages: {error}"))
    };
    match to {
        None => {
            let mut page = Vec::new();
            Man::new(Arguments::command()).render(&mut page).map_err(failed)?;
            output::print(&String::from_utf8_lossy(&page));
        }
        Some(directory) => {
            std::fs::create_dir_all(directory).map_err(failed)?;
            clap_mangen::generate_to(Arguments::command(), directory).map_err(failed)?;
            clap_mangen::generate_to(DaemonArguments::command(), directory).map_err(failed)?;
        }
    }
    Ok(())
}
