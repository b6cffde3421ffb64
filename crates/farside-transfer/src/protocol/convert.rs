//! From bytes of a peer to values that can be trusted in form: lengths, names and counts are checked here, once.

use farside_engine::{ContentRoot, VolumeName, is_label};
use farside_platform::Timestamp;
use farside_wire::OTHERS_MAX;
use prost::Message;
use uuid::Uuid;

use super::messages::{Candidate, Hop, Origin, Plan, StagedTransfer, Standing, Step, SwapPhase};
use crate::error::TransferError;
use crate::kind::TransferKind;
use crate::limits::{
    CANDIDATES_MAX, COMMON_MAX, HOPS_MAX, NAME_BYTES_MAX, PLACE_BYTES_MAX, ROLE_CHANGE_MAX, STEPS_MAX,
};

/// Largest volume: 2^42 blocks.
const SIZE_BYTES_MAX: u64 = farside_format::fingerprint::BLOCKS_MAX * farside_engine::BLOCK_BYTES;

/// Stands for the incremental of a staged version that holds parts of more than one.
pub const OF_SEVERAL: Uuid = Uuid::nil();

/// A snapshot that can be a base: what both sides must agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CandidateBase {
    /// Its identity.
    pub uuid: Uuid,
    /// Its content root.
    pub content_root: ContentRoot,
    /// Its size, bytes.
    pub size_bytes: u64,
}

/// A snapshot that travels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TravellingSnapshot {
    /// Its identity.
    pub uuid: Uuid,
    /// Its name at the source.
    pub name: String,
    /// When the data was so.
    pub created_at: Timestamp,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// Its content root.
    pub content_root: ContentRoot,
    /// A person made it.
    pub made_by_person: bool,
}

/// What will travel, checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferPlan {
    /// The common base; none for a copy from nothing.
    pub base: Option<CandidateBase>,
    /// The base's name at the source.
    pub base_name: Option<String>,
    /// The base lies beside what the source shows now, which has nothing of that content any more: what the destination shows
    /// is gone at the source.
    pub base_is_beside: bool,
    /// Snapshots that travel, oldest first; none if the base is still the newest there is.
    pub steps: Vec<TravellingSnapshot>,
    /// Snapshots that wait for the next transfer.
    pub waiting: u64,
    /// Snapshots that do not travel, because the destination takes no more.
    pub left_out: u64,
    /// What the destination keeps because other destinations of the volume hold it too.
    pub common: Vec<Uuid>,
}

/// A volume of a site, by the hash of the site's key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The site.
    pub site: [u8; 32],
    /// The volume there.
    pub volume: VolumeName,
}

/// Where a source's volume stands among the sites, checked.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Upstream {
    /// What it follows, the nearest first; none if it is an original.
    pub follows: Vec<Place>,
    /// That hosts went on elsewhere.
    pub overtaken: Option<UpstreamOvertaken>,
}

/// Hosts went on elsewhere: what a replica brings is of the old original.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamOvertaken {
    /// Where: `PEER:POOL/VOL`.
    pub by: String,
    /// Since when.
    pub at: Timestamp,
    /// Which volume was overtaken, if not the source's own but one that it follows.
    pub what: Option<String>,
}

fn protocol(text: impl Into<String>) -> TransferError {
    TransferError::Protocol(text.into())
}

/// Sixteen bytes that are an identity.
pub fn uuid(bytes: &[u8]) -> Result<Uuid, TransferError> {
    Uuid::from_slice(bytes).map_err(|_| protocol("an identity that is not 16 bytes"))
}

/// Sixteen bytes that are a content root.
pub fn content_root(bytes: &[u8]) -> Result<ContentRoot, TransferError> {
    bytes.try_into().map(ContentRoot).map_err(|_| protocol("a content root that is not 16 bytes"))
}

/// How a stream's header names a snapshot that is offered as a base: the first 8 bytes of its identity, little-endian. Should
/// two have the same, a digest in each frame tells that it is the wrong one.
pub fn short_identity(snapshot: Uuid) -> u64 {
    snapshot.to_u128_le() as u64
}

/// `POOL/VOL`.
pub fn volume(text: &str) -> Result<VolumeName, TransferError> {
    if text.len() > 2 * NAME_BYTES_MAX + 1 {
        return Err(protocol("volume name too long"));
    }
    text.parse().map_err(|_| protocol("invalid volume name"))
}

/// A size in bytes that a volume can have.
pub fn size(bytes: u64) -> Result<u64, TransferError> {
    if bytes <= SIZE_BYTES_MAX && bytes.is_multiple_of(farside_engine::BLOCK_BYTES) {
        Ok(bytes)
    } else {
        Err(protocol(format!("invalid volume size: {bytes} bytes")))
    }
}

/// The number of a role change, from 1.
pub fn role_change(number: u64) -> Result<u64, TransferError> {
    match number {
        0 => Err(protocol("role change without a number")),
        1..=ROLE_CHANGE_MAX => Ok(number),
        _ => Err(protocol(format!("invalid role-change number {number}"))),
    }
}

/// The number of the newest role change that a source has seen; 0 if it has seen none.
pub fn newest_role_change(number: u64) -> Result<u64, TransferError> {
    if number == 0 { Ok(0) } else { role_change(number) }
}

/// The kind of a transfer by its number.
pub fn kind(number: u32) -> Result<TransferKind, TransferError> {
    match number {
        1 => Ok(TransferKind::Initialize),
        2 => Ok(TransferKind::Update),
        3 => Ok(TransferKind::Resync),
        other => Err(protocol(format!("a transfer of unknown kind {other}"))),
    }
}

/// The number of a kind.
pub fn kind_number(kind: TransferKind) -> u32 {
    match kind {
        TransferKind::Initialize => 1,
        TransferKind::Update => 2,
        TransferKind::Resync => 3,
    }
}

/// A word of a role change by its number.
pub fn swap_phase(number: u32) -> Result<SwapPhase, TransferError> {
    match number {
        1 => Ok(SwapPhase::Prepare),
        2 => Ok(SwapPhase::Cancel),
        3 => Ok(SwapPhase::Done),
        4 => Ok(SwapPhase::Confirm),
        5 => Ok(SwapPhase::Look),
        other => Err(protocol(format!("a role change with the unknown phase {other}"))),
    }
}

/// The number of a word.
pub fn swap_phase_number(phase: SwapPhase) -> u32 {
    match phase {
        SwapPhase::Prepare => 1,
        SwapPhase::Cancel => 2,
        SwapPhase::Done => 3,
        SwapPhase::Confirm => 4,
        SwapPhase::Look => 5,
    }
}

/// What an *overtaken* has come to, by its number.
pub fn standing(number: u32) -> Result<Standing, TransferError> {
    match number {
        1 => Ok(Standing::Noted),
        2 => Ok(Standing::Fenced),
        3 => Ok(Standing::Follows),
        4 => Ok(Standing::NothingKept),
        other => Err(protocol(format!("an answer with the unknown standing {other}"))),
    }
}

/// The number of a standing.
pub fn standing_number(standing: Standing) -> u32 {
    match standing {
        Standing::Noted => 1,
        Standing::Fenced => 2,
        Standing::Follows => 3,
        Standing::NothingKept => 4,
    }
}

/// `PEER:POOL/VOL` as a peer writes it, for people; none if it is empty.
pub fn place_text(text: &str) -> Result<Option<String>, TransferError> {
    if text.len() > PLACE_BYTES_MAX || text.chars().any(char::is_control) {
        return Err(protocol("invalid name of a peer's volume"));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// The name of a group as a peer writes it; none if it is empty.
pub fn group_name(text: &str) -> Result<Option<String>, TransferError> {
    match text.is_empty() {
        true => Ok(None),
        false if farside_engine::is_label(text) => Ok(Some(text.to_owned())),
        false => Err(protocol("invalid name of a peer's group")),
    }
}

/// What a volume follows, bounded.
pub fn places(messages: &[Hop]) -> Result<Vec<Place>, TransferError> {
    if messages.len() > HOPS_MAX {
        return Err(protocol(format!("a chain of {} mirrors, limit {HOPS_MAX}", messages.len())));
    }
    let place = |message: &Hop| {
        let site = message.site[..].try_into().map_err(|_| protocol("a site that is not 32 bytes"))?;
        Ok(Place { site, volume: volume(&message.volume)? })
    };
    messages.iter().map(place).collect()
}

/// The same as messages; what is beyond the limit is left out.
pub fn place_messages(places: &[Place]) -> Vec<Hop> {
    let hop = |place: &Place| Hop { site: place.site.to_vec(), volume: place.volume.to_string() };
    places.iter().take(HOPS_MAX).map(hop).collect()
}

impl Upstream {
    /// As it is kept; none if there is nothing to say.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        (*self != Upstream::default()).then(|| self.to_message().encode_to_vec())
    }

    /// As it was kept; none if that makes no sense.
    pub fn from_bytes(bytes: &[u8]) -> Option<Upstream> {
        Upstream::from_message(&Origin::decode(bytes).ok()?).ok()
    }

    /// Checked, from a message.
    pub fn from_message(message: &Origin) -> Result<Self, TransferError> {
        let overtaken = place_text(&message.overtaken_by)?.map(|by| {
            Ok::<_, TransferError>(UpstreamOvertaken {
                by,
                at: Timestamp(message.overtaken_at),
                what: place_text(&message.overtaken)?,
            })
        });
        Ok(Upstream { follows: places(&message.follows)?, overtaken: overtaken.transpose()? })
    }

    /// As a message.
    pub fn to_message(&self) -> Origin {
        let overtaken = self.overtaken.as_ref();
        Origin {
            follows: place_messages(&self.follows),
            overtaken_by: overtaken.map(|o| o.by.clone()).unwrap_or_default(),
            overtaken_at: overtaken.map_or(0, |o| o.at.0),
            overtaken: overtaken.and_then(|o| o.what.clone()).unwrap_or_default(),
        }
    }
}

impl CandidateBase {
    /// Checked, from a message.
    pub fn from_message(message: &Candidate) -> Result<Self, TransferError> {
        Ok(CandidateBase {
            uuid: uuid(&message.uuid)?,
            content_root: content_root(&message.content_root)?,
            size_bytes: size(message.size_bytes)?,
        })
    }

    /// As a message.
    pub fn to_message(self) -> Candidate {
        Candidate {
            uuid: self.uuid.as_bytes().to_vec(),
            content_root: self.content_root.0.to_vec(),
            size_bytes: self.size_bytes,
        }
    }
}

/// A list of candidates, bounded.
pub fn candidates(messages: &[Candidate]) -> Result<Vec<CandidateBase>, TransferError> {
    if messages.len() > CANDIDATES_MAX {
        return Err(protocol(format!("{} candidate bases, limit {CANDIDATES_MAX}", messages.len())));
    }
    messages.iter().map(CandidateBase::from_message).collect()
}

/// What a destination keeps for others.
pub fn further(messages: &[Candidate]) -> Result<Vec<CandidateBase>, TransferError> {
    if messages.len() > COMMON_MAX {
        return Err(protocol(format!("{} snapshots kept for others, limit {COMMON_MAX}", messages.len())));
    }
    messages.iter().map(CandidateBase::from_message).collect()
}

/// The incremental of which a part is staged at the destination; none if that is nothing, or of several snapshots.
pub fn staged_transfer(message: Option<&StagedTransfer>) -> Result<Option<Uuid>, TransferError> {
    let Some(message) = message else { return Ok(None) };
    message.base.as_ref().map(CandidateBase::from_message).transpose()?;
    Ok(Some(uuid(&message.incremental)?).filter(|incremental| *incremental != OF_SEVERAL))
}

impl TravellingSnapshot {
    fn from_message(message: &Step) -> Result<Self, TransferError> {
        if !is_label(&message.name) {
            return Err(protocol("invalid snapshot name"));
        }
        Ok(TravellingSnapshot {
            uuid: uuid(&message.uuid)?,
            name: message.name.clone(),
            created_at: Timestamp(message.created_at),
            size_bytes: size(message.size_bytes)?,
            content_root: content_root(&message.content_root)?,
            made_by_person: message.made_by_person,
        })
    }

    fn to_message(&self) -> Step {
        Step {
            uuid: self.uuid.as_bytes().to_vec(),
            name: self.name.clone(),
            created_at: self.created_at.0,
            size_bytes: self.size_bytes,
            content_root: self.content_root.0.to_vec(),
            made_by_person: self.made_by_person,
        }
    }
}

/// What a stream's header offers as bases in other volumes, checked.
pub fn cross_volume(offered: Vec<u64>) -> Result<Vec<u64>, TransferError> {
    if offered.len() > usize::from(OTHERS_MAX) {
        return Err(protocol(format!("{} volumes offered as bases, limit {OTHERS_MAX}", offered.len())));
    }
    Ok(offered)
}

impl TransferPlan {
    /// Checked, from a message.
    pub fn from_message(message: &Plan) -> Result<Self, TransferError> {
        if message.steps.len() > STEPS_MAX || (message.steps.is_empty() && message.base.is_none()) {
            return Err(protocol(format!("a plan of {} snapshots, limit {STEPS_MAX}", message.steps.len())));
        }
        if message.common.len() > COMMON_MAX {
            return Err(protocol(format!(
                "a plan with {} snapshots in common with others, limit {COMMON_MAX}",
                message.common.len()
            )));
        }
        let base_name = Some(message.base_name.clone()).filter(|name| is_label(name));
        Ok(TransferPlan {
            base: message.base.as_ref().map(CandidateBase::from_message).transpose()?,
            base_name,
            base_is_beside: message.base_is_beside,
            steps: message.steps.iter().map(TravellingSnapshot::from_message).collect::<Result<_, _>>()?,
            waiting: message.waiting,
            left_out: message.left_out,
            common: message.common.iter().map(|bytes| uuid(bytes)).collect::<Result<_, _>>()?,
        })
    }

    /// As a message, without its origin.
    pub fn to_message(&self) -> Plan {
        Plan {
            base: self.base.map(CandidateBase::to_message),
            base_name: self.base_name.clone().unwrap_or_default(),
            base_is_beside: self.base_is_beside,
            steps: self.steps.iter().map(TravellingSnapshot::to_message).collect(),
            origin: None,
            waiting: self.waiting,
            left_out: self.left_out,
            common: self.common.iter().map(|uuid| uuid.as_bytes().to_vec()).collect(),
        }
    }
}
