//! Settings that are changed while the daemon runs: of the site, and the throttles of its peers.

use farside_session::{Direction, PeerId};

use super::rows::peer_id;
use super::{State, StateError};

/// A setting of the site, by its name in the table.
fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::In => "throttle_in",
        Direction::Out => "throttle_out",
    }
}

impl State {
    /// The site's throttle, as text; none if it was never set.
    pub(crate) async fn site_throttle(&self, direction: Direction) -> Result<Option<String>, StateError> {
        let value = sqlx::query_scalar("SELECT value FROM settings WHERE name = ?")
            .bind(name(direction))
            .fetch_optional(&self.readers)
            .await?;
        Ok(value)
    }

    /// Keeps the site's throttle.
    pub(crate) async fn set_site_throttle(
        &self,
        direction: Direction,
        rules: &str,
    ) -> Result<(), StateError> {
        sqlx::query("INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)")
            .bind(name(direction))
            .bind(rules)
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    /// The throttles of the peers, as text.
    pub(crate) async fn peer_throttles(&self) -> Result<Vec<(PeerId, Direction, String)>, StateError> {
        let rows: Vec<(Vec<u8>, Option<String>, Option<String>)> =
            sqlx::query_as("SELECT id, throttle_in, throttle_out FROM peers")
                .fetch_all(&self.readers)
                .await?;
        let mut throttles = Vec::new();
        for (id, inward, outward) in rows {
            let id = peer_id(&id)?;
            throttles.extend(inward.map(|rules| (id, Direction::In, rules)));
            throttles.extend(outward.map(|rules| (id, Direction::Out, rules)));
        }
        Ok(throttles)
    }

    /// Keeps a peer's throttle; it goes with the peer.
    pub(crate) async fn set_peer_throttle(
        &self,
        peer: PeerId,
        direction: Direction,
        rules: &str,
    ) -> Result<(), StateError> {
        let statement = match direction {
            Direction::In => "UPDATE peers SET throttle_in = ? WHERE id = ?",
            Direction::Out => "UPDATE peers SET throttle_out = ? WHERE id = ?",
        };
        sqlx::query(statement).bind(rules).bind(peer.0.as_slice()).execute(&self.writer).await?;
        Ok(())
    }
}
