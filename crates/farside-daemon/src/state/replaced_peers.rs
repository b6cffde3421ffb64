//! Keys that another has taken the place of.

use std::collections::HashMap;

use farside_peer::PeerId;
use farside_platform::Timestamp;

use super::rows::{nanoseconds, peer_id};
use super::statement::{query, query_as, query_scalar};
use super::{State, StateError};

impl State {
    /// Has the peer `new` be what `old` was, in one moment: relationships of both directions and rights are its own, it has the
    /// old one's name, and its limits and paths where it has none; `old` is no peer any more.
    pub(crate) async fn replace_peer(
        &self,
        old: PeerId,
        new: PeerId,
        now: Timestamp,
    ) -> Result<(), StateError> {
        let (old, new) = (old.0.as_slice(), new.0.as_slice());
        let mut transaction = self.writer.begin().await?;
        for statement in [
            "UPDATE relationships SET peer = $2 WHERE peer = $1",
            "UPDATE source_relationships SET peer = $2 WHERE peer = $1",
            "UPDATE endings SET peer = $2 WHERE peer = $1",
            // What the new key was given already stays as it was given.
            "UPDATE rights SET peer = $2 WHERE peer = $1 \
             AND NOT EXISTS (SELECT 1 FROM rights AS given WHERE given.peer = $2 AND given.volume = rights.volume)",
            "UPDATE peers SET throttle_in = coalesce(peers.throttle_in, o.throttle_in), \
             throttle_out = coalesce(peers.throttle_out, o.throttle_out), dscp = coalesce(peers.dscp, o.dscp), \
             rate = coalesce(peers.rate, o.rate), site_role = coalesce(peers.site_role, o.site_role), keepalive = coalesce(peers.keepalive, o.keepalive), address = coalesce(peers.address, o.address), \
             paths_mode = CASE WHEN peers.paths = '' THEN o.paths_mode ELSE peers.paths_mode END, \
             paths = CASE WHEN peers.paths = '' THEN o.paths ELSE peers.paths END \
             FROM peers AS o WHERE o.id = $1 AND peers.id = $2",
            // Of three keys in a row the oldest leads to the newest.
            "UPDATE replaced_peers SET new = $2 WHERE new = $1",
        ] {
            query(statement).bind(old).bind(new).execute(&mut transaction).await?;
        }
        let name: Option<String> = query_scalar("DELETE FROM peers WHERE id = $1 RETURNING name")
            .bind(old)
            .fetch_optional(&mut transaction)
            .await?;
        if let Some(name) = name {
            query("UPDATE peers SET name = $1 WHERE id = $2")
                .bind(name)
                .bind(new)
                .execute(&mut transaction)
                .await?;
        }
        query(
            "INSERT INTO replaced_peers (old, new, replaced_at) VALUES ($1, $2, $3) \
             ON CONFLICT (old) DO UPDATE SET new = excluded.new, replaced_at = excluded.replaced_at",
        )
        .bind(old)
        .bind(new)
        .bind(nanoseconds(now))
        .execute(&mut transaction)
        .await?;
        // A key that comes back into use is its own again.
        query("DELETE FROM replaced_peers WHERE old = $1").bind(new).execute(&mut transaction).await?;
        transaction.commit().await?;
        self.peers_changed.send_replace(());
        Ok(())
    }

    /// Which key has taken the place of which.
    pub(crate) async fn replaced_peers(&self) -> Result<HashMap<PeerId, PeerId>, StateError> {
        let rows: Vec<(Vec<u8>, Vec<u8>)> =
            query_as("SELECT old, new FROM replaced_peers").fetch_all(&self.readers).await?;
        rows.iter().map(|(old, new)| Ok((peer_id(old)?, peer_id(new)?))).collect()
    }
}
