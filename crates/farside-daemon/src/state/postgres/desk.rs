//! Which daemon of a site leads: the lease, and the list of daemons, on a connection of their own.
//!
//! All times are the server's. The number of the lease only rises. Who takes it also ends every connection that the one before had for
//! the state: what that had begun to write is rolled back, and what it would write needs a connection that the mark refuses.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{ConnectOptions, Connection, Row};
use tokio::time::timeout;
use uuid::Uuid;

use super::connections::LOCK;
use super::schema::{SCHEMA, migrations, schema_of};
use crate::daemons::lease::{Decision, HOLDS, Membership, Seen, decide};
use crate::state::address::ServerAddress;
use crate::state::audit::AuditRow;
use crate::state::error::StateError;
use crate::state::lead::{Lead, connections_of};

/// How long connecting may take, and how long anything that is asked.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
const ANSWER_WITHIN: Duration = Duration::from_secs(4);
/// Making the tables of a new database, or bringing them up to date.
const PREPARED_WITHIN: Duration = Duration::from_secs(60);
const SESSION: &str = "SET statement_timeout = '3s'; SET lock_timeout = '3s'; SET client_min_messages = warning; \
     SET idle_in_transaction_session_timeout = '10s'; SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; \
     SET tcp_keepalives_count = 3";
/// A column of times, as nanoseconds since 1970.
macro_rules! nanoseconds {
    ($column:literal) => {
        concat!("(extract(epoch FROM ", $column, ") * 1000000000)::bigint")
    };
}

/// What a daemon says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Card {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    /// Where it serves the API. A host that stands for all addresses becomes the one by which it reaches the database.
    pub(crate) api_address: Option<String>,
    pub(crate) api_fingerprint: Option<String>,
    /// Where it meets peers when it leads; likewise.
    pub(crate) peer_address: Option<String>,
}

/// What all daemons of a site have in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Common {
    pub(crate) site_id: String,
    pub(crate) site_name: String,
}

/// Who leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Leader {
    pub(crate) name: String,
    pub(crate) api_address: Option<String>,
    pub(crate) api_fingerprint: Option<String>,
    /// What it believes the other daemons by.
    pub(crate) pass: String,
}

/// What came of asking for the lease.
#[derive(Debug)]
pub(crate) enum Turn {
    Leads(Leading),
    Waits {
        /// Whose lease holds.
        leader: Option<Leader>,
        /// It is this daemon's own.
        is_own: bool,
        /// When it ends, by the database's clock: it changes with each renewal.
        ends_at: i64,
        others: i64,
    },
    Stranger {
        leader: Option<Leader>,
    },
}

/// A lease, and what goes with it.
#[derive(Clone, Debug)]
pub(crate) struct Leading {
    pub(crate) lead: Lead,
    pub(crate) pass: String,
    pub(crate) others: i64,
    /// What the site is called, as its daemons have in common.
    pub(crate) site_name: String,
}

/// What came of a renewal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Renewal {
    Holds {
        others: i64,
        is_draining: bool,
        /// Where peers meet whichever of them leads.
        peer_addresses: Vec<String>,
        /// Other daemons that were not seen lately.
        gone: Vec<String>,
        /// Others that live and are not to lead.
        draining: i64,
    },
    /// Another has it, or it was given back.
    Lost,
}

/// A daemon in the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DaemonRow {
    pub(crate) name: String,
    pub(crate) api_address: Option<String>,
    pub(crate) peer_address: Option<String>,
    pub(crate) version: String,
    /// Nanoseconds since 1970, by the database's clock.
    pub(crate) seen_at: Option<i64>,
    /// It was seen within what a lease holds, and has not stopped.
    pub(crate) is_alive: bool,
    pub(crate) is_draining: bool,
    pub(crate) leads: bool,
}

/// Why a list was not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unchanged {
    NoSuchDaemon,
    /// It lives, and is not drained or leads.
    Lives,
    /// Nobody else could take its work.
    LastOne,
}

/// The connection.
pub(crate) struct Desk {
    address: String,
    options: PgConnectOptions,
    connection: Option<PgConnection>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.address)
    }
}

impl Desk {
    pub(crate) fn new(address: &ServerAddress) -> Desk {
        Desk {
            address: address.to_string(),
            options: address.options().clone().application_name("farsided-desk"),
            connection: None,
        }
    }

    /// A connection of its own to the same place.
    pub(crate) fn another(&self) -> Desk {
        Desk { address: self.address.clone(), options: self.options.clone(), connection: None }
    }

    fn away(&self, reason: impl std::fmt::Display) -> StateError {
        StateError::Away { address: self.address.clone(), reason: reason.to_string() }
    }

    async fn connected(&mut self) -> Result<PgConnection, StateError> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let connect = async {
            let mut connection = self.options.connect().await?;
            sqlx::raw_sql(SESSION).execute(&mut connection).await?;
            Ok::<_, sqlx::Error>(connection)
        };
        match timeout(CONNECT_WITHIN, connect).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(self.away(said(&error))),
            Err(_) => Err(self.away(format!("no answer within {} s", CONNECT_WITHIN.as_secs()))),
        }
    }

    /// Does something in one transaction. What fails changes nothing, and the next one has a new connection.
    async fn with<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StateError> {
        let mut connection = self.connected().await?;
        let whole = async {
            sqlx::raw_sql("BEGIN").execute(&mut connection).await?;
            let done = work(&mut connection).await?;
            sqlx::raw_sql("COMMIT").execute(&mut connection).await?;
            Ok::<_, sqlx::Error>(done)
        };
        match timeout(ANSWER_WITHIN, whole).await {
            Ok(Ok(done)) => {
                self.connection = Some(connection);
                Ok(done)
            }
            Ok(Err(sqlx::Error::Database(told))) if !told.code().unwrap_or_default().starts_with("57P") => {
                Err(StateError::Server { address: self.address.clone(), reason: told.message().to_owned() })
            }
            Ok(Err(error)) => Err(self.away(said(&error))),
            Err(_) => Err(self.away(format!("no answer within {} s", ANSWER_WITHIN.as_secs()))),
        }
    }

    /// Sees to it that there are tables. They are brought up to date here only while no daemon has the state.
    ///
    /// # Errors
    /// The server is away; the schema is a newer version's; an older daemon runs.
    pub(crate) async fn prepare(&mut self, is_one_of_several: bool) -> Result<(), StateError> {
        let address = self.address.clone();
        let failed =
            |error: sqlx::Error| StateError::OpenServer { address: address.clone(), reason: said(&error) };
        let mut connection = self.connected().await.map_err(|error| match error {
            StateError::Away { address, reason } => StateError::OpenServer { address, reason },
            other => other,
        })?;
        match schema_of(&mut connection).await.map_err(failed)? {
            Some(found) if found > SCHEMA => {
                return Err(StateError::NewerServer { address, found, known: SCHEMA });
            }
            Some(SCHEMA) => {
                self.connection = Some(connection);
                return Ok(());
            }
            None if is_one_of_several => return Err(StateError::Emptied { address }),
            _ => {}
        }
        sqlx::raw_sql("SET statement_timeout = '50s'").execute(&mut connection).await.map_err(failed)?;
        let locked: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)")
            .bind(LOCK)
            .fetch_one(&mut connection)
            .await
            .map_err(failed)?;
        if !locked {
            return Err(StateError::InUse { address, of: " (of an earlier version)".into() });
        }
        let migrations = migrations();
        let brought = timeout(PREPARED_WITHIN, migrations.run_direct(None, &mut connection, false)).await;
        match brought {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(StateError::OpenServer { address, reason: error.to_string() }),
            Err(_) => {
                let reason = format!("its tables were not made within {} s", PREPARED_WITHIN.as_secs());
                return Err(StateError::OpenServer { address, reason });
            }
        }
        // With the connection the lock ends.
        let _ = timeout(CONNECT_WITHIN, connection.close()).await;
        Ok(())
    }

    /// Says that this daemon lives, and leads if it may. `silent`: when the lease ended that was watched, and not renewed.
    pub(crate) async fn turn(
        &mut self,
        card: &Card,
        common: &Common,
        (was_member, was_one_of_several): (bool, bool),
        silent: Option<i64>,
    ) -> Result<Turn, StateError> {
        let pass = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let turn = self
            .with(async |connection| {
                sqlx::query("INSERT INTO owner (one, mark) VALUES (true, '') ON CONFLICT (one) DO NOTHING")
                    .execute(&mut *connection)
                    .await?;
                let owner = sqlx::query(concat!(
                    "SELECT daemon, number, coalesce(ends_at > clock_timestamp(), false) AS holds, coalesce(",
                    nanoseconds!("ends_at"),
                    ", 0) AS ends_at, site_name FROM owner WHERE one FOR UPDATE"
                ))
                .fetch_one(&mut *connection)
                .await?;
                let id = card.id.to_string();
                introduce(connection, card).await?;
                let row: Option<PgRow> =
                    sqlx::query("SELECT is_known, is_draining FROM daemons WHERE id = $1")
                        .bind(&id)
                        .fetch_optional(&mut *connection)
                        .await?;
                let membership = |row: &PgRow| {
                    let (is_known, is_draining) = (row.try_get("is_known")?, row.try_get("is_draining")?);
                    Ok::<_, sqlx::Error>(Membership { is_known, is_draining })
                };
                let others: i64 = sqlx::query_scalar("SELECT count(*) FROM daemons WHERE id <> $1")
                    .bind(&id)
                    .fetch_one(&mut *connection)
                    .await?;
                let daemon: Option<String> = owner.try_get("daemon")?;
                let ends_at: i64 = owner.try_get("ends_at")?;
                let seen = Seen {
                    holds: owner.try_get("holds")?,
                    is_own: daemon.as_deref() == Some(&id),
                    is_silent: silent == Some(ends_at),
                    row: row.as_ref().map(membership).transpose()?,
                    was_member,
                    was_one_of_several,
                    others,
                };
                let decision = decide(seen);
                match decision {
                    Decision::Wait | Decision::Stranger => {
                        let leader = if seen.holds { leader(connection).await? } else { None };
                        return Ok(match decision {
                            Decision::Stranger => Turn::Stranger { leader },
                            _ => Turn::Waits { leader, is_own: seen.is_own, ends_at, others },
                        });
                    }
                    Decision::Lead => {}
                    Decision::LeadAlone => {
                        sqlx::raw_sql("DELETE FROM daemons").execute(&mut *connection).await?;
                        sqlx::query(
                            "INSERT INTO daemons (id, name, version, joined_at, is_known) \
                             VALUES ($1, $2, $3, clock_timestamp(), true)",
                        )
                        .bind(&id)
                        .bind(&card.name)
                        .bind(env!("CARGO_PKG_VERSION"))
                        .execute(&mut *connection)
                        .await?;
                        introduce(connection, card).await?;
                    }
                }
                let is_alone = decision == Decision::LeadAlone || others == 0;
                let site_name = match owner.try_get::<Option<String>, _>("site_name")? {
                    Some(name) if !is_alone => name,
                    _ => common.site_name.clone(),
                };
                // Where several daemons are, they have one key. One that is alone may have got another.
                let taken: Option<i64> = sqlx::query_scalar(
                    "UPDATE owner SET daemon = $1, number = number + 1, mark = '', pass = $2, site_id = $3, site_name = $4, \
                     ends_at = clock_timestamp() + $5 * interval '1 millisecond' \
                     WHERE one AND ($6 OR site_id IS NULL OR site_id = $3) RETURNING number",
                )
                .bind(&id)
                .bind(&pass)
                .bind(&common.site_id)
                .bind(&site_name)
                .bind(HOLDS.as_millis() as i64)
                .bind(is_alone)
                .fetch_optional(&mut *connection)
                .await?;
                let Some(number) = taken else {
                    let leader = leader(connection).await?;
                    return Ok(Turn::Stranger { leader });
                };
                let others = if is_alone { 0 } else { others };
                let lead = Lead { daemon: card.id, number };
                Ok(Turn::Leads(Leading { lead, pass, others, site_name }))
            })
            .await?;
        if let Turn::Leads(leading) = &turn {
            self.end_connections_of_others(leading.lead).await?;
        }
        Ok(turn)
    }

    /// Ends what others had for the state. Only connections of the same role can be ended, and the daemons of a site have one.
    async fn end_connections_of_others(&mut self, lead: Lead) -> Result<(), StateError> {
        self.with(async |connection| {
            sqlx::query(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() \
                 AND usename = current_user AND application_name LIKE 'farsided %' AND application_name <> $1",
            )
            .bind(connections_of(lead))
            .execute(connection)
            .await
            .map(drop)
        })
        .await
    }

    /// Renews the lease.
    pub(crate) async fn renew(&mut self, lead: Lead) -> Result<Renewal, StateError> {
        self.with(async |connection| {
            let row = sqlx::query(
                "WITH renewed AS (UPDATE owner SET ends_at = clock_timestamp() + $3 * interval '1 millisecond' \
                 WHERE one AND daemon = $1 AND number = $2 RETURNING 1), \
                 seen AS (UPDATE daemons SET seen_at = clock_timestamp(), is_known = true \
                 WHERE (id = $1 OR NOT is_known) AND EXISTS (SELECT 1 FROM renewed) RETURNING 1), \
                 gone AS (DELETE FROM daemon_invitations WHERE expires_at < clock_timestamp() RETURNING 1) \
                 SELECT (SELECT count(*) FROM renewed) AS renewed, (SELECT count(*) FROM seen) AS seen, \
                 (SELECT count(*) FROM daemons WHERE id <> $1) AS others, \
                 coalesce((SELECT is_draining FROM daemons WHERE id = $1), false) AS is_draining, \
                 coalesce((SELECT string_agg(peer_address, ' ' ORDER BY name) FROM daemons), '') AS peers, \
                 coalesce((SELECT string_agg(name, ' ' ORDER BY name) FROM daemons WHERE id <> $1 AND (is_stopped OR seen_at IS NULL \
                 OR seen_at < clock_timestamp() - $3 * interval '1 millisecond')), '') AS gone, \
                 (SELECT count(*) FROM daemons WHERE id <> $1 AND is_draining AND NOT is_stopped) AS draining",
            )
            .bind(lead.daemon.to_string())
            .bind(lead.number)
            .bind(HOLDS.as_millis() as i64)
            .fetch_one(connection)
            .await?;
            if row.try_get::<i64, _>("renewed")? == 0 {
                return Ok(Renewal::Lost);
            }
            let (peers, gone): (String, String) = (row.try_get("peers")?, row.try_get("gone")?);
            Ok(Renewal::Holds {
                others: row.try_get("others")?,
                is_draining: row.try_get("is_draining")?,
                peer_addresses: peers.split_ascii_whitespace().map(str::to_owned).collect(),
                gone: gone.split_ascii_whitespace().map(str::to_owned).collect(),
                draining: row.try_get("draining")?,
            })
        })
        .await
    }

    /// Gives the lease back: another may lead at once. And says that this daemon stops, if it does.
    pub(crate) async fn release(&mut self, lead: Lead, stops: bool) -> Result<(), StateError> {
        self.with(async |connection| {
            sqlx::query(
                "UPDATE owner SET ends_at = clock_timestamp(), mark = '' WHERE one AND daemon = $1 AND number = $2",
            )
            .bind(lead.daemon.to_string())
            .bind(lead.number)
            .execute(&mut *connection)
            .await?;
            // They ended in order: nobody need fence them.
            sqlx::query("DELETE FROM cluster_clients WHERE number = $1")
                .bind(lead.number)
                .execute(&mut *connection)
                .await?;
            stopped(connection, lead.daemon, stops).await
        })
        .await
    }

    /// Says that this daemon stops.
    pub(crate) async fn stop(&mut self, daemon: Uuid) -> Result<(), StateError> {
        self.with(async |connection| stopped(connection, daemon, true).await).await
    }

    /// Says what this daemon is reached by now.
    pub(crate) async fn introduce(&mut self, card: &Card) -> Result<(), StateError> {
        self.with(async |connection| introduce(connection, card).await).await
    }

    /// All daemons, by name.
    pub(crate) async fn daemons(&mut self) -> Result<Vec<DaemonRow>, StateError> {
        self.with(async |connection| {
            let rows = sqlx::query(concat!(
                "SELECT name, api_address, peer_address, version, ",
                nanoseconds!("seen_at"),
                " AS seen_at, NOT is_stopped AND coalesce(seen_at > clock_timestamp() - $1 * interval '1 millisecond', false) \
                 AS is_alive, is_draining, id = (SELECT daemon FROM owner WHERE one AND ends_at > clock_timestamp()) AS leads \
                 FROM daemons ORDER BY name"
            ))
            .bind(HOLDS.as_millis() as i64)
            .fetch_all(connection)
            .await?;
            rows.into_iter()
                .map(|row| {
                    Ok(DaemonRow {
                        name: row.try_get("name")?,
                        api_address: row.try_get("api_address")?,
                        peer_address: row.try_get("peer_address")?,
                        version: row.try_get("version")?,
                        seen_at: row.try_get("seen_at")?,
                        is_alive: row.try_get("is_alive")?,
                        is_draining: row.try_get("is_draining")?,
                        leads: row.try_get::<Option<bool>, _>("leads")?.unwrap_or(false),
                    })
                })
                .collect()
        })
        .await
    }

    /// Has a daemon not lead any more, or lead again when it is its turn. The last one that could is not drained.
    pub(crate) async fn set_draining(
        &mut self,
        name: &str,
        is_draining: bool,
    ) -> Result<Result<(), Unchanged>, StateError> {
        self.with(async |connection| {
            // One at a time: two that are drained at once may be the last two.
            sqlx::raw_sql("LOCK TABLE daemons IN SHARE ROW EXCLUSIVE MODE").execute(&mut *connection).await?;
            let others: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM daemons WHERE name <> $1 AND is_known AND NOT is_draining AND NOT is_stopped \
                 AND seen_at > clock_timestamp() - $2 * interval '1 millisecond'",
            )
            .bind(name)
            .bind(HOLDS.as_millis() as i64)
            .fetch_one(&mut *connection)
            .await?;
            let is_there: Option<bool> = sqlx::query_scalar("SELECT is_draining FROM daemons WHERE name = $1")
                .bind(name)
                .fetch_optional(&mut *connection)
                .await?;
            match is_there {
                None => return Ok(Err(Unchanged::NoSuchDaemon)),
                Some(false) if is_draining && others == 0 => return Ok(Err(Unchanged::LastOne)),
                Some(_) => {}
            }
            sqlx::query("UPDATE daemons SET is_draining = $2 WHERE name = $1")
                .bind(name)
                .bind(is_draining)
                .execute(connection)
                .await?;
            Ok(Ok(()))
        })
        .await
    }

    /// Takes a daemon off the list that is gone, or drained and does not lead.
    pub(crate) async fn remove(&mut self, name: &str) -> Result<Result<(), Unchanged>, StateError> {
        self.with(async |connection| {
            let found = sqlx::query(
                "SELECT is_draining, NOT is_stopped AND coalesce(seen_at > clock_timestamp() - $2 * interval '1 millisecond', \
                 false) AS is_alive, coalesce(id = (SELECT daemon FROM owner WHERE one AND ends_at > clock_timestamp()), false) \
                 AS leads FROM daemons WHERE name = $1 FOR UPDATE",
            )
            .bind(name)
            .bind(HOLDS.as_millis() as i64)
            .fetch_optional(&mut *connection)
            .await?;
            let Some(found) = found else { return Ok(Err(Unchanged::NoSuchDaemon)) };
            let is_drained: bool = found.try_get("is_draining")?;
            if found.try_get("leads")? || (found.try_get("is_alive")? && !is_drained) {
                return Ok(Err(Unchanged::Lives));
            }
            sqlx::query("DELETE FROM daemons WHERE name = $1").bind(name).execute(connection).await?;
            Ok(Ok(()))
        })
        .await
    }

    /// Keeps an invitation.
    pub(crate) async fn invite(
        &mut self,
        id: &str,
        sealed: &[u8],
        holds: Duration,
    ) -> Result<(), StateError> {
        self.with(async |connection| {
            sqlx::query(
                "INSERT INTO daemon_invitations (id, sealed, expires_at) \
                 VALUES ($1, $2, clock_timestamp() + $3 * interval '1 millisecond')",
            )
            .bind(id)
            .bind(sealed)
            .bind(holds.as_millis() as i64)
            .execute(connection)
            .await
            .map(drop)
        })
        .await
    }

    /// Invitations that can still be used: what each is called, and when it ends, nanoseconds since 1970 by the database's clock.
    pub(crate) async fn invitations(&mut self) -> Result<Vec<(String, i64)>, StateError> {
        self.with(async |connection| {
            let rows = sqlx::query(concat!(
                "SELECT left(id, 8) AS id, ",
                nanoseconds!("expires_at"),
                " AS ends_at FROM daemon_invitations WHERE expires_at > clock_timestamp() ORDER BY expires_at"
            ))
            .fetch_all(connection)
            .await?;
            rows.into_iter().map(|row| Ok((row.try_get("id")?, row.try_get("ends_at")?))).collect()
        })
        .await
    }

    /// Takes one back. Answers when it would have ended; none: there is no such invitation.
    pub(crate) async fn cancel_invitation(&mut self, called: &str) -> Result<Option<i64>, StateError> {
        self.with(async |connection| {
            sqlx::query_scalar(concat!(
                "DELETE FROM daemon_invitations WHERE left(id, 8) = $1 AND expires_at > clock_timestamp() RETURNING ",
                nanoseconds!("expires_at")
            ))
            .bind(called)
            .fetch_optional(connection)
            .await
        })
        .await
    }

    /// Keeps a change in the site's audit log that was made without the daemon that leads, at this moment by the database's clock.
    pub(crate) async fn note_audit(&mut self, row: &AuditRow) -> Result<(), StateError> {
        self.with(async |connection| {
            sqlx::query(concat!(
                "INSERT INTO audit (at, who, role, origin, method, path, outcome, message, duration) VALUES (",
                nanoseconds!("clock_timestamp()"),
                ", $1, $2, $3, $4, $5, $6, $7, 0)"
            ))
            .bind(&row.who)
            .bind(&row.role)
            .bind(&row.origin)
            .bind(&row.method)
            .bind(&row.path)
            .bind(&row.outcome)
            .bind(&row.message)
            .execute(connection)
            .await
            .map(drop)
        })
        .await
    }

    /// Uses an invitation up: the daemon of this card is one of the site from then on. Answers what was sealed; none: there is no
    /// such invitation.
    pub(crate) async fn join(&mut self, id: &str, card: &Card) -> Result<Option<Vec<u8>>, StateError> {
        self.with(async |connection| {
            let sealed: Option<Vec<u8>> = sqlx::query_scalar(
                "DELETE FROM daemon_invitations WHERE id = $1 AND expires_at > clock_timestamp() RETURNING sealed",
            )
            .bind(id)
            .fetch_optional(&mut *connection)
            .await?;
            if sealed.is_some() {
                sqlx::query(
                    "INSERT INTO daemons (id, name, version, joined_at, is_known) VALUES ($1, $2, $3, clock_timestamp(), false)",
                )
                .bind(card.id.to_string())
                .bind(&card.name)
                .bind(env!("CARGO_PKG_VERSION"))
                .execute(connection)
                .await?;
            }
            Ok(sealed)
        })
        .await
    }

    /// Closes the connection.
    pub(crate) async fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            let _ = timeout(CONNECT_WITHIN, connection.close()).await;
        }
    }
}

async fn stopped(connection: &mut PgConnection, daemon: Uuid, is_stopped: bool) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE daemons SET is_stopped = $2, seen_at = clock_timestamp() WHERE id = $1")
        .bind(daemon.to_string())
        .bind(is_stopped)
        .execute(connection)
        .await
        .map(drop)
}

/// Says that a daemon lives, and what it is reached by; nothing if it is not on the list.
async fn introduce(connection: &mut PgConnection, card: &Card) -> Result<(), sqlx::Error> {
    let from: Option<String> =
        sqlx::query_scalar("SELECT host(inet_client_addr())").fetch_one(&mut *connection).await?;
    let from = from.unwrap_or_else(|| "127.0.0.1".into());
    let reached =
        |address: &Option<String>| address.as_deref().and_then(|address| reached_by(address, &from));
    sqlx::query(
        "UPDATE daemons SET name = $2, api_address = $3, api_fingerprint = $4, peer_address = $5, version = $6, \
         seen_at = clock_timestamp(), is_stopped = false WHERE id = $1",
    )
    .bind(card.id.to_string())
    .bind(&card.name)
    .bind(reached(&card.api_address))
    .bind(&card.api_fingerprint)
    .bind(reached(&card.peer_address))
    .bind(env!("CARGO_PKG_VERSION"))
    .execute(connection)
    .await
    .map(drop)
}

/// Where others reach what listens on `address`; none: a port that is chosen at the start is not known before it.
fn reached_by(address: &str, from: &str) -> Option<String> {
    let (host, port) = address.rsplit_once(':')?;
    if port == "0" {
        return None;
    }
    match host {
        "0.0.0.0" | "[::]" if from.contains(':') => Some(format!("[{from}]:{port}")),
        "0.0.0.0" | "[::]" => Some(format!("{from}:{port}")),
        _ => Some(address.to_owned()),
    }
}

/// Whose lease it is.
async fn leader(connection: &mut PgConnection) -> Result<Option<Leader>, sqlx::Error> {
    let row = sqlx::query(
        "SELECT d.name, d.api_address, d.api_fingerprint, o.pass FROM owner AS o JOIN daemons AS d ON d.id = o.daemon WHERE o.one",
    )
    .fetch_optional(connection)
    .await?;
    row.map(|row| {
        Ok(Leader {
            name: row.try_get("name")?,
            api_address: row.try_get("api_address")?,
            api_fingerprint: row.try_get("api_fingerprint")?,
            pass: row.try_get::<Option<String>, _>("pass")?.unwrap_or_default(),
        })
    })
    .transpose()
}

fn said(error: &sqlx::Error) -> String {
    super::connections::said(error)
}

#[cfg(test)]
mod tests;
