//! The process begins anew: whatever it was doing ends at once, threads of libraries and connections included.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use farside_platform::log_output::last_word;

/// `EX_TEMPFAIL`: whoever has started it starts it again.
const TRY_AGAIN: i32 = 75;

/// Runs this program again in this process, with the same arguments. The process keeps its number, so whoever watches over it
/// (systemd) notices nothing.
pub(crate) fn begin_again() -> ! {
    let arguments: Vec<_> = std::env::args_os().collect();
    let started_as = arguments.first().cloned().unwrap_or_default();
    // The one that runs, first; it is gone where the program was replaced meanwhile.
    let programs = [std::env::current_exe().ok().map(Into::into), Some(started_as)];
    for program in programs.into_iter().flatten() {
        let error = Command::new(&program).args(arguments.iter().skip(1)).exec();
        last_word(
            format!("farsided: cannot begin again with {}: {error}", program.to_string_lossy()),
            Duration::from_secs(1),
        );
    }
    std::process::exit(TRY_AGAIN)
}
