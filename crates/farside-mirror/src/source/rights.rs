//! Who may mirror what from this site.

use farside_engine::VolumeName;
use farside_peer::PeerId;

/// Who may mirror what from this site. Asked at every operation, so an answer taken back takes effect at once.
pub trait SourceRights: Send + Sync + 'static {
    /// Whether `peer` may read `volume`. An unknown volume is simply not allowed.
    fn may_read(&self, peer: PeerId, volume: &VolumeName) -> bool;

    /// Whether `volume` may become the replica of a volume of `peer` (the way back), and `peer` may ask for it (a role
    /// change). Told to the peer when it makes a mirror.
    fn may_reverse(&self, _peer: PeerId, _volume: &VolumeName) -> bool {
        false
    }

    /// Whether hosts shall not write to `volume` either, once it is known that its replica at `peer` was broken off.
    fn is_fenced_when_overtaken(&self, _peer: PeerId, _volume: &VolumeName) -> bool {
        false
    }
}
