//! The first bytes on a connection, in a fixed layout that every version of farside can read.
//!
//! Whoever dialled sends a [`Hello`], the other side an [`Answer`]; each has 144 bytes, integers little-endian:
//!
//! ```text
//! offset  hello                          answer
//!      0  magic "farsideH"               magic "farsideA"
//!      8  u16 lowest version spoken      u16 lowest version spoken
//!     10  u16 highest version spoken     u16 highest version spoken
//!     12  u8 role                        u8 verdict
//!     13  u8 zero                        u8 zero
//!     14  u8 bytes of the site name      u8 bytes of what is said
//!     15  u8 service                     u8 zero
//!     16  session id, 16 bytes           u16 chosen version, 14 zero bytes
//!     32  16 zero bytes                  16 zero bytes
//!     48  instance, 16 bytes             instance, 16 bytes
//!     64  site name, 64 bytes, UTF-8     what is said, 64 bytes, UTF-8
//!    128  16 zero bytes                  16 zero bytes
//! ```
//!
//! Magic and the two versions keep their place for ever; whatever else a newer version changes, both sides can
//! name both versions when they share none. The chosen version is the highest that both speak.
//!
//! | role | what |
//! | --- | --- |
//! | 1 | a new session: the first lane of its control stream |
//! | 3 | pairing |
//! | 4 | lane of a session: what follows is segments, the first an *attach* |
//!
//! | service | what |
//! | --- | --- |
//! | 0 | the site's session, for storage and pairing |
//! | 1 | the session of the two sites' accelerators, which have the sites' identities and ports of their own |
//!
//! | version | spoken | what it is |
//! | --- | --- | --- |
//! | 1 | by no release | control stream and each data stream are a connection of their own; role 2, flags and ticket were its |
//! | 2 | since 0.1.0 | control stream and data streams are bundles of lanes, over several paths |
//!
//! What an answer says is the site's name if the verdict is welcome, where the other site connects from if the key is in use, else
//! nothing.
//!
//! The *instance* is drawn when a node starts: a peer that restarted is told from one that dials twice.

use std::ops::RangeInclusive;

use crate::error::SessionError;
use crate::limits::SITE_NAME_MAX;

/// Bytes of a hello and of an answer.
pub const HELLO_BYTES: usize = 144;
/// The versions this build speaks.
pub const VERSIONS: RangeInclusive<u16> = 2..=2;

const HELLO_MAGIC: &[u8; 8] = b"farsideH";
const ANSWER_MAGIC: &[u8; 8] = b"farsideA";
const NAME_AT: usize = 64;
const RESERVED_AT: usize = NAME_AT + SITE_NAME_MAX;
const _: () = assert!(RESERVED_AT + 16 == HELLO_BYTES);

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A new session: the first lane of its control stream.
    Control,
    /// A joiner with an invitation.
    Pairing,
    /// A connection that carries parts of bundles, one after the other.
    Lane,
}

/// Whose session a connection is for. Both services of a site have the site's one identity, so a key does not tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Service {
    /// The site itself: mirrors and pairing.
    #[default]
    Storage,
    /// Its accelerator.
    Accelerator,
}

impl Service {
    /// Why a dialler that wants `self` came to the wrong port, and where to dial.
    pub fn wrong_port(self) -> &'static str {
        match self {
            Service::Storage => {
                "this port is the accelerator's; dial the site's own port, 7440 unless it was set otherwise"
            }
            Service::Accelerator => {
                "this port is the storage session's; dial the accelerator's port, 7442 unless it was set otherwise"
            }
        }
    }
}

/// What whoever dials says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Lowest and highest version spoken.
    pub versions: (u16, u16),
    /// What for.
    pub role: Role,
    /// Whose.
    pub service: Service,
    /// The session; drawn by whoever dials it, zero for pairing.
    pub session: [u8; 16],
    /// See the head of the module.
    pub instance: [u8; 16],
    /// The dialler's name for itself.
    pub site_name: String,
}

/// How the dialled side decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Go on.
    Welcome,
    /// No common version.
    Version,
    /// The key is not pinned here.
    UnknownKey,
    /// A limit is reached.
    Busy,
    /// The session is not known.
    NoSuchSession,
    /// A session with this peer is there and stays.
    AlreadyConnected,
    /// Nobody is invited.
    NoInvitation,
    /// This port is another service's.
    OtherService,
    /// Another living site has this key, and is the peer.
    KeyInUse,
    /// A refusal that this version does not know.
    Unknown(u8),
}

impl Verdict {
    fn code(self) -> u8 {
        match self {
            Verdict::Welcome => 0,
            Verdict::Version => 1,
            Verdict::UnknownKey => 2,
            Verdict::Busy => 3,
            Verdict::NoSuchSession => 4,
            Verdict::AlreadyConnected => 5,
            Verdict::NoInvitation => 6,
            Verdict::OtherService => 7,
            Verdict::KeyInUse => 8,
            Verdict::Unknown(code) => code,
        }
    }

    fn from_code(code: u8) -> Verdict {
        match code {
            0 => Verdict::Welcome,
            1 => Verdict::Version,
            2 => Verdict::UnknownKey,
            3 => Verdict::Busy,
            4 => Verdict::NoSuchSession,
            5 => Verdict::AlreadyConnected,
            6 => Verdict::NoInvitation,
            7 => Verdict::OtherService,
            8 => Verdict::KeyInUse,
            code => Verdict::Unknown(code),
        }
    }
}

/// What the dialled side says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Lowest and highest version spoken.
    pub versions: (u16, u16),
    /// The decision.
    pub verdict: Verdict,
    /// The version to be spoken; 0 unless welcome.
    pub version: u16,
    /// See the head of the module.
    pub instance: [u8; 16],
    /// The dialled side's name for itself if welcome, the host of the other site if the key is in use; empty else.
    pub says: String,
}

/// Why bytes are no hello.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HelloError {
    /// Something else.
    #[error("not a hello of farside")]
    NotFarside,
    /// Readable, but of versions that this side does not speak.
    #[error("speaks versions {0} to {1}")]
    OtherVersions(u16, u16),
    /// Broken.
    #[error("malformed hello: {0}")]
    Malformed(&'static str),
}

/// The highest version that both speak.
pub fn common_version(ours: &RangeInclusive<u16>, theirs: (u16, u16)) -> Option<u16> {
    let highest = theirs.1.min(*ours.end());
    (highest >= theirs.0 && highest >= *ours.start()).then_some(highest)
}

/// Both versions named.
pub(crate) fn versions_differ(ours: &RangeInclusive<u16>, theirs: (u16, u16)) -> SessionError {
    SessionError::Version { ours: u32::from(*ours.end()), theirs: u32::from(theirs.1) }
}

/// Reads a hello; `ours` are the versions spoken here.
///
/// # Errors
/// [`HelloError`]; never panics, whatever the bytes.
pub fn parse_hello(bytes: &[u8; HELLO_BYTES], ours: &RangeInclusive<u16>) -> Result<Hello, HelloError> {
    let versions = parse_versions(bytes, HELLO_MAGIC, ours)?;
    let role = match (bytes[12], bytes[13]) {
        (1, 0) => Role::Control,
        (3, 0) => Role::Pairing,
        (4, 0) => Role::Lane,
        _ => return Err(HelloError::Malformed("unknown role or flags")),
    };
    let service = match bytes[15] {
        0 => Service::Storage,
        1 => Service::Accelerator,
        _ => return Err(HelloError::Malformed("unknown service")),
    };
    let hello = Hello {
        versions,
        role,
        service,
        session: array(bytes, 16),
        instance: array(bytes, 48),
        site_name: parse_text(bytes, |name| check_name(name).is_ok())?,
    };
    if bytes[32..48].iter().chain(&bytes[RESERVED_AT..]).any(|b| *b != 0) {
        return Err(HelloError::Malformed("reserved bytes are not zero"));
    }
    if hello.site_name.is_empty() {
        return Err(HelloError::Malformed("no site name"));
    }
    Ok(hello)
}

/// Reads an answer.
///
/// # Errors
/// [`HelloError`]; never panics, whatever the bytes.
pub fn parse_answer(bytes: &[u8; HELLO_BYTES], ours: &RangeInclusive<u16>) -> Result<Answer, HelloError> {
    let versions = parse_versions(bytes, ANSWER_MAGIC, ours)?;
    let verdict = Verdict::from_code(bytes[12]);
    let answer = Answer {
        versions,
        verdict,
        version: u16::from_le_bytes([bytes[16], bytes[17]]),
        instance: array(bytes, 48),
        says: parse_text(bytes, |text| is_sayable(verdict, text))?,
    };
    let reserved = bytes[18..48].iter().chain(&bytes[RESERVED_AT..]).any(|b| *b != 0);
    if reserved || bytes[13] != 0 || bytes[15] != 0 {
        return Err(HelloError::Malformed("reserved bytes are not zero"));
    }
    let spoken = ours.contains(&answer.version) && (versions.0..=versions.1).contains(&answer.version);
    if (verdict == Verdict::Welcome) != spoken || (!spoken && answer.version != 0) {
        return Err(HelloError::Malformed("the chosen version is not spoken"));
    }
    Ok(answer)
}

fn parse_versions(
    bytes: &[u8; HELLO_BYTES],
    magic: &[u8; 8],
    ours: &RangeInclusive<u16>,
) -> Result<(u16, u16), HelloError> {
    if bytes[..8] != magic[..] {
        return Err(HelloError::NotFarside);
    }
    let versions = (u16::from_le_bytes([bytes[8], bytes[9]]), u16::from_le_bytes([bytes[10], bytes[11]]));
    if versions.0 == 0 || versions.0 > versions.1 {
        return Err(HelloError::Malformed("impossible versions"));
    }
    match common_version(ours, versions) {
        Some(_) => Ok(versions),
        None => Err(HelloError::OtherVersions(versions.0, versions.1)),
    }
}

/// Whether an answer of this verdict may say that.
pub(crate) fn is_sayable(verdict: Verdict, text: &str) -> bool {
    match verdict {
        // A host: an address, or a name that was dialled. It goes into logs and tables, too.
        Verdict::KeyInUse => text.len() <= SITE_NAME_MAX && text.chars().all(|c| c.is_ascii_graphic()),
        _ => check_name(text).is_ok(),
    }
}

/// The text in the place of the name, if it is any and `is_fit`.
fn parse_text(bytes: &[u8; HELLO_BYTES], is_fit: impl Fn(&str) -> bool) -> Result<String, HelloError> {
    let length = usize::from(bytes[14]);
    if length > SITE_NAME_MAX {
        return Err(HelloError::Malformed("site name too long"));
    }
    let (name, rest) = bytes[NAME_AT..RESERVED_AT].split_at(length);
    let name = std::str::from_utf8(name).map_err(|_| HelloError::Malformed("site name is not UTF-8"))?;
    if rest.iter().any(|b| *b != 0) || (!name.is_empty() && !is_fit(name)) {
        return Err(HelloError::Malformed("site name with forbidden characters"));
    }
    Ok(name.to_owned())
}

/// A site name goes into logs, tables and files: short, and nothing that moves a cursor.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > SITE_NAME_MAX {
        return Err(format!("a site name has 1 to {SITE_NAME_MAX} bytes"));
    }
    if name.chars().any(|c| c.is_control() || c.is_whitespace() || matches!(c, '/' | ':')) {
        return Err("a site name has no spaces, slashes, colons or control characters".to_owned());
    }
    Ok(())
}

fn array(bytes: &[u8; HELLO_BYTES], at: usize) -> [u8; 16] {
    let mut array = [0; 16];
    array.copy_from_slice(&bytes[at..at + 16]);
    array
}

fn envelope(magic: &[u8; 8], versions: (u16, u16), instance: &[u8; 16], name: &str) -> [u8; HELLO_BYTES] {
    assert!(name.len() <= SITE_NAME_MAX, "names are checked when a node starts");
    let mut bytes = [0; HELLO_BYTES];
    bytes[..8].copy_from_slice(magic);
    bytes[8..10].copy_from_slice(&versions.0.to_le_bytes());
    bytes[10..12].copy_from_slice(&versions.1.to_le_bytes());
    bytes[14] = name.len() as u8;
    bytes[48..64].copy_from_slice(instance);
    bytes[NAME_AT..NAME_AT + name.len()].copy_from_slice(name.as_bytes());
    bytes
}

impl Hello {
    /// The bytes to send.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = envelope(HELLO_MAGIC, self.versions, &self.instance, &self.site_name);
        bytes[12] = match self.role {
            Role::Control => 1,
            Role::Pairing => 3,
            Role::Lane => 4,
        };
        bytes[15] = match self.service {
            Service::Storage => 0,
            Service::Accelerator => 1,
        };
        bytes[16..32].copy_from_slice(&self.session);
        bytes
    }
}

impl Answer {
    /// The bytes to send.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = envelope(ANSWER_MAGIC, self.versions, &self.instance, &self.says);
        bytes[12] = self.verdict.code();
        bytes[16..18].copy_from_slice(&self.version.to_le_bytes());
        bytes
    }
}

/// Feeds arbitrary bytes to both parsers. What parses must encode to the same bytes.
///
/// # Panics
/// If it does not: that is what a fuzzer looks for.
pub fn fuzz_hello(data: &[u8]) {
    let mut bytes = [0; HELLO_BYTES];
    let length = data.len().min(HELLO_BYTES);
    bytes[..length].copy_from_slice(&data[..length]);
    if let Ok(hello) = parse_hello(&bytes, &VERSIONS) {
        assert_eq!(hello.encode(), bytes);
    }
    if let Ok(answer) = parse_answer(&bytes, &VERSIONS) {
        assert_eq!(answer.encode(), bytes);
    }
}
