//! Peers as the accelerator sees them: the same sites under the same keys, at other ports.

use std::collections::BTreeMap;

use farside_accel::control::{Forward, Peer};
use farside_link::with_port;
use farside_peer::PeerRecord;

use super::remembered::RememberedForward;
use super::settings::{PORT, PeerBox};

/// Every peer, with what the file says of its accelerator. Where it says nothing that is at the host of the peer's ordinary address,
/// or of its first path.
pub(super) fn peers(records: &[PeerRecord], said: &BTreeMap<String, PeerBox>) -> Vec<Peer> {
    let peer = |record: &PeerRecord| {
        let said = said.get(&record.name).cloned().unwrap_or_default();
        let ordinary = record.address.as_ref().or_else(|| record.link.paths.first().map(|path| &path.remote));
        Peer {
            id: record.id.to_string(),
            name: record.name.clone(),
            address: said.address.or_else(|| with_port(ordinary?, PORT)),
            subnets: said.subnets,
        }
    };
    records.iter().map(peer).collect()
}

/// Every forward whose peer is paired.
pub(super) fn forwards(remembered: &[RememberedForward], records: &[PeerRecord]) -> Vec<Forward> {
    remembered.iter().filter_map(|forward| forward.forward(records)).collect()
}

#[cfg(test)]
mod tests {
    use farside_link::LinkOptions;
    use farside_peer::PeerId;
    use farside_platform::Timestamp;

    use super::*;

    #[test]
    fn a_box_is_at_its_sites_host_unless_said_otherwise() {
        let record = |name: &str, address: Option<&str>, paths: &[&str]| PeerRecord {
            id: PeerId([0xab; 32]),
            name: name.to_owned(),
            address: address.map(str::to_owned),
            link: LinkOptions {
                paths: paths.iter().map(|path| path.parse().unwrap()).collect(),
                ..LinkOptions::default()
            },
            added_at: Timestamp(0),
        };
        let said = BTreeMap::from([
            ("moved".to_owned(), PeerBox { address: Some("box.example:9000".into()), subnets: Vec::new() }),
            ("known".to_owned(), PeerBox { address: None, subnets: vec!["10.2.0.0/16".parse().unwrap()] }),
        ]);
        let records = [
            record("plain", Some("north.example:7440"), &[]),
            record("moved", Some("north.example:7440"), &[]),
            record("known", Some("[2001:db8::1]:7440"), &[]),
            record("paths", None, &["10.0.0.1=10.0.1.1:7440"]),
            record("dials", None, &[]),
        ];
        let peers = peers(&records, &said);
        let addresses: Vec<_> = peers.iter().map(|peer| peer.address.as_deref()).collect();
        assert_eq!(
            addresses,
            [
                Some("north.example:7442"),
                Some("box.example:9000"),
                Some("[2001:db8::1]:7442"),
                Some("10.0.1.1:7442"),
                None
            ]
        );
        assert_eq!(peers[2].subnets.len(), 1);
        assert_eq!(peers[0].id, "ab".repeat(32));
    }
}
