//! `[alarms]` of `farside.toml`, read and checked. Pure, but for [`AlarmsConfig::doubts`], which looks at the files that are named.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::Uri;
use serde::Deserialize;

use super::book::HoldTimes;
use super::conditions::Limits;
use super::kind::Kind;
use super::secret::secret_of;
use crate::commands::why_not_run;
use crate::durations;

/// A peer that has not answered for so long is gone. A reboot takes less, and nobody is woken for a link that flaps.
const PEER_GONE_AFTER: Duration = Duration::from_secs(300);
/// A daemon of this site that was not seen for so long is gone. Its machine may start anew, or be brought up to date, meanwhile.
const DAEMON_GONE_AFTER: Duration = Duration::from_secs(300);
/// A transfer that has not got on for so long does not. Longer than the largest comparison of metadata that was measured.
const NO_PROGRESS_AFTER: Duration = Duration::from_secs(900);
/// So many failures in a row are no accident.
const FAILING_TRANSFERS: u32 = 3;
/// An alarm is cleared when its reason has been gone for so long.
const CLEAR_AFTER: Duration = Duration::from_secs(60);
/// What is measured anew with each look must hold for so long before it is raised.
const RAISE_AFTER: Duration = Duration::from_secs(10);
/// A command that works on all volumes of a group takes seconds for each.
const SPLIT_AFTER: Duration = Duration::from_secs(30);
/// How long the state database is waited for: a disk that does not answer must not keep alarms from being told.
pub(super) const STORED_WITHIN: Duration = Duration::from_secs(10);
/// A command that takes longer is killed.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// And so long it may be given.
const COMMAND_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Longest time that can be set: what is later is no alarm.
const TIME_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Words of a command, at most.
const COMMAND_WORDS_MAX: usize = 64;

/// `[alarms]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AlarmsTable {
    webhook: Option<String>,
    webhook_secret_file: Option<PathBuf>,
    webhook_ca_file: Option<PathBuf>,
    command: Option<Vec<String>>,
    command_timeout: Option<Time>,
    peer_gone_after: Option<Time>,
    daemon_gone_after: Option<Time>,
    no_progress_after: Option<Time>,
    failing_transfers: Option<u32>,
    clear_after: Option<Time>,
}

/// A duration as people write it: `30s`, `5m`, `1h30m`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Time(Duration);

impl TryFrom<String> for Time {
    type Error = String;
    fn try_from(text: String) -> Result<Time, String> {
        durations::read(&text)
            .filter(|time| *time <= TIME_MAX)
            .map(Time)
            .ok_or_else(|| format!("{text:?} is no time up to 7 days; use for example 30s, 5m, 1h or 1d"))
    }
}

/// What the file says of alarms.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct AlarmsConfig {
    pub(crate) webhook: Option<WebhookConfig>,
    pub(crate) command: Option<CommandConfig>,
    pub(crate) limits: Limits,
    pub(crate) clear_after: Duration,
}

/// Where alarms are posted to.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct WebhookConfig {
    pub(crate) is_tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path and query: some services take it for a secret.
    pub(crate) path: String,
    pub(crate) secret_file: Option<PathBuf>,
    pub(crate) ca_file: Option<PathBuf>,
}

impl WebhookConfig {
    /// It as it may be shown: without the path.
    pub(crate) fn shown(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// Host and port as a request names them.
    pub(crate) fn authority(&self) -> String {
        if self.port == default_port(self.is_tls) {
            return self.host.clone();
        }
        format!("{}:{}", self.host, self.port)
    }
}

/// What is run with each alarm.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct CommandConfig {
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    pub(crate) timeout: Duration,
}

impl Default for AlarmsConfig {
    fn default() -> AlarmsConfig {
        AlarmsConfig {
            webhook: None,
            command: None,
            limits: Limits {
                peer_gone_after: PEER_GONE_AFTER,
                daemon_gone_after: DAEMON_GONE_AFTER,
                no_progress_after: NO_PROGRESS_AFTER,
                failing_transfers: FAILING_TRANSFERS,
            },
            clear_after: CLEAR_AFTER,
        }
    }
}

impl AlarmsConfig {
    /// How long `kind` must hold before it is raised, and be gone before it is cleared.
    pub(crate) fn times(&self, kind: Kind) -> HoldTimes {
        let (raise_after, clear_after) = match kind {
            Kind::ObjectiveBroken
            | Kind::ObjectiveAtRisk
            | Kind::ClockWrong
            | Kind::PoolNearlyFull
            | Kind::PoolFull
            | Kind::PoolFailed => (RAISE_AFTER, self.clear_after),
            // A source that can be reached hears of a break within that time.
            Kind::TwoOriginals => (RAISE_AFTER, Duration::ZERO),
            // Their own conditions wait, or count.
            Kind::NoProgress | Kind::TransfersFailing | Kind::Test => (Duration::ZERO, self.clear_after),
            // That it gets on again is no matter of measurement: what stands still must not be said of what does not.
            Kind::NoRoom => (Duration::ZERO, Duration::ZERO),
            // It must have been silent for minutes to be gone again: what was said of it is not left standing while it answers.
            Kind::PeerGone | Kind::DaemonGone => (Duration::ZERO, Duration::ZERO),
            // It is so or not.
            // What went wrong is known at once, and that it is right only with the next snapshot.
            Kind::DestructiveDelayed | Kind::SnapshotsFailing | Kind::EndsSoon => {
                (Duration::ZERO, Duration::ZERO)
            }
            // One command brings its volumes to one side one after the other.
            Kind::GroupSplit => (SPLIT_AFTER, Duration::ZERO),
            // A person ends it.
            Kind::Ransomware | Kind::PoolSetBack | Kind::SourceWentBack => (Duration::ZERO, Duration::ZERO),
        };
        HoldTimes { raise_after, clear_after }
    }
}

impl AlarmsConfig {
    /// Why alarms would not reach anybody, as far as files tell. The daemon starts all the same: whoever has volumes to serve is
    /// not kept from it, and a file may come later.
    pub(crate) fn doubts(&self) -> Vec<String> {
        let webhook = self.webhook.as_ref();
        let secret = webhook.and_then(|webhook| webhook.secret_file.as_ref());
        let unsigned = secret
            .and_then(|path| secret_of(path).err())
            .map(|why| format!("[alarms]: alarms will not be posted before that is mended: {why}"));
        let authorities = webhook.and_then(|webhook| webhook.ca_file.as_ref());
        let unbelieved = authorities.and_then(|path| Some((path, File::open(path).err()?))).map(|(path, error)| {
            format!(
                "[alarms]: alarms will not be posted before that is mended: cannot read webhook_ca_file {}: {error}",
                path.display()
            )
        });
        let program = self.command.as_ref().and_then(|command| command.words.first());
        let unrun = program.and_then(|program| Some((program, why_not_run(Path::new(program))?))).map(|(program, why)| {
            format!("[alarms]: no alarm will be handed to a command before that is mended: command {program}: {why}")
        });
        unsigned.into_iter().chain(unbelieved).chain(unrun).collect()
    }
}

impl AlarmsTable {
    /// Checks all of it.
    ///
    /// # Errors
    /// A sentence that names what is wrong.
    pub(crate) fn resolve(self) -> Result<AlarmsConfig, String> {
        let default = AlarmsConfig::default();
        if self.webhook.is_none() && (self.webhook_secret_file.is_some() || self.webhook_ca_file.is_some()) {
            return Err(String::from("webhook_secret_file and webhook_ca_file need a webhook"));
        }
        if self.command.is_none() && self.command_timeout.is_some() {
            return Err(String::from("command_timeout needs a command"));
        }
        let failing_transfers = self.failing_transfers.unwrap_or(FAILING_TRANSFERS);
        if failing_transfers == 0 {
            return Err(String::from("failing_transfers is at least 1"));
        }
        let or = |time: Option<Time>, default: Duration| time.map_or(default, |Time(time)| time);
        let webhook = self.webhook.map(|url| webhook(&url, self.webhook_secret_file, self.webhook_ca_file));
        let command = self.command.map(|words| command(words, or(self.command_timeout, COMMAND_TIMEOUT)));
        Ok(AlarmsConfig {
            webhook: webhook.transpose()?,
            command: command.transpose()?,
            limits: Limits {
                peer_gone_after: or(self.peer_gone_after, default.limits.peer_gone_after),
                daemon_gone_after: or(self.daemon_gone_after, default.limits.daemon_gone_after),
                no_progress_after: or(self.no_progress_after, default.limits.no_progress_after),
                failing_transfers,
            },
            clear_after: or(self.clear_after, default.clear_after),
        })
    }
}

/// Reads a URL. It is not repeated in errors: some services take it for a secret.
fn webhook(
    url: &str,
    secret_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
) -> Result<WebhookConfig, String> {
    let wrong = || String::from("webhook is no URL; use for example https://alarms.example/farside");
    let url: Uri = url.parse().map_err(|_| wrong())?;
    let is_tls = match url.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(wrong()),
    };
    let authority = url.authority().ok_or_else(wrong)?;
    if authority.as_str().contains('@') {
        return Err(String::from(
            "webhook names a user or password; nothing of the kind is sent. Name a webhook_secret_file, by which requests are signed",
        ));
    }
    if !is_tls && ca_file.is_some() {
        return Err(String::from("webhook_ca_file is of use with https only"));
    }
    Ok(WebhookConfig {
        is_tls,
        host: authority.host().to_owned(),
        port: authority.port_u16().unwrap_or(default_port(is_tls)),
        path: url.path_and_query().map_or_else(|| String::from("/"), |path| path.as_str().to_owned()),
        secret_file,
        ca_file,
    })
}

fn default_port(is_tls: bool) -> u16 {
    if is_tls { 443 } else { 80 }
}

fn command(words: Vec<String>, timeout: Duration) -> Result<CommandConfig, String> {
    let Some(program) = words.first() else { return Err(String::from("command has no word")) };
    if !program.starts_with('/') {
        return Err(format!("command begins with the full path of a program, and {program:?} is none"));
    }
    if words.len() > COMMAND_WORDS_MAX || words.iter().any(|word| word.contains('\0')) {
        return Err(format!("command has at most {COMMAND_WORDS_MAX} words, and no zero byte in them"));
    }
    if timeout.is_zero() || timeout > COMMAND_TIMEOUT_MAX {
        return Err(format!(
            "command_timeout is more than nothing and at most {} s",
            COMMAND_TIMEOUT_MAX.as_secs()
        ));
    }
    Ok(CommandConfig { words, timeout })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn read(text: &str) -> Result<AlarmsConfig, String> {
        toml::from_str::<AlarmsTable>(text).map_err(|error| error.to_string())?.resolve()
    }

    #[test]
    fn what_keeps_alarms_from_being_told_is_known_at_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let text = format!(
            "webhook = \"https://a.example/\"\nwebhook_secret_file = {:?}\nwebhook_ca_file = {:?}\ncommand = [{:?}]\n",
            path("secret"),
            path("ca"),
            path("tell")
        );
        let doubts = read(&text).unwrap().doubts();
        for (doubt, key) in doubts.iter().zip(["webhook_secret_file", "webhook_ca_file", "command"]) {
            assert!(doubt.contains(key) && doubt.starts_with("[alarms]"), "{doubt}");
        }
        assert_eq!(doubts.len(), 3, "{doubts:?}");
        farside_platform::private_file::store(&path("secret"), b"s\n").unwrap();
        std::fs::set_permissions(path("secret"), std::fs::Permissions::from_mode(0o644)).unwrap();
        let doubts = read(&text).unwrap().doubts();
        assert!(
            doubts[0].contains("others may read the secret in") && doubts[0].contains("chmod 600"),
            "{doubts:?}"
        );
        std::fs::set_permissions(path("secret"), std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(path("ca"), "").unwrap();
        std::fs::write(path("tell"), "#!/bin/sh\n").unwrap();
        let doubts = read(&text).unwrap().doubts();
        assert!(doubts.len() == 1 && doubts[0].contains("may not be executed"), "{doubts:?}");
        std::fs::set_permissions(path("tell"), std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(read(&text).unwrap().doubts(), [] as [String; 0]);
    }

    #[test]
    fn nothing_said_is_the_default() {
        let config = read("").unwrap();
        assert_eq!(config, AlarmsConfig::default());
        assert_eq!(config.limits.peer_gone_after, Duration::from_secs(300));
        assert_eq!(config.limits.daemon_gone_after, Duration::from_secs(300));
        assert_eq!(config.times(Kind::ObjectiveBroken).clear_after, Duration::from_secs(60));
    }

    #[test]
    fn all_that_can_be_said() {
        let config = read(
            "webhook = \"https://hooks.example:8443/a/b?c=d\"\nwebhook_secret_file = \"/etc/farside/secret\"\n\
             webhook_ca_file = \"/etc/farside/ca.pem\"\ncommand = [\"/bin/page\", \"--farside\"]\ncommand_timeout = \"5s\"\n\
             peer_gone_after = \"1h30m\"\ndaemon_gone_after = \"2m\"\nno_progress_after = \"20m\"\nfailing_transfers = 5\nclear_after = \"0s\"\n",
        )
        .unwrap();
        let webhook = config.webhook.as_ref().unwrap();
        assert_eq!((webhook.is_tls, webhook.host.as_str(), webhook.port), (true, "hooks.example", 8443));
        assert_eq!(
            (webhook.path.as_str(), webhook.shown().as_str()),
            ("/a/b?c=d", "https://hooks.example:8443")
        );
        let command = config.command.as_ref().unwrap();
        assert_eq!((command.words.len(), command.timeout), (2, Duration::from_secs(5)));
        assert_eq!(config.limits.peer_gone_after, Duration::from_secs(5400));
        assert_eq!(config.limits.daemon_gone_after, Duration::from_secs(120));
        assert_eq!(config.limits.failing_transfers, 5);
        assert_eq!(config.times(Kind::ClockWrong).clear_after, Duration::ZERO);
    }

    #[test]
    fn a_url_without_port_or_path() {
        let webhook = read("webhook = \"http://[::1]\"\n").unwrap().webhook.unwrap();
        assert_eq!((webhook.host.as_str(), webhook.port, webhook.path.as_str()), ("[::1]", 80, "/"));
        assert_eq!(webhook.authority(), "[::1]");
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, said) in [
            ("webhook = \"hooks.example\"", "no URL"),
            ("webhook = \"ftp://hooks.example\"", "no URL"),
            ("webhook = \"https://me:pw@hooks.example\"", "signed"),
            ("webhook = \"http://a\"\nwebhook_ca_file = \"/a\"", "https only"),
            ("webhook_secret_file = \"/a\"", "need a webhook"),
            ("command = []", "no word"),
            ("command = [\"mail\"]", "full path"),
            ("command = [\"/bin/mail\"]\ncommand_timeout = \"11m\"", "at most 600 s"),
            ("command_timeout = \"1s\"", "needs a command"),
            ("failing_transfers = 0", "at least 1"),
            ("peer_gone_after = \"8d\"", "peer_gone_after"),
            ("peer_gone_after = \"-1s\"", "7 days"),
            ("peer_gone = \"1s\"", "peer_gone"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains(said), "{text}: {refused}");
            assert!(!refused.contains("me:pw"), "{refused}");
        }
    }
}
