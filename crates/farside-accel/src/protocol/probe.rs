//! The datagram that looks for a box on the way to a server. A box that it passes on its way in from the wide area takes it,
//! and tells whoever sent it over their session: so the datagram itself needs no answer and proves nothing to strangers.

use farside_peer::PeerId;

use super::version::VERSION;

/// Bytes of a probe's nonce.
pub const NONCE_BYTES: usize = 16;

/// Drawn for each probe; only who saw the probe knows it.
pub type Nonce = [u8; NONCE_BYTES];

const MAGIC: &[u8; 8] = b"farsideP";
/// Bytes of the sender's identity that a probe carries: enough to find it among the peers.
const SENDER_BYTES: usize = 8;

/// What a probe carries: `"farsideP" | version (1) | first 8 bytes of the sender's identity | nonce (16)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeDatagram {
    sender: [u8; SENDER_BYTES],
    /// See [`Nonce`].
    pub nonce: Nonce,
}

impl ProbeDatagram {
    /// A probe of `sender`.
    pub fn new(sender: PeerId, nonce: Nonce) -> ProbeDatagram {
        let mut short = [0; SENDER_BYTES];
        short.copy_from_slice(&sender.0[..SENDER_BYTES]);
        ProbeDatagram { sender: short, nonce }
    }

    /// Whether it may be of this peer.
    pub fn is_of(&self, peer: PeerId) -> bool {
        peer.0[..SENDER_BYTES] == self.sender
    }

    /// The datagram.
    pub fn encode(&self) -> Vec<u8> {
        [&MAGIC[..], &[VERSION as u8], &self.sender, &self.nonce].concat()
    }

    /// The same backwards; none if it is something else.
    pub fn parse(bytes: &[u8]) -> Option<ProbeDatagram> {
        let rest = bytes.strip_prefix(MAGIC)?.strip_prefix(&[VERSION as u8])?;
        let (sender, nonce) = rest.split_at_checked(SENDER_BYTES)?;
        Some(ProbeDatagram { sender: sender.try_into().ok()?, nonce: nonce.try_into().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_read_as_it_was_written() {
        let probe = ProbeDatagram::new(PeerId([7; 32]), [9; NONCE_BYTES]);
        assert_eq!(ProbeDatagram::parse(&probe.encode()), Some(probe));
        assert!(probe.is_of(PeerId([7; 32])) && !probe.is_of(PeerId([8; 32])));
        for cut in 0..probe.encode().len() {
            assert_eq!(ProbeDatagram::parse(&probe.encode()[..cut]), None);
        }
        assert_eq!(ProbeDatagram::parse(&[probe.encode(), vec![0]].concat()), None);
    }
}
