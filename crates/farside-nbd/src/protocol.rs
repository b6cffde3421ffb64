//! The bytes of the NBD protocol, both ways: layouts, numbers, and pure functions from bytes to meaning.
//!
//! Everything is big-endian. Nothing here reads a socket, keeps state or knows an export.
//!
//! * [`option`]: the handshake.
//! * [`request`]: commands; what a client can get wrong in one is decided there.
//! * [`reply`]: answers to commands.

pub(crate) mod option;
pub(crate) mod reply;
pub(crate) mod request;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `NBDMAGIC`, the first bytes a server says.
const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`: a server's second word, and the first of each option.
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags, the same bits from server and client.
pub(crate) mod handshake_flag {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub(crate) const NO_ZEROES: u16 = 1 << 1;
}

/// What an export can do, as told to the client.
pub(crate) mod transmission_flag {
    pub(crate) const HAS_FLAGS: u16 = 1 << 0;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(crate) const SEND_CACHE: u16 = 1 << 10;
    pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// The server's first bytes.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Greeting {
    magic: U64,
    option_magic: U64,
    flags: U16,
}

impl Greeting {
    pub(crate) fn fixed_newstyle() -> Self {
        Greeting {
            magic: GREETING_MAGIC.into(),
            option_magic: OPTION_MAGIC.into(),
            flags: (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).into(),
        }
    }
}

/// Head of an option; `length` bytes of data follow.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct OptionHeader {
    pub(crate) magic: U64,
    pub(crate) code: U32,
    pub(crate) length: U32,
}

/// Head of the answer to an option; `length` bytes of data follow.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct OptionReplyHeader {
    magic: U64,
    code: U32,
    reply: U32,
    length: U32,
}

/// Head of a command; WRITE's payload follows.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RequestHeader {
    magic: U32,
    flags: U16,
    command: U16,
    cookie: U64,
    offset: U64,
    length: U32,
}

/// Head of a simple reply; a successful READ's data follow.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct SimpleReplyHeader {
    magic: U32,
    error: U32,
    cookie: U64,
}

/// Head of one chunk of a structured reply; `length` bytes follow.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct ChunkHeader {
    magic: U32,
    flags: U16,
    kind: U16,
    cookie: U64,
    length: U32,
}

pub(crate) const OPTION_HEADER_BYTES: usize = size_of::<OptionHeader>();
pub(crate) const REQUEST_HEADER_BYTES: usize = size_of::<RequestHeader>();

const _: () = assert!(size_of::<Greeting>() == 18);
const _: () = assert!(OPTION_HEADER_BYTES == 16);
const _: () = assert!(size_of::<OptionReplyHeader>() == 20);
const _: () = assert!(REQUEST_HEADER_BYTES == 28);
const _: () = assert!(size_of::<SimpleReplyHeader>() == 16);
const _: () = assert!(size_of::<ChunkHeader>() == 20);

/// A stream that does not speak NBD, or no longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected {what} {expected:#x}, found {found:#x}")]
pub(crate) struct WrongMagic {
    pub(crate) what: &'static str,
    pub(crate) expected: u64,
    pub(crate) found: u64,
}
