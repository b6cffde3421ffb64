//! Who may use the API: tokens, and the administrators of peers.

use farside_peer::PeerId;

use super::rows::from_row;
use super::statement::{query, query_as};
use super::{State, StateError};

/// A token that is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TokenRow {
    pub(crate) name: String,
    pub(crate) role: String,
    /// SHA-256 of what its owner sends.
    pub(crate) hash: Vec<u8>,
    pub(crate) created_at: i64,
    pub(crate) created_by: String,
    pub(crate) expires_at: i64,
    pub(crate) last_used_at: Option<i64>,
}
from_row!(TokenRow { name, role, hash, created_at, created_by, expires_at, last_used_at });

impl State {
    /// What the administrators of peers may do here.
    pub(crate) async fn peer_roles(&self) -> Result<Vec<(PeerId, String)>, StateError> {
        let rows: Vec<(Vec<u8>, String)> =
            query_as("SELECT id, site_role FROM peers WHERE site_role IS NOT NULL")
                .fetch_all(&self.readers)
                .await?;
        let read = |(id, role): (Vec<u8>, String)| {
            let id = id.as_slice().try_into().map_err(|_| StateError::Row("a peer's id has not 32 bytes"))?;
            Ok((PeerId(id), role))
        };
        rows.into_iter().map(read).collect()
    }

    /// Gives them a role, or takes it.
    pub(crate) async fn set_peer_role(&self, peer: PeerId, role: Option<&str>) -> Result<(), StateError> {
        query("UPDATE peers SET site_role = $1 WHERE id = $2")
            .bind(role)
            .bind(peer.0.as_slice())
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    /// All tokens, by name.
    pub(crate) async fn tokens(&self) -> Result<Vec<TokenRow>, StateError> {
        query_as(
            "SELECT name, role, hash, created_at, created_by, expires_at, last_used_at FROM tokens ORDER BY name",
        )
        .fetch_all(&self.readers)
        .await
    }

    /// Adds a token.
    pub(crate) async fn add_token(&self, row: &TokenRow) -> Result<(), StateError> {
        query(
            "INSERT INTO tokens (name, role, hash, created_at, created_by, expires_at) VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(&row.name)
        .bind(&row.role)
        .bind(&row.hash)
        .bind(row.created_at)
        .bind(&row.created_by)
        .bind(row.expires_at)
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    /// Keeps when a token was used. A moment that a power failure takes costs nothing: nobody waits for the disk.
    pub(crate) async fn token_used(&self, name: &str, at: i64) -> Result<(), StateError> {
        query("UPDATE tokens SET last_used_at = $1 WHERE name = $2")
            .bind(at)
            .bind(name)
            .execute(&self.line_writer)
            .await?;
        Ok(())
    }

    /// Forgets a token.
    pub(crate) async fn remove_token(&self, name: &str) -> Result<(), StateError> {
        query("DELETE FROM tokens WHERE name = $1").bind(name).execute(&self.writer).await?;
        Ok(())
    }
}
