//! Hosts that come over the network, and what they may open. Rights go with the host.

use farside_platform::Timestamp;
use uuid::Uuid;

use super::rows::{nanoseconds, time, uuid};
use super::statement::{query, query_as, query_scalar};
use super::{State, StateError};

/// A host that is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HostRow {
    /// Never given again: a host that was removed and added is another.
    pub(crate) id: i64,
    pub(crate) host: NewHost,
}

/// What is known of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NewHost {
    pub(crate) name: String,
    /// SHA-256 of its certificate; none: its certificates come from elsewhere, and the name in them counts.
    pub(crate) fingerprint: Option<[u8; 32]>,
    pub(crate) added_at: Timestamp,
    /// When its certificate ends.
    pub(crate) expires_at: Option<Timestamp>,
}

/// A right of a host on a volume and its snapshots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HostRightRow {
    pub(crate) host: i64,
    pub(crate) volume_id: Uuid,
    /// `POOL/VOL`, as it was called when the right was given.
    pub(crate) volume: String,
    pub(crate) read_only: bool,
}

impl State {
    /// All hosts, by name.
    pub(crate) async fn hosts(&self) -> Result<Vec<HostRow>, StateError> {
        type Row = (i64, String, Option<Vec<u8>>, i64, Option<i64>);
        let rows: Vec<Row> =
            query_as("SELECT id, name, fingerprint, added_at, expires_at FROM hosts ORDER BY name")
                .fetch_all(&self.readers)
                .await?;
        rows.into_iter()
            .map(|(id, name, fingerprint, added_at, expires_at)| {
                let fingerprint = fingerprint
                    .map(|bytes| {
                        bytes.try_into().map_err(|_| StateError::Row("a fingerprint has not 32 bytes"))
                    })
                    .transpose()?;
                let (added_at, expires_at) = (time(added_at), expires_at.map(time));
                Ok(HostRow { id, host: NewHost { name, fingerprint, added_at, expires_at } })
            })
            .collect()
    }

    /// All rights of hosts.
    pub(crate) async fn host_rights(&self) -> Result<Vec<HostRightRow>, StateError> {
        let rows: Vec<(i64, Vec<u8>, String, bool)> =
            query_as("SELECT host, volume_id, volume, read_only FROM host_rights ORDER BY host, volume")
                .fetch_all(&self.readers)
                .await?;
        rows.into_iter()
            .map(|(host, id, volume, read_only)| {
                Ok(HostRightRow { host, volume_id: uuid(&id)?, volume, read_only })
            })
            .collect()
    }

    /// Adds a host; its number.
    pub(crate) async fn add_host(&self, host: &NewHost) -> Result<i64, StateError> {
        query_scalar(
            "INSERT INTO hosts (name, fingerprint, added_at, expires_at) VALUES ($1, $2, $3, $4) RETURNING id",
        )
        .bind(&host.name)
        .bind(host.fingerprint.as_ref().map(<[u8; 32]>::as_slice))
        .bind(nanoseconds(host.added_at))
        .bind(host.expires_at.map(nanoseconds))
        .fetch_one(&self.writer)
        .await
    }

    /// Removes a host with its rights.
    pub(crate) async fn remove_host(&self, id: i64) -> Result<(), StateError> {
        query("DELETE FROM hosts WHERE id = $1").bind(id).execute(&self.writer).await?;
        Ok(())
    }

    /// Gives rights, all or none; one that is there is replaced.
    pub(crate) async fn allow_host(&self, rights: &[HostRightRow]) -> Result<(), StateError> {
        let mut transaction = self.writer.begin().await?;
        for right in rights {
            query(
                "INSERT INTO host_rights (host, volume_id, volume, read_only) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (host, volume_id) DO UPDATE SET volume = excluded.volume, read_only = excluded.read_only",
            )
            .bind(right.host)
            .bind(right.volume_id.as_bytes().as_slice())
            .bind(&right.volume)
            .bind(right.read_only)
            .execute(&mut transaction)
            .await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// Takes rights on volumes away: of one host, or of all.
    pub(crate) async fn deny_host(&self, host: Option<i64>, volumes: &[Uuid]) -> Result<(), StateError> {
        let mut transaction = self.writer.begin().await?;
        for volume in volumes {
            query("DELETE FROM host_rights WHERE volume_id = $1 AND ($2 IS NULL OR host = $2)")
                .bind(volume.as_bytes().as_slice())
                .bind(host)
                .execute(&mut transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(())
    }
}
