//! From bytes of a peer to values that can be trusted in form: lengths, names and counts are checked here, once.

use farside_engine::{ContentRoot, VolumeName, is_label};
use farside_platform::Timestamp;
use farside_wire::OTHERS_MAX;
use uuid::Uuid;

use super::messages::{Candidate, Plan, StagedTransfer, Step, SwapPhase};
use crate::error::TransferError;
use crate::kind::TransferKind;
use crate::limits::{CANDIDATES_MAX, NAME_BYTES_MAX, ROLE_CHANGE_MAX, STEPS_MAX};

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
    /// Snapshots that travel, oldest first; none if the base is still the newest there is.
    pub steps: Vec<TravellingSnapshot>,
    /// Snapshots that wait for the next transfer.
    pub waiting: u64,
    /// Snapshots that do not travel, because the destination takes no more.
    pub left_out: u64,
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
        let base_name = Some(message.base_name.clone()).filter(|name| is_label(name));
        Ok(TransferPlan {
            base: message.base.as_ref().map(CandidateBase::from_message).transpose()?,
            base_name,
            steps: message.steps.iter().map(TravellingSnapshot::from_message).collect::<Result<_, _>>()?,
            waiting: message.waiting,
            left_out: message.left_out,
        })
    }

    /// As a message.
    pub fn to_message(&self) -> Plan {
        Plan {
            base: self.base.map(CandidateBase::to_message),
            base_name: self.base_name.clone().unwrap_or_default(),
            steps: self.steps.iter().map(TravellingSnapshot::to_message).collect(),
            waiting: self.waiting,
            left_out: self.left_out,
        }
    }
}
