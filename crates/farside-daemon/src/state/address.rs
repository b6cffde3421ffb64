//! Where the state database is: a file of the data directory, or a PostgreSQL server.
//!
//! An address never holds a password: command lines, logs and answers show addresses. The password comes from the file that
//! `PGPASSFILE` names (or `~/.pgpass`), from a file of its own, or with the request that has the state moved.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use zeroize::Zeroizing;

use super::lead::Lead;

/// Begins the address of a server.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
/// Names the file of the data directory.
pub(crate) const FILE: &str = "sqlite:";
/// Longest file with a password.
const PASSWORD_BYTES_MAX: u64 = 4096;
/// What an address may say behind the `?`. sqlx passes over what it does not know, with a warning that shows it.
const PARAMETERS: [&str; 6] = ["sslmode", "sslrootcert", "sslcert", "sslkey", "host", "port"];

/// Where the state database is.
#[derive(Clone, Debug)]
pub(crate) enum DatabaseAddress {
    /// An SQLite file.
    File(PathBuf),
    /// A database of a PostgreSQL server.
    Server(Box<ServerAddress>),
}

/// A database of a PostgreSQL server, and how to get in.
#[derive(Clone)]
pub(crate) struct ServerAddress {
    text: String,
    options: PgConnectOptions,
    has_password: bool,
    lead: Option<Lead>,
}

/// What was asked for: `postgres://…`, or `sqlite:` for the file of the data directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum DatabaseChoice {
    File,
    Server(String),
}

impl FromStr for DatabaseChoice {
    type Err = String;

    /// What is wrong is said without showing the text: it may hold a password.
    fn from_str(text: &str) -> Result<DatabaseChoice, String> {
        if text == FILE {
            return Ok(DatabaseChoice::File);
        }
        let Some(rest) = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)) else {
            return Err(format!(
                "a database is postgres://USER@HOST[:PORT]/DB, or {FILE} for farside.db in the data directory"
            ));
        };
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        // A slash in a password would end the authority early: then the rest holds the @.
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        if user.is_some_and(|user| user.contains(':')) || database.contains('@') {
            return Err(String::from(
                "a database's address holds no password, since others would see it; put it into the file that PGPASSFILE names, or \
                 into one named by --database-password-file",
            ));
        }
        if user.is_none_or(str::is_empty) || database.is_empty() || database.contains('/') {
            return Err(String::from(
                "the address of a PostgreSQL database names user, host and database: postgres://USER@HOST[:PORT]/DB",
            ));
        }
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let name = parameter.split('=').next().unwrap_or_default();
            if !PARAMETERS.contains(&name) {
                return Err(format!(
                    "a database's address may have {} behind the ?, and nothing else",
                    PARAMETERS.join(", ")
                ));
            }
        }
        Ok(DatabaseChoice::Server(text.to_owned()))
    }
}

impl fmt::Display for DatabaseChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DatabaseChoice::File => FILE,
            DatabaseChoice::Server(text) => text,
        })
    }
}

impl DatabaseChoice {
    /// The address, with the password that was named; without one, that of the file that `PGPASSFILE` names.
    ///
    /// # Errors
    /// What is wrong with it, without a password.
    pub(crate) fn address(
        &self,
        file: &Path,
        password: Option<&Password>,
    ) -> Result<DatabaseAddress, String> {
        let DatabaseChoice::Server(text) = self else {
            return Ok(DatabaseAddress::File(file.to_path_buf()));
        };
        let mut options: PgConnectOptions =
            text.parse().map_err(|error| format!("{text} is no address of a database: {error}"))?;
        if let Some(password) = password {
            options = options.password(&password.0);
        }
        Ok(DatabaseAddress::Server(Box::new(ServerAddress {
            text: text.clone(),
            options: options.application_name("farsided"),
            has_password: password.is_some(),
            lead: None,
        })))
    }
}

/// A password, while it is needed.
#[derive(Clone)]
pub(crate) struct Password(Zeroizing<String>);

impl Password {
    pub(crate) fn new(text: String) -> Password {
        Password(Zeroizing::new(text))
    }

    /// The first line of a file.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(crate) fn read(path: &Path) -> Result<Password, String> {
        use std::io::Read;
        let mut text = Zeroizing::new(String::new());
        let opened = std::fs::File::open(path)
            .and_then(|file| file.take(PASSWORD_BYTES_MAX).read_to_string(&mut text));
        opened.map_err(|error| {
            format!("cannot read the password of the database from {}: {error}", path.display())
        })?;
        let line = text.lines().next().unwrap_or_default();
        if line.is_empty() {
            return Err(format!("{} holds no password: its first line is empty", path.display()));
        }
        Ok(Password::new(line.to_owned()))
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl ServerAddress {
    /// The same for the daemon that has this lease.
    pub(crate) fn with_lead(self, lead: Lead) -> ServerAddress {
        ServerAddress { lead: Some(lead), ..self }
    }

    /// The lease of the daemon that opens it, if it has one.
    pub(super) fn lead(&self) -> Option<Lead> {
        self.lead
    }

    pub(super) fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// Whether what is sent there can be read on the way: TLS is not asked for, and the server is another machine.
    pub(super) fn is_plain(&self) -> bool {
        let mode = self.options.get_ssl_mode();
        let is_here = self.options.get_socket().is_some()
            || ["localhost", "127.0.0.1", "::1", "[::1]"].contains(&self.options.get_host());
        !is_here && matches!(mode, PgSslMode::Disable | PgSslMode::Allow | PgSslMode::Prefer)
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.has_password { " (with a password)" } else { "" })
    }
}

impl DatabaseAddress {
    /// Whether it is a database of a server.
    pub(super) fn is_server(&self) -> bool {
        matches!(self, DatabaseAddress::Server(_))
    }

    /// What `database` in `farside.toml` is for it.
    pub(super) fn setting(&self) -> String {
        match self {
            DatabaseAddress::File(_) => FILE.to_owned(),
            DatabaseAddress::Server(server) => server.text.clone(),
        }
    }
}

impl fmt::Display for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DatabaseAddress::File(path) => write!(f, "{}", path.display()),
            DatabaseAddress::Server(server) => server.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_its_parts_and_no_password() {
        let address = |text: &str| text.parse::<DatabaseChoice>();
        assert_eq!(address("sqlite:"), Ok(DatabaseChoice::File));
        for good in [
            "postgres://farside@db.example/site_a",
            "postgresql://farside@10.0.0.1:5433/site?sslmode=verify-full&sslrootcert=/etc/ca.pem",
            "postgres://farside@%2Frun%2Fpostgresql/site",
        ] {
            assert_eq!(address(good), Ok(DatabaseChoice::Server(good.into())));
        }
        for secret in [
            "postgres://farside:hunter2@db.example/site",
            "postgres://farside:hun/ter2@db.example/site",
            "postgres://farside@db.example/site?password=hunter2",
            "mysql://farside:hunter2@db.example/site",
            "postgres://farside:hunter2",
        ] {
            let said = address(secret).unwrap_err();
            assert!(!said.contains("hunter2") && !said.contains("ter2"), "{said}");
        }
        for bad in [
            "",
            "farside.db",
            "postgres://db.example/site",
            "postgres://farside@db.example",
            "postgres://a@b/c/d",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_password_is_shown_nowhere() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        std::fs::write(&path, "hunter2\n").unwrap();
        let password = Password::read(&path).unwrap();
        let choice: DatabaseChoice = "postgres://farside@db.example/site".parse().unwrap();
        let address = choice.address(Path::new("farside.db"), Some(&password)).unwrap();
        let shown = format!("{address} {address:?} {password:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        std::fs::write(&path, "\n").unwrap();
        assert!(Password::read(&path).is_err());
    }
}
