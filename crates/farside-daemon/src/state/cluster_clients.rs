//! Clients of clusters that daemons of this site had while they led. In PostgreSQL alone: where the state is a file there is one daemon.

use super::statement::{query, query_scalar};
use super::{State, StateError};

impl State {
    /// Notes a client of a cluster, by the number of the lease under which it is. Answers those of earlier leases.
    pub(crate) async fn note_cluster_client(
        &self,
        cluster: &str,
        address: &str,
        number: i64,
    ) -> Result<Vec<String>, StateError> {
        let mut transaction = self.writer.begin().await?;
        query(
            "INSERT INTO cluster_clients (cluster, address, number) VALUES ($1, $2, $3) ON CONFLICT (cluster, address) \
             DO UPDATE SET number = excluded.number",
        )
        .bind(cluster)
        .bind(address)
        .bind(number)
        .execute(&mut transaction)
        .await?;
        let earlier = query_scalar("SELECT address FROM cluster_clients WHERE cluster = $1 AND number < $2")
            .bind(cluster)
            .bind(number)
            .fetch_all(&mut transaction)
            .await?;
        transaction.commit().await?;
        Ok(earlier)
    }

    /// Forgets one that is on the blocklist, or ended.
    pub(crate) async fn forget_cluster_client(&self, cluster: &str, address: &str) -> Result<(), StateError> {
        query("DELETE FROM cluster_clients WHERE cluster = $1 AND address = $2")
            .bind(cluster)
            .bind(address)
            .execute(&self.writer)
            .await?;
        Ok(())
    }
}
