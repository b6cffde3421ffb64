//! NBD clients of other projects, as far as this machine has them.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use super::serve::PATIENCE;

/// Set to `1` to make a missing client a failure instead of a skipped test.
const REQUIRE: &str = "FARSIDE_REQUIRE_TOOLS";

pub struct Tool(PathBuf);

/// The program `name`, if it is installed; otherwise says loudly that the test is skipped, or fails if told to.
pub fn tool(name: &str) -> Option<Tool> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file());
    if found.is_none() {
        let required = std::env::var_os(REQUIRE).is_some_and(|value| value == "1");
        assert!(!required, "{name} is not installed, and {REQUIRE}=1 demands it");
        // Past the test harness, which hides the output of tests that pass.
        use std::io::Write;
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let _ = writeln!(std::io::stderr().lock(), "SKIP {test}: {name} is not installed");
    }
    found.map(Tool)
}

impl Tool {
    /// Runs it to its end, which must come in time.
    pub async fn output<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        let mut command = tokio::process::Command::new(&self.0);
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(PATIENCE, command.output()).await;
        output.unwrap_or_else(|_| panic!("{} hangs", self.0.display())).expect("the program starts")
    }

    /// Runs it and returns what it printed; it must succeed.
    pub async fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let output = self.output(arguments).await;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}: {}\n{out}{err}", self.0.display(), output.status);
        out.into_owned()
    }

    /// Runs it and returns what it printed anywhere; it must fail.
    pub async fn run_failing<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let output = self.output(arguments).await;
        let text =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(!output.status.success(), "{} succeeded:\n{text}", self.0.display());
        text
    }
}
