//! What the server does meanwhile: statements, transactions, and the processor time of its processes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgConnection;

use super::Load;
use crate::state::test_databases::TestDatabase;

/// What the kernel counts processor time in.
const TICKS_A_SECOND: f64 = 100.0;
/// Who has just written tells the statistics within a second.
const TOLD_WITHIN: Duration = Duration::from_millis(1200);

/// A connection that the state does not know.
pub(super) struct Counted {
    connection: PgConnection,
    server: u32,
}

/// What was counted when a part began.
pub(super) struct Part {
    load: Arc<Load>,
    began: Instant,
    counts: Counts,
}

struct Counts {
    statements: i64,
    transactions: i64,
    /// Seconds of each process of the server, and those of processes that have ended with the first one.
    processes: BTreeMap<u32, f64>,
    /// Seconds of this process.
    own: f64,
}

/// Of a process: the number of its parent, seconds that it ran, seconds of its children that have ended.
fn process(id: &str) -> Option<(u32, f64, f64)> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before may have blanks.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field)?.parse::<f64>().ok();
    let parent = fields.get(1)?.parse().ok()?;
    let seconds = |ticks: f64| ticks / TICKS_A_SECOND;
    Some((parent, seconds(number(11)? + number(12)?), seconds(number(13)? + number(14)?)))
}

fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

impl Counted {
    pub(super) async fn of(database: &TestDatabase) -> Counted {
        Counted { connection: database.connection().await, server: database.server_process() }
    }

    pub(super) async fn execute(&mut self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.connection).await.unwrap();
    }

    /// Whether the server waits for the disk from now on; what it has not written goes there first.
    pub(super) async fn sync(&mut self, does: bool) {
        self.execute(&format!("ALTER SYSTEM SET fsync = {does}")).await;
        self.execute("SELECT pg_reload_conf()").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.execute("CHECKPOINT").await;
    }

    async fn number(&mut self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut self.connection).await.unwrap()
    }

    async fn counts(&mut self) -> Counts {
        let of_this = "(SELECT oid FROM pg_database WHERE datname = current_database())";
        let statements = self
            .number(&format!(
                "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements WHERE dbid = {of_this} AND query NOT LIKE '%pg_stat_%'"
            ))
            .await;
        let transactions = self
            .number(&format!(
                "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datid = {of_this}"
            ))
            .await;
        let mut processes = BTreeMap::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let (Ok(id), Some((parent, ran, ended))) = (name.parse(), process(&name)) else { continue };
            if id == self.server {
                processes.insert(id, ran + ended);
            } else if parent == self.server {
                processes.insert(id, ran);
            }
        }
        Counts { statements, transactions, processes, own: process("self").unwrap().1 }
    }

    pub(super) async fn begin(&mut self, load: &Arc<Load>) -> Part {
        tokio::time::sleep(TOLD_WITHIN).await;
        load.longest_renewal.store(0, Ordering::Relaxed);
        let counts = self.counts().await;
        Part { load: Arc::clone(load), began: Instant::now(), counts }
    }

    /// Prints what a part of the measurement took, with how many updates of replicas and sources it made.
    pub(super) async fn end(&mut self, name: &str, part: Part, (replicas, sources): (u64, u64)) {
        let mut seconds = part.began.elapsed().as_secs_f64();
        let longest = part.load.longest_renewal.load(Ordering::Relaxed) as f64 / 1000.0;
        tokio::time::sleep(TOLD_WITHIN).await;
        let (before, after) = (part.counts, self.counts().await);
        if replicas + sources == 0 {
            // Leases alone went on.
            seconds = part.began.elapsed().as_secs_f64();
        }
        let of_process =
            |id: &u32| (after.processes[id] - before.processes.get(id).copied().unwrap_or(0.0)).max(0.0);
        let all: f64 = after.processes.keys().map(of_process).sum();
        let busiest = after.processes.keys().map(of_process).fold(0.0, f64::max);
        let line = serde_json::json!({
            "part": name,
            "seconds": rounded(seconds),
            "replica_updates_per_second": rounded(replicas as f64 / seconds),
            "source_updates_per_second": rounded(sources as f64 / seconds),
            "statements_per_second": rounded((after.statements - before.statements) as f64 / seconds),
            "transactions_per_second": rounded((after.transactions - before.transactions) as f64 / seconds),
            "database_cpu_percent": rounded(all / seconds * 100.0),
            "busiest_connection_cpu_percent": rounded(busiest / seconds * 100.0),
            "daemon_cpu_percent": rounded((after.own - before.own) / seconds * 100.0),
            "longest_renewal_ms": longest.round(),
        });
        println!("RESULT {line}");
    }

    /// Prints how much room a row takes, its indexes included.
    pub(super) async fn tell_sizes(&mut self) {
        let mut line = serde_json::json!({ "part": "bytes of a row" });
        for table in ["transfers", "log", "relationships", "source_relationships"] {
            let bytes = self.number(&format!("SELECT pg_total_relation_size('{table}')")).await;
            let rows = self.number(&format!("SELECT count(*) FROM {table}")).await;
            line[table] = (bytes / rows.max(1)).into();
        }
        println!("RESULT {line}");
    }
}
