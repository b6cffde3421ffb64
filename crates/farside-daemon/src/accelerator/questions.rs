//! What is asked of the process.

use std::net::SocketAddr;
use std::time::Duration;

use farside_accel::control::{Command, Connection};
use farside_api::{AcceleratedConnection, AcceleratorCache, ErrorBody, ErrorCode};
use farside_platform::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::desired::Ask;
use super::documents;
use super::handle::Accelerator;

/// How long an answer is waited for.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

impl Accelerator {
    /// The connections that the process knows; none without one.
    pub(crate) async fn connections(&self, now: Timestamp) -> Result<Vec<AcceleratedConnection>, ErrorBody> {
        let connections = self.ask::<Vec<Connection>>(Command::Connections).await?.unwrap_or_default();
        Ok(connections.into_iter().map(|connection| documents::connection(connection, now)).collect())
    }

    /// Resets a connection.
    pub(crate) async fn reset(&self, client: SocketAddr, server: SocketAddr) -> Result<(), ErrorBody> {
        match self.ask::<bool>(Command::Reset { client, server }).await? {
            Some(true) => Ok(()),
            Some(false) | None => Err(ErrorBody::new(
                ErrorCode::NotFound,
                format!("no connection from {client} to {server} is optimised"),
            )
            .hint("farside accel connections shows those that are")),
        }
    }

    /// How it goes with the chunk store.
    pub(crate) async fn cache(&self) -> Result<AcceleratorCache, ErrorBody> {
        let of_process = self.fresh_store().await;
        of_process.map(documents::cache).ok_or_else(|| {
            ErrorBody::new(
                ErrorCode::Refused,
                "the accelerator does not run, so nobody has its chunk store open",
            )
            .hint("to switch it on: farside accel up")
        })
    }

    /// Removes what the chunk store keeps of a peer, or all of it. Connections go on.
    pub(crate) async fn clear_cache(&self, peer: Option<String>) -> Result<AcceleratorCache, ErrorBody> {
        self.ask::<()>(Command::ClearStore(peer)).await?;
        self.cache().await
    }

    /// Asks the process; none if there is none.
    pub(super) async fn ask<T: DeserializeOwned>(&self, command: Command) -> Result<Option<T>, ErrorBody> {
        let (answer, answered) = oneshot::channel();
        let failed = |why: &str| {
            ErrorBody::new(ErrorCode::Failed, format!("the accelerator's process {why}"))
                .hint("farside accel status shows whether it works; the daemon's log says more")
        };
        self.asks
            .try_send(Ask { command, descriptor: None, answer })
            .map_err(|_| failed("is asked too much"))?;
        let result: Result<Value, String> = match timeout(ANSWER_PATIENCE, answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => return Ok(None),
            Err(_) => {
                return Err(failed(&format!("did not answer within {} s", ANSWER_PATIENCE.as_secs())));
            }
        };
        let answer = result.map_err(|why| failed(&format!("refused: {why}")))?;
        serde_json::from_value(answer).map(Some).map_err(|_| failed("gave an answer that makes no sense"))
    }
}
