//! Hooks: commands that freeze an application before a snapshot and thaw it after. They are in `farside.toml` alone, so that whoever
//! may use the control socket cannot have the daemon run what he likes; requests name them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::commands::{Ended, Running, marked, why_not_run};
use crate::error::DaemonError;

/// How long a command may take unless the file says otherwise: hosts stand still meanwhile.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// At most so long.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// At least so long.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// What takes a hook away from a timetable, so no hook has this name.
const NO_HOOK: &str = "none";

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
        if name == NO_HOOK {
            return Err(wrong(format!("--hook {NO_HOOK} means none; choose another name")));
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
                read.filter(|d| (TIMEOUT_MIN..=TIMEOUT_MAX).contains(d)).ok_or_else(|| {
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
    /// Why it would not run, as far as files tell. They may come later.
    pub(crate) fn doubts(&self, name: &str) -> Vec<String> {
        let doubt = |(what, command): (&str, &Vec<String>)| {
            let program = command.first()?;
            let why = why_not_run(Path::new(program))?;
            Some(format!(
                "[hooks.{name}]: snapshots are taken without it (auto-TIME) before that is mended: {what} {program}: {why}"
            ))
        };
        [("freeze", &self.freeze), ("thaw", &self.thaw)].into_iter().filter_map(doubt).collect()
    }

    /// Begins to freeze, by a command that can be found again by `mark`.
    ///
    /// # Errors
    /// Why it could not: also that nothing could thaw it afterwards.
    pub(crate) fn begin_freeze(&self, volumes: &[String], mark: Uuid) -> Result<Step, String> {
        if let Some(program) = self.thaw.first()
            && let Some(why) = why_not_run(Path::new(program))
        {
            return Err(format!("nothing was frozen, as thaw could not begin: {program}: {why}"));
        }
        begin("freeze", &self.freeze, self.timeout, volumes, Some(mark))
    }

    /// Thaws; whatever became of freezing. Nothing interrupts it but its time-out.
    ///
    /// # Errors
    /// Why it did not.
    pub(crate) async fn thaw(&self, volumes: &[String]) -> Result<(), String> {
        begin("thaw", &self.thaw, self.timeout, volumes, None)?.end(&CancellationToken::new()).await
    }
}

/// A command of a hook that runs.
pub(crate) struct Step {
    what: &'static str,
    program: String,
    timeout: Duration,
    /// None: there is nothing to do.
    running: Option<Running>,
}

impl Step {
    /// Waits for its end, or ends it.
    ///
    /// # Errors
    /// Why it did not what it is for.
    pub(crate) async fn end(self, stop: &CancellationToken) -> Result<(), String> {
        let Step { what, program, timeout, running } = self;
        let Some(running) = running else { return Ok(()) };
        running.end(b"", timeout, stop).await.map_err(|ended| match ended {
            Ended::TooLong => format!("{what} took longer than {timeout:?} and was ended: {program}"),
            Ended::Stopped => format!("{what} was ended: nobody wants the snapshot any more"),
            Ended::Lost(error) => format!("{what} was lost sight of: {program}: {error}"),
            Ended::Failed(status, said) => format!("{what} failed ({status}): {program}: {said}"),
        })
    }
}

fn begin(
    what: &'static str,
    command: &[String],
    timeout: Duration,
    volumes: &[String],
    mark: Option<Uuid>,
) -> Result<Step, String> {
    let Some((program, arguments)) = command.split_first() else {
        return Ok(Step { what, program: String::new(), timeout, running: None });
    };
    let first = volumes.first().map_or("", String::as_str);
    let mut command = Command::new(program);
    // Names have no spaces.
    command.args(arguments).env("FARSIDE_VOLUME", first).env("FARSIDE_VOLUMES", volumes.join(" "));
    if let Some(mark) = mark {
        marked(&mut command, mark);
    }
    let running = Running::begin(&mut command)
        .map_err(|error| format!("{what} could not begin: {program}: {error}"))?;
    Ok(Step { what, program: program.clone(), timeout, running: Some(running) })
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
            "thaw = ['/x']\ntimeout = '1us'",
        ] {
            let error = table(text).unwrap_err();
            assert!(error.contains("[hooks.pg]"), "{error}");
        }
        let none = toml::from_str::<HookTable>("thaw = ['/x']").unwrap().resolve("none");
        assert!(none.unwrap_err().to_string().contains("another name"));
    }

    #[tokio::test]
    async fn a_command_that_fails_or_hangs_says_so() {
        let hook = |freeze: &[&str]| Hook {
            freeze: freeze.iter().map(|s| (*s).to_owned()).collect(),
            thaw: Vec::new(),
            timeout: Duration::from_millis(300),
        };
        let volumes = ["p/v".to_owned(), "p/w".to_owned()];
        let freeze = |words: &[&str]| {
            let begun = hook(words).begin_freeze(&volumes, Uuid::new_v4());
            async move { begun?.end(&CancellationToken::new()).await }
        };
        freeze(&["/bin/sh", "-c", "test \"$FARSIDE_VOLUME $FARSIDE_VOLUMES\" = 'p/v p/v p/w'"])
            .await
            .unwrap();
        hook(&[]).thaw(&volumes).await.unwrap();
        let failed = freeze(&["/bin/sh", "-c", "echo no such database >&2; exit 3"]).await.unwrap_err();
        assert!(failed.contains("no such database") && failed.contains('3'), "{failed}");
        let begun = std::time::Instant::now();
        let hung = freeze(&["/bin/sleep", "60"]).await.unwrap_err();
        assert!(hung.contains("longer") && begun.elapsed() < Duration::from_secs(30), "{hung}");
        assert!(freeze(&["/nonexistent"]).await.unwrap_err().contains("could not begin"));
        // What nothing would thaw is not frozen.
        let directory = tempfile::tempdir().unwrap();
        let frozen = directory.path().join("frozen");
        let command = vec!["/bin/touch".to_owned(), frozen.display().to_string()];
        let hook = Hook { thaw: vec!["/nonexistent".into()], ..hook(&[]) };
        let refused = Hook { freeze: command, ..hook }.begin_freeze(&volumes, Uuid::new_v4()).err().unwrap();
        assert!(refused.contains("nothing was frozen") && !frozen.exists(), "{refused}");
    }
}
