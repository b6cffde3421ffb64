//! The state database while it is open, whichever it is.

#[cfg(test)]
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use super::address::DatabaseAddress;
use super::connections::{Connections, Gate};
use super::ended_transfers::{ENDED_MAX, EndedTransfer};
use super::lines::Lines;
use super::postgres::Foreign;
use super::statement::{query, query_scalar};
use super::{error::StateError, postgres, sqlite};

/// How long it is believed that the database can be written, once that was tried: whoever asks more often costs no more.
const PROBED_FOR: Duration = Duration::from_secs(5);
/// Where the state was moved from here, in the settings.
pub(super) const MOVED_TO: &str = "moved_to";

/// The database while it is open.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(super) writer: Connections,
    pub(super) readers: Connections,
    /// Writes log and history, without a sync: a line that a power failure takes costs nothing, and what must last does not wait.
    pub(super) line_writer: Connections,
    /// What both writers pass.
    pub(super) gate: Gate,
    /// What `database` in `farside.toml` is for it.
    pub(super) setting: Arc<str>,
    was_new: bool,
    /// Lines that wait to be written.
    pub(super) lines: Arc<Lines>,
    /// When it was last seen that it can be written.
    probed: Arc<tokio::sync::Mutex<Option<Instant>>>,
    /// Told when a peer was added, removed or changed, whoever did it.
    pub(super) peers_changed: watch::Sender<()>,
    /// Told of each transfer that has ended here.
    pub(super) transfers_ended: broadcast::Sender<EndedTransfer>,
}

impl State {
    /// Opens the file `path`, made or brought up to date if need be.
    #[cfg(test)]
    pub(crate) async fn open(path: &Path) -> Result<State, StateError> {
        State::open_at(&DatabaseAddress::File(path.to_path_buf())).await
    }

    /// Opens the database, made or brought up to date if need be. One whose state was moved away is refused.
    pub(crate) async fn open_at(address: &DatabaseAddress) -> Result<State, StateError> {
        let state = State::open_as(address, Foreign::Suffered).await?;
        if let Some(to) = state.moved_to().await? {
            state.close().await;
            return Err(StateError::MovedAway { here: address.to_string(), to });
        }
        Ok(state)
    }

    /// The same for a state that is to come there, whatever was moved: nothing is made where tables of somebody else are.
    pub(super) async fn open_to_move(address: &DatabaseAddress) -> Result<State, StateError> {
        State::open_as(address, Foreign::Refused).await
    }

    async fn open_as(address: &DatabaseAddress, foreign: Foreign) -> Result<State, StateError> {
        let opened = match address {
            DatabaseAddress::File(path) => sqlite::open(path).await?,
            DatabaseAddress::Server(server) => postgres::open(server, foreign).await?,
        };
        Ok(State {
            writer: opened.writer,
            readers: opened.readers,
            line_writer: opened.line_writer,
            gate: opened.gate,
            was_new: opened.was_new,
            setting: address.setting().into(),
            lines: Arc::default(),
            probed: Arc::default(),
            peers_changed: watch::Sender::new(()),
            transfers_ended: broadcast::Sender::new(ENDED_MAX),
        })
    }

    /// Where the state was moved from here, if it was.
    pub(super) async fn moved_to(&self) -> Result<Option<String>, StateError> {
        query_scalar("SELECT value FROM settings WHERE name = $1")
            .bind(MOVED_TO)
            .fetch_optional(&self.readers)
            .await
    }

    /// Whether it was made by this start.
    pub(crate) fn was_new(&self) -> bool {
        self.was_new
    }

    /// Follows changes among the peers: those that come after this call.
    pub(crate) fn peers_changed(&self) -> watch::Receiver<()> {
        self.peers_changed.subscribe()
    }

    /// Whether it can still be written, by writing: for `/healthz`.
    pub(crate) async fn probe(&self) -> Result<(), StateError> {
        let mut probed = self.probed.lock().await;
        if probed.is_some_and(|at| at.elapsed() < PROBED_FOR) {
            return Ok(());
        }
        *probed = None;
        let mut transaction = self.writer.begin().await?;
        query(
            "INSERT INTO settings (name, value) VALUES ('probe', '1') ON CONFLICT (name) \
             DO UPDATE SET value = CAST(CAST(settings.value AS BIGINT) + 1 AS TEXT)",
        )
        .execute(&mut transaction)
        .await?;
        transaction.commit().await?;
        *probed = Some(Instant::now());
        Ok(())
    }

    /// Closes it; calls under way end first.
    pub(crate) async fn close(&self) {
        self.readers.close().await;
        self.line_writer.close().await;
        self.writer.close().await;
    }
}
