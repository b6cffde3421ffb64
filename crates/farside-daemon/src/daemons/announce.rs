//! Peers learn where the other daemons of this site are, so that they find the one that leads next.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use farside_link::limits::{ADDRESS_MAX, OTHERS_MAX};
use farside_link::split_address;
use farside_peer::{PeerId, PeerRegistry};
use tokio::sync::mpsc;

use crate::site::Site;

/// Begins what a peer is told; addresses follow, one a line. No message of the mirrors' protocol begins like this (`sites/mod.rs`).
pub(crate) const ADDRESSES_HEADER: &[u8] = b"\x7ffarside addresses 1\n";
/// How often peers are looked at that may not know.
const LOOKED_EVERY: Duration = Duration::from_secs(2);
/// How long one may take to answer.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

/// What a peer has told of its daemons.
pub(crate) type Told = (PeerId, Vec<String>);

/// What is said to a peer.
fn message(addresses: &[String]) -> Bytes {
    [ADDRESSES_HEADER, addresses.join("\n").as_bytes()].concat().into()
}

/// What a peer has said, if it is that; what cannot be an address is left out.
pub(crate) fn parse(request: &[u8]) -> Option<Vec<String>> {
    let text = request.strip_prefix(ADDRESSES_HEADER)?;
    if text.len() > OTHERS_MAX * (ADDRESS_MAX + 1) {
        return Some(Vec::new());
    }
    let lines = std::str::from_utf8(text).unwrap_or_default().lines();
    let is_address = |line: &&str| {
        line.len() <= ADDRESS_MAX
            && split_address(line).is_some()
            && !line.contains(|c: char| c.is_whitespace() || c.is_control())
    };
    Some(lines.filter(is_address).take(OTHERS_MAX).map(str::to_owned).collect())
}

/// Has the other daemons know the certificate that the API shows, also once it was renewed: they believe no other.
pub(crate) async fn keep_introducing(site: Arc<Site>) {
    let Some((keeper, certificate)) = site.keeper.as_ref().zip(site.api_certificate.as_ref()) else { return };
    let mut known = certificate.fingerprint();
    loop {
        tokio::time::sleep(LOOKED_EVERY).await;
        let now = certificate.fingerprint();
        if now != known {
            keeper.introduce(|card| card.api_fingerprint = Some(now.clone())).await;
            known = now;
        }
    }
}

/// Tells each peer where the others are: once a session, and when that has changed.
pub(crate) async fn keep_telling(site: Arc<Site>) {
    let Some(keeper) = site.keeper.clone() else { return };
    let addresses = keeper.peer_addresses();
    let mut told: HashMap<PeerId, (Option<farside_platform::Timestamp>, Vec<String>)> = HashMap::new();
    loop {
        let now = addresses.borrow().clone();
        for peer in site.node.peers().into_iter().filter(|peer| peer.state.connected) {
            let (id, since) = (peer.record.id, peer.state.since);
            let is_known = told.get(&id).is_some_and(|(at, what)| *at == since && *what == now);
            // A site that never had another daemon says nothing: peers of earlier versions do not understand it.
            if is_known || (keeper.others() == 0 && !told.contains_key(&id)) {
                continue;
            }
            let Some(link) = site.node.link(id) else { continue };
            let answered = tokio::time::timeout(TOLD_WITHIN, link.call(message(&now), None)).await;
            if let Ok(Err(error)) = &answered {
                tracing::info!(peer = peer.record.name, %error, "the peer does not learn where this site's other daemons are");
            }
            told.insert(id, (since, now.clone()));
        }
        tokio::time::sleep(LOOKED_EVERY).await;
    }
}

/// Keeps what peers tell.
pub(crate) async fn keep_listening(site: Arc<Site>, mut from: mpsc::Receiver<Told>) {
    while let Some((peer, addresses)) = from.recv().await {
        let Ok(Some(mut record)) = site.state.lookup(peer).await else { continue };
        let mut others: Vec<String> =
            addresses.into_iter().filter(|address| record.address.as_ref() != Some(address)).collect();
        others.sort();
        others.dedup();
        if record.link.others == others {
            continue;
        }
        tracing::info!(peer = record.name, ?others, "the peer's site has other daemons there");
        record.link.others = others;
        if let Err(error) = site.state.pin(record).await {
            tracing::warn!("where a peer's other daemons are is not kept: {error}");
            continue;
        }
        if let Err(error) = site.node.registry_changed().await {
            tracing::warn!("where a peer's other daemons are is not taken up: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_what_is_heard_and_nothing_else_is() {
        let addresses = vec!["10.0.0.1:7440".to_owned(), "[fd00::1]:7440".to_owned()];
        assert_eq!(parse(&message(&addresses)), Some(addresses));
        assert_eq!(parse(&message(&[])), Some(Vec::new()));
        assert_eq!(parse(b"\x7ffarside api 1"), None);
        let hostile = [ADDRESSES_HEADER, b"a b:1\nx\n:\n\xff:1\nok:1\x1b:2"].concat();
        assert_eq!(parse(&hostile), Some(Vec::new()));
        let many = vec!["a:1".to_owned(); 40];
        assert_eq!(parse(&message(&many)).unwrap().len(), OTHERS_MAX);
        assert_eq!(parse(&message(&vec!["a".repeat(250) + ":1"; 40])), Some(Vec::new()));
    }
}
