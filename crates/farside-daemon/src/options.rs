//! What the daemon is told: by arguments of its command line, by `farside.toml`, or not at all.
//!
//! A word beats the file, the file beats the default. The file is read once, at start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use farside_mirror::{Budgets, ReplicaLimits};
use farside_peer::hello::check_name;
use farside_peer::limits::SITE_NAME_MAX;
use farside_transfer::{
    Effort,
    source::{ENCODER_MEMORY, ENCODER_MEMORY_MIN},
};
use serde::Deserialize;

use crate::accelerator::settings::{AcceleratorConfig, AcceleratorTable};
use crate::alarms::settings::{AlarmsConfig, AlarmsTable};
use crate::durations;
use crate::error::DaemonError;
use crate::hosts::OwnFiles;
use crate::snapshot_schedules::hooks::{HookTable, Hooks};
use crate::state::{DatabaseAddress, DatabaseChoice, Password};

/// The file that is read without being named.
const CONFIG_FILE: &str = "farside.toml";
/// Longest configuration read, bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Largest part of a pool that can be held for hosts, percent.
const RESERVE_PERCENT_MAX: u8 = 90;
/// Where peers are met by default.
const PEER_LISTEN_DEFAULT: &str = "0.0.0.0:7440";
/// Names in a server's certificate.
const NAMES_MAX: usize = 64;
/// How long destructive requests may be made to wait.
const DELAY_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Where metrics are served by default: to this machine only.
const HTTP_DEFAULT: &str = "127.0.0.1:7441";

/// Words of the command line; what is None is left to the file or the default.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where state and sockets live.
    pub data_dir: PathBuf,
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// Where peers are met.
    pub peer_listen: Option<Listen>,
    /// Where `/metrics`, `/healthz` and `/readyz` are served.
    pub http: Option<Listen>,
    /// Where the API is served over HTTPS.
    pub api_listen: Option<Listen>,
    /// Where hosts are served over TCP.
    pub nbd_listen: Option<Listen>,
    /// The site's name.
    pub name: Option<String>,
    /// What this daemon is called among those of its site.
    pub daemon_name: Option<String>,
    /// The log filter.
    pub log: Option<String>,
    /// Where the state database is: `postgres://USER@HOST[:PORT]/DB`, or `sqlite:` for the file of the data directory.
    pub database: Option<String>,
    /// A file with the password for it.
    pub database_password_file: Option<PathBuf>,
    /// Meets no peer, and intercepts no connection: for a copy of a site that is looked at beside the original.
    pub isolated: bool,
}

/// An address to listen on, or none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// Not at all.
    Off,
    /// `HOST:PORT`; port 0 takes any free one.
    At(String),
}

impl FromStr for Listen {
    type Err = String;
    /// `off` or `ADDR:PORT`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Listen::Off);
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Listen::At(text.into()))
            }
            _ => Err(format!("{text:?} is neither ADDR:PORT nor off")),
        }
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// `farside.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    daemon_name: Option<String>,
    peer_listen: Option<Listen>,
    http: Option<Listen>,
    log: Option<String>,
    log_format: Option<LogFormat>,
    database: Option<String>,
    database_password_file: Option<PathBuf>,
    #[serde(default)]
    api: ApiTable,
    #[serde(default)]
    nbd: NbdTable,
    #[serde(default)]
    hosts: HostsTable,
    #[serde(default)]
    hooks: BTreeMap<String, HookTable>,
    #[serde(default)]
    wire: Wire,
    #[serde(default)]
    budgets: BudgetChoice,
    #[serde(default)]
    replicas: ReplicaChoice,
    #[serde(default)]
    accelerator: AcceleratorTable,
    #[serde(default)]
    alarms: AlarmsTable,
}

/// `[wire]`: how volumes of this site travel.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default)]
    effort: EffortChoice,
    encoder_memory_bytes: Option<u64>,
    similarity_bytes_per_tib: Option<u64>,
}

/// `[budgets]`: what each peer may cost this site as a source. What is left out is [`Budgets::default`]'s.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetChoice {
    snapshots_per_minute: Option<u32>,
    calls_per_minute: Option<u32>,
    transfers: Option<usize>,
    mirrors: Option<usize>,
    pins: Option<usize>,
    pinned_bytes: Option<u64>,
    /// 0: any age.
    pin_age_days: Option<u32>,
    reserve_percent: Option<u8>,
}

impl BudgetChoice {
    fn resolve(self) -> Result<Budgets, DaemonError> {
        let default = Budgets::default();
        let budgets = Budgets {
            snapshots_per_minute: self.snapshots_per_minute.unwrap_or(default.snapshots_per_minute),
            calls_per_minute: self.calls_per_minute.unwrap_or(default.calls_per_minute),
            transfers: self.transfers.unwrap_or(default.transfers).min(default.transfers),
            mirrors: self.mirrors.unwrap_or(default.mirrors),
            pins: self.pins.unwrap_or(default.pins),
            pinned_bytes: self.pinned_bytes,
            pin_age: match self.pin_age_days {
                None => default.pin_age,
                Some(0) => None,
                Some(days) => Some(Duration::from_secs(u64::from(days) * 86_400)),
            },
            reserve_percent: self.reserve_percent.unwrap_or(default.reserve_percent),
        };
        if budgets.reserve_percent > RESERVE_PERCENT_MAX {
            return Err(DaemonError::Config(format!(
                "reserve_percent = {} would leave mirrors no base; the maximum is {RESERVE_PERCENT_MAX}",
                budgets.reserve_percent
            )));
        }
        if budgets.snapshots_per_minute == 0 || budgets.calls_per_minute == 0 || budgets.transfers == 0 {
            return Err(DaemonError::Config(String::from(
                "snapshots_per_minute, calls_per_minute and transfers of [budgets] are at least 1; to stop a peer, use farside peer deny",
            )));
        }
        Ok(budgets)
    }
}

/// `[replicas]`: what mirrors may take of this site as a destination. What is left out is [`ReplicaLimits::default`]'s.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplicaChoice {
    reserve_percent: Option<u8>,
    snapshots: Option<usize>,
    /// 0: all.
    rescues: Option<usize>,
}

impl ReplicaChoice {
    fn resolve(self) -> Result<ReplicaLimits, DaemonError> {
        let default = ReplicaLimits::default();
        let limits = ReplicaLimits {
            reserve_percent: self.reserve_percent.unwrap_or(default.reserve_percent),
            snapshots: self.snapshots.unwrap_or(default.snapshots),
            rescues: self.rescues.unwrap_or(default.rescues),
            ..default
        };
        if limits.reserve_percent > RESERVE_PERCENT_MAX {
            return Err(DaemonError::Config(format!(
                "reserve_percent = {} of [replicas] would leave replicas no room; the maximum is {RESERVE_PERCENT_MAX}",
                limits.reserve_percent
            )));
        }
        Ok(limits)
    }
}

/// `[api]`: the API over HTTPS.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiTable {
    listen: Option<Listen>,
    #[serde(default)]
    names: Vec<String>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    delay: Option<String>,
}

/// How the API is served over HTTPS.
#[derive(Clone, Debug)]
pub(crate) struct ApiConfig {
    pub(crate) listen: Listen,
    /// Names by which clients may call it, besides addresses and the machine's own name.
    pub(crate) names: Vec<String>,
    /// Certificate and key that are not the site's own.
    pub(crate) own: Option<(PathBuf, PathBuf)>,
    /// How long destructive requests wait before they run.
    pub(crate) delay: Option<Duration>,
}

impl ApiTable {
    fn resolve(self, listen: Option<Listen>) -> Result<ApiConfig, DaemonError> {
        let own = match (self.certificate, self.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => {
                return Err(DaemonError::Config(String::from(
                    "[api]: certificate and key go together; name both, or neither for a certificate of this site's own",
                )));
            }
        };
        if self.names.len() > NAMES_MAX {
            return Err(DaemonError::Config(format!("[api]: at most {NAMES_MAX} names")));
        }
        let delay = self.delay.map(|text| delay_of(&text)).transpose()?;
        let listen = listen.or(self.listen).unwrap_or(Listen::Off);
        Ok(ApiConfig { listen, names: self.names, own, delay: delay.filter(|delay| !delay.is_zero()) })
    }
}

fn delay_of(text: &str) -> Result<Duration, DaemonError> {
    durations::read(text).filter(|delay| *delay <= DELAY_MAX).ok_or_else(|| {
        DaemonError::Config(format!(
            "[api]: delay = {text:?} is not between 0 s and 7 days; use for example \"10m\" or \"1d\""
        ))
    })
}

/// `[nbd]`: hosts over TCP.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NbdTable {
    listen: Option<Listen>,
    #[serde(default)]
    tls: NbdTls,
    #[serde(default)]
    names: Vec<String>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
}

/// Whether hosts must prove who they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NbdTls {
    /// Always.
    #[default]
    Required,
    /// Whoever comes may open everything, as on the Unix socket: on loopback only.
    Off,
}

/// How hosts are served over TCP.
#[derive(Clone, Debug)]
pub(crate) struct NbdConfig {
    pub(crate) listen: Listen,
    pub(crate) tls: NbdTls,
    /// Names and addresses besides those that are known, for the server's certificate.
    pub(crate) names: Vec<String>,
    /// Certificates that do not come from the site's own authority.
    pub(crate) own: Option<OwnFiles>,
}

impl NbdTable {
    fn resolve(self, listen: Option<Listen>) -> Result<NbdConfig, DaemonError> {
        let own = match (self.certificate, self.key, self.client_ca) {
            (None, None, None) => None,
            (Some(certificate), Some(key), Some(client_ca)) => Some(OwnFiles { certificate, key, client_ca }),
            _ => {
                return Err(DaemonError::Config(String::from(
                    "[nbd]: certificate, key and client_ca go together; name all three, or none for certificates of this site",
                )));
            }
        };
        if self.names.len() > NAMES_MAX {
            return Err(DaemonError::Config(format!("[nbd]: at most {NAMES_MAX} names")));
        }
        Ok(NbdConfig {
            listen: listen.or(self.listen).unwrap_or(Listen::Off),
            tls: self.tls,
            names: self.names,
            own,
        })
    }
}

/// `[hosts]`: how hosts of this site are served.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostsTable {
    /// Whether what hosts read stays in the kernel's page cache.
    page_cache: Option<bool>,
}

/// What is spent on a frame.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum EffortChoice {
    /// As much as the link leaves time for.
    #[default]
    Auto,
    Raw,
    Fast,
    Standard,
    Thorough,
    Strong,
}

impl EffortChoice {
    fn pinned(self) -> Option<Effort> {
        match self {
            EffortChoice::Auto => None,
            EffortChoice::Raw => Some(Effort::Raw),
            EffortChoice::Fast => Some(Effort::Fast),
            EffortChoice::Standard => Some(Effort::Standard),
            EffortChoice::Thorough => Some(Effort::Thorough),
            EffortChoice::Strong => Some(Effort::Strong),
        }
    }
}

/// What the daemon runs with.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The file that was named; none: that of the data directory, if it is there.
    pub(crate) file: Option<PathBuf>,
    pub(crate) data_dir: PathBuf,
    pub(crate) peer_listen: Listen,
    pub(crate) http: Listen,
    pub(crate) api: ApiConfig,
    pub(crate) nbd: NbdConfig,
    /// Whether what hosts read stays in the kernel's page cache.
    pub(crate) host_page_cache: bool,
    /// Commands that freeze and thaw applications, by name.
    pub(crate) hooks: Hooks,
    pub(crate) name: String,
    /// What this daemon is called among those of its site.
    pub(crate) daemon_name: String,
    pub(crate) log: String,
    pub(crate) log_format: LogFormat,
    /// Where the state database is.
    pub(crate) database: DatabaseChoice,
    /// A file with the password for it.
    pub(crate) database_password_file: Option<PathBuf>,
    /// See [`Options::isolated`].
    pub(crate) isolated: bool,
    /// Memory for the indexes of similar content, for each TiB of a volume; 0 keeps none.
    pub(crate) similarity_bytes_per_tib: u64,
    /// What is spent on every frame; none lets it follow the link.
    pub(crate) effort: Option<Effort>,
    /// Memory of all frames that are being encoded, bytes.
    pub(crate) encoder_memory_bytes: u64,
    /// What each peer may cost this site as a source.
    pub(crate) budgets: Budgets,
    pub(crate) replicas: ReplicaLimits,
    /// What is said of the accelerator.
    pub(crate) accelerator: AcceleratorConfig,
    /// How alarms are told, and from when on something is one.
    pub(crate) alarms: AlarmsConfig,
}

impl Config {
    /// Where the state database is, with the password for it; `file` is where it is by default.
    pub(crate) fn database_address(&self, file: &Path) -> Result<DatabaseAddress, DaemonError> {
        let password = self.database_password_file.as_deref().map(Password::read).transpose();
        let password = password.map_err(DaemonError::Config)?;
        self.database.address(file, password.as_ref()).map_err(DaemonError::Config)
    }

    /// Merges arguments, file and defaults.
    pub(crate) fn resolve(options: Options) -> Result<Config, DaemonError> {
        let file = read_file(options.config.as_deref(), &options.data_dir)?;
        let data_dir = std::path::absolute(&options.data_dir)
            .map_err(|source| DaemonError::DataDir { path: options.data_dir.clone(), source })?;
        let name = options.name.or(file.name).unwrap_or_else(host_name);
        if check_name(&name).is_err() || !farside_engine::is_label(&name) {
            return Err(DaemonError::Config(format!(
                "{name:?} cannot be a site's name; use 1 to {SITE_NAME_MAX} of A-Z a-z 0-9 . _ + - (--name)"
            )));
        }
        let daemon_name = options.daemon_name.or(file.daemon_name).unwrap_or_else(host_name);
        if !farside_engine::is_label(&daemon_name) {
            return Err(DaemonError::Config(format!(
                "{daemon_name:?} cannot be a daemon's name; use 1 to 128 of A-Z a-z 0-9 . _ + - (--daemon-name)"
            )));
        }
        let encoder_memory_bytes = file.wire.encoder_memory_bytes.unwrap_or(ENCODER_MEMORY);
        if encoder_memory_bytes < ENCODER_MEMORY_MIN {
            return Err(DaemonError::Config(format!(
                "encoder_memory_bytes = {encoder_memory_bytes} is not enough for one frame; the minimum is {ENCODER_MEMORY_MIN}"
            )));
        }
        Ok(Config {
            file: options.config,
            data_dir,
            peer_listen: if options.isolated {
                Listen::Off
            } else {
                options.peer_listen.or(file.peer_listen).unwrap_or(Listen::At(PEER_LISTEN_DEFAULT.into()))
            },
            isolated: options.isolated,
            // A copy of a site must not be taken for the original by whoever steers that.
            api: file.api.resolve(if options.isolated { Some(Listen::Off) } else { options.api_listen })?,
            nbd: file.nbd.resolve(if options.isolated { Some(Listen::Off) } else { options.nbd_listen })?,
            host_page_cache: file.hosts.page_cache.unwrap_or(true),
            hooks: hooks(file.hooks)?,
            http: options.http.or(file.http).unwrap_or(Listen::At(HTTP_DEFAULT.into())),
            name,
            daemon_name,
            log: options.log.or(file.log).unwrap_or_else(|| String::from("info")),
            log_format: file.log_format.unwrap_or_default(),
            database: database(options.database.or(file.database))?,
            database_password_file: options.database_password_file.or(file.database_password_file),
            budgets: file.budgets.resolve()?,
            replicas: file.replicas.resolve()?,
            accelerator: accelerator(file.accelerator)?,
            alarms: file.alarms.resolve().map_err(|why| DaemonError::Config(format!("[alarms]: {why}")))?,
            effort: file.wire.effort.pinned(),
            encoder_memory_bytes,
            similarity_bytes_per_tib: file
                .wire
                .similarity_bytes_per_tib
                .unwrap_or(farside_transfer::source::SIMILARITY_BYTES_PER_TIB),
        })
    }
}

fn database(text: Option<String>) -> Result<DatabaseChoice, DaemonError> {
    let Some(text) = text else { return Ok(DatabaseChoice::File) };
    text.parse().map_err(|why| DaemonError::Config(format!("database: {why}")))
}

fn hooks(tables: BTreeMap<String, HookTable>) -> Result<Hooks, DaemonError> {
    let resolve = |(name, table): (String, HookTable)| Ok((name.clone(), table.resolve(&name)?));
    tables.into_iter().map(resolve).collect()
}

fn accelerator(table: AcceleratorTable) -> Result<AcceleratorConfig, DaemonError> {
    table.resolve().map_err(|why| DaemonError::Config(format!("[accelerator]: {why}")))
}

/// What the file says of the accelerator now.
pub(crate) fn reread_accelerator(
    named: Option<&Path>,
    data_dir: &Path,
) -> Result<AcceleratorConfig, DaemonError> {
    accelerator(read_file(named, data_dir)?.accelerator)
}

fn read_file(named: Option<&Path>, data_dir: &Path) -> Result<File, DaemonError> {
    let default = data_dir.join(CONFIG_FILE);
    let path = named.unwrap_or(&default);
    let text = match read_bounded(path) {
        Ok(text) => text,
        // Only a file that was named must be there.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && named.is_none() => {
            return Ok(File::default());
        }
        Err(e) => return Err(DaemonError::Config(format!("cannot read {}: {e}", path.display()))),
    };
    // The error's own text shows line, column and the line itself.
    toml::from_str(&text).map_err(|e| DaemonError::Config(format!("{}: {e}", path.display())))
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(CONFIG_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => String::from("farside"),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(directory: &Path) -> Options {
        Options { data_dir: directory.into(), ..Options::default() }
    }

    #[test]
    fn a_word_beats_the_file_and_the_file_the_default() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(
            directory.path().join(CONFIG_FILE),
            "name = \"north\"\nhttp = \"off\"\nlog_format = \"json\"\n",
        )
        .unwrap();
        let arguments = Options { name: Some("south".into()), ..options(directory.path()) };
        let config = Config::resolve(arguments).unwrap();
        assert_eq!(config.name, "south");
        assert_eq!(config.http, Listen::Off);
        assert_eq!(config.log_format, LogFormat::Json);
        assert_eq!(config.peer_listen, Listen::At("0.0.0.0:7440".into()));
    }

    #[test]
    fn a_name_is_as_long_as_sites_may_announce_to_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let named = |name: String| {
            Config::resolve(Options { name: Some(name), ..options(directory.path()) })
                .map(|config| config.name)
        };
        assert_eq!(named("n".repeat(SITE_NAME_MAX)).unwrap(), "n".repeat(SITE_NAME_MAX));
        for name in ["n".repeat(SITE_NAME_MAX + 1), String::new(), "a:b".into(), "a b".into(), "-a".into()] {
            let refused = named(name).unwrap_err().to_string();
            assert!(refused.contains("1 to 64 of"), "{refused}");
        }
    }

    #[test]
    fn an_unknown_key_is_refused_and_shown() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(CONFIG_FILE), "name = \"north\"\npeer-listen = \"off\"\n")
            .unwrap();
        let error = Config::resolve(options(directory.path())).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("peer-listen"), "{error}");
    }

    #[test]
    fn the_wire_has_a_table_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let config = |text: &str| {
            std::fs::write(directory.path().join(CONFIG_FILE), text).unwrap();
            Config::resolve(options(directory.path()))
        };
        let default = config("").unwrap();
        assert_eq!((default.effort, default.encoder_memory_bytes), (None, ENCODER_MEMORY));
        assert_eq!(config("[wire]\neffort = \"auto\"\n").unwrap().effort, None);
        let set = config("[wire]\neffort = \"strong\"\nencoder_memory_bytes = 67108864\n").unwrap();
        assert_eq!((set.effort, set.encoder_memory_bytes), (Some(Effort::Strong), 64 << 20));
        for effort in Effort::ALL {
            let set = config(&format!("[wire]\neffort = \"{}\"\n", effort.name())).unwrap();
            assert_eq!(set.effort, Some(effort));
        }
        for text in ["effort = \"most\"", "encoder_memory_bytes = 4096", "window = 1"] {
            let error = config(&format!("[wire]\n{text}\n")).unwrap_err().to_string();
            assert!(error.contains(text.split(' ').next().unwrap()), "{error}");
        }
    }

    #[test]
    fn replicas_have_a_table_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let config = |text: &str| {
            std::fs::write(directory.path().join(CONFIG_FILE), text).unwrap();
            Config::resolve(options(directory.path()))
        };
        assert_eq!(config("").unwrap().replicas, ReplicaLimits::default());
        let set = config("[replicas]\nreserve_percent = 10\nsnapshots = 100\n").unwrap().replicas;
        assert_eq!((set.reserve_percent, set.snapshots), (10, 100));
        for text in ["reserve_percent = 91", "snapshot = 1"] {
            let error = config(&format!("[replicas]\n{text}\n")).unwrap_err().to_string();
            assert!(error.contains(text.split(' ').next().unwrap()), "{error}");
        }
    }

    #[test]
    fn hosts_over_tcp_have_a_table_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let config = |text: &str| {
            std::fs::write(directory.path().join(CONFIG_FILE), text).unwrap();
            Config::resolve(options(directory.path()))
        };
        let default = config("").unwrap().nbd;
        assert_eq!((default.listen, default.tls, default.own), (Listen::Off, NbdTls::Required, None));
        let set = "[nbd]\nlisten = \"[::]:10809\"\nnames = [\"san.example\"]\n";
        assert_eq!(config(set).unwrap().nbd.listen, Listen::At("[::]:10809".into()));
        let isolated = Options { isolated: true, ..options(directory.path()) };
        assert_eq!(Config::resolve(isolated).unwrap().nbd.listen, Listen::Off);
        let own = "[nbd]\ncertificate = \"a\"\nkey = \"b\"\nclient_ca = \"c\"\n";
        assert_eq!(config(own).unwrap().nbd.own.unwrap().client_ca, PathBuf::from("c"));
        for (text, said) in
            [("certificate = \"a\"", "go together"), ("tls = \"on\"", "tls"), ("port = 1", "port")]
        {
            let error = config(&format!("[nbd]\n{text}\n")).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn the_api_over_https_has_a_table_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let config = |text: &str| {
            std::fs::write(directory.path().join(CONFIG_FILE), text).unwrap();
            Config::resolve(options(directory.path()))
        };
        let default = config("").unwrap().api;
        assert_eq!((default.listen, default.own), (Listen::Off, None));
        let text =
            "[api]\nlisten = \"[::]:7443\"\nnames = [\"san.example\"]\ncertificate = \"a\"\nkey = \"b\"\n";
        let set = config(text).unwrap().api;
        assert_eq!((set.listen, set.own.unwrap().1), (Listen::At("[::]:7443".into()), PathBuf::from("b")));
        let isolated = Options { isolated: true, ..options(directory.path()) };
        assert_eq!(Config::resolve(isolated).unwrap().api.listen, Listen::Off);
        let delay =
            |text: &str| config(&format!("[api]\ndelay = \"{text}\"\n")).map(|config| config.api.delay);
        assert_eq!(delay("10m").unwrap(), Some(Duration::from_secs(600)));
        assert_eq!(delay("0s").unwrap(), None);
        assert_eq!(delay("7d").unwrap(), Some(Duration::from_secs(7 * 86_400)));
        for (text, said) in [
            ("certificate = \"a\"", "go together"),
            ("tls = \"off\"", "tls"),
            ("delay = \"8d\"", "7 days"),
            ("delay = \"soon\"", "10m"),
        ] {
            let error = config(&format!("[api]\n{text}\n")).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn budgets_have_a_table_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let config = |text: &str| {
            std::fs::write(directory.path().join(CONFIG_FILE), text).unwrap();
            Config::resolve(options(directory.path()))
        };
        assert_eq!(config("").unwrap().budgets, Budgets::default());
        let set = config("[budgets]\npin_age_days = 30\npinned_bytes = 1000\nreserve_percent = 0\n").unwrap();
        assert_eq!(set.budgets.pin_age, Some(Duration::from_secs(30 * 86_400)));
        assert_eq!((set.budgets.pinned_bytes, set.budgets.reserve_percent), (Some(1000), 0));
        assert_eq!(config("[budgets]\npin_age_days = 0\n").unwrap().budgets.pin_age, None);
        for text in ["reserve_percent = 91", "calls_per_minute = 0", "snapshots = 1"] {
            let error = config(&format!("[budgets]\n{text}\n")).unwrap_err().to_string();
            assert!(error.contains(text.split(' ').next().unwrap()), "{error}");
        }
    }

    #[test]
    fn the_accelerator_has_a_table_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let config = |text: &str| {
            std::fs::write(directory.path().join(CONFIG_FILE), text).unwrap();
            Config::resolve(options(directory.path()))
        };
        assert_eq!(config("").unwrap().accelerator, AcceleratorConfig::default());
        let set = config("[accelerator]\nlan = [\"eth1\"]\nwan = \"eth0\"\n").unwrap();
        assert!(set.accelerator.is_on());
        for (text, said) in [
            ("lan = [\"eth1\"]", "[accelerator]: the LAN interface eth1 needs a WAN interface"),
            ("store = 1", "unknown field `store`"),
        ] {
            let error = config(&format!("[accelerator]\n{text}\n")).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn alarms_have_a_table_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let config = |text: &str| {
            std::fs::write(directory.path().join(CONFIG_FILE), text).unwrap();
            Config::resolve(options(directory.path()))
        };
        assert_eq!(config("").unwrap().alarms, AlarmsConfig::default());
        let set = config("[alarms]\ncommand = [\"/bin/true\"]\n").unwrap().alarms;
        assert_eq!(set.command.unwrap().words, ["/bin/true"]);
        let error = config("[alarms]\ncommand = []\n").unwrap_err().to_string();
        assert!(error.contains("[alarms]: command"), "{error}");
    }

    #[test]
    fn a_file_that_was_named_must_be_there() {
        let directory = tempfile::tempdir().unwrap();
        let named =
            Options { config: Some(directory.path().join("absent.toml")), ..options(directory.path()) };
        assert!(Config::resolve(named).unwrap_err().to_string().contains("absent.toml"));
        assert!(Config::resolve(options(directory.path())).is_ok());
    }

    #[test]
    fn addresses() {
        assert_eq!("off".parse(), Ok(Listen::Off));
        assert_eq!("[::]:7440".parse(), Ok(Listen::At("[::]:7440".into())));
        for text in ["", "7440", ":7440", "host", "host:", "host:65536"] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_that_would_split_a_peer_volume_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a:b", "", "a/b", "-a"] {
            let named = Options { name: Some(name.into()), ..options(directory.path()) };
            assert!(Config::resolve(named).is_err(), "{name}");
        }
    }
}
