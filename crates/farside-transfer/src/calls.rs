//! One call of the protocol.

use bytes::Bytes;
use farside_link::WireCounters;
use farside_peer::{PeerLink, SessionError};
use prost::Message;

use crate::error::TransferError;
use crate::limits::CALL_TIMEOUT;
use crate::protocol::stream::cut;
use crate::protocol::{Body, PROTOCOL_VERSION, Request};

/// Asks the source in this side's version of the protocol, within [`CALL_TIMEOUT`].
pub async fn call(
    link: &dyn PeerLink,
    body: Body,
    wire: Option<&WireCounters>,
) -> Result<Bytes, TransferError> {
    let request = Request { version: PROTOCOL_VERSION, body: Some(body) }.encode_to_vec();
    match tokio::time::timeout(CALL_TIMEOUT, link.call(request.into(), wire)).await {
        Ok(Err(SessionError::Refused(refusal))) if refusal.code == "version" => {
            Err(TransferError::VersionsDiffer { ours: PROTOCOL_VERSION, said: cut(&refusal.message) })
        }
        Ok(answer) => Ok(answer?),
        Err(_) => Err(SessionError::Lost(format!("no answer within {} s", CALL_TIMEOUT.as_secs())).into()),
    }
}
