//! Runs the programs that make the data: what they say is kept for the error, its end only.

use std::process::{Child, Command, Stdio};

use super::error::DataError;

/// How much of a failed program's words stands in the error.
const SAID_BYTES_MAX: usize = 2000;

/// Starts a program; one that is not installed is told apart.
pub(super) fn spawn(name: &str, command: &mut Command) -> Result<Child, DataError> {
    command.spawn().map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => DataError::Missing { what: format!("the program `{name}`") },
        _ => DataError::Io { what: "start", path: name.into(), source },
    })
}

/// Runs a program to its end and gives what it wrote to its standard output. Programs here write little.
pub(super) fn run(what: &str, command: &mut Command) -> Result<Vec<u8>, DataError> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = spawn(&name, command)?;
    finish(what, child)
}

/// Waits for a program whose output and errors are pipes.
pub(super) fn finish(what: &str, child: Child) -> Result<Vec<u8>, DataError> {
    let output = child.wait_with_output().map_err(DataError::io("wait for", what.as_ref()))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let mut said = output.stderr;
    said.extend_from_slice(&output.stdout);
    Err(DataError::Program { what: what.to_owned(), status: output.status.to_string(), said: end_of(&said) })
}

/// The end of what a program said, on one line.
pub(super) fn end_of(said: &[u8]) -> String {
    let start = said.len().saturating_sub(SAID_BYTES_MAX);
    let said = String::from_utf8_lossy(&said[start..]);
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { "nothing".to_owned() } else { lines.join("; ") }
}

/// The first line in which a program tells its version.
pub(super) fn version(command: &mut Command) -> Result<String, DataError> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output =
        spawn(&name, command)?.wait_with_output().map_err(DataError::io("wait for", name.as_ref()))?;
    let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Ok(String::from_utf8_lossy(&said).lines().next().unwrap_or_default().trim().to_owned())
}
