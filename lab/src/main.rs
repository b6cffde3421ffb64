//! `farside-lab`: links, data sets and experiments from the command line.

mod cli;
mod commands;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command};
use farside_lab::testbed::TestBedError;

/// What the program ends with when it could not do what it was asked for; the same as clap's own for wrong words.
const FAILED: u8 = 2;
/// What it ends with after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    // The first process of the laboratory's own namespaces never comes back from this.
    farside_lab::testbed::begin();
    let Cli { place, command } = Cli::parse();
    let outcome = match &command {
        Command::Run(arguments) => commands::run::run(&place, arguments),
        Command::Report(arguments) => commands::report::run(arguments),
        Command::Codec(arguments) => commands::report::codec(arguments),
        Command::Wan(arguments) => commands::wan::run(&place, arguments),
        Command::Data(arguments) => commands::data::run(&place, arguments),
        Command::Clean(arguments) => commands::clean::run(&place, arguments),
        Command::CopyChanged(arguments) => commands::copy_changed::run(arguments),
        Command::RbdDiff(arguments) => commands::copy_changed::rbd_diff(arguments),
        Command::Answer(arguments) => commands::interactive::answer(arguments),
        Command::Ask(arguments) => commands::interactive::ask(arguments),
        Command::Visit(arguments) => commands::interactive::visit(arguments),
    };
    outcome.unwrap_or_else(|error| {
        if let Some(TestBedError::Interrupted) = error.downcast_ref() {
            return ExitCode::from(INTERRUPTED);
        }
        eprintln!("farside-lab: {}", commands::story(error.as_ref()));
        ExitCode::from(FAILED)
    })
}
