//! Why the state database does not serve.

use std::path::PathBuf;

/// Why the state database does not serve.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file cannot be opened.
    #[error(
        "cannot open the state database {0}: {reason}. The pools are not touched, and no volume depends on this file. If it \
         is damaged, move it and {0}-wal away, start again, and name each pool with farside pool import: volumes, \
         snapshots and mirrors are read from the pools; what is lost is pairings, rights, schedules and history",
        path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        reason: String,
    },
    /// A newer version has written it.
    #[error(
        "the state database {0} has schema {found}, from a newer farside; this one knows schemas up to {known}. Nothing was \
         changed. Start the newer farsided again; or, to stay with this one, move {0} and {0}-wal away, start again, and name \
         each pool with farside pool import (pairings, rights, schedules and history stay behind in that file)",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest schema of this version.
        known: i64,
    },
    /// PostgreSQL cannot be reached, or does not let the daemon in, at its start.
    #[error(
        "cannot open the state database {address}: {reason}. The pools are not touched, and no volume depends on it, but without \
         it the daemon does not know its pools and peers. Have that PostgreSQL run, or mend address, user or password \
         (--database, PGPASSFILE or --database-password-file), and start again"
    )]
    OpenServer {
        /// Its address, without a password.
        address: String,
        /// What went wrong.
        reason: String,
    },
    /// The same as [`StateError::Newer`], in PostgreSQL.
    #[error(
        "the state database {address} has schema {found}, from a newer farside; this one knows schemas up to {known}. Nothing \
         was changed. Start the newer farsided again"
    )]
    NewerServer {
        /// Its address, without a password.
        address: String,
        /// Its schema.
        found: i64,
        /// The newest schema of this version.
        known: i64,
    },
    /// Another daemon has it.
    #[error(
        "another farsided runs on the state database {address}{of}. Nothing was changed. Stop that one first, or give this one \
         a database of its own (--database). To have it be a further daemon of that site: farside site join"
    )]
    InUse {
        /// Its address, without a password.
        address: String,
        /// Whose the connection is, as far as the server tells.
        of: String,
    },
    /// It is empty, and this daemon is one of several.
    #[error(
        "the state database {address} is empty, though this daemon is one of a site of several. Nothing was changed there. If it is being \
         restored, wait: it is looked at again. If it is lost for good, have one daemon begin anew: stop it, remove daemon.json in its data \
         directory, start it; then name the pools (farside pool create), pair again, and have the others join with empty data directories"
    )]
    Emptied {
        /// Its address, without a password.
        address: String,
    },
    /// It is the state of a site of several daemons, and this is none of them.
    #[error(
        "the state database {address} is that of a site whose daemons are others ({leader} leads it): this one is not among them. \
         Nothing was changed. To have it join, run it with a database of its own, and: farside site invite there, farside site join \
         {address} here. A daemon that was removed starts with an empty data directory"
    )]
    NotOfSite {
        /// Its address, without a password.
        address: String,
        /// Who leads.
        leader: String,
    },
    /// Another daemon had it while the connection was lost.
    #[error(
        "another farsided has taken the state database {address} while the connection to it was lost: this one writes nothing \
         there any more. Volumes are served as before. See that one daemon alone is configured for that database, and restart it"
    )]
    TakenOver {
        /// Its address, without a password.
        address: String,
    },
    /// PostgreSQL does not answer now.
    #[error(
        "the state database {address} cannot be reached: {reason}. What was asked for is not kept. Volumes are served as before; \
         it is connected to again by itself once it is back"
    )]
    Away {
        /// Its address, without a password.
        address: String,
        /// What went wrong.
        reason: String,
    },
    /// PostgreSQL refuses a statement.
    #[error(
        "the state database {address} failed: {reason}. What was asked for is not kept; the server's own log may say more"
    )]
    Server {
        /// Its address, without a password.
        address: String,
        /// What it said.
        reason: String,
    },
    /// The state was moved, and the daemon was not restarted since.
    #[error(
        "the state of this site was moved to {to}, and this daemon keeps nothing in the old place any more. Set database = \
         \"{to}\" in farside.toml, and restart it"
    )]
    Moved {
        /// Where it is now.
        to: String,
    },
    /// The daemon was started on a state that was moved away.
    #[error(
        "the state of this site was moved from {here} to {to}: what is here is old, and is not used. Set database = \"{to}\" in \
         farside.toml, and start again"
    )]
    MovedAway {
        /// Where the daemon has looked.
        here: String,
        /// Where it is now.
        to: String,
    },
    /// It cannot be moved there.
    #[error(
        "the state was not moved: {0}. Nothing was changed, and the daemon goes on with the database that it has"
    )]
    NotMoved(String),
    /// A statement failed.
    #[error("the state database failed: {0}")]
    Statement(#[from] sqlx::Error),
    /// A row makes no sense: somebody else has written it.
    #[error("the state database holds an invalid row: {0}")]
    Row(&'static str),
}
