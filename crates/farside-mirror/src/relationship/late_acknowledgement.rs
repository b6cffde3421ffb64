//! Tells the source again what a transfer has published, where the session was lost just then.
//!
//! Without it the source keeps two bases until the next transfer, which may be a month away. A destination that is started
//! anew has forgotten it; then the next transfer tells.

use std::sync::Arc;

use farside_peer::PeerId;
use farside_transfer::calls::call;
use farside_transfer::protocol::{Acknowledge, Body};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::limits::{LATE_ACKNOWLEDGEMENTS_MAX, NOTICE_LINK_WAIT, NOTICE_REST};
use crate::links::Links;

/// A task that tries until the source has answered. It ends when this is dropped.
pub(super) struct LateAcknowledgement(JoinHandle<()>);

impl Drop for LateAcknowledgement {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl LateAcknowledgement {
    pub(super) fn send(
        links: Arc<dyn Links>,
        relationship: Uuid,
        peer: PeerId,
        message: Acknowledge,
    ) -> LateAcknowledgement {
        LateAcknowledgement(tokio::spawn(send(links, relationship, peer, message)))
    }
}

async fn send(links: Arc<dyn Links>, relationship: Uuid, peer: PeerId, message: Acknowledge) {
    let mut rest = NOTICE_REST;
    let mut refusals = 0;
    loop {
        let Ok(link) = links.link(peer, NOTICE_LINK_WAIT).await else {
            // Who is not paired any more is refused at once.
            tokio::time::sleep(NOTICE_REST).await;
            continue;
        };
        match call(&*link, Body::Acknowledge(message.clone()), None).await {
            Ok(_) => {
                tracing::info!(%relationship, %peer, "the source knows of the new base");
                return;
            }
            Err(error) if error.is_lost_session() => tokio::time::sleep(NOTICE_REST).await,
            Err(error) => {
                // It may be starting, or busy; what it refuses for good costs a call each minute for two hours.
                if refusals == 0 {
                    tracing::warn!(
                        %relationship, %peer,
                        "the source keeps the old base as well until it accepts the new one, or until the next transfer: \
                         {error}"
                    );
                }
                refusals += 1;
                if refusals >= LATE_ACKNOWLEDGEMENTS_MAX {
                    return;
                }
                tokio::time::sleep(rest).await;
                rest = (2 * rest).min(NOTICE_LINK_WAIT);
            }
        }
    }
}
