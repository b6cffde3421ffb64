//! Peers as this site knows them: names, sessions, and what they may do.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use farside_api::{self as api, ErrorBody, ErrorCode, Invitation, OpenInvitation, VolumeRights};
use farside_engine::{VolumeName, is_label};
use farside_link::limits::KEEPALIVE_MIN;
use farside_link::{LinkOptions, PathsMode, Rate, RateError};
use farside_mirror::SourceRights;
use farside_peer::limits::SILENCE_MAX;
use farside_peer::{Node, OpenInvite, PairingCode, PathStats, PeerId, PeerRecord, PeerRegistry, PeerStatus};
use farside_platform::Timestamp;
use parking_lot::RwLock;
use uuid::Uuid;

use crate::convert;
use crate::failure::Failure;
use crate::options::Listen;
use crate::state::{Recorded, RightRow, State, StateError};
use crate::volume_ids::{Called, VolumeIds};

/// How long the answer to a pairing waits for the first session.
const JOINED_WITHIN: Duration = Duration::from_secs(3);
/// Largest packet of Ethernet without jumbo frames, bytes.
const ETHERNET_MTU: u32 = 1500;

/// What peers may do, in memory: asked at every frame of a transfer. The database has the same.
#[derive(Debug)]
pub(crate) struct Rights {
    /// By peer and the volume's name.
    pub(super) table: RwLock<HashMap<PeerId, BTreeMap<String, Right>>>,
    /// Which volume has a name now.
    pub(super) ids: Arc<dyn VolumeIds>,
    /// Those that are being taken back: of no use any more, while it is not sure yet that they are gone.
    withdrawn: RwLock<HashSet<(PeerId, String)>>,
    /// Held while rights are given, or looked through for what has ended: what was given since must not end with it.
    pub(super) turn: tokio::sync::Mutex<()>,
}

/// What goes with the right to mirror a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Right {
    /// The volume; none while no volume had the name.
    pub(crate) volume_id: Option<Uuid>,
    /// The way back is allowed too.
    pub(crate) reverse: bool,
    /// Hosts here may not write to the volume while the peer has overtaken it.
    pub(crate) fence: bool,
    /// What of it ends with the mirror.
    pub(crate) recorded: Recorded,
}

impl From<&RightRow> for Right {
    fn from(row: &RightRow) -> Right {
        Right { volume_id: row.volume_id, reverse: row.reverse, fence: row.fence, recorded: row.recorded }
    }
}

impl Rights {
    /// As the database has them.
    pub(crate) async fn load(state: &State, ids: Arc<dyn VolumeIds>) -> Result<Rights, StateError> {
        let mut table: HashMap<PeerId, BTreeMap<String, Right>> = HashMap::new();
        for row in state.rights().await? {
            let right = Right::from(&row);
            table.entry(row.peer).or_default().insert(row.volume, right);
        }
        let (table, withdrawn) = (RwLock::new(table), RwLock::default());
        Ok(Rights { table, ids, withdrawn, turn: tokio::sync::Mutex::default() })
    }

    /// Those of one peer.
    pub(crate) fn of(&self, peer: PeerId) -> Vec<VolumeRights> {
        let table = self.table.read();
        let rights = table.get(&peer).into_iter().flatten();
        let document = |(volume, right): (&String, &Right)| VolumeRights {
            volume: volume.clone(),
            reverse: right.reverse,
            fence: right.fence,
            recorded: right.recorded != Recorded::Nothing,
        };
        rights.map(document).collect()
    }

    /// The right of `peer` on the volume of this name, if it has it. One that was given on another, which had the name before,
    /// is none.
    pub(crate) fn right(&self, peer: PeerId, volume: &VolumeName) -> Option<Right> {
        let right = self.table.read().get(&peer)?.get(&volume.to_string()).copied()?;
        right.holds_for(self.ids.called(volume)).then_some(right)
    }

    /// Gives rights: they hold when this returns, and after a crash. Answers with those whose volume could not be looked up.
    pub(crate) async fn allow(
        &self,
        state: &State,
        rights: Vec<RightRow>,
    ) -> Result<Vec<Unseen>, StateError> {
        let _turn = self.turn.lock().await;
        self.give(state, rights).await
    }

    /// Gives what the way back of a mirror of `volume` needs besides what `peer` may do already, and remembers what ends with
    /// the mirror. A fence that an administrator wants stays.
    pub(crate) async fn grant_reverse(
        &self,
        state: &State,
        peer: PeerId,
        volume: &VolumeName,
    ) -> Result<(), StateError> {
        let _turn = self.turn.lock().await;
        let given = self.right(peer, volume);
        let recorded = match given {
            None => Recorded::Right,
            Some(right) if !right.reverse => Recorded::Reverse,
            Some(right) => right.recorded,
        };
        let fence = given.is_some_and(|right| right.fence);
        let right =
            RightRow { peer, volume: volume.to_string(), volume_id: None, reverse: true, fence, recorded };
        self.give(state, vec![right]).await.map(drop)
    }

    async fn give(&self, state: &State, mut rights: Vec<RightRow>) -> Result<Vec<Unseen>, StateError> {
        let mut unseen = Vec::new();
        for right in &mut rights {
            let (None, Ok(name)) = (right.volume_id, right.volume.parse::<VolumeName>()) else { continue };
            match self.ids.called(&name) {
                Called::Volume(id) => right.volume_id = Some(id),
                Called::Nothing => {}
                // What was given on a volume does not become one on whatever is called so when the pool is open again.
                Called::Unknown => {
                    let table = self.table.read();
                    let given = table.get(&right.peer).and_then(|given| given.get(&right.volume));
                    right.volume_id = given.and_then(|given| given.volume_id);
                    unseen.push(Unseen { volume: name, is_bound: right.volume_id.is_some() });
                }
            }
        }
        state.allow(&rights).await?;
        let mut table = self.table.write();
        for right in rights {
            let given = Right::from(&right);
            table.entry(right.peer).or_default().insert(right.volume, given);
        }
        Ok(unseen)
    }

    /// Takes back what was recorded for the way back of mirrors that are no more. `mirrors` looks what there is, and says then
    /// whether the peer and this site mirror the volume, in either direction: a mirror that is made meanwhile is given its
    /// right after that. Answers what ended.
    pub(crate) async fn end_recorded<M: Fn(PeerId, &str) -> bool>(
        &self,
        state: &State,
        mirrors: impl Future<Output = Result<M, StateError>>,
    ) -> Result<Vec<(PeerId, String)>, StateError> {
        let _turn = self.turn.lock().await;
        let is_mirrored = mirrors.await?;
        let recorded: Vec<(PeerId, String, Right)> = {
            let table = self.table.read();
            let all =
                table.iter().flat_map(|(peer, rights)| rights.iter().map(|(v, r)| (*peer, v.clone(), *r)));
            all.filter(|(peer, volume, right)| {
                right.recorded != Recorded::Nothing && !is_mirrored(*peer, volume)
            })
            .collect()
        };
        let mut ended = Vec::with_capacity(recorded.len());
        for (peer, volume, right) in recorded {
            match right.recorded {
                Recorded::Nothing => continue,
                Recorded::Reverse => {
                    let given = RightRow {
                        peer,
                        volume: volume.clone(),
                        volume_id: right.volume_id,
                        reverse: false,
                        fence: right.fence,
                        recorded: Recorded::Nothing,
                    };
                    self.give(state, vec![given]).await?;
                }
                Recorded::Right => {
                    let volumes = std::slice::from_ref(&volume);
                    state.deny(peer, volumes).await?;
                    self.drop_from_memory(peer, volumes);
                }
            }
            ended.push((peer, volume));
        }
        Ok(ended)
    }

    /// Takes rights away, all or none. From the first moment they are of no use to the peer; `note` is what has to be kept of them
    /// before they go. If anything fails they are as they were, in memory as in the database: whoever asked is told, and nobody
    /// finds them again after a restart that he had seen gone.
    pub(crate) async fn deny<T>(
        &self,
        state: &State,
        peer: PeerId,
        volumes: &[String],
        note: impl Future<Output = Result<T, ErrorBody>>,
    ) -> Result<T, ErrorBody> {
        let _withdrawn = self.withdraw(peer, volumes);
        let noted = note.await?;
        let _turn = self.turn.lock().await;
        state.deny(peer, volumes).await.map_err(Failure::into_error_body)?;
        self.drop_from_memory(peer, volumes);
        Ok(noted)
    }

    /// Makes rights useless until what is answered is dropped.
    fn withdraw(&self, peer: PeerId, volumes: &[String]) -> Withdrawn<'_> {
        let rights: Vec<_> = volumes.iter().map(|volume| (peer, volume.clone())).collect();
        let mut withdrawn = self.withdrawn.write();
        // What another request withdraws is that one's to give back.
        let rights = rights.into_iter().filter(|right| withdrawn.insert(right.clone())).collect();
        Withdrawn { rights, of: self }
    }

    fn is_withdrawn(&self, peer: PeerId, volume: &VolumeName) -> bool {
        let withdrawn = self.withdrawn.read();
        !withdrawn.is_empty() && withdrawn.contains(&(peer, volume.to_string()))
    }

    fn drop_from_memory(&self, peer: PeerId, volumes: &[String]) {
        if let Some(rights) = self.table.write().get_mut(&peer) {
            rights.retain(|volume, _| !volumes.contains(volume));
        }
    }

    /// Takes up what the database has for a peer: another's rights have become its own.
    pub(crate) async fn reload(&self, state: &State, peer: PeerId) -> Result<(), StateError> {
        let _turn = self.turn.lock().await;
        let rows = state.rights().await?.into_iter().filter(|row| row.peer == peer);
        let rights = rows.map(|row| (row.volume.clone(), Right::from(&row))).collect();
        self.table.write().insert(peer, rights);
        Ok(())
    }

    /// Takes all of a peer's rights away; its rows go with its pin.
    pub(crate) fn forget(&self, peer: PeerId) {
        self.table.write().remove(&peer);
    }
}

/// Rights that are of no use while this lives.
struct Withdrawn<'a> {
    rights: Vec<(PeerId, String)>,
    of: &'a Rights,
}

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        let mut withdrawn = self.of.withdrawn.write();
        for right in &self.rights {
            withdrawn.remove(right);
        }
    }
}

/// A right that was given while the volume's pool was not open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unseen {
    /// What it was given on.
    pub(crate) volume: VolumeName,
    /// It stays one on the volume that had the name before; else it is one on whatever is called so when the pool is open.
    pub(crate) is_bound: bool,
}

impl SourceRights for Rights {
    fn may_read(&self, peer: PeerId, volume: &VolumeName) -> bool {
        !self.is_withdrawn(peer, volume) && self.right(peer, volume).is_some()
    }

    fn may_reverse(&self, peer: PeerId, volume: &VolumeName) -> bool {
        !self.is_withdrawn(peer, volume) && self.right(peer, volume).is_some_and(|right| right.reverse)
    }

    fn is_fenced_when_overtaken(&self, peer: PeerId, volume: &VolumeName) -> bool {
        self.right(peer, volume).is_some_and(|right| right.fence)
    }
}

/// The peer of this name.
pub(crate) fn named(node: &Node, name: &str) -> Result<PeerStatus, ErrorBody> {
    node.peers().into_iter().find(|peer| peer.record.name == name).ok_or_else(|| {
        ErrorBody::new(ErrorCode::NotFound, format!("peer {name} does not exist"))
            .hint("farside peer list shows who is paired")
    })
}

/// What a peer is called here; one that is not pinned any more by the beginning of its key.
pub(crate) fn name_of(node: &Node, id: PeerId) -> String {
    node.peer(id).map_or_else(|| format!("{id:?}"), |peer| peer.record.name)
}

/// All of them, by name.
pub(crate) fn list(node: &Node) -> Vec<api::Peer> {
    let mut peers: Vec<_> = node.peers().iter().map(document).collect();
    peers.sort_by(|a, b| a.name.cmp(&b.name));
    peers
}

/// The paths of all live sessions, with the peer's name.
pub(crate) fn paths(node: &Node) -> Vec<(String, api::PeerPath)> {
    let of = |peer: &PeerStatus| {
        let figures = node.link_stats(peer.record.id).unwrap_or_default();
        let name = peer.record.name.clone();
        figures.paths.into_iter().map(move |figures| (name.clone(), path(&figures)))
    };
    node.peers().iter().flat_map(of).collect()
}

/// A peer as it is listed.
pub(crate) fn document(peer: &PeerStatus) -> api::Peer {
    api::Peer {
        name: peer.record.name.clone(),
        id: peer.record.id.to_string(),
        address: peer.record.address.clone(),
        other_addresses: peer.record.link.others.clone(),
        state: match (peer.state.connected, &peer.trouble) {
            (true, None) => api::PeerState::Connected,
            (true, Some(_)) => api::PeerState::NotAnswering,
            (false, _) => api::PeerState::Disconnected,
        },
        dialled_us: peer.state.connected && !peer.state.dialled_by_us,
        why: why(peer),
        last_heard_at: peer.state.heard_at.map(convert::time),
        protocol: peer.state.version.map(u32::from),
        rtt_seconds: peer.state.rtt_seconds,
        clock_ahead_seconds: peer.state.clock_ahead_seconds,
        sent_bytes: peer.sent_bytes,
        received_bytes: peer.received_bytes,
        key_conflicts: peer.key_conflicts,
    }
}

/// Whether it has a session and answers: one whose connections have ended is kept for a while, and may be of nobody any more.
pub(crate) fn answers(peer: &PeerStatus) -> bool {
    peer.state.connected && peer.trouble.is_none()
}

/// By how much the clock of a mirror's source is ahead of this site's, where that is known and worth a word: what is less may
/// be the way there and back.
pub(crate) fn source_ahead(peer: Option<&PeerStatus>) -> f64 {
    peer.and_then(|peer| peer.state.clocks_apart()).unwrap_or(0.0)
}

/// That nothing comes of a peer whose session is not given up yet.
pub(crate) fn silent(peer: &PeerStatus) -> Option<String> {
    let silent = peer.silent_for.filter(|_| peer.state.connected)?;
    Some(format!(
        "nothing was heard of {} for {} s: it may be away (that is certain after {} s)",
        peer.record.name,
        silent.as_secs(),
        SILENCE_MAX.as_secs()
    ))
}

/// What is wrong with the session, and with whom it is.
pub(crate) fn why(peer: &PeerStatus) -> Option<String> {
    let of_session = if peer.state.connected {
        peer.trouble
            .clone()
            .or_else(|| silent(peer))
            .or_else(|| peer.hindrance.clone())
            .or_else(|| clocks_apart(peer))
    } else {
        peer.state.last_error.clone()
    };
    match (of_session, peer.other_site.clone()) {
        // Whoever reads one alone would miss the graver one.
        (Some(of_session), Some(other)) if of_session != other => {
            Some(format!("{other}. Besides: {of_session}"))
        }
        (of_session, other) => other.or(of_session),
    }
}

/// Whether the peer has said that it does not know this site (any more): no session comes about until they are paired again.
pub(crate) fn is_removed_there(peer: &PeerStatus) -> bool {
    let says_so = |error: &String| error.contains("does not know this site's key");
    !peer.state.connected && peer.state.last_error.as_ref().is_some_and(says_so)
}

/// What is to be told of a peer whose clock is another than this site's.
pub(crate) fn clocks_apart(peer: &PeerStatus) -> Option<String> {
    let ahead = peer.state.clocks_apart()?;
    let word = if ahead > 0.0 { "ahead of" } else { "behind" };
    Some(format!(
        "the clock of {} is {} {word} this site's. Lag is counted with that difference; times that a schedule or a person names \
         mean other moments there. Synchronise both clocks (NTP)",
        peer.record.name,
        convert::roughly(ahead.abs())
    ))
}

/// A peer with its rights.
pub(crate) fn status(node: &Node, peer: &PeerStatus, rights: &Rights) -> api::PeerStatus {
    let figures = node.link_stats(peer.record.id).unwrap_or_default();
    api::PeerStatus {
        link: link(&peer.record.link),
        paths: figures.paths.iter().map(path).collect(),
        streams: api::PeerStreams {
            open: figures.streams as u64,
            idle_lanes: figures.idle_lanes as u64,
            reused_lanes: figures.reused_lanes,
            retransmitted_bytes: figures.retransmitted_bytes,
        },
        peer: document(peer),
        paired_at: Some(convert::time(peer.record.added_at)),
        rights: rights.of(peer.record.id),
        throttle_in: None,
        throttle_out: None,
        role: None,
        notes: Vec::new(),
    }
}

fn link(link: &LinkOptions) -> api::PeerLink {
    api::PeerLink {
        paths: link.paths.iter().map(ToString::to_string).collect(),
        mode: match link.mode {
            PathsMode::Multiplex => api::PathsMode::Multiplex,
            PathsMode::Failover => api::PathsMode::Failover,
        },
        dscp: link.dscp,
        rate_bytes_per_second: link.rate,
        keepalive_seconds: link.keepalive.map(|keepalive| keepalive.as_secs_f64()),
    }
}

fn path(figures: &PathStats) -> api::PeerPath {
    let socket = figures.socket.as_ref();
    let path_mtu_bytes = socket.and_then(|s| s.path_mtu);
    // What a dead path once delivered says nothing of what it does.
    let moving = socket.filter(|_| figures.up);
    api::PeerPath {
        local: figures.path.local.map(|local| local.to_string()),
        remote: figures.path.remote.clone(),
        state: match figures {
            _ if figures.up => api::PathState::Up,
            _ if figures.lanes > 0 => api::PathState::Stalled,
            _ => api::PathState::Down,
        },
        down_seconds: figures.down_for.map(|down| down.as_secs_f64()),
        why: figures.trouble.clone(),
        lanes: figures.lanes as u64,
        congestion: socket.and_then(|s| s.congestion.as_deref().map(str::to_owned)),
        rtt_seconds: moving.filter(|s| !s.rtt.is_zero()).map(|s| s.rtt.as_secs_f64()),
        path_mtu_bytes,
        mss_bytes: socket.map(|s| s.mss).filter(|mss| *mss > 0),
        jumbo: path_mtu_bytes.map(|mtu| mtu > ETHERNET_MTU),
        delivery_bytes_per_second: moving.and_then(|s| s.delivery_rate),
        sent_bytes: figures.sent_bytes,
        received_bytes: figures.received_bytes,
        retransmitted_bytes: socket.map(|s| s.retransmitted_bytes),
    }
}

/// Opens an invitation.
pub(crate) fn invite(node: &Node, valid: Duration) -> Result<Invitation, ErrorBody> {
    if node.listen_address().is_none() {
        return Err(ErrorBody::new(
            ErrorCode::Refused,
            "this site does not listen for peers (--peer-listen off), so no site could join",
        )
        .hint("invite at the other site, and join from here"));
    }
    let invite = node.invite(valid).map_err(|e| ErrorBody::new(ErrorCode::Refused, e.to_string()))?;
    let expires_at = convert::time(invite.expires_at);
    Ok(Invitation { code: invite.code.to_string(), id: invite.id, expires_at })
}

/// Invitations that can still be used.
pub(crate) fn invitations(node: &Node, now: Timestamp) -> Vec<OpenInvitation> {
    node.open_invites().into_iter().map(|open| open_invitation(open, now)).collect()
}

fn open_invitation(open: OpenInvite, now: Timestamp) -> OpenInvitation {
    OpenInvitation { id: open.id, expires_at: convert::time(now.plus(open.left)) }
}

/// Takes one back.
pub(crate) fn cancel_invitation(node: &Node, id: &str, now: Timestamp) -> Result<OpenInvitation, ErrorBody> {
    node.cancel_invite(id).map(|open| open_invitation(open, now)).ok_or_else(|| {
        ErrorBody::new(
            ErrorCode::NotFound,
            format!("no invitation is called {id}: it was used, is over, or never was"),
        )
        .hint("farside peer invite --list shows those that can still be used")
    })
}

/// Pairs with the site at `address`.
pub(crate) async fn join(node: &Node, request: &api::JoinPeer) -> Result<api::Peer, ErrorBody> {
    // It is a secret: no resolver is asked for it, and no message repeats it.
    if farside_api::is_code(&request.address) {
        return Err(ErrorBody::new(
            ErrorCode::WrongUsage,
            "this is the code, where the address of the site that made it belongs; nothing was sent",
        )
        .hint("farside peer join HOST[:PORT] asks for the code"));
    }
    let code: PairingCode = request.code.parse().map_err(|e: farside_peer::CodeError| {
        ErrorBody::new(ErrorCode::WrongUsage, e.to_string())
            .hint("farside peer invite on the other site prints a code")
    })?;
    request.name.as_deref().map(check_name).transpose()?;
    let known = node.peer(code.inviter());
    // Whoever says so knows it from the session. Without one, a pairing may be known here only: then it is made anew.
    if let Some(peer) = known.as_ref().filter(|peer| peer.state.connected) {
        let name = &peer.record.name;
        return Err(ErrorBody::new(
            ErrorCode::Exists,
            format!("{name} is paired already: the site that made this code is the peer {name} here, and there is a session with it"),
        )
        .hint(format!(
            "nothing was changed, and this did not use up the code. Another name: farside peer set {name} --name NAME; another \
             address: farside peer set {name} --address HOST:PORT"
        )));
    }
    // It keeps the name that it has here unless somebody says otherwise.
    let name = request.name.clone().or_else(|| known.map(|peer| peer.record.name));
    let record =
        node.join(&request.address, &code, name.as_deref()).await.map_err(Failure::into_error_body)?;
    // Whoever looks at once sees it connected, as a rule.
    let _ = node.wait_link(record.id, JOINED_WITHIN).await;
    named(node, &record.name).map(|peer| document(&peer))
}

/// Changes what is known of a peer; its session goes on, or is dialled at the new address.
pub(crate) async fn set(
    node: &Node,
    state: &State,
    record: PeerRecord,
    request: api::SetPeer,
) -> Result<PeerRecord, ErrorBody> {
    let mut changed = record;
    if let Some(name) = request.name {
        check_name(&name)?;
        if node.peers().iter().any(|peer| peer.record.name == name && peer.record.id != changed.id) {
            return Err(ErrorBody::new(ErrorCode::Exists, format!("another peer is called {name}")));
        }
        changed.name = name;
    }
    match request.address {
        Some(address) if address.is_empty() => changed.address = None,
        Some(address) => match address.parse() {
            Ok(Listen::At(address)) => changed.address = Some(address),
            _ => return Err(ErrorBody::new(ErrorCode::WrongUsage, format!("{address:?} is not HOST:PORT"))),
        },
        None => {}
    }
    let wrong = |why: String| ErrorBody::new(ErrorCode::WrongUsage, why);
    if let Some(paths) = &request.paths {
        changed.link.paths =
            paths.iter().map(|path| path.parse()).collect::<Result<_, _>>().map_err(wrong)?;
    }
    if let Some(mode) = request.mode {
        changed.link.mode = match mode {
            api::PathsMode::Multiplex => PathsMode::Multiplex,
            api::PathsMode::Failover => PathsMode::Failover,
        };
    }
    if let Some(dscp) = request.dscp {
        changed.link.dscp = Some(dscp).filter(|dscp| *dscp > 0);
    }
    if let Some(rate) = &request.rate {
        let rate: Rate = rate.parse().map_err(|e: RateError| wrong(e.to_string()))?;
        changed.link.rate = rate.bytes_per_second();
    }
    if let Some(seconds) = request.keepalive_seconds {
        let keepalive = Duration::try_from_secs_f64(seconds)
            .map_err(|_| wrong("keepalive_seconds must be a number of seconds".to_owned()))?;
        changed.link.keepalive = Some(keepalive).filter(|keepalive| *keepalive != KEEPALIVE_MIN);
    }
    changed.link.check().map_err(wrong)?;
    let kept = state.pin(changed).await.map_err(Failure::into_error_body)?;
    node.registry_changed().await.map_err(Failure::into_error_body)?;
    Ok(kept)
}

/// Whether a peer can be called so: `PEER:POOL/VOL` falls apart at the first colon.
pub(crate) fn is_peer_name(name: &str) -> bool {
    is_label(name) && !name.contains(':')
}

fn check_name(name: &str) -> Result<(), ErrorBody> {
    if is_peer_name(name) {
        return Ok(());
    }
    Err(ErrorBody::new(
        ErrorCode::WrongUsage,
        format!("{name:?} cannot be a peer's name; use 1 to 128 of A-Z a-z 0-9 . _ + -"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_platform::Timestamp;

    /// Volumes of pools that are not open.
    fn closed() -> Arc<dyn VolumeIds> {
        Arc::new(crate::rights::tests::Volumes::default())
    }

    fn record(id: PeerId) -> PeerRecord {
        PeerRecord {
            id,
            name: "n".into(),
            address: None,
            link: LinkOptions::default(),
            added_at: Timestamp(0),
        }
    }

    #[test]
    fn a_session_whose_connections_have_ended_answers_nobody() {
        let peer = PeerStatus {
            record: record(PeerId([7; 32])),
            state: farside_peer::PeerState { connected: true, ..Default::default() },
            trouble: None,
            silent_for: None,
            hindrance: None,
            other_site: None,
            key_conflicts: 0,
            sent_bytes: 0,
            received_bytes: 0,
        };
        assert!(answers(&peer));
        assert!(!answers(&PeerStatus { trouble: Some("all connections have ended".into()), ..peer.clone() }));
        assert!(!answers(&PeerStatus { state: farside_peer::PeerState::default(), ..peer.clone() }));
        assert_eq!(why(&peer), None);
        let silent = PeerStatus { silent_for: Some(Duration::from_millis(7_900)), ..peer };
        assert_eq!(
            why(&silent).as_deref(),
            Some("nothing was heard of n for 7 s: it may be away (that is certain after 12 s)"),
            "nobody takes it for answering until the session is given up"
        );
    }

    async fn deny(rights: &Rights, state: &State, peer: PeerId, volume: &str) -> Result<(), ErrorBody> {
        rights.deny(state, peer, &[volume.to_owned()], async { Ok(()) }).await
    }

    #[tokio::test]
    async fn a_right_that_cannot_be_taken_back_stays_whole_and_whoever_asked_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("farside.db");
        let state = State::open(&path).await.unwrap();
        let (peer, volume): (_, VolumeName) = (PeerId([7; 32]), "p/v".parse().unwrap());
        state.pin(record(peer)).await.unwrap();
        let rights = Rights::load(&state, closed()).await.unwrap();
        let row = RightRow {
            peer,
            volume: "p/v".into(),
            volume_id: None,
            reverse: true,
            fence: true,
            recorded: Recorded::Nothing,
        };
        rights.allow(&state, vec![row]).await.unwrap();
        // While it is taken back it is of no use, and its fence stands.
        let note = async {
            assert!(!rights.may_read(peer, &volume) && !rights.may_reverse(peer, &volume));
            assert!(rights.is_fenced_when_overtaken(peer, &volume));
            Err::<(), _>(ErrorBody::new(ErrorCode::Failed, "the fence cannot be noted"))
        };
        assert!(rights.deny(&state, peer, &["p/v".to_owned()], note).await.is_err());
        assert!(rights.may_read(peer, &volume) && rights.may_reverse(peer, &volume));
        state.close().await;
        assert!(deny(&rights, &state, peer, "p/v").await.is_err());
        assert!(rights.may_read(peer, &volume) && rights.of(peer).len() == 1);
        // What is shown is what a restart finds.
        let state = State::open(&path).await.unwrap();
        assert_eq!(Rights::load(&state, closed()).await.unwrap().of(peer), rights.of(peer));
        deny(&rights, &state, peer, "p/v").await.unwrap();
        assert!(!rights.may_read(peer, &volume) && rights.of(peer).is_empty());
        assert!(Rights::load(&state, closed()).await.unwrap().of(peer).is_empty());
    }

    #[tokio::test]
    async fn a_right_holds_at_once_and_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(&directory.path().join("farside.db")).await.unwrap();
        let peer = PeerId([7; 32]);
        state
            .pin(PeerRecord {
                id: peer,
                name: "n".into(),
                address: None,
                link: LinkOptions::default(),
                added_at: Timestamp(0),
            })
            .await
            .unwrap();
        let volume: VolumeName = "p/v".parse().unwrap();
        let rights = Rights::load(&state, closed()).await.unwrap();
        assert!(!rights.may_read(peer, &volume));
        rights
            .allow(
                &state,
                vec![RightRow {
                    peer,
                    volume: "p/v".into(),
                    volume_id: None,
                    reverse: true,
                    fence: true,
                    recorded: Recorded::Nothing,
                }],
            )
            .await
            .unwrap();
        assert!(rights.may_read(peer, &volume) && !rights.may_read(PeerId([8; 32]), &volume));
        let reloaded = Rights::load(&state, closed()).await.unwrap();
        assert!(reloaded.may_read(peer, &volume));
        assert_eq!(
            reloaded.of(peer),
            vec![VolumeRights { volume: "p/v".into(), reverse: true, fence: true, recorded: false }]
        );
        deny(&reloaded, &state, peer, "p/v").await.unwrap();
        assert!(!reloaded.may_read(peer, &volume));
        assert!(!Rights::load(&state, closed()).await.unwrap().may_read(peer, &volume));
    }

    #[tokio::test]
    async fn what_was_recorded_for_the_way_back_ends_with_the_mirror_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(&directory.path().join("farside.db")).await.unwrap();
        let peer = PeerId([7; 32]);
        state.pin(record(peer)).await.unwrap();
        let right = |volume: &str, recorded| RightRow {
            peer,
            volume: volume.into(),
            volume_id: None,
            reverse: true,
            fence: true,
            recorded,
        };
        let rights = Rights::load(&state, closed()).await.unwrap();
        let all = [
            right("p/given", Recorded::Nothing),
            right("p/grown", Recorded::Reverse),
            right("p/made", Recorded::Right),
            right("p/mirrored", Recorded::Right),
        ];
        rights.allow(&state, all.to_vec()).await.unwrap();
        let ended = {
            let is_mirrored = |_: PeerId, volume: &str| volume == "p/mirrored";
            rights.end_recorded(&state, async { Ok(is_mirrored) }).await.unwrap()
        };
        assert_eq!(ended.len(), 2, "{ended:?}");
        for rights in [rights, Rights::load(&state, closed()).await.unwrap()] {
            let left: Vec<_> =
                rights.of(peer).into_iter().map(|r| (r.volume, r.reverse, r.recorded)).collect();
            let expected = [("p/given", true, false), ("p/grown", false, false), ("p/mirrored", true, true)];
            assert_eq!(
                left,
                expected.map(|(volume, reverse, recorded)| (volume.to_owned(), reverse, recorded))
            );
        }
    }

    #[tokio::test]
    async fn a_right_that_is_given_while_mirrors_are_looked_at_does_not_end_with_an_earlier_one() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(&directory.path().join("farside.db")).await.unwrap();
        let (peer, volume) = (PeerId([7; 32]), "p/v".parse().unwrap());
        state.pin(record(peer)).await.unwrap();
        let rights = Rights::load(&state, closed()).await.unwrap();
        rights.grant_reverse(&state, peer, &volume).await.unwrap();
        let mut granting = Box::pin(rights.grant_reverse(&state, peer, &volume));
        let mirrors = async {
            // A mirror is made just after the look, and its right is given.
            tokio::select! {
                biased;
                _ = &mut granting => panic!("it waits for what ends"),
                () = std::future::ready(()) => assert!(rights.turn.try_lock().is_err()),
            }
            Ok(|_: PeerId, _: &str| false)
        };
        assert_eq!(rights.end_recorded(&state, mirrors).await.unwrap().len(), 1);
        granting.await.unwrap();
        assert!(rights.may_read(peer, &volume) && rights.may_reverse(peer, &volume));
        assert!(Rights::load(&state, closed()).await.unwrap().may_read(peer, &volume));
    }
}
