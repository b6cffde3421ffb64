//! `farside`: the client.

use std::process::ExitCode;

fn main() -> ExitCode {
    farside_cli::main()
}
