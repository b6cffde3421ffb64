//! Settings that are changed while the daemon runs: of the site, by name in a table of texts, and the throttles of its peers.

use farside_link::Direction;
use farside_peer::PeerId;

use super::rows::peer_id;
use super::statement::{query, query_as, query_scalar};
use super::{State, StateError};

/// The name of the site's transfer size.
const TRANSFER_SIZE: &str = "transfer_size";
/// The name of how far hosts go before transfers.
const HOST_PRECEDENCE: &str = "host_precedence";
/// The name of what was said of the accelerator.
const ACCELERATOR: &str = "accelerator";
/// The name of the accelerator's policies.
const ACCELERATOR_POLICIES: &str = "accelerator_policies";
/// The name of the accelerator's explicit forwards.
const ACCELERATOR_FORWARDS: &str = "accelerator_forwards";

/// The name of who may log in, where several daemons may be one site.
pub(super) const ACCOUNTS: &str = "accounts";

/// The name of where the site was when it met its peers last.
const WHEREABOUTS: &str = "whereabouts";

/// The name of that the database was made anew for a site that had its key before.
const MADE_ANEW: &str = "made_anew";

/// The name of how far each pool was written.
const POOL_MARKS: &str = "pool_marks";

/// The name of a throttle of the site.
fn throttle(direction: Direction) -> &'static str {
    match direction {
        Direction::In => "throttle_in",
        Direction::Out => "throttle_out",
    }
}

impl State {
    /// Where the site was when it met its peers last, as JSON; none if that was never noted.
    pub(crate) async fn whereabouts(&self) -> Result<Option<String>, StateError> {
        self.setting(WHEREABOUTS).await
    }

    /// Notes it.
    pub(crate) async fn set_whereabouts(&self, whereabouts: &str) -> Result<(), StateError> {
        self.set_setting(WHEREABOUTS, whereabouts).await
    }

    /// Whether it was made anew for a site that had its key before, and nobody has done anything about that yet.
    pub(crate) async fn is_made_anew(&self) -> Result<bool, StateError> {
        Ok(self.setting(MADE_ANEW).await?.is_some_and(|value| !value.is_empty()))
    }

    /// Notes it, or that it is over.
    pub(crate) async fn note_made_anew(&self, is_so: bool) -> Result<(), StateError> {
        self.set_setting(MADE_ANEW, if is_so { "yes" } else { "" }).await
    }

    /// How far each pool was written, as JSON; none if that was never noted.
    pub(crate) async fn pool_marks(&self) -> Result<Option<String>, StateError> {
        self.setting(POOL_MARKS).await
    }

    /// Notes it.
    pub(crate) async fn set_pool_marks(&self, marks: &str) -> Result<(), StateError> {
        self.set_setting(POOL_MARKS, marks).await
    }

    /// Whether several daemons may share it: it is a database of a server.
    pub(crate) fn is_shared(&self) -> bool {
        self.writer.is_postgres()
    }

    /// Who may log in, as JSON; none if nobody ever could.
    pub(crate) async fn accounts(&self) -> Result<Option<String>, StateError> {
        self.setting(ACCOUNTS).await
    }

    /// Keeps them.
    pub(crate) async fn set_accounts(&self, accounts: &str) -> Result<(), StateError> {
        self.set_setting(ACCOUNTS, accounts).await
    }

    /// The site's throttle, as text; none if it was never set.
    pub(crate) async fn site_throttle(&self, direction: Direction) -> Result<Option<String>, StateError> {
        self.setting(throttle(direction)).await
    }

    /// Keeps the site's throttle.
    pub(crate) async fn set_site_throttle(
        &self,
        direction: Direction,
        rules: &str,
    ) -> Result<(), StateError> {
        self.set_setting(throttle(direction), rules).await
    }

    /// How many transfers may be under way at once, as text; none if it was never set.
    pub(crate) async fn transfer_size(&self) -> Result<Option<String>, StateError> {
        self.setting(TRANSFER_SIZE).await
    }

    /// Keeps how many transfers may be under way at once.
    pub(crate) async fn set_transfer_size(&self, size: usize) -> Result<(), StateError> {
        self.set_setting(TRANSFER_SIZE, &size.to_string()).await
    }

    /// How far hosts go before transfers, by name; none if it was never set.
    pub(crate) async fn host_precedence(&self) -> Result<Option<String>, StateError> {
        self.setting(HOST_PRECEDENCE).await
    }

    /// Keeps how far hosts go before transfers.
    pub(crate) async fn set_host_precedence(&self, name: &str) -> Result<(), StateError> {
        self.set_setting(HOST_PRECEDENCE, name).await
    }

    /// What was said of the accelerator, as JSON; none if nothing was.
    pub(crate) async fn accelerator(&self) -> Result<Option<String>, StateError> {
        self.setting(ACCELERATOR).await
    }

    /// Keeps what was said of the accelerator.
    pub(crate) async fn set_accelerator(&self, settings: &str) -> Result<(), StateError> {
        self.set_setting(ACCELERATOR, settings).await
    }

    /// The accelerator's policies that were set over the API, as JSON; none if there never were any.
    pub(crate) async fn accelerator_policies(&self) -> Result<Option<String>, StateError> {
        self.setting(ACCELERATOR_POLICIES).await
    }

    /// Keeps them.
    pub(crate) async fn set_accelerator_policies(&self, policies: &str) -> Result<(), StateError> {
        self.set_setting(ACCELERATOR_POLICIES, policies).await
    }

    /// The accelerator's explicit forwards, as JSON; none if there never were any.
    pub(crate) async fn accelerator_forwards(&self) -> Result<Option<String>, StateError> {
        self.setting(ACCELERATOR_FORWARDS).await
    }

    /// Keeps the accelerator's explicit forwards.
    pub(crate) async fn set_accelerator_forwards(&self, forwards: &str) -> Result<(), StateError> {
        self.set_setting(ACCELERATOR_FORWARDS, forwards).await
    }

    async fn setting(&self, name: &str) -> Result<Option<String>, StateError> {
        let value = query_scalar("SELECT value FROM settings WHERE name = $1")
            .bind(name)
            .fetch_optional(&self.readers)
            .await?;
        Ok(value)
    }

    async fn set_setting(&self, name: &str, value: &str) -> Result<(), StateError> {
        query(
            "INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        )
            .bind(name)
            .bind(value)
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    /// The throttles of the peers, as text.
    pub(crate) async fn peer_throttles(&self) -> Result<Vec<(PeerId, Direction, String)>, StateError> {
        let rows: Vec<(Vec<u8>, Option<String>, Option<String>)> =
            query_as("SELECT id, throttle_in, throttle_out FROM peers").fetch_all(&self.readers).await?;
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
            Direction::In => "UPDATE peers SET throttle_in = $1 WHERE id = $2",
            Direction::Out => "UPDATE peers SET throttle_out = $1 WHERE id = $2",
        };
        query(statement).bind(rules).bind(peer.0.as_slice()).execute(&self.writer).await?;
        Ok(())
    }
}
