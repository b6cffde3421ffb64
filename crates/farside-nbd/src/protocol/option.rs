//! The handshake's options and their answers.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::{ErrorKind, NbdError};
use crate::export::{ExportDescription, ExportListing};
use crate::limits::{
    CONTEXT_QUERIES_MAX, ERROR_TEXT_BYTES_MAX, PREFERRED_BLOCK_BYTES, REQUEST_BYTES_MAX, STRING_BYTES_MAX,
};
use crate::protocol::{
    OPTION_HEADER_BYTES, OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionHeader, OptionReplyHeader, WrongMagic,
    transmission_flag,
};

/// The metadata context that every export has: holes and zeros.
pub(crate) const BASE_ALLOCATION: &str = "base:allocation";

const OPTION_EXPORT_NAME: u32 = 1;
const OPTION_ABORT: u32 = 2;
const OPTION_LIST: u32 = 3;
const OPTION_STARTTLS: u32 = 5;
const OPTION_INFO: u32 = 6;
const OPTION_GO: u32 = 7;
const OPTION_STRUCTURED_REPLY: u32 = 8;
const OPTION_LIST_META_CONTEXT: u32 = 9;
const OPTION_SET_META_CONTEXT: u32 = 10;

const REPLY_ACK: u32 = 1;
const REPLY_SERVER: u32 = 2;
const REPLY_INFO: u32 = 3;
const REPLY_META_CONTEXT: u32 = 4;
const REPLY_ERROR: u32 = 1 << 31;

const INFO_EXPORT: u16 = 0;
const INFO_NAME: u16 = 1;
const INFO_DESCRIPTION: u16 = 2;
const INFO_BLOCK_SIZE: u16 = 3;

/// Zeros after the answer to EXPORT_NAME, for clients that did not decline them.
const EXPORT_NAME_ZEROES: usize = 124;

/// Why an option is refused; the wire numbers are those of `NBD_REP_ERR_*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OptionRefusal {
    /// The server does not know the option.
    Unsupported = 1,
    /// The client may not, or the export cannot be had.
    Policy = 2,
    /// The option's data make no sense, or come at the wrong time.
    Invalid = 3,
    /// Nothing is served before TLS.
    TlsRequired = 5,
    /// No export of that name.
    Unknown = 6,
    /// The server is going down.
    Shutdown = 7,
    /// The client wants more than there may be.
    TooBig = 9,
}

impl From<ErrorKind> for OptionRefusal {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::UnknownExport => OptionRefusal::Unknown,
            ErrorKind::NotPermitted | ErrorKind::Io | ErrorKind::NoSpace => OptionRefusal::Policy,
            ErrorKind::Invalid => OptionRefusal::Invalid,
            ErrorKind::NotSupported => OptionRefusal::Unsupported,
            ErrorKind::ShuttingDown => OptionRefusal::Shutdown,
        }
    }
}

/// What a client asks for.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum ClientOption<'a> {
    /// Old way into transmission, without room for an error.
    ExportName(&'a str),
    /// The client leaves.
    Abort,
    /// Names of exports.
    List,
    /// About an export; with `go`, and into transmission.
    Info { go: bool, name: &'a str, wants: InfoWanted },
    /// Structured replies from now on.
    StructuredReply,
    /// Which metadata contexts there are; with `set`, and use them.
    MetaContext { set: bool, name: &'a str, queries: Vec<&'a str> },
    /// TLS from now on.
    StartTls,
    /// Anything else; also extended headers.
    Unsupported,
}

/// Facts asked for beside size and flags, which are always told.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct InfoWanted {
    pub(crate) name: bool,
    pub(crate) about: bool,
    pub(crate) block_sizes: bool,
}

/// The option's number and the length of its data.
pub(crate) fn parse_option_header(bytes: &[u8; OPTION_HEADER_BYTES]) -> Result<(u32, u32), WrongMagic> {
    let header: OptionHeader = zerocopy::transmute!(*bytes);
    if header.magic.get() != OPTION_MAGIC {
        return Err(WrongMagic { what: "option magic", expected: OPTION_MAGIC, found: header.magic.get() });
    }
    Ok((header.code.get(), header.length.get()))
}

/// The meaning of option `code` with `data`.
///
/// # Errors
/// `Invalid` with what is wrong, for an option that is known but ill-formed.
pub(crate) fn parse_option(code: u32, data: &[u8]) -> Result<ClientOption<'_>, NbdError> {
    let mut data = Data(data);
    let option = match code {
        OPTION_EXPORT_NAME => ClientOption::ExportName(data.string_to_end()?),
        OPTION_ABORT => {
            // Whatever comes with it, the client leaves.
            data.0 = &[];
            ClientOption::Abort
        }
        OPTION_LIST => ClientOption::List,
        OPTION_STARTTLS => ClientOption::StartTls,
        OPTION_STRUCTURED_REPLY => ClientOption::StructuredReply,
        OPTION_INFO | OPTION_GO => {
            let name = data.string()?;
            let mut wants = InfoWanted::default();
            for _ in 0..data.u16()? {
                match data.u16()? {
                    INFO_NAME => wants.name = true,
                    INFO_DESCRIPTION => wants.about = true,
                    INFO_BLOCK_SIZE => wants.block_sizes = true,
                    _ => {} // a fact that we do not know is one we do not tell
                }
            }
            ClientOption::Info { go: code == OPTION_GO, name, wants }
        }
        OPTION_LIST_META_CONTEXT | OPTION_SET_META_CONTEXT => {
            let set = code == OPTION_SET_META_CONTEXT;
            let name = data.string()?;
            let count = data.u32()?;
            if count > CONTEXT_QUERIES_MAX {
                return Err(NbdError::invalid(format_args!(
                    "{count} queries for metadata contexts; at most {CONTEXT_QUERIES_MAX}"
                )));
            }
            let queries = (0..count).map(|_| data.string()).collect::<Result<_, _>>()?;
            ClientOption::MetaContext { set, name, queries }
        }
        _ => return Ok(ClientOption::Unsupported),
    };
    match data.0.len() {
        0 => Ok(option),
        left => Err(NbdError::invalid(format_args!("option {code} has {left} bytes too many"))),
    }
}

/// Whether these queries mean `base:allocation`. No query at all lists everything, and sets nothing.
pub(crate) fn mean_base_allocation(queries: &[impl AsRef<str>], set: bool) -> bool {
    let means = |query: &str| query == BASE_ALLOCATION || (query == "base:" && !set);
    (queries.is_empty() && !set) || queries.iter().any(|query| means(query.as_ref()))
}

/// Option data not yet read.
struct Data<'a>(&'a [u8]);

impl<'a> Data<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], NbdError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or_else(|| {
            NbdError::invalid(format_args!("option data end after {} of {bytes} bytes", self.0.len()))
        })?;
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, NbdError> {
        let bytes = self.take(size_of::<U16>())?;
        Ok(U16::read_from_bytes(bytes).expect("two bytes were taken").get())
    }

    fn u32(&mut self) -> Result<u32, NbdError> {
        let bytes = self.take(size_of::<U32>())?;
        Ok(U32::read_from_bytes(bytes).expect("four bytes were taken").get())
    }

    fn string(&mut self) -> Result<&'a str, NbdError> {
        let length = self.u32()? as usize;
        if length > STRING_BYTES_MAX {
            return Err(NbdError::invalid(format_args!(
                "a name of {length} bytes; at most {STRING_BYTES_MAX}"
            )));
        }
        text(self.take(length)?)
    }

    fn string_to_end(&mut self) -> Result<&'a str, NbdError> {
        if self.0.len() > STRING_BYTES_MAX {
            let length = self.0.len();
            return Err(NbdError::invalid(format_args!(
                "a name of {length} bytes; at most {STRING_BYTES_MAX}"
            )));
        }
        text(self.take(self.0.len())?)
    }
}

fn text(bytes: &[u8]) -> Result<&str, NbdError> {
    std::str::from_utf8(bytes)
        .map_err(|error| NbdError::invalid(format_args!("a name is not UTF-8: {error}")))
}

/// The flags that tell what `export` can do.
pub(crate) fn transmission_flags(export: &ExportDescription, structured_replies: bool) -> u16 {
    use transmission_flag::*;
    let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_CACHE;
    if export.read_only {
        flags |= READ_ONLY;
    } else {
        flags |= SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO;
    }
    if structured_replies {
        flags |= SEND_DF;
    }
    if export.multi_conn {
        flags |= CAN_MULTI_CONN;
    }
    flags
}

/// Answers to one option, as bytes ready to be sent.
pub(crate) struct OptionAnswer {
    code: u32,
    bytes: Vec<u8>,
}

impl OptionAnswer {
    /// An empty answer to option `code`; end it with [`ack`](Self::ack) or [`refuse`](Self::refuse).
    pub(crate) fn to(code: u32) -> Self {
        OptionAnswer { code, bytes: Vec::new() }
    }

    fn part(&mut self, reply: u32, data: &[&[u8]]) {
        let length: usize = data.iter().map(|piece| piece.len()).sum();
        let header = OptionReplyHeader {
            magic: OPTION_REPLY_MAGIC.into(),
            code: self.code.into(),
            reply: reply.into(),
            length: u32::try_from(length).expect("parts hold short strings").into(),
        };
        self.bytes.extend_from_slice(header.as_bytes());
        for piece in data {
            self.bytes.extend_from_slice(piece);
        }
    }

    /// One export of a list. Its texts are cut to what the protocol lets a string be.
    pub(crate) fn listing(&mut self, listing: &ExportListing) {
        let name = cut(&listing.name, STRING_BYTES_MAX);
        let about = cut(&listing.about, STRING_BYTES_MAX);
        let length = U32::new(name.len() as u32);
        self.part(REPLY_SERVER, &[length.as_bytes(), name.as_bytes(), about.as_bytes()]);
    }

    /// The facts about an export that every client needs, and those that this one wants.
    pub(crate) fn info(
        &mut self,
        name: &str,
        export: &ExportDescription,
        structured: bool,
        wants: InfoWanted,
    ) {
        let kind = |number: u16| U16::new(number);
        let size = U64::new(export.size_bytes);
        let flags = U16::new(transmission_flags(export, structured));
        self.part(REPLY_INFO, &[kind(INFO_EXPORT).as_bytes(), size.as_bytes(), flags.as_bytes()]);
        if wants.name {
            self.part(REPLY_INFO, &[kind(INFO_NAME).as_bytes(), name.as_bytes()]);
        }
        if wants.about && !export.about.is_empty() {
            let about = cut(&export.about, STRING_BYTES_MAX);
            self.part(REPLY_INFO, &[kind(INFO_DESCRIPTION).as_bytes(), about.as_bytes()]);
        }
        if wants.block_sizes {
            let sizes = [U32::new(1), U32::new(PREFERRED_BLOCK_BYTES), U32::new(REQUEST_BYTES_MAX)];
            self.part(REPLY_INFO, &[kind(INFO_BLOCK_SIZE).as_bytes(), sizes.as_bytes()]);
        }
    }

    /// A metadata context. In a list its number means nothing and is 0.
    pub(crate) fn context(&mut self, id: u32, name: &str) {
        let name = cut(name, STRING_BYTES_MAX);
        self.part(REPLY_META_CONTEXT, &[U32::new(id).as_bytes(), name.as_bytes()]);
    }

    /// Done.
    pub(crate) fn ack(mut self) -> Vec<u8> {
        self.part(REPLY_ACK, &[]);
        self.bytes
    }

    /// Refused, with a text for people.
    pub(crate) fn refuse(mut self, refusal: OptionRefusal, text: &str) -> Vec<u8> {
        self.part(REPLY_ERROR | refusal as u32, &[cut(text, ERROR_TEXT_BYTES_MAX).as_bytes()]);
        self.bytes
    }
}

/// The answer to EXPORT_NAME, which is unlike any other.
pub(crate) fn export_name_answer(export: &ExportDescription, structured: bool, no_zeroes: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(10 + EXPORT_NAME_ZEROES);
    bytes.extend_from_slice(U64::new(export.size_bytes).as_bytes());
    bytes.extend_from_slice(U16::new(transmission_flags(export, structured)).as_bytes());
    if !no_zeroes {
        bytes.resize(bytes.len() + EXPORT_NAME_ZEROES, 0);
    }
    bytes
}

/// The longest beginning of `text` that has at most `bytes_max` bytes and ends between characters.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_length(text: &str) -> Vec<u8> {
        let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    #[test]
    fn go_names_an_export_and_what_it_wants() {
        let mut data = with_length("pool/volume");
        data.extend([0, 2, 0, 3, 0, 77]);
        let wants = InfoWanted { block_sizes: true, ..InfoWanted::default() };
        assert_eq!(
            parse_option(OPTION_GO, &data).unwrap(),
            ClientOption::Info { go: true, name: "pool/volume", wants }
        );
        for cut_at in 0..data.len() {
            assert!(parse_option(OPTION_GO, &data[..cut_at]).is_err(), "{cut_at} bytes must not do");
        }
        data.push(0);
        assert!(parse_option(OPTION_GO, &data).is_err(), "a byte too many");
    }

    #[test]
    fn contexts_are_listed_by_namespace_but_set_by_full_name() {
        let query = |code, queries: &[&str]| {
            let mut data = with_length("v");
            data.extend((queries.len() as u32).to_be_bytes());
            queries.iter().for_each(|query| data.extend(with_length(query)));
            match parse_option(code, &data).unwrap() {
                ClientOption::MetaContext { set, queries, .. } => mean_base_allocation(&queries, set),
                other => panic!("{other:?}"),
            }
        };
        assert!(query(OPTION_LIST_META_CONTEXT, &[]));
        assert!(query(OPTION_LIST_META_CONTEXT, &["qemu:", "base:"]));
        assert!(!query(OPTION_LIST_META_CONTEXT, &["qemu:"]));
        assert!(!query(OPTION_SET_META_CONTEXT, &[]));
        assert!(!query(OPTION_SET_META_CONTEXT, &["base:"]));
        assert!(query(OPTION_SET_META_CONTEXT, &["x:y", BASE_ALLOCATION]));
        let mut many = with_length("v");
        many.extend((CONTEXT_QUERIES_MAX + 1).to_be_bytes());
        many.extend(with_length("").repeat(CONTEXT_QUERIES_MAX as usize + 1));
        assert!(parse_option(OPTION_LIST_META_CONTEXT, &many).is_err());
    }

    #[test]
    fn names_are_bounded_and_text() {
        assert!(parse_option(OPTION_EXPORT_NAME, &[b'a'; STRING_BYTES_MAX]).is_ok());
        assert!(parse_option(OPTION_EXPORT_NAME, &[b'a'; STRING_BYTES_MAX + 1]).is_err());
        assert!(parse_option(OPTION_EXPORT_NAME, &[0xff]).is_err());
    }

    #[test]
    fn read_only_exports_offer_no_changes() {
        let mut export =
            ExportDescription { size_bytes: 1, read_only: true, multi_conn: true, about: String::new() };
        assert_eq!(transmission_flags(&export, true), 0b101_1000_1111);
        export.read_only = false;
        export.multi_conn = false;
        assert_eq!(transmission_flags(&export, false), 0b1100_0110_1101);
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
    }
}
