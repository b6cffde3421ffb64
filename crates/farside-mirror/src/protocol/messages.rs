//! The messages, field by field. Identities and roots are 16 bytes, sizes bytes, times nanoseconds since 1970 (UTC).

use prost::{Message, Oneof};

/// A call of the destination.
#[derive(Clone, PartialEq, Message)]
pub struct Request {
    /// [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION) of the sender.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// What is asked.
    #[prost(oneof = "Body", tags = "2, 3, 4, 5, 6")]
    pub body: Option<Body>,
}

/// What a [`Request`] asks.
#[derive(Clone, PartialEq, Oneof)]
pub enum Body {
    /// May we, and how large is it?
    #[prost(message, tag = "2")]
    Describe(Describe),
    /// A transfer begins.
    #[prost(message, tag = "3")]
    Begin(Begin),
    /// A step was published.
    #[prost(message, tag = "4")]
    Acknowledge(Acknowledge),
    /// A transfer is over, well or not.
    #[prost(message, tag = "5")]
    End(End),
    /// A relationship is over.
    #[prost(message, tag = "6")]
    Release(Release),
}

/// Asks whether a volume may be mirrored, and for its size. Answered by [`Description`].
#[derive(Clone, PartialEq, Message)]
pub struct Describe {
    /// The relationship, as the destination calls it.
    #[prost(bytes = "vec", tag = "1")]
    pub relationship: Vec<u8>,
    /// The source's volume, `POOL/VOL`.
    #[prost(string, tag = "2")]
    pub volume: String,
    /// The destination's volume, for the source's listing.
    #[prost(string, tag = "3")]
    pub destination: String,
}

/// Answer to [`Describe`].
#[derive(Clone, PartialEq, Message)]
pub struct Description {
    /// Size of the volume now, bytes.
    #[prost(uint64, tag = "1")]
    pub size_bytes: u64,
}

/// Begins a transfer. Answered by [`Plan`].
#[derive(Clone, PartialEq, Message)]
pub struct Begin {
    /// The relationship.
    #[prost(bytes = "vec", tag = "1")]
    pub relationship: Vec<u8>,
    /// The transfer's id, chosen by the destination; both sides log it.
    #[prost(bytes = "vec", tag = "2")]
    pub transfer: Vec<u8>,
    /// The source's volume.
    #[prost(string, tag = "3")]
    pub volume: String,
    /// The destination's volume, for the source's listing.
    #[prost(string, tag = "4")]
    pub destination: String,
    /// 1 initialize, 2 update.
    #[prost(uint32, tag = "5")]
    pub kind: u32,
    /// What the destination has, oldest first: any of it may serve as base.
    #[prost(message, repeated, tag = "6")]
    pub candidates: Vec<Candidate>,
}

/// A snapshot that the destination has.
#[derive(Clone, PartialEq, Message)]
pub struct Candidate {
    /// Its identity.
    #[prost(bytes = "vec", tag = "1")]
    pub uuid: Vec<u8>,
    /// Its content root.
    #[prost(bytes = "vec", tag = "2")]
    pub content_root: Vec<u8>,
    /// Its size, bytes.
    #[prost(uint64, tag = "3")]
    pub size_bytes: u64,
}

/// What will travel.
#[derive(Clone, PartialEq, Message)]
pub struct Plan {
    /// The common base, by what the two sides agree on; absent for a copy from nothing.
    #[prost(message, optional, tag = "1")]
    pub base: Option<Candidate>,
    /// The base's name at the source, for history.
    #[prost(string, tag = "2")]
    pub base_name: String,
    /// The snapshots that travel, oldest first; the last is the incremental of this transfer.
    #[prost(message, repeated, tag = "3")]
    pub steps: Vec<Step>,
}

/// A snapshot that travels: the difference to the one before it, or to the base.
#[derive(Clone, PartialEq, Message)]
pub struct Step {
    /// Its identity.
    #[prost(bytes = "vec", tag = "1")]
    pub uuid: Vec<u8>,
    /// Its name at the source.
    #[prost(string, tag = "2")]
    pub name: String,
    /// When the data was so.
    #[prost(uint64, tag = "3")]
    pub created_at: u64,
    /// Its size, bytes.
    #[prost(uint64, tag = "4")]
    pub size_bytes: u64,
    /// The content root that the destination must reproduce.
    #[prost(bytes = "vec", tag = "5")]
    pub content_root: Vec<u8>,
    /// A person made it (else: taken for this relationship).
    #[prost(bool, tag = "6")]
    pub made_by_person: bool,
}

/// Tells the source that a step is published at the destination. Answered by nothing ([`Nothing`]).
#[derive(Clone, PartialEq, Message)]
pub struct Acknowledge {
    /// The relationship.
    #[prost(bytes = "vec", tag = "1")]
    pub relationship: Vec<u8>,
    /// The transfer.
    #[prost(bytes = "vec", tag = "2")]
    pub transfer: Vec<u8>,
    /// The source's volume.
    #[prost(string, tag = "3")]
    pub volume: String,
    /// The snapshot that is the base from now on.
    #[prost(bytes = "vec", tag = "4")]
    pub snapshot: Vec<u8>,
    /// Its content root as the destination computed it.
    #[prost(bytes = "vec", tag = "5")]
    pub content_root: Vec<u8>,
}

/// Ends a transfer. Answered by [`Nothing`].
#[derive(Clone, PartialEq, Message)]
pub struct End {
    /// The transfer.
    #[prost(bytes = "vec", tag = "1")]
    pub transfer: Vec<u8>,
    /// Why it failed; empty if it did not. For the source's log.
    #[prost(string, tag = "2")]
    pub failure: String,
}

/// Ends a relationship: the source keeps no base for it any more. Answered by [`Nothing`].
#[derive(Clone, PartialEq, Message)]
pub struct Release {
    /// The relationship.
    #[prost(bytes = "vec", tag = "1")]
    pub relationship: Vec<u8>,
    /// The source's volume.
    #[prost(string, tag = "2")]
    pub volume: String,
}

/// An answer that says only that it was done.
#[derive(Clone, PartialEq, Message)]
pub struct Nothing {}

/// What a data stream is for: its header.
#[derive(Clone, PartialEq, Message)]
pub struct StreamHeader {
    /// [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION) of the sender.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// The transfer.
    #[prost(bytes = "vec", tag = "2")]
    pub transfer: Vec<u8>,
    /// Which step of its plan, from 0.
    #[prost(uint32, tag = "3")]
    pub step: u32,
    /// Do not refer to the base: it could not be read at the destination, or differs.
    #[prost(bool, tag = "4")]
    pub without_base: bool,
}

/// How far the metadata difference of a step is.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Scanned {
    /// Bytes found changed so far.
    #[prost(uint64, tag = "1")]
    pub changed_bytes: u64,
    /// Bytes found deallocated so far.
    #[prost(uint64, tag = "2")]
    pub deallocated_bytes: u64,
    /// That is all of it.
    #[prost(bool, tag = "3")]
    pub complete: bool,
    /// Time spent comparing, nanoseconds.
    #[prost(uint64, tag = "4")]
    pub scan_nanos: u64,
}

/// The last message of a step: what was sent, for the destination to compare and to report.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct StepEnd {
    /// Frames sent.
    #[prost(uint64, tag = "1")]
    pub frames: u64,
    /// Bytes of data in them, decoded.
    #[prost(uint64, tag = "2")]
    pub changed_bytes: u64,
    /// Bytes of holes in them.
    #[prost(uint64, tag = "3")]
    pub deallocated_bytes: u64,
    /// Bytes of the incremental snapshot that the source read.
    #[prost(uint64, tag = "4")]
    pub source_read_bytes: u64,
    /// Bytes of the base that the source read, to code against.
    #[prost(uint64, tag = "5")]
    pub base_read_bytes: u64,
    /// Of the changed bytes, those whose old block was in their frame's prefix.
    #[prost(uint64, tag = "6")]
    pub delta_bytes: u64,
    /// The other changed bytes.
    #[prost(uint64, tag = "7")]
    pub literal_bytes: u64,
}

/// The source gives up on a step.
#[derive(Clone, PartialEq, Message)]
pub struct Failure {
    /// As in a refusal.
    #[prost(string, tag = "1")]
    pub code: String,
    /// A sentence for the operator.
    #[prost(string, tag = "2")]
    pub message: String,
}
