//! Connections to PostgreSQL: few, bounded in time, made anew when they are lost.
//!
//! Not sqlx's pool: that tries a server that refuses until its patience is over and then does not say why, waits without a bound
//! for a connection that comes back from a network that swallows packets, and loops for ever in a corner (0.9.0, `num_idle`).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::state::address::ServerAddress;
use crate::state::error::StateError;
use crate::state::lead::{Lead, connections_of};
use crate::state::statement::{Row, Statement};

/// How long connecting may take, signing in included.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long an idle connection may take to say that it lives.
const PING_WITHIN: Duration = Duration::from_secs(2);
/// How long a statement may run; the server itself ends it a little earlier.
const STATEMENT_WITHIN: Duration = Duration::from_secs(12);
/// How long to wait for a connection that others use.
const TAKE_WITHIN: Duration = Duration::from_secs(10);
/// How long a lock may be the last one's: its process is gone, and the server is about to notice.
const LOCK_WITHIN: Duration = Duration::from_secs(3);
/// Asking for it included.
const CLAIM_WITHIN: Duration = Duration::from_secs(8);
const LOCK_TRIED_EVERY: Duration = Duration::from_millis(100);
/// After a connection that was not made, nobody waits for another one for so long, or twice as long as it took to learn that: who
/// has to do something on the worst day waits once.
const AWAY_FOR: Duration = Duration::from_secs(1);
/// Connections that read at the same time.
const READERS_MAX: usize = 4;

/// The advisory lock of whoever has the database: "farside" and a zero byte.
pub(super) const LOCK: i64 = 0x6661_7273_6964_6500;

/// How every session behaves. Keepalives: a daemon whose machine lost its power holds the lock no longer than a minute.
const SESSION: &str = "SET statement_timeout = '10s'; SET lock_timeout = '5s'; \
     SET idle_in_transaction_session_timeout = '10min'; SET tcp_keepalives_idle = 20; SET tcp_keepalives_interval = 10; \
     SET tcp_keepalives_count = 3; SET client_min_messages = warning";

/// Begins a transaction that sees one moment.
const READ_ONE_MOMENT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// What connections are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// What must last. One, and it holds the lock.
    Write,
    /// Lines of log and history: nobody waits for the disk. One.
    Lines,
    /// Reading only.
    Read,
}

impl Purpose {
    fn connections_max(self) -> usize {
        match self {
            Purpose::Write | Purpose::Lines => 1,
            Purpose::Read => READERS_MAX,
        }
    }

    fn session(self) -> &'static str {
        match self {
            // Whoever has set something stricter than `on` has meant it.
            Purpose::Write => {
                "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
            }
            Purpose::Lines => "SET synchronous_commit = off",
            Purpose::Read => "SET default_transaction_read_only = on",
        }
    }
}

/// The server, and what is known of it by all who connect there.
pub(super) struct Server {
    address: String,
    options: PgConnectOptions,
    /// The lease that it has, if the database is one of a site; none: whoever has the lock writes.
    lead: Option<Lead>,
    /// This daemon's mark.
    mark: String,
    /// Whether it has been put there.
    signed: OnceLock<()>,
    /// Until when nobody tries, and why no connection could be made.
    away: Mutex<Option<(Instant, String)>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.address)
    }
}

impl Server {
    pub(super) fn new(address: &ServerAddress) -> Server {
        Server {
            address: address.to_string(),
            options: match address.lead() {
                Some(lead) => address.options().clone().application_name(&connections_of(lead)),
                None => address.options().clone(),
            },
            lead: address.lead(),
            mark: Uuid::new_v4().to_string(),
            signed: OnceLock::new(),
            away: Mutex::default(),
        }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Puts this daemon's mark into the database. Answers whether it is its to put: another may have the lease by now.
    pub(super) async fn sign(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let signed = match self.lead {
            None => sqlx::query(
                "INSERT INTO owner (one, mark) VALUES (true, $1) ON CONFLICT (one) DO UPDATE SET mark = excluded.mark",
            )
            .bind(&self.mark),
            Some(lead) => {
                sqlx::query("UPDATE owner SET mark = $1 WHERE one AND daemon = $2 AND number = $3")
                    .bind(&self.mark)
                    .bind(lead.daemon.to_string())
                    .bind(lead.number)
            }
        };
        let is_ours = signed.execute(connection).await?.rows_affected() == 1;
        if is_ours {
            let _ = self.signed.set(());
        }
        Ok(is_ours)
    }

    /// Whether the mark in the database is this daemon's.
    async fn is_signed(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let mark: Option<String> =
            sqlx::query_scalar("SELECT mark FROM owner WHERE one").fetch_optional(connection).await?;
        Ok(mark.as_deref() == Some(&self.mark))
    }

    async fn connect(&self, purpose: Purpose) -> Result<PgConnection, StateError> {
        let began = Instant::now();
        if let Some((until, reason)) = &*self.away.lock()
            && began < *until
        {
            return Err(self.away(reason.clone()));
        }
        let made = timeout(CONNECT_WITHIN, async {
            let mut connection = self.options.connect().await?;
            sqlx::raw_sql(SESSION).execute(&mut connection).await?;
            sqlx::raw_sql(purpose.session()).execute(&mut connection).await?;
            Ok::<_, sqlx::Error>(connection)
        });
        let why = match made.await {
            Ok(Ok(mut connection)) => {
                if purpose == Purpose::Write {
                    let claimed = timeout(CLAIM_WITHIN, self.claim(&mut connection)).await;
                    claimed
                        .map_err(|_| self.away(format!("no answer within {} s", CLAIM_WITHIN.as_secs())))??;
                } else if purpose == Purpose::Lines && self.signed.get().is_some() {
                    // Whoever leads ends the lines of the one before, too; what connects after that sees another mark.
                    let signed = timeout(CLAIM_WITHIN, self.is_signed(&mut connection)).await;
                    match signed {
                        Ok(Ok(true)) => {}
                        Ok(Ok(false)) => return Err(StateError::TakenOver { address: self.address.clone() }),
                        Ok(Err(error)) => return Err(self.away(said(&error))),
                        Err(_) => {
                            return Err(self.away(format!("no answer within {} s", CLAIM_WITHIN.as_secs())));
                        }
                    }
                }
                let before = self.away.lock().take();
                if before.is_some() {
                    tracing::info!(address = self.address, "the state database is there again");
                }
                return Ok(connection);
            }
            Ok(Err(error)) => said(&error),
            Err(_) => format!("no answer within {} s", CONNECT_WITHIN.as_secs()),
        };
        let until = Instant::now() + AWAY_FOR.max(2 * began.elapsed());
        if self.away.lock().replace((until, why.clone())).is_none() && self.signed.get().is_some() {
            tracing::error!(
                address = self.address,
                reason = why,
                "the state database is away. Volumes are served as before; what needs it fails until it is back"
            );
        }
        Err(self.away(why))
    }

    /// Takes the lock of the site, or says who has it.
    async fn claim(&self, connection: &mut PgConnection) -> Result<(), StateError> {
        let failed = |error: sqlx::Error| self.away(said(&error));
        let until = Instant::now() + LOCK_WITHIN;
        loop {
            let locked: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)")
                .bind(LOCK)
                .fetch_one(&mut *connection)
                .await
                .map_err(failed)?;
            if locked {
                break;
            }
            if Instant::now() >= until {
                return Err(match self.signed.get() {
                    Some(()) => StateError::TakenOver { address: self.address.clone() },
                    None => StateError::InUse { address: self.address.clone(), of: holder(connection).await },
                });
            }
            sleep(LOCK_TRIED_EVERY).await;
        }
        if self.signed.get().is_some() && !self.is_signed(connection).await.map_err(failed)? {
            return Err(StateError::TakenOver { address: self.address.clone() });
        }
        Ok(())
    }

    fn away(&self, reason: String) -> StateError {
        StateError::Away { address: self.address.clone(), reason }
    }

    /// What a statement's failure means, and whether its connection can be used on.
    fn failed(&self, error: sqlx::Error) -> (StateError, bool) {
        match &error {
            sqlx::Error::Database(told) => {
                let code = told.code().unwrap_or_default();
                // The server ends the session, or has lost what is below it.
                if code.starts_with("57P") || code.starts_with("08") {
                    (self.away(said(&error)), false)
                } else {
                    (StateError::Server { address: self.address.clone(), reason: said(&error) }, true)
                }
            }
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => {
                (self.away(said(&error)), false)
            }
            _ => (StateError::Statement(error), true),
        }
    }
}

/// Whose connection holds the lock.
async fn holder(connection: &mut PgConnection) -> String {
    let found = sqlx::query_scalar::<_, String>(
        "SELECT coalesce('from ' || host(a.client_addr), 'from the machine of the server') || ', since ' || \
         to_char(a.backend_start, 'YYYY-MM-DD HH24:MI:SS TZ') FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid \
         WHERE l.locktype = 'advisory' AND l.granted AND l.classid::bigint = $1 AND l.objid::bigint = $2 AND l.objsubid = 1 \
         AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
    )
    .bind(LOCK >> 32)
    .bind(LOCK & 0xffff_ffff)
    .fetch_optional(connection)
    .await;
    found.ok().flatten().map(|who| format!(" ({who})")).unwrap_or_default()
}

/// What went wrong, in the words of whoever knows most.
pub(super) fn said(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(told) => told.message().to_owned(),
        sqlx::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// Connections of one purpose.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<Place>);

#[derive(Debug)]
struct Place {
    server: Arc<Server>,
    purpose: Purpose,
    places: Arc<Semaphore>,
    idle: Mutex<Vec<PgConnection>>,
}

impl Connections {
    pub(super) fn new(server: Arc<Server>, purpose: Purpose) -> Connections {
        let places = Arc::new(Semaphore::new(purpose.connections_max()));
        Connections(Arc::new(Place { server, purpose, places, idle: Mutex::default() }))
    }

    /// A connection that lives.
    pub(super) async fn take(&self) -> Result<Taken, StateError> {
        let place = &self.0;
        let permit = timeout(TAKE_WITHIN, Arc::clone(&place.places).acquire_owned()).await;
        let permit = permit.map_err(|_| {
            place.server.away(format!("its connections are busy since {} s", TAKE_WITHIN.as_secs()))
        })?;
        let permit = permit.map_err(|_| StateError::Statement(sqlx::Error::PoolClosed))?;
        loop {
            let idle = place.idle.lock().pop();
            let connection = match idle {
                None => place.server.connect(place.purpose).await?,
                // One that has died is dropped, and with it what it held.
                Some(mut connection) => match timeout(PING_WITHIN, connection.ping()).await {
                    Ok(Ok(())) => connection,
                    _ => continue,
                },
            };
            return Ok(Taken {
                connection: Some(connection),
                rests: true,
                place: Arc::clone(place),
                _permit: permit,
            });
        }
    }

    /// Runs a statement; how many rows it has changed. In a task of its own: who loses patience does not tear the connection down,
    /// and with it the lock.
    pub(crate) async fn execute(&self, statement: Statement) -> Result<u64, StateError> {
        let connections = self.clone();
        let task = tokio::spawn(async move { connections.take().await?.execute(statement).await });
        task.await.unwrap_or_else(|_| Err(StateError::Statement(sqlx::Error::WorkerCrashed)))
    }

    /// Runs a statement; its rows. See [`Connections::execute`].
    pub(crate) async fn rows(&self, statement: Statement) -> Result<Vec<Row>, StateError> {
        let connections = self.clone();
        let task = tokio::spawn(async move { connections.take().await?.rows(statement).await });
        task.await.unwrap_or_else(|_| Err(StateError::Statement(sqlx::Error::WorkerCrashed)))
    }

    pub(crate) async fn begin(&self) -> Result<Transaction, StateError> {
        let mut taken = self.take().await?;
        taken.plain(if self.0.purpose == Purpose::Read { READ_ONE_MOMENT } else { "BEGIN" }).await?;
        Ok(Transaction { taken: Some(taken), has_failed: false })
    }

    /// Closes them, once those that use them have ended.
    pub(crate) async fn close(&self) {
        let place = &self.0;
        let all = place.purpose.connections_max() as u32;
        // Who does not end within a statement's time has lost its connection.
        let permits = timeout(STATEMENT_WITHIN, place.places.acquire_many(all)).await;
        place.places.close();
        drop(permits);
        let idle = std::mem::take(&mut *place.idle.lock());
        for connection in idle {
            let _ = timeout(PING_WITHIN, connection.close()).await;
        }
    }
}

/// A connection while somebody uses it. What happens to it in the middle of a statement ends it.
#[derive(Debug)]
pub(super) struct Taken {
    connection: Option<PgConnection>,
    /// Nothing of it is under way.
    rests: bool,
    place: Arc<Place>,
    _permit: OwnedSemaphorePermit,
}

impl Taken {
    /// The connection itself, for what is more than a statement. It is not used again unless that [rests](Taken::rests).
    pub(super) fn connection(&mut self) -> Result<&mut PgConnection, StateError> {
        self.rests = false;
        // There until it is dropped.
        self.connection.as_mut().ok_or(StateError::Statement(sqlx::Error::PoolClosed))
    }

    pub(super) fn rests(&mut self) {
        self.rests = true;
    }

    async fn execute(&mut self, statement: Statement) -> Result<u64, StateError> {
        let connection = self.connection()?;
        let done = timeout(STATEMENT_WITHIN, statement.for_postgres().execute(connection)).await;
        self.ended(done).map(|done| done.rows_affected())
    }

    async fn rows(&mut self, statement: Statement) -> Result<Vec<Row>, StateError> {
        let connection = self.connection()?;
        let done = timeout(STATEMENT_WITHIN, statement.for_postgres().fetch_all(connection)).await;
        self.ended(done).map(|rows| rows.into_iter().map(Row::Postgres).collect())
    }

    /// One that returns nothing and has no values.
    async fn plain(&mut self, sql: &'static str) -> Result<(), StateError> {
        let connection = self.connection()?;
        let done = timeout(STATEMENT_WITHIN, sqlx::raw_sql(sql).execute(connection)).await;
        self.ended(done).map(drop)
    }

    fn ended<T>(&mut self, done: Result<Result<T, sqlx::Error>, Elapsed>) -> Result<T, StateError> {
        match done {
            Ok(Ok(done)) => {
                self.rests = true;
                Ok(done)
            }
            Ok(Err(error)) => {
                let (error, can_go_on) = self.place.server.failed(error);
                self.rests = can_go_on;
                Err(error)
            }
            Err(_) => {
                Err(self.place.server.away(format!("no answer within {} s", STATEMENT_WITHIN.as_secs())))
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.rests && !self.place.places.is_closed() {
            self.place.idle.lock().extend(self.connection.take());
        }
    }
}

/// A transaction that has begun.
#[derive(Debug)]
pub(crate) struct Transaction {
    taken: Option<Taken>,
    /// A statement of it has failed, and so does all of it.
    has_failed: bool,
}

impl Transaction {
    pub(crate) async fn execute(&mut self, statement: Statement) -> Result<u64, StateError> {
        let done = self.taken()?.execute(statement).await;
        self.has_failed |= done.is_err();
        done
    }

    pub(crate) async fn rows(&mut self, statement: Statement) -> Result<Vec<Row>, StateError> {
        let done = self.taken()?.rows(statement).await;
        self.has_failed |= done.is_err();
        done
    }

    pub(crate) async fn commit(mut self) -> Result<(), StateError> {
        if self.has_failed {
            // PostgreSQL would answer a commit of it without an error.
            return Err(StateError::Statement(sqlx::Error::Protocol("a statement of it has failed".into())));
        }
        let mut taken = self.taken.take().ok_or(StateError::Statement(sqlx::Error::PoolClosed))?;
        taken.plain("COMMIT").await
    }

    fn taken(&mut self) -> Result<&mut Taken, StateError> {
        self.taken.as_mut().ok_or(StateError::Statement(sqlx::Error::PoolClosed))
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let Some(mut taken) = self.taken.take() else { return };
        match tokio::runtime::Handle::try_current() {
            Ok(here) if taken.rests => {
                here.spawn(async move {
                    let _ = taken.plain("ROLLBACK").await;
                });
            }
            // With the connection the server ends the transaction.
            _ => taken.rests = false,
        }
    }
}
