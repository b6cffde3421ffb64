//! What this box's chunk store holds, told to the peer.

use std::sync::Arc;
use std::time::Duration;

use super::state::Trunk;
use crate::protocol::{FRAME_MAX, Frame, Kind};
use crate::store::PeerStore;

/// How often a peer is told what has come and gone.
const TELL_EVERY: Duration = Duration::from_millis(50);

/// Tells the peer what is held here, at first all of it and then what changes, for as long as the trunk lives.
pub(super) async fn tell_holdings(store: Arc<PeerStore>, trunk: &Trunk) {
    // The peer may have closed the container that is growing, or never have heard of it.
    let anew = Arc::clone(&store);
    let news = tokio::task::spawn_blocking(move || {
        anew.realm.begin_anew();
        anew.realm.listen()
    });
    let Ok(news) = news.await else { return };
    let news = Arc::new(news);
    loop {
        let take = Arc::clone(&news);
        // The store may be waiting for its disk.
        let Ok(mut holdings) = tokio::task::spawn_blocking(move || take.take()).await else { return };
        while !holdings.0.is_empty() {
            let mut body = Vec::new();
            holdings = holdings.encode(&mut body);
            // What is said in very many ranges is not said: it costs bytes once more.
            if body.len() <= FRAME_MAX {
                trunk.send(Frame { kind: Kind::Holdings, flow: 0, body: body.into() });
            }
        }
        tokio::time::sleep(TELL_EVERY).await;
    }
}
