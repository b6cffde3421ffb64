//! Journal batches and records: bytes to values and back.

use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::catalog::CatalogChange;
use crate::error::FormatError;
use crate::fingerprint::{BLOCK_BYTES, BLOCKS_MAX, Fingerprint};
use crate::pointer::{Birth, Place, U48_MAX};
use crate::version::FORMAT_VERSION;

/// Largest batch, header included.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// Bytes of a batch's header.
pub const BATCH_HEADER_BYTES: usize = 128;
/// Largest payload of one batch.
pub const PAYLOAD_BYTES_MAX: usize = BATCH_BYTES_MAX - BATCH_HEADER_BYTES;
/// Highest position of a batch, in bytes: four exabytes of journal, and sums of positions and lengths stay in 64 bits.
pub const POSITION_MAX: u64 = 1 << 62;
/// Most blocks one map or share record names (a record stays below 16 KiB).
pub const MAP_BLOCKS_MAX: usize = 1000;

/// How a batch begins.
pub(crate) const BATCH_MAGIC: [u8; 8] = *b"FSJBATCH";
const RECORD_HEADER_BYTES: usize = 8;

/// The header of a batch in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    /// Bytes of records.
    pub payload_bytes: usize,
    /// The pool.
    pub pool: Uuid,
    /// The opening that wrote it.
    pub open_epoch: u64,
    /// Its number.
    pub sequence: u64,
    /// Where it lies, in bytes since the journal's beginning.
    pub position: u64,
    /// Every batch up to this one was synced before this batch was written.
    pub proven: u64,
    /// Records in it.
    pub records: u32,
    /// Checksum of the batch before it.
    pub previous: [u8; 16],
    /// Its own checksum.
    pub checksum: [u8; 16],
}

impl BatchHeader {
    /// Bytes it takes on the ring.
    pub fn ring_bytes(&self) -> u64 {
        ring_bytes(self.payload_bytes)
    }
}

/// Bytes a batch with this payload takes on the ring: whole blocks.
pub fn ring_bytes(payload_bytes: usize) -> u64 {
    ((BATCH_HEADER_BYTES + payload_bytes).next_multiple_of(BLOCK_BYTES)) as u64
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawBatchHeader {
    magic: [u8; 8],
    version: U32,
    payload_bytes: U32,
    pool: [u8; 16],
    open_epoch: U64,
    sequence: U64,
    position: U64,
    proven: U64,
    records: U32,
    reserved_a: [u8; 12],
    previous: [u8; 16],
    checksum: [u8; 16],
    reserved_b: [u8; 16],
}
const _: () = assert!(size_of::<RawBatchHeader>() == BATCH_HEADER_BYTES);

/// Lays a batch out: fills the header at the front of `bytes` (header, payload, padding to whole blocks) and
/// returns the checksum that the next batch chains to. `header.checksum` and `payload_bytes` are computed.
pub fn seal_batch(bytes: &mut [u8], payload_bytes: usize, header: &BatchHeader) -> [u8; 16] {
    assert!(payload_bytes <= PAYLOAD_BYTES_MAX && bytes.len() as u64 == ring_bytes(payload_bytes));
    let mut raw = RawBatchHeader {
        magic: BATCH_MAGIC,
        version: FORMAT_VERSION.into(),
        payload_bytes: (payload_bytes as u32).into(),
        pool: *header.pool.as_bytes(),
        open_epoch: header.open_epoch.into(),
        sequence: header.sequence.into(),
        position: header.position.into(),
        proven: header.proven.into(),
        records: header.records.into(),
        reserved_a: [0; 12],
        previous: header.previous,
        checksum: [0; 16],
        reserved_b: [0; 16],
    };
    let payload = &bytes[BATCH_HEADER_BYTES..BATCH_HEADER_BYTES + payload_bytes];
    raw.checksum = checksum(raw.as_bytes(), payload);
    bytes[..BATCH_HEADER_BYTES].copy_from_slice(raw.as_bytes());
    raw.checksum
}

/// Reads a batch's header from its first block, without its payload. Lengths are bounded, the checksum is not
/// yet checked.
pub fn decode_batch_header(block: &[u8]) -> Result<BatchHeader, FormatError> {
    let (raw, _) =
        RawBatchHeader::ref_from_prefix(block).map_err(|_| FormatError::Length { what: "batch" })?;
    if raw.magic != BATCH_MAGIC {
        return Err(FormatError::Magic { what: "batch" });
    }
    if raw.version.get() != FORMAT_VERSION {
        return Err(FormatError::Version { found: raw.version.get(), supported: FORMAT_VERSION });
    }
    if raw.payload_bytes.get() as usize > PAYLOAD_BYTES_MAX {
        return Err(FormatError::Field { what: "batch", field: "payload bytes" });
    }
    if !raw.position.get().is_multiple_of(BLOCK_BYTES as u64) || raw.position.get() > POSITION_MAX {
        return Err(FormatError::Field { what: "batch", field: "position" });
    }
    if raw.reserved_a != [0; 12] || raw.reserved_b != [0; 16] {
        return Err(FormatError::Field { what: "batch", field: "reserved" });
    }
    Ok(BatchHeader {
        payload_bytes: raw.payload_bytes.get() as usize,
        pool: Uuid::from_bytes(raw.pool),
        open_epoch: raw.open_epoch.get(),
        sequence: raw.sequence.get(),
        position: raw.position.get(),
        proven: raw.proven.get(),
        records: raw.records.get(),
        previous: raw.previous,
        checksum: raw.checksum,
    })
}

/// Checks a whole batch (header, payload) against its checksum and returns header and payload.
pub fn decode_batch(bytes: &[u8]) -> Result<(BatchHeader, &[u8]), FormatError> {
    let header = decode_batch_header(bytes)?;
    let end = BATCH_HEADER_BYTES + header.payload_bytes;
    let payload = bytes.get(BATCH_HEADER_BYTES..end).ok_or(FormatError::Length { what: "batch" })?;
    let mut zeroed = [0; BATCH_HEADER_BYTES];
    zeroed.copy_from_slice(&bytes[..BATCH_HEADER_BYTES]);
    zeroed[96..112].fill(0);
    if checksum(&zeroed, payload) != header.checksum {
        return Err(FormatError::Checksum { what: "batch" });
    }
    Ok((header, payload))
}

fn checksum(header: &[u8], payload: &[u8]) -> [u8; 16] {
    let mut hasher = Xxh3::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.digest128().to_le_bytes()
}

/// One change, as the journal carries it.
#[derive(Clone, PartialEq, Debug)]
pub enum Record {
    /// Consecutive blocks of a version now lie at consecutive places.
    Map {
        /// The head or staged version.
        version: u64,
        /// The epoch.
        birth: Birth,
        /// First block of the volume.
        block: u64,
        /// First place.
        place: Place,
        /// One fingerprint per block; none is a hole. At most [`MAP_BLOCKS_MAX`].
        fingerprints: Vec<Fingerprint>,
    },
    /// Consecutive blocks of a version now lie at consecutive places that others have already: one owner more for each.
    Share {
        /// The head or staged version.
        version: u64,
        /// The epoch.
        birth: Birth,
        /// First block of the volume.
        block: u64,
        /// First place.
        place: Place,
        /// As in [`Record::Map`].
        fingerprints: Vec<Fingerprint>,
    },
    /// Blocks of a version become holes.
    Unmap {
        /// The head or staged version.
        version: u64,
        /// The epoch.
        birth: Birth,
        /// First block.
        block: u64,
        /// How many.
        count: u64,
    },
    /// Volumes, versions, pins or replica records change.
    Catalog(Box<CatalogChange>),
    /// A consistency point takes the state as it is here.
    Point {
        /// Its generation.
        generation: u64,
        /// The birth epoch after it.
        birth_epoch: Birth,
    },
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMap {
    version: U64,
    birth: U64,
    block: U64,
    place: U64,
    count: U32,
    reserved: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawUnmap {
    version: U64,
    birth: U64,
    block: U64,
    count: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPoint {
    generation: U64,
    birth_epoch: U64,
}

impl Record {
    /// Appends the record to a payload.
    pub fn encode(&self, payload: &mut Vec<u8>) {
        let header = |payload: &mut Vec<u8>, kind: u8, body: usize| {
            payload.extend_from_slice(&[kind, 0, 0, 0]);
            payload.extend_from_slice(&(body as u32).to_le_bytes());
        };
        match self {
            Record::Map { version, birth, block, place, fingerprints }
            | Record::Share { version, birth, block, place, fingerprints } => {
                assert!(
                    (1..=MAP_BLOCKS_MAX).contains(&fingerprints.len()),
                    "a map or share record names 1 to 1000 blocks"
                );
                let kind = if matches!(self, Record::Share { .. }) { 5 } else { 1 };
                header(payload, kind, size_of::<RawMap>() + 16 * fingerprints.len());
                let raw = RawMap {
                    version: (*version).into(),
                    birth: birth.0.into(),
                    block: (*block).into(),
                    place: place.0.into(),
                    count: (fingerprints.len() as u32).into(),
                    reserved: 0.into(),
                };
                payload.extend_from_slice(raw.as_bytes());
                for fingerprint in fingerprints {
                    payload.extend_from_slice(&fingerprint.0);
                }
            }
            Record::Unmap { version, birth, block, count } => {
                header(payload, 2, size_of::<RawUnmap>());
                let raw = RawUnmap {
                    version: (*version).into(),
                    birth: birth.0.into(),
                    block: (*block).into(),
                    count: (*count).into(),
                };
                payload.extend_from_slice(raw.as_bytes());
            }
            Record::Catalog(change) => {
                let body = prost::Message::encode_to_vec(change.as_ref());
                header(payload, 3, body.len());
                payload.extend_from_slice(&body);
            }
            Record::Point { generation, birth_epoch } => {
                header(payload, 4, size_of::<RawPoint>());
                let raw = RawPoint { generation: (*generation).into(), birth_epoch: birth_epoch.0.into() };
                payload.extend_from_slice(raw.as_bytes());
            }
        }
    }

    /// Splits the first record off a payload.
    pub fn decode(payload: &[u8]) -> Result<(Record, &[u8]), FormatError> {
        const SHORT: FormatError = FormatError::Length { what: "journal record" };
        let bad = |field| FormatError::Field { what: "journal record", field };
        let header = payload.get(..RECORD_HEADER_BYTES).ok_or(SHORT)?;
        if header[1..4] != [0; 3] {
            return Err(bad("reserved"));
        }
        let body_bytes = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let rest = &payload[RECORD_HEADER_BYTES..];
        let (body, rest) = rest.split_at_checked(body_bytes).ok_or(SHORT)?;
        let in_volume =
            |block: u64, count: u64| block.checked_add(count).is_some_and(|end| end <= BLOCKS_MAX);
        let record = match header[0] {
            kind @ (1 | 5) => {
                let (raw, list) = RawMap::ref_from_prefix(body).map_err(|_| SHORT)?;
                let count = raw.count.get() as usize;
                if count == 0 || count > MAP_BLOCKS_MAX || list.len() != 16 * count || raw.reserved.get() != 0
                {
                    return Err(bad("count"));
                }
                if !in_volume(raw.block.get(), count as u64)
                    || raw.place.get() == 0
                    || raw.place.get() > U48_MAX - count as u64
                    || raw.birth.get() > U48_MAX
                {
                    return Err(bad("block, place or birth"));
                }
                let (list, _) = list.as_chunks::<16>();
                let fingerprints: Vec<_> = list.iter().map(|f| Fingerprint(*f)).collect();
                if fingerprints.iter().any(|f| f.is_hole()) {
                    return Err(bad("fingerprint"));
                }
                let (version, birth) = (raw.version.get(), Birth(raw.birth.get()));
                let (block, place) = (raw.block.get(), Place(raw.place.get()));
                if kind == 5 {
                    Record::Share { version, birth, block, place, fingerprints }
                } else {
                    Record::Map { version, birth, block, place, fingerprints }
                }
            }
            2 => {
                let raw = RawUnmap::ref_from_bytes(body).map_err(|_| SHORT)?;
                if !in_volume(raw.block.get(), raw.count.get()) || raw.birth.get() > U48_MAX {
                    return Err(bad("block, count or birth"));
                }
                Record::Unmap {
                    version: raw.version.get(),
                    birth: Birth(raw.birth.get()),
                    block: raw.block.get(),
                    count: raw.count.get(),
                }
            }
            3 => {
                let change = prost::Message::decode(body).map_err(|_| bad("catalog change"))?;
                Record::Catalog(Box::new(change))
            }
            4 => {
                let raw = RawPoint::ref_from_bytes(body).map_err(|_| SHORT)?;
                if raw.birth_epoch.get() > U48_MAX {
                    return Err(bad("birth epoch"));
                }
                Record::Point { generation: raw.generation.get(), birth_epoch: Birth(raw.birth_epoch.get()) }
            }
            _ => return Err(bad("type")),
        };
        Ok((record, rest))
    }

    /// All records of a payload.
    pub fn decode_all(mut payload: &[u8], expected: u32) -> Result<Vec<Record>, FormatError> {
        let mut records = Vec::new();
        while !payload.is_empty() {
            let (record, rest) = Record::decode(payload)?;
            records.push(record);
            payload = rest;
        }
        if records.len() != expected as usize {
            return Err(FormatError::Field { what: "batch", field: "records" });
        }
        Ok(records)
    }
}
