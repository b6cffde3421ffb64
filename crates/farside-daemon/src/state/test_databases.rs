//! Databases for tests: each test of the state runs on a file, and on PostgreSQL where its programs are.

use std::io::Read;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};
use tempfile::TempDir;
use uuid::Uuid;

use super::State;
use super::address::{DatabaseAddress, DatabaseChoice};

/// As whom the server runs where the tests run as root: it refuses that.
const NOBODY: u32 = 65534;
/// How long a server may take to come up on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Ends with its input, which ends with the process of the tests.
const SCRIPT: &str = "cd \"$1\" && initdb -D data -A trust -U farside -E UTF8 --no-sync >log 2>&1 || { cat log; exit 1; }; \
     postgres -D data -k \"$1\" -c listen_addresses= -c max_connections=200 -c \"$2\" >>log 2>&1 & server=$!; \
     cat >/dev/null; kill -QUIT $server; wait $server; rm -rf \"$1\"";

/// Nothing that a test writes there must last.
const NOTHING_LASTS: &str = "fsync=off";
/// What is written lasts, as a user's does; and statements are counted.
const COUNTS: &str = "shared_preload_libraries=pg_stat_statements";

/// A database that is empty at first.
#[derive(Debug)]
pub(crate) struct TestDatabase {
    address: DatabaseAddress,
    server: Option<&'static Server>,
    _directory: Option<TempDir>,
}

/// One of each kind that there is.
pub(crate) async fn databases() -> Vec<TestDatabase> {
    let mut all = vec![TestDatabase::file()];
    all.extend(TestDatabase::postgres().await);
    all
}

impl TestDatabase {
    pub(crate) fn file() -> TestDatabase {
        let directory = tempfile::tempdir().unwrap();
        let address = DatabaseAddress::File(directory.path().join("farside.db"));
        TestDatabase { address, server: None, _directory: Some(directory) }
    }

    /// One of the server; none, loudly, where there is no PostgreSQL.
    pub(crate) async fn postgres() -> Option<TestDatabase> {
        Some(TestDatabase::on(server()?).await)
    }

    /// One on a server of its own that syncs, and counts statements (`pg_stat_statements`).
    pub(crate) async fn measured() -> Option<TestDatabase> {
        let server = Box::leak(Box::new(Server::start(COUNTS)?));
        let database = TestDatabase::on(server).await;
        let mut connection = database.connection().await;
        sqlx::raw_sql("CREATE EXTENSION pg_stat_statements").execute(&mut connection).await.unwrap();
        Some(database)
    }

    async fn on(server: &'static Server) -> TestDatabase {
        let name = format!("test_{}", Uuid::new_v4().simple());
        server.execute(format!("CREATE DATABASE {name}")).await;
        let choice: DatabaseChoice = server.url(&name).parse().unwrap();
        let address = choice.address(Path::new(""), None).unwrap();
        TestDatabase { address, server: Some(server), _directory: None }
    }

    /// The server's first process.
    pub(crate) fn server_process(&self) -> u32 {
        let file = self.server.unwrap().directory.join("data/postmaster.pid");
        std::fs::read_to_string(file).unwrap().lines().next().unwrap().parse().unwrap()
    }

    pub(crate) fn address(&self) -> &DatabaseAddress {
        &self.address
    }

    pub(crate) async fn open(&self) -> State {
        State::open_at(&self.address).await.unwrap()
    }

    /// Its name on the server.
    pub(crate) fn name(&self) -> String {
        let address = self.address.to_string();
        let (_, name) = address.split('?').next().unwrap().rsplit_once('/').unwrap();
        name.to_owned()
    }

    /// Does something beside the state: in this database of the server, or in its first one.
    pub(crate) async fn execute_beside(&self, sql: String) {
        self.server.unwrap().execute(sql).await;
    }

    /// A connection that no state knows.
    pub(crate) async fn connection(&self) -> PgConnection {
        self.server.unwrap().connect(&self.name()).await
    }
}

#[derive(Debug)]
struct Server {
    directory: PathBuf,
    _process: Child,
}

fn server() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(NOTHING_LASTS)).as_ref()
}

impl Server {
    fn start(setting: &str) -> Option<Server> {
        let missing = ["initdb", "postgres", "setpriv"].into_iter().find(|program| {
            let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
            !version.is_ok_and(|status| status.success())
        });
        if let Some(program) = missing {
            assert!(std::env::var_os("FARSIDE_REQUIRE_TOOLS").is_none(), "{program} is missing");
            eprintln!("**** SKIPPED on PostgreSQL: {program} is missing");
            return None;
        }
        let directory = tempfile::tempdir().unwrap().keep();
        let mut command = if rustix::process::geteuid().is_root() {
            chown(&directory, Some(NOBODY), Some(NOBODY)).unwrap();
            let mut command = Command::new("setpriv");
            command.args([
                format!("--reuid={NOBODY}"),
                format!("--regid={NOBODY}"),
                "--clear-groups".into(),
                "sh".into(),
            ]);
            command
        } else {
            Command::new("sh")
        };
        command.args(["-c", SCRIPT, "sh"]).arg(&directory).arg(setting);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let until = std::time::Instant::now() + PATIENCE;
        while !directory.join("data/postmaster.pid").exists() || !directory.join(".s.PGSQL.5432").exists() {
            if process.try_wait().unwrap().is_some() || std::time::Instant::now() > until {
                let _ = process.kill();
                let mut said = String::new();
                process.stdout.take().unwrap().read_to_string(&mut said).unwrap();
                panic!("PostgreSQL does not come up: {said}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(Server { directory, _process: process })
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://farside@localhost/{database}?host={}", self.directory.display())
    }

    async fn connect(&self, database: &str) -> PgConnection {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            match PgConnection::connect(&self.url(database)).await {
                Ok(connection) => return connection,
                // It says so while it starts.
                Err(error) if tokio::time::Instant::now() > until => panic!("{error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn execute(&self, sql: String) {
        let mut connection = self.connect("postgres").await;
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }
}
