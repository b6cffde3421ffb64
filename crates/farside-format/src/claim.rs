//! Who has a pool open: a note beside the superblocks. Nothing of the pool depends on it.

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_128;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::FormatError;
use crate::fingerprint::BLOCK_BYTES;

/// Its block.
pub const CLAIM_PLACE: u64 = 1;
/// Longest name of a host, bytes.
pub const HOST_BYTES_MAX: usize = 64;

const MAGIC: [u8; 8] = *b"FSCLAIM\0";
const VERSION: u32 = 1;

/// A claim in memory. Field meanings: `docs/format.md`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Whether the pool is open; otherwise its last holder has closed it.
    pub is_open: bool,
    /// The holder has the pool's file locked, on a file system of its machine alone: whoever has that lock by now knows that the
    /// holder has let go.
    pub has_lock: bool,
    /// The pool's id.
    pub pool: Uuid,
    /// Made anew for each opening.
    pub holder: Uuid,
    /// Raised with each writing.
    pub beat: u64,
    /// The boot of the holder's kernel.
    pub boot: [u8; 16],
    /// The namespace of `pid`.
    pub pid_namespace: u64,
    /// The holder's process.
    pub pid: u32,
    /// When that process began, in ticks of its kernel.
    pub began: u64,
    /// The name of the holder's machine, for people; what is too long is cut.
    pub host: String,
}

/// One sector: it is never torn.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawClaim {
    magic: [u8; 8],
    version: U32,
    is_open: U32,
    pool: [u8; 16],
    holder: [u8; 16],
    beat: U64,
    boot: [u8; 16],
    pid_namespace: U64,
    began: U64,
    pid: U32,
    has_lock: U32,
    host: [u8; HOST_BYTES_MAX],
    more: [u8; 336],
    checksum: [u8; 16],
}
const _: () = assert!(size_of::<RawClaim>() == 512);

impl Claim {
    /// Encodes into one block.
    pub fn encode(&self) -> Box<[u8; BLOCK_BYTES]> {
        let mut host = [0; HOST_BYTES_MAX];
        let mut end = self.host.len().min(HOST_BYTES_MAX);
        while !self.host.is_char_boundary(end) {
            end -= 1;
        }
        host[..end].copy_from_slice(&self.host.as_bytes()[..end]);
        let mut raw = RawClaim {
            magic: MAGIC,
            version: VERSION.into(),
            is_open: u32::from(self.is_open).into(),
            pool: *self.pool.as_bytes(),
            holder: *self.holder.as_bytes(),
            beat: self.beat.into(),
            boot: self.boot,
            pid_namespace: self.pid_namespace.into(),
            began: self.began.into(),
            pid: self.pid.into(),
            has_lock: u32::from(self.has_lock).into(),
            host,
            more: [0; 336],
            checksum: [0; 16],
        };
        raw.checksum = xxh3_128(&raw.as_bytes()[..496]).to_le_bytes();
        let mut block = Box::new([0; BLOCK_BYTES]);
        block[..512].copy_from_slice(raw.as_bytes());
        block
    }

    /// Decodes one block.
    pub fn decode(block: &[u8]) -> Result<Claim, FormatError> {
        let bad = |field| FormatError::Field { what: "claim", field };
        let (sector, rest) = block.split_at_checked(512).ok_or(FormatError::Length { what: "claim" })?;
        if rest.len() != BLOCK_BYTES - 512 {
            return Err(FormatError::Length { what: "claim" });
        }
        let raw = RawClaim::ref_from_bytes(sector).map_err(|_| FormatError::Length { what: "claim" })?;
        if raw.magic != MAGIC {
            return Err(FormatError::Magic { what: "claim" });
        }
        if raw.version.get() != VERSION {
            return Err(FormatError::Version { found: raw.version.get(), supported: VERSION });
        }
        if raw.checksum != xxh3_128(&sector[..496]).to_le_bytes() {
            return Err(FormatError::Checksum { what: "claim" });
        }
        if raw.more != [0; 336] || rest.iter().any(|byte| *byte != 0) {
            return Err(bad("reserved"));
        }
        let flag = |value: U32, field| match value.get() {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(bad(field)),
        };
        let (is_open, has_lock) = (flag(raw.is_open, "state")?, flag(raw.has_lock, "lock")?);
        let end = raw.host.iter().position(|byte| *byte == 0).unwrap_or(HOST_BYTES_MAX);
        if raw.host[end..].iter().any(|byte| *byte != 0) {
            return Err(bad("host"));
        }
        let host = std::str::from_utf8(&raw.host[..end]).map_err(|_| bad("host"))?;
        Ok(Claim {
            is_open,
            has_lock,
            pool: Uuid::from_bytes(raw.pool),
            holder: Uuid::from_bytes(raw.holder),
            beat: raw.beat.get(),
            boot: raw.boot,
            pid_namespace: raw.pid_namespace.get(),
            pid: raw.pid.get(),
            began: raw.began.get(),
            host: host.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_and_nothing_else_is_one() {
        let claim = Claim {
            is_open: true,
            has_lock: true,
            pool: Uuid::from_u128(1),
            holder: Uuid::from_u128(2),
            beat: 3,
            boot: [4; 16],
            pid_namespace: 5,
            pid: 6,
            began: 7,
            host: "höst".into(),
        };
        let block = claim.encode();
        assert_eq!(Claim::decode(&block[..]).unwrap(), claim);
        assert!(Claim::decode(&[0; BLOCK_BYTES]).is_err() && Claim::decode(&block[..512]).is_err());
        for at in (0..BLOCK_BYTES).step_by(5) {
            let mut other = block.clone();
            other[at] ^= 1;
            assert!(Claim::decode(&other[..]).is_err(), "byte {at}");
        }
        let long = Claim { host: "é".repeat(40), ..claim };
        assert_eq!(Claim::decode(&long.encode()[..]).unwrap().host, "é".repeat(32));
    }
}
