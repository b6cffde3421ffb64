//! A site: a network namespace with hosts' programs in it, and what they cost.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::cgroup::Cgroup;
use super::error::TestBedError;
use super::interrupt::Interrupt;
use super::log::{ANSWER_BYTES, Log};
use super::netns::{Netns, net_argument};
use super::process::{Label, Running};

/// Every script runs under it: an error anywhere ends the script with an error.
const SHELL: [&str; 4] = ["bash", "-euo", "pipefail", "-c"];

/// Moves itself into the control group `$1` and becomes the command that follows. The lab cannot move the child by its
/// pid: by then the child may have forked.
const ENTER: &str = r#"echo 0 >"$1/cgroup.procs" || exit 125; shift; exec "$@""#;

/// One host (or all hosts of one end) of a topology.
#[derive(Debug)]
pub struct Site {
    name: String,
    addresses: Vec<Ipv4Addr>,
    netns: Netns,
    /// Why there is none, where there is none.
    cgroup: Result<Cgroup, String>,
    interrupt: Interrupt,
    scripts: AtomicU32,
}

impl Site {
    pub(crate) fn new(
        name: &str,
        addresses: Vec<Ipv4Addr>,
        netns: Netns,
        cgroup: Result<Cgroup, String>,
        interrupt: Interrupt,
    ) -> Self {
        Self { name: name.to_owned(), addresses, netns, cgroup, interrupt, scripts: AtomicU32::new(0) }
    }

    /// `a`, `b`, `client`, `server`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Under which others reach it: at a and b one per path, in the links' order; at client and server one.
    pub fn addresses(&self) -> &[Ipv4Addr] {
        &self.addresses
    }

    /// The file that its network namespace is bound to, for `nsenter --net=…`.
    pub fn netns(&self) -> &Path {
        self.netns.path()
    }

    pub(crate) fn namespace(&self) -> &Netns {
        &self.netns
    }

    /// Starts a bash script in `dir`; what it prints goes to the file `log`.
    /// The environment is the laboratory's own with `env` added.
    ///
    /// # Errors
    /// The system's, and `Interrupted`.
    pub fn run(
        &self,
        script: &str,
        env: &[(String, String)],
        dir: &Path,
        log: &Path,
    ) -> Result<Running, TestBedError> {
        let label = Label::new(script, &self.name, dir.to_owned());
        let log = Log::to_file(log)?;
        let errors = log.writer()?;
        self.start(&script_words(script), env, dir, label, log, errors)
    }

    /// Runs a short bash script to its end and returns what it printed on its standard output, trimmed.
    ///
    /// # Errors
    /// `Failed` unless it ends with status 0, `TooLong` after `limit`, `Interrupted`, and `System` for an answer of more
    /// than 64 KiB.
    pub fn output(
        &self,
        script: &str,
        env: &[(String, String)],
        dir: &Path,
        limit: Duration,
    ) -> Result<String, TestBedError> {
        let label = Label::new(script, &self.name, dir.to_owned());
        let (log, errors) = (Log::in_memory()?, Log::in_memory()?);
        let mut running = self.start(&script_words(script), env, dir, label, log, errors.writer()?)?;
        let status = running.wait(limit)?;
        let (answer, left_out) = running.answer();
        if !status.success() {
            return Err(match running.failed(status) {
                TestBedError::Failed { script, site, status, tail } => {
                    TestBedError::Failed { script, site, status, tail: tail + &errors.last_lines() }
                }
                other => other,
            });
        }
        if left_out > 0 {
            let source = io::Error::other(format!(
                "{left_out} bytes more than the {ANSWER_BYTES} that an answer may have"
            ));
            return Err(TestBedError::System { what: format!("read what {script} printed"), source });
        }
        Ok(answer.trim().to_owned())
    }

    /// Runs a command with the laboratory's own standard input, output and error, in its process group, so that it can use
    /// the terminal; returns how it ended.
    ///
    /// # Errors
    /// The system's. After an interrupt the command has a moment to end by itself (a terminal interrupts it too).
    pub fn foreground(
        &self,
        words: &[String],
        env: &[(String, String)],
        dir: &Path,
    ) -> Result<ExitStatus, TestBedError> {
        let cgroup = self.script_group()?;
        let mut command = self.command(words, env, dir, cgroup.as_ref());
        let what = words.first().cloned().unwrap_or_default();
        let child = command.spawn().map_err(TestBedError::system(format!("start {what}")))?;
        super::process::attend(child, &self.interrupt)
    }

    /// Processor seconds, user and system, of all that ever ran at the site; what the kernel does for its packets outside
    /// of system calls is in it only as far as the kernel charges it to them.
    ///
    /// # Errors
    /// `NoProcessorTime` where the machine has no cgroup2 that can be written, with the reason.
    pub fn cpu_seconds(&self) -> Result<f64, TestBedError> {
        let cgroup = self.cgroup.as_ref().map_err(|reason| TestBedError::NoProcessorTime(reason.clone()))?;
        cgroup.cpu_seconds().map_err(|error| TestBedError::NoProcessorTime(error.to_string()))
    }

    fn start(
        &self,
        words: &[String],
        env: &[(String, String)],
        dir: &Path,
        label: Label,
        log: Log,
        errors: Stdio,
    ) -> Result<Running, TestBedError> {
        if self.interrupt.is_asked() {
            return Err(TestBedError::Interrupted);
        }
        let cgroup = self.script_group()?;
        let mut command = self.command(words, env, dir, cgroup.as_ref());
        command.stderr(errors);
        Running::start(command, label, cgroup, self.interrupt.clone(), log)
    }

    /// A control group below the site's for one script, so that all it started can be ended with it.
    fn script_group(&self) -> Result<Option<Cgroup>, TestBedError> {
        let Ok(site) = &self.cgroup else { return Ok(None) };
        let number = self.scripts.fetch_add(1, Ordering::Relaxed);
        site.child(&number.to_string()).map(Some).map_err(TestBedError::system("make a control group"))
    }

    fn command(
        &self,
        words: &[String],
        env: &[(String, String)],
        dir: &Path,
        cgroup: Option<&Cgroup>,
    ) -> Command {
        let mut command = match cgroup {
            Some(cgroup) => {
                let mut command = Command::new("sh");
                command.args(["-c", ENTER, "sh"]).arg(cgroup.path()).arg("nsenter");
                command
            }
            None => Command::new("nsenter"),
        };
        command.arg(net_argument(self.netns.path())).arg("--").args(words);
        command.current_dir(dir).envs(env.iter().map(|(name, value)| (name, value)));
        command
    }
}

fn script_words(script: &str) -> Vec<String> {
    SHELL.iter().map(|word| (*word).to_owned()).chain([script.to_owned()]).collect()
}
