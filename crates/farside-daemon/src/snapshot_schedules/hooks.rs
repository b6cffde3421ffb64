//! Hooks: commands that freeze an application before a snapshot and thaw it after. They are in `farside.toml` alone, so that whoever
//! may use the control socket cannot have the daemon run what he likes; requests name them.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use crate::error::DaemonError;

/// How long a command may take unless the file says otherwise: hosts stand still meanwhile.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// At most so long.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Of what a command that failed says on its standard error so much is told, bytes.
const SAID_MAX: u64 = 500;

/// The hooks of a site, by name.
pub(crate) type Hooks = BTreeMap<String, Hook>;

/// A hook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hook {
    /// Program and arguments; no shell.
    freeze: Vec<String>,
    thaw: Vec<String>,
    timeout: Duration,
}

/// `[hooks.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HookTable {
    #[serde(default)]
    freeze: Vec<String>,
    #[serde(default)]
    thaw: Vec<String>,
    timeout: Option<String>,
}

impl HookTable {
    pub(crate) fn resolve(self, name: &str) -> Result<Hook, DaemonError> {
        let wrong = |why: String| DaemonError::Config(format!("[hooks.{name}]: {why}"));
        if !farside_engine::is_label(name) {
            return Err(wrong("such a name is not possible; use A-Z a-z 0-9 . _ + -".into()));
        }
        let is_whole = |command: &[String]| command.first().is_none_or(|program| program.starts_with('/'));
        if self.freeze.is_empty() && self.thaw.is_empty() {
            return Err(wrong("it has neither freeze nor thaw".into()));
        }
        if !is_whole(&self.freeze) || !is_whole(&self.thaw) {
            return Err(wrong(
                "programs are named by their whole paths, for example freeze = [\"/usr/local/bin/freeze\", \"db\"]".into(),
            ));
        }
        let timeout = match self.timeout {
            None => TIMEOUT_DEFAULT,
            Some(text) => {
                let read = text.parse::<jiff::SignedDuration>().ok().and_then(|d| Duration::try_from(d).ok());
                read.filter(|d| !d.is_zero() && *d <= TIMEOUT_MAX).ok_or_else(|| {
                    wrong(format!(
                        "timeout = {text:?} is not between 1 ms and 10 minutes; use for example \"10s\""
                    ))
                })?
            }
        };
        Ok(Hook { freeze: self.freeze, thaw: self.thaw, timeout })
    }
}

impl Hook {
    /// Freezes; an error says why it did not.
    pub(crate) async fn freeze(&self, volume: &str) -> Result<(), String> {
        run("freeze", &self.freeze, self.timeout, volume).await
    }

    /// Thaws; whatever became of freezing.
    pub(crate) async fn thaw(&self, volume: &str) -> Result<(), String> {
        run("thaw", &self.thaw, self.timeout, volume).await
    }
}

async fn run(what: &str, command: &[String], timeout: Duration, volume: &str) -> Result<(), String> {
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let mut child = Command::new(program)
        .args(arguments)
        .env("FARSIDE_VOLUME", volume)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // Whatever becomes of this process's task: nothing of it stays.
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{what} could not begin: {program}: {error}"))?;
    let mut said = String::new();
    let stderr = child.stderr.take();
    let ended = tokio::time::timeout(timeout, async {
        if let Some(stderr) = stderr {
            let mut bytes = Vec::new();
            let _ = stderr.take(SAID_MAX).read_to_end(&mut bytes).await;
            said = String::from_utf8_lossy(&bytes).trim().to_owned();
        }
        child.wait().await
    });
    match ended.await {
        Err(_) => Err(format!("{what} took longer than {timeout:?} and was ended: {program}")),
        Ok(Err(error)) => Err(format!("{what} was lost sight of: {program}: {error}")),
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("{what} failed ({status}): {program}: {said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Result<Hook, String> {
        toml::from_str::<HookTable>(text).unwrap().resolve("pg").map_err(|e| e.to_string())
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(table("freeze = ['/bin/true']").unwrap().timeout, TIMEOUT_DEFAULT);
        assert_eq!(table("thaw = ['/bin/true']\ntimeout = '1m'").unwrap().timeout, Duration::from_secs(60));
        for text in [
            "",
            "freeze = ['true']",
            "freeze = ['/bin/true']\ntimeout = '0s'",
            "thaw = ['/x']\ntimeout = '1h'",
        ] {
            let error = table(text).unwrap_err();
            assert!(error.contains("[hooks.pg]"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_command_that_fails_or_hangs_says_so() {
        let hook = |freeze: &[&str]| Hook {
            freeze: freeze.iter().map(|s| (*s).to_owned()).collect(),
            thaw: Vec::new(),
            timeout: Duration::from_millis(300),
        };
        hook(&["/bin/sh", "-c", "test \"$FARSIDE_VOLUME\" = p/v"]).freeze("p/v").await.unwrap();
        hook(&[]).thaw("p/v").await.unwrap();
        let failed =
            hook(&["/bin/sh", "-c", "echo no such database >&2; exit 3"]).freeze("p/v").await.unwrap_err();
        assert!(failed.contains("no such database") && failed.contains('3'), "{failed}");
        let begun = std::time::Instant::now();
        let hung = hook(&["/bin/sleep", "60"]).freeze("p/v").await.unwrap_err();
        assert!(hung.contains("longer") && begun.elapsed() < Duration::from_secs(30), "{hung}");
        assert!(hook(&["/nonexistent"]).freeze("p/v").await.unwrap_err().contains("could not begin"));
    }
}
