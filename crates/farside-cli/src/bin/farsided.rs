//! `farsided`: the daemon of a site.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use farside_cli::arguments::daemon::DaemonArguments;
use farside_daemon::{Listen, Options};
use farside_platform::log_output::last_word;

fn main() -> ExitCode {
    let arguments = DaemonArguments::parse();
    let listen = |text: Option<String>| text.map(|text| text.parse::<Listen>()).transpose();
    let listened = (listen(arguments.peer_listen), listen(arguments.http), listen(arguments.nbd_listen));
    let options = match listened {
        (Ok(peer_listen), Ok(http), Ok(nbd_listen)) => Options {
            data_dir: arguments.data_dir,
            config: arguments.config,
            peer_listen,
            http,
            nbd_listen,
            name: arguments.name,
            log: arguments.log,
            isolated: arguments.isolated,
        },
        (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => {
            eprintln!("farsided: {error}");
            return ExitCode::from(2);
        }
    };
    match farside_daemon::run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            last_word(format!("farsided: {error}"), Duration::from_secs(1));
            ExitCode::from(error.exit_code())
        }
    }
}
