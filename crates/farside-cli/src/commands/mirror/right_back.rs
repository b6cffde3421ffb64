//! Whether the source of a volume that follows could follow it after a failover.

use farside_api::{ErrorBody, Mirror, PeerStatus};

use super::outcomes::no_right_back;
use crate::commands::context::Context;

/// That it could not, if it could not. What was recorded for the way back ended with the mirror that was here before, and would be missed on
/// the day of the failback.
pub(super) async fn missing(context: &Context, follower: &Mirror) -> String {
    let Some((peer, _)) = follower.source.split_once(':') else { return String::new() };
    let known: Result<PeerStatus, ErrorBody> = context.client.get(&["peers", peer]).await;
    match known.is_ok_and(|known| known.rights.iter().all(|right| right.volume != follower.name)) {
        true => no_right_back(peer, &follower.name),
        false => String::new(),
    }
}
