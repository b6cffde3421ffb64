//! `farside-accel`: the accelerator's process. `farsided` starts it.

use std::process::ExitCode;

fn main() -> ExitCode {
    farside_accel::process::main()
}
