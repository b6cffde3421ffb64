//! Arguments of `farsided`.

use std::path::PathBuf;

use clap::Parser;

/// The daemon of a site: owns its pools, serves its volumes over NBD and mirrors them. Runs in the foreground, prints
/// one line when ready, stops cleanly on SIGTERM.
#[derive(Debug, Parser)]
#[command(
    name = "farsided",
    version,
    after_help = "Files in DIR: farside.toml (configuration), farside.sock (control socket), nbd.sock (NBD socket: write \
                  access to every volume), farside.db (state), peer.addr, http.addr, api.addr and nbd.addr (where it listens).\n\nExamples:\n  \
                  farsided --data-dir /var/lib/farside --name siteA\n  farsided --data-dir /tmp/a --peer-listen 127.0.0.1:0 --http off\n  farsided --data-dir /var/lib/farside --check"
)]
pub struct DaemonArguments {
    /// Directory for state and sockets; created if missing
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Configuration file [default: DIR/farside.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address on which peers connect, or off [default: 0.0.0.0:7440]
    #[arg(long, value_name = "ADDR:PORT", alias = "listen")]
    pub peer_listen: Option<String>,
    /// Address of /metrics, /healthz and /readyz, or off [default: 127.0.0.1:7441]
    #[arg(long, value_name = "ADDR:PORT")]
    pub http: Option<String>,
    /// Address of the API over HTTPS, or off [default: off; the usual port is 7443]
    #[arg(long, value_name = "ADDR:PORT")]
    pub api_listen: Option<String>,
    /// Address on which hosts open volumes over TLS, or off [default: off; the usual port is 10809]
    #[arg(long, value_name = "ADDR:PORT")]
    pub nbd_listen: Option<String>,
    /// The site's name, as peers will call it [default: the host's name]
    #[arg(long, value_name = "SITE")]
    pub name: Option<String>,
    /// What this daemon is called among those of its site, if there are several [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub daemon_name: Option<String>,
    /// What to log to stderr, for example info or farside_mirror=debug [default: info]
    #[arg(long, value_name = "FILTER", env = "FARSIDE_LOG")]
    pub log: Option<String>,
    /// Where the state is kept: a PostgreSQL database, postgres://USER@HOST[:PORT]/DB[?sslmode=verify-full], or sqlite: for farside.db in DIR [default: sqlite:]
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// File with the password for that database; without it the file that PGPASSFILE names is asked, then ~/.pgpass
    #[arg(long, value_name = "FILE")]
    pub database_password_file: Option<PathBuf>,
    /// Meet no peer, serve no host over TCP and no API over HTTPS: for a copy or a restored backup of a site, beside the original
    #[arg(long, conflicts_with_all = ["peer_listen", "nbd_listen", "api_listen"])]
    pub isolated: bool,
    /// Read the configuration, say whether it is right, and end; a daemon that runs notices nothing
    #[arg(long)]
    pub check: bool,
}
