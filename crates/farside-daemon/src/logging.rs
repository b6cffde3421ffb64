//! Log lines, to stderr.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::error::DaemonError;
use crate::options::{Config, LogFormat};

/// Sets up logging for the process. Does nothing if that has been done before (several daemons in one process).
pub(crate) fn start(config: &Config) -> Result<(), DaemonError> {
    let filter = EnvFilter::try_new(&config.log).map_err(|e| {
        DaemonError::Config(format!("{:?} is no log filter: {e}; use for example info", config.log))
    })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // An error here only says that a subscriber is there already.
    let _ = match config.log_format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    Ok(())
}
