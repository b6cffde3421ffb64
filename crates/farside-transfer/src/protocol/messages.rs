//! The messages, field by field. Identities and roots are 16 bytes, sizes bytes, times nanoseconds since 1970 (UTC).

use prost::{Message, Oneof};

/// A call of the destination.
#[derive(Clone, PartialEq, Message)]
pub struct Request {
    /// [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION) of the sender.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// What is asked.
    #[prost(oneof = "Body", tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11")]
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
    /// What would a resync from here lose, and bring?
    #[prost(message, tag = "7")]
    Compare(Compare),
    /// This relationship was broken off: the destination went on without you.
    #[prost(message, tag = "8")]
    Overtaken(Overtaken),
    /// The two sides change roles.
    #[prost(message, tag = "9")]
    Swap(Swap),
    /// A transfer waits for its turn: take its snapshot now.
    #[prost(message, tag = "10")]
    Reserve(Reserve),
    /// Mirrors of a group are to be updated together: name one moment of all their volumes.
    #[prost(message, tag = "11")]
    ReserveTogether(ReserveTogether),
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
    /// Where does the volume stand? Through so many more sites the source may ask that anew; 0 if this is not asked. At most 16.
    #[prost(uint32, tag = "4")]
    pub hops: u32,
}

/// Answer to [`Describe`].
#[derive(Clone, PartialEq, Message)]
pub struct Description {
    /// Size of the volume now, bytes.
    #[prost(uint64, tag = "1")]
    pub size_bytes: u64,
    /// The source's administrator allows the way back: this volume may become a replica of the destination's.
    #[prost(bool, tag = "2")]
    pub reverse: bool,
    /// Where it stands, if that was asked.
    #[prost(message, optional, tag = "3")]
    pub origin: Option<Origin>,
    /// What it has with all its snapshots at most, bytes: what a first copy brings. Absent where that is not known, and from sites that
    /// do not say it.
    #[prost(uint64, optional, tag = "4")]
    pub occupied_bytes: Option<u64>,
}

/// A transfer of an update waits at its destination for its turn: the source takes the snapshot that it will bring now, with the
/// transfer's id, and keeps it until this or another transfer of the relationship begins. Answered by [`Nothing`]; a refusal costs
/// nothing, then the snapshot is taken when the transfer begins.
#[derive(Clone, PartialEq, Message)]
pub struct Reserve {
    /// The relationship.
    #[prost(bytes = "vec", tag = "1")]
    pub relationship: Vec<u8>,
    /// The transfer that will begin.
    #[prost(bytes = "vec", tag = "2")]
    pub transfer: Vec<u8>,
    /// The source's volume, `POOL/VOL`.
    #[prost(string, tag = "3")]
    pub volume: String,
    /// Number of the newest role change that the destination has seen.
    #[prost(uint64, tag = "4")]
    pub role_change: u64,
    /// In an update of a group: the snapshot that the destination shows. The source may not have heard of it yet, and keeps it.
    #[prost(bytes = "vec", tag = "5")]
    pub shows: Vec<u8>,
}

/// Updates of several mirrors of one destination are to bring one moment. The source takes a snapshot of all volumes in one record,
/// each as for [`Reserve`], and lets go what it had taken so for these relationships before. Of volumes that are replicas themselves
/// it names what they show, if that is of one moment. Answered by [`ReservedTogether`]; if one is refused, nothing is taken.
#[derive(Clone, PartialEq, Message)]
pub struct ReserveTogether {
    /// The mirrors, each once. At most 256.
    #[prost(message, repeated, tag = "1")]
    pub members: Vec<Reserve>,
}

/// Answer to [`ReserveTogether`].
#[derive(Clone, PartialEq, Message)]
pub struct ReservedTogether {
    /// The moment.
    #[prost(uint64, tag = "1")]
    pub created_at: u64,
    /// The snapshot of each, in the order in which they were asked for.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub snapshots: Vec<Vec<u8>>,
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
    /// 1 initialize, 2 update, 3 resync.
    #[prost(uint32, tag = "5")]
    pub kind: u32,
    /// What the destination has, oldest first: any of it may serve as base.
    #[prost(message, repeated, tag = "6")]
    pub candidates: Vec<Candidate>,
    /// What a transfer before this one left staged.
    #[prost(message, optional, tag = "7")]
    pub staged: Option<StagedTransfer>,
    /// The destination's newest role change; see [`Swap::role_change`].
    #[prost(uint64, tag = "8")]
    pub role_change: u64,
    /// The destination cannot read its base: without a common one the whole volume is compared.
    #[prost(bool, tag = "9")]
    pub whole: bool,
    /// So many snapshots that persons made may travel, the newest of those that wait: what the destination keeps of them is limited.
    #[prost(uint32, optional, tag = "10")]
    pub named_max: Option<u32>,
    /// The destination keeps what the plan names in [`Plan::common`].
    #[prost(bool, tag = "11")]
    pub keeps_common: bool,
    /// In a resync: what the destination's volume followed until then, the nearest first, where the source's is not among it. At
    /// most 16.
    #[prost(message, repeated, tag = "12")]
    pub left: Vec<Hop>,
    /// What the destination keeps for others: the source keeps what it has of that, too. See [`Acknowledge::further`].
    #[prost(message, repeated, tag = "13")]
    pub further: Vec<Candidate>,
    /// In an update of a group: the snapshot that was named for it, with which the transfer ends. Empty otherwise.
    #[prost(bytes = "vec", tag = "14")]
    pub until: Vec<u8>,
}

/// What a transfer that was cut left staged at the destination.
#[derive(Clone, PartialEq, Message)]
pub struct StagedTransfer {
    /// The snapshot that was arriving; zeros if what is staged is of more than one.
    #[prost(bytes = "vec", tag = "1")]
    pub incremental: Vec<u8>,
    /// What it branches at; absent for a copy from nothing.
    #[prost(message, optional, tag = "2")]
    pub base: Option<Candidate>,
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
    /// What the destination must know of where this comes from.
    #[prost(message, optional, tag = "9")]
    pub origin: Option<Origin>,
    /// The base lies beside the source's main line, and no snapshot of that line has its content: what the destination shows, if
    /// that is the base, is not on the line that it gets.
    #[prost(bool, tag = "5")]
    pub base_is_beside: bool,
    /// Snapshots that wait and are for the next transfer: then the last step is the newest that fits into this one, and no
    /// incremental was taken.
    #[prost(uint64, tag = "6")]
    pub waiting: u64,
    /// Snapshots that persons made and that do not travel, because of [`Begin::named_max`].
    #[prost(uint64, tag = "7")]
    pub left_out: u64,
    /// Identities of snapshots, as the destination calls them, that other destinations of the volume hold too, with those of
    /// the steps that are such: it keeps them, and none that an earlier plan named.
    #[prost(bytes = "vec", repeated, tag = "10")]
    pub common: Vec<Vec<u8>>,
}

/// Where a source's volume stands among the sites.
#[derive(Clone, PartialEq, Message)]
pub struct Origin {
    /// What the volume itself follows, the nearest first; empty if it is an original. At most 16.
    #[prost(message, repeated, tag = "1")]
    pub follows: Vec<Hop>,
    /// Hosts went on elsewhere: what comes is of the old original. `PEER:POOL/VOL`, as that source calls it; empty if
    /// not.
    #[prost(string, tag = "2")]
    pub overtaken_by: String,
    /// Since when, by the clock of the site that broke off, else by that of the source.
    #[prost(uint64, tag = "3")]
    pub overtaken_at: u64,
    /// Which volume it was, if not this one but one that it follows: `PEER:POOL/VOL`; else empty.
    #[prost(string, tag = "4")]
    pub overtaken: String,
}

/// A volume of a site.
#[derive(Clone, PartialEq, Message)]
pub struct Hop {
    /// The site: the hash of its key, 32 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub site: Vec<u8>,
    /// The volume, `POOL/VOL`.
    #[prost(string, tag = "2")]
    pub volume: String,
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
    /// What the destination keeps for others of the same volume, the newest last: bases of its own destinations, as a rule. So
    /// that those can follow the source with a difference, the source keeps what it has of it until it is told anew. At most 16.
    #[prost(message, repeated, tag = "6")]
    pub further: Vec<Candidate>,
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
    /// Of a transfer that failed, the identity of the snapshot that was published last, if the source did not accept that it is
    /// acknowledged: it keeps it. Else empty.
    #[prost(bytes = "vec", tag = "3")]
    pub unacknowledged: Vec<u8>,
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
    /// The destination's volume, if that follows another since: this is said when it has something of that one.
    #[prost(string, tag = "3")]
    pub destination: String,
}

/// Asks what a resync of `destination` from `volume` would start from and bring; changes nothing. Answered by
/// [`Comparison`].
#[derive(Clone, PartialEq, Message)]
pub struct Compare {
    /// The relationship that would carry it.
    #[prost(bytes = "vec", tag = "1")]
    pub relationship: Vec<u8>,
    /// The volume that is asked about.
    #[prost(string, tag = "2")]
    pub volume: String,
    /// The asker's volume.
    #[prost(string, tag = "3")]
    pub destination: String,
    /// What the asker has, on all its branches, oldest first.
    #[prost(message, repeated, tag = "4")]
    pub candidates: Vec<Candidate>,
}

/// Answer to [`Compare`].
#[derive(Clone, PartialEq, Message)]
pub struct Comparison {
    /// The newest common base, by what the asker calls it; absent if there is none.
    #[prost(message, optional, tag = "1")]
    pub base: Option<Candidate>,
    /// The base's name at the source.
    #[prost(string, tag = "2")]
    pub base_name: String,
    /// When the base's data was so.
    #[prost(uint64, tag = "3")]
    pub base_created_at: u64,
    /// Bytes in which the volume as it is now differs from the base; all that is allocated without one.
    #[prost(uint64, tag = "4")]
    pub data_bytes: u64,
    /// Bytes that were data in the base and are holes now.
    #[prost(uint64, tag = "5")]
    pub hole_bytes: u64,
    /// The volume is itself a replica that is not broken off.
    #[prost(bool, tag = "6")]
    pub is_replica: bool,
    /// Size of the volume now, bytes.
    #[prost(uint64, tag = "7")]
    pub size_bytes: u64,
    /// The newest role change of the relationship that the source has seen; 0 if it has seen none. A resync counts on from it.
    #[prost(uint64, tag = "8")]
    pub newest: u64,
    /// What the volume follows, the nearest first; empty if it is an original. At most 16.
    #[prost(message, repeated, tag = "12")]
    pub follows: Vec<Hop>,
    /// The base is not of what the volume shows: it lies on a side branch. A source that does not know the field says no.
    #[prost(bool, tag = "13")]
    pub base_is_beside: bool,
}

/// Tells a source that its destination was broken off and went on without it. Answered by [`Noted`]; saying it
/// again is no error, and it is said again every few minutes.
#[derive(Clone, PartialEq, Message)]
pub struct Overtaken {
    /// The relationship.
    #[prost(bytes = "vec", tag = "1")]
    pub relationship: Vec<u8>,
    /// The source's volume.
    #[prost(string, tag = "2")]
    pub volume: String,
    /// When it was broken off, by the destination's clock.
    #[prost(uint64, tag = "3")]
    pub broken_off_at: u64,
    /// The snapshot that hosts there went on from; absent if the replica held none.
    #[prost(message, optional, tag = "4")]
    pub snapshot: Option<Candidate>,
    /// The destination's volume, for a source that has lost its list.
    #[prost(string, tag = "5")]
    pub destination: String,
    /// Number of the role change that this tells of; see [`Swap::role_change`].
    #[prost(uint64, tag = "6")]
    pub role_change: u64,
    /// The destination still follows, and was itself overtaken: by `PEER:POOL/VOL`, as it calls that. Empty: the destination
    /// itself was broken off.
    #[prost(string, tag = "7")]
    pub beyond: String,
    /// The destination still follows, and is not overtaken (any more).
    #[prost(bool, tag = "8")]
    pub withdrawn: bool,
    /// The destination was broken off, and its mirror is deleted: nobody there remembers it any more.
    #[prost(bool, tag = "9")]
    pub ended: bool,
    /// With `ended`: the destination still has `snapshot`, so that the source can follow from there.
    #[prost(bool, tag = "10")]
    pub keeps_snapshot: bool,
    /// The source has answered this before: where it keeps nothing for the relationship any more its administrator has released
    /// it since, and knew.
    #[prost(bool, tag = "11")]
    pub again: bool,
    /// What the volume that went on follows since, the nearest first; with `beyond` that volume itself is before them. With
    /// `withdrawn`: what follows the destination's. At most 16.
    #[prost(message, repeated, tag = "12")]
    pub follows: Vec<Hop>,
    /// With `ended`: the destination's volume follows the source's again, by way of `follows`.
    #[prost(bool, tag = "13")]
    pub returned: bool,
    /// The group that the destination's mirror is in; empty if it is in none, or the site does not say.
    #[prost(string, tag = "14")]
    pub group: String,
    /// How many mirrors are in it; 0 with no group.
    #[prost(uint32, tag = "15")]
    pub group_size: u32,
}

/// Answer to [`Overtaken`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Noted {
    /// The newest role change of this relationship that the source has seen; 0 if it has seen none. If it is
    /// newer than the one that was told, what was told had no effect.
    #[prost(uint64, tag = "1")]
    pub newest: u64,
    /// What became of it: 1 it is noted, 2 it is noted and hosts may not write, 3 the source's volume follows the destination's,
    /// 4 the source keeps nothing for this relationship (it was released there).
    #[prost(uint32, tag = "2")]
    pub standing: u32,
}

/// What an [`Overtaken`] has come to at the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is noted; hosts may write.
    Noted,
    /// It is noted, and hosts may not write.
    Fenced,
    /// The source's volume follows the destination's.
    Follows,
    /// The source keeps nothing for the relationship.
    NothingKept,
}

/// A step of changing roles. Answered by [`Swapped`]; saying it again is no error.
#[derive(Clone, PartialEq, Message)]
pub struct Swap {
    /// The relationship that ends.
    #[prost(bytes = "vec", tag = "1")]
    pub relationship: Vec<u8>,
    /// The one that takes its place, the other way round.
    #[prost(bytes = "vec", tag = "2")]
    pub reverse: Vec<u8>,
    /// The source's volume, which becomes the replica.
    #[prost(string, tag = "3")]
    pub volume: String,
    /// The destination's volume, which becomes the original.
    #[prost(string, tag = "4")]
    pub destination: String,
    /// 1 prepare: fence the volume and take its last snapshot; 2 cancel: as it was; 3 done: the destination has taken over;
    /// 4 confirm: is it still prepared? 5 look: would it be prepared? Nothing is changed or counted.
    #[prost(uint32, tag = "5")]
    pub phase: u32,
    /// Schedule of the reverse mirror, as `mirror status` shows it; empty for none.
    #[prost(string, tag = "6")]
    pub schedule: String,
    /// Number of this role change: the destination counts them, from 1, and a break, a resync and each attempt to
    /// change the roles is one. What is told of an earlier one than the source has seen has no effect: a source may
    /// still be busy with it when its session has died and newer things were told.
    #[prost(uint64, tag = "7")]
    pub role_change: u64,
    /// The group that the mirror is in: its successor is in that, too, unless it remembers one. Empty if it is in none, or the site does
    /// not say.
    #[prost(string, tag = "8")]
    pub group: String,
}

/// What a [`Swap`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwapPhase {
    /// Fence the volume and take its last snapshot.
    Prepare,
    /// Make the volume what it was.
    Cancel,
    /// The destination has taken over.
    Done,
    /// Is it still prepared? The destination has everything, and is about to take over.
    Confirm,
    /// Would it be prepared? For a plan: nothing is changed.
    Look,
}

/// Answer to [`Swap`].
#[derive(Clone, PartialEq, Message)]
pub struct Swapped {
    /// To *prepare*: the last snapshot, which the destination has to bring before it may take over.
    #[prost(message, optional, tag = "1")]
    pub snapshot: Option<Candidate>,
    /// To *prepare*: the reverse relationship, which may be one that the source remembers from an earlier role change.
    #[prost(bytes = "vec", tag = "2")]
    pub reverse: Vec<u8>,
    /// The newest role change of this relationship that the source has seen; 0 if it has seen none. If it is
    /// newer than the one that was told, what was told had no effect.
    #[prost(uint64, tag = "3")]
    pub newest: u64,
    /// To *prepare*: the number of this role change for the reverse relationship, of which its new source heeds
    /// nothing earlier.
    #[prost(uint64, tag = "4")]
    pub reverse_role_change: u64,
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
    /// Refer to nothing, neither to the base nor to what was brought: it could not be read at the destination, or differs.
    #[prost(bool, tag = "4")]
    pub without_base: bool,
    /// What the destination sends on the stream: 0 nothing, 1 the positions it holds of this step, 2 positions with
    /// short fingerprints of what it holds there.
    #[prost(uint32, tag = "5")]
    pub held: u32,
    /// The destination answers questions for known data on the stream.
    #[prost(bool, tag = "6")]
    pub known: bool,
    /// What the destination holds of other volumes of the same source, at most [`OTHERS_MAX`](farside_wire::OTHERS_MAX):
    /// snapshots that are bases of other mirrors, by [`short_identity`](super::short_identity). Frames may name them by
    /// their places in this list.
    #[prost(fixed64, repeated, tag = "7")]
    pub cross_volume: Vec<u64>,
    /// The destination may not have room: so many bytes of data of the step fit. The source counts the difference before it
    /// sends anything of it, and fails with the code `no-space` if it is more.
    #[prost(uint64, optional, tag = "8")]
    pub room_bytes: Option<u64>,
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
    /// Bytes that the source read to code against: of the base, or of what it had sent before.
    #[prost(uint64, tag = "5")]
    pub base_read_bytes: u64,
    // 6 and 7 were the source's word for what the destination counts itself.
    /// Bytes of data that the difference found and that were not sent, because the destination holds them.
    #[prost(uint64, tag = "8")]
    pub resumed_bytes: u64,
    /// Bytes of data that the difference found and that were not sent, because the destination took them from its own
    /// store.
    #[prost(uint64, tag = "9")]
    pub known_bytes: u64,
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
