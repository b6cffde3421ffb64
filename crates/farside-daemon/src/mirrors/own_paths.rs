//! Whether the paths that a mirror has of its own can work: what cannot is told at the mirror, and not only in the log.

use std::net::{IpAddr, UdpSocket};

use farside_link::PathSpec;
use farside_mirror::Relationship;
use farside_peer::{Node, PeerStatus};

/// What is wrong with the paths of this mirror; none if nothing is known to be.
pub(super) fn why(node: &Node, peer: &PeerStatus, of: &Relationship) -> Option<String> {
    let paths = &of.options.paths;
    if paths.is_empty() {
        return None;
    }
    let troubles = node.dial_troubles(of.peer).unwrap_or_default();
    let dialled_by = (peer.state.connected && !peer.state.dialled_by_us).then_some(peer.record.name.as_str());
    said(&of.destination.to_string(), paths, dialled_by, &troubles, is_here)
}

/// Whether a connection can begin at this address. What cannot be told counts as one that can.
fn is_here(address: IpAddr) -> bool {
    let bound = UdpSocket::bind((address, 0));
    !matches!(bound, Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable)
}

fn said(
    name: &str,
    paths: &[PathSpec],
    dialled_by: Option<&str>,
    troubles: &[(PathSpec, String)],
    is_here: impl Fn(IpAddr) -> bool,
) -> Option<String> {
    let hint =
        format!("farside mirror set {name} --path … names others, --path off goes back to the peer's paths");
    if let Some(peer) = dialled_by {
        return Some(format!(
            "its own paths are not used: {peer} has dialled this session, and only who dials chooses where its data goes. {hint}"
        ));
    }
    let of_path = |path: &PathSpec| match path.local.filter(|local| !is_here(*local)) {
        Some(local) => Some(format!("its path {path} cannot work: {local} is no address of this machine")),
        None => {
            let (_, trouble) = troubles.iter().find(|(known, _)| known == path)?;
            Some(format!("its path {path} does not work: {trouble}"))
        }
    };
    let wrong: Vec<String> = paths.iter().filter_map(of_path).collect();
    (!wrong.is_empty()).then(|| format!("{}. {hint}", wrong.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_named_and_what_may_is_not() {
        let path = |text: &str| text.parse::<PathSpec>().unwrap();
        let (far, near) = (path("192.0.2.7=north:7440"), path("10.0.0.1=north:7440"));
        let here = |address: IpAddr| address.to_string() == "10.0.0.1";
        let both = [far.clone(), near.clone()];
        let told = said("q/v", &both, None, &[], here).unwrap();
        assert!(told.contains("192.0.2.7=north:7440 cannot work: 192.0.2.7 is no address"), "{told}");
        assert!(!told.contains("10.0.0.1") && told.contains("farside mirror set q/v --path"), "{told}");
        let failed = [(near.clone(), "cannot connect".to_owned())];
        let told = said("q/v", std::slice::from_ref(&near), None, &failed, here).unwrap();
        assert!(told.contains("its path 10.0.0.1=north:7440 does not work: cannot connect"), "{told}");
        assert_eq!(said("q/v", std::slice::from_ref(&near), None, &[], here), None);
        let told = said("q/v", &[near], Some("north"), &failed, here).unwrap();
        assert!(told.starts_with("its own paths are not used: north has dialled"), "{told}");
    }
}
