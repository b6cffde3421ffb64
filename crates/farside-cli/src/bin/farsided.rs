//! `farsided`: the daemon of a site.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use farside_cli::arguments::daemon::DaemonArguments;
use farside_daemon::{Listen, Options};
use farside_platform::log_output::last_word;

fn main() -> ExitCode {
    let arguments = DaemonArguments::parse();
    let listen = |text: &Option<String>| text.as_deref().map(str::parse::<Listen>).transpose();
    let listened = || -> Result<_, String> {
        Ok(Options {
            peer_listen: listen(&arguments.peer_listen)?,
            http: listen(&arguments.http)?,
            api_listen: listen(&arguments.api_listen)?,
            nbd_listen: listen(&arguments.nbd_listen)?,
            data_dir: arguments.data_dir.clone(),
            config: arguments.config.clone(),
            name: arguments.name.clone(),
            daemon_name: arguments.daemon_name.clone(),
            log: arguments.log.clone(),
            database: arguments.database.clone(),
            database_password_file: arguments.database_password_file.clone(),
            isolated: arguments.isolated,
        })
    };
    let options = match listened() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("farsided: {error}");
            return ExitCode::from(2);
        }
    };
    if arguments.check {
        return match farside_daemon::check(options) {
            Ok(warnings) => {
                for warning in warnings {
                    eprintln!("farsided: warning: {warning}");
                }
                println!("farsided: the configuration is right");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("farsided: {error}");
                ExitCode::from(error.exit_code())
            }
        };
    }
    match farside_daemon::run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            last_word(format!("farsided: {error}"), Duration::from_secs(1));
            ExitCode::from(error.exit_code())
        }
    }
}
