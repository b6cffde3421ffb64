//! Commands: from 28 bytes to something that is safe to carry out.

use crate::error::{ErrorKind, NbdError};
use crate::export::ZeroMode;
use crate::limits::REQUEST_BYTES_MAX;
use crate::protocol::{REQUEST_HEADER_BYTES, REQUEST_MAGIC, RequestHeader, WrongMagic};

const FLAG_FUA: u16 = 1 << 0;
const FLAG_NO_HOLE: u16 = 1 << 1;
const FLAG_DONT_FRAGMENT: u16 = 1 << 2;
const FLAG_REQUEST_ONE: u16 = 1 << 3;
const FLAG_FAST_ZERO: u16 = 1 << 4;

/// What the client wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    Cache,
    WriteZeroes,
    BlockStatus,
    /// RESIZE, or nothing we heard of.
    Unknown(u16),
}

/// A command as received; nothing about it is known to be sound but its magic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) command: Command,
    flags: u16,
    /// The client's name for the command, returned with the answer.
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

/// What was agreed in the handshake, as far as it decides which commands are sound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransmissionParameters {
    pub(crate) size_bytes: u64,
    pub(crate) read_only: bool,
    pub(crate) structured_replies: bool,
    /// Metadata contexts were chosen.
    pub(crate) contexts: bool,
}

/// A range within the export, not empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

/// A command that may be carried out: in range, permitted, with flags that were offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Read { range: Range, one_chunk: bool },
    Write { range: Range, fua: bool },
    Flush,
    Trim { range: Range, fua: bool },
    Cache { range: Range },
    WriteZeroes { range: Range, mode: ZeroMode },
    BlockStatus { range: Range, one_extent: bool },
}

/// Reads a command's header.
///
/// # Errors
/// The stream is not at a command: there is no way to find the next one, so the connection must end.
pub(crate) fn parse_request(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Result<Request, WrongMagic> {
    let header: RequestHeader = zerocopy::transmute!(*bytes);
    if header.magic.get() != REQUEST_MAGIC {
        let found = header.magic.get().into();
        return Err(WrongMagic { what: "request magic", expected: REQUEST_MAGIC.into(), found });
    }
    let command = match header.command.get() {
        0 => Command::Read,
        1 => Command::Write,
        2 => Command::Disconnect,
        3 => Command::Flush,
        4 => Command::Trim,
        5 => Command::Cache,
        6 => Command::WriteZeroes,
        7 => Command::BlockStatus,
        other => Command::Unknown(other),
    };
    Ok(Request {
        command,
        flags: header.flags.get(),
        cookie: header.cookie.get(),
        offset: header.offset.get(),
        length: header.length.get(),
    })
}

/// Decides whether `request` may be carried out under `parameters`. All that a client can get wrong in a command is
/// found here; further in it is taken for granted.
pub(crate) fn validate(request: &Request, parameters: &TransmissionParameters) -> Result<Action, NbdError> {
    // FUA must be accepted with every command once offered, and means nothing for those that change nothing.
    let known_flags = FLAG_FUA
        | match request.command {
            Command::Read if parameters.structured_replies => FLAG_DONT_FRAGMENT,
            Command::WriteZeroes => FLAG_NO_HOLE | FLAG_FAST_ZERO,
            Command::BlockStatus => FLAG_REQUEST_ONE,
            _ => 0,
        };
    let unknown_flags = request.flags & !known_flags;
    if unknown_flags != 0 {
        let command = request.command;
        return Err(NbdError::invalid(format_args!("{command:?} with unknown flags {unknown_flags:#x}")));
    }
    let flag = |flag: u16| request.flags & flag != 0;
    let changes = matches!(request.command, Command::Write | Command::Trim | Command::WriteZeroes);
    if changes && parameters.read_only {
        return Err(NbdError::new(ErrorKind::NotPermitted, "this export is read-only"));
    }
    let fua = flag(FLAG_FUA);
    match request.command {
        Command::Read => {
            let range = short(in_range(request, parameters)?)?;
            // Without structured replies every answer is in one piece anyway.
            let one_chunk = flag(FLAG_DONT_FRAGMENT) || !parameters.structured_replies;
            Ok(Action::Read { range, one_chunk })
        }
        Command::Write => Ok(Action::Write { range: short(in_range(request, parameters)?)?, fua }),
        Command::Flush => Ok(Action::Flush),
        Command::Trim => Ok(Action::Trim { range: in_range(request, parameters)?, fua }),
        Command::WriteZeroes => {
            let mode = ZeroMode { may_trim: !flag(FLAG_NO_HOLE), fast_only: flag(FLAG_FAST_ZERO), fua };
            Ok(Action::WriteZeroes { range: in_range(request, parameters)?, mode })
        }
        Command::Cache => Ok(Action::Cache { range: in_range(request, parameters)? }),
        Command::BlockStatus if !parameters.contexts => {
            Err(NbdError::invalid("block status without a negotiated metadata context"))
        }
        Command::BlockStatus => {
            let range = in_range(request, parameters)?;
            Ok(Action::BlockStatus { range, one_extent: flag(FLAG_REQUEST_ONE) })
        }
        Command::Disconnect => Err(NbdError::invalid("a disconnect is not a command to be answered")),
        Command::Unknown(number) => Err(NbdError::invalid(format_args!("unknown command {number}"))),
    }
}

fn in_range(request: &Request, parameters: &TransmissionParameters) -> Result<Range, NbdError> {
    let Request { command, offset, length, .. } = *request;
    if length == 0 {
        return Err(NbdError::invalid(format_args!("{command:?} of no bytes")));
    }
    if offset.checked_add(length.into()).is_none_or(|end| end > parameters.size_bytes) {
        // The protocol wants a write past the end answered as a full disk, anything else as nonsense.
        let kind = match command {
            Command::Write | Command::WriteZeroes => ErrorKind::NoSpace,
            _ => ErrorKind::Invalid,
        };
        let size_bytes = parameters.size_bytes;
        return Err(NbdError::new(
            kind,
            format_args!("{length} bytes at byte {offset} end beyond the export's {size_bytes} bytes"),
        ));
    }
    Ok(Range { offset, length })
}

fn short(range: Range) -> Result<Range, NbdError> {
    if range.length > REQUEST_BYTES_MAX {
        let length = range.length;
        return Err(NbdError::invalid(format_args!("{length} bytes at once; at most {REQUEST_BYTES_MAX}")));
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: TransmissionParameters = TransmissionParameters {
        size_bytes: 1 << 20,
        read_only: false,
        structured_replies: true,
        contexts: true,
    };

    fn request(command: Command, flags: u16, offset: u64, length: u32) -> Request {
        Request { command, flags, cookie: 7, offset, length }
    }

    fn kind(request: Request, parameters: &TransmissionParameters) -> ErrorKind {
        validate(&request, parameters).expect_err("must be refused").kind
    }

    #[test]
    fn header_bytes_mean_what_the_protocol_says() {
        let mut bytes = [0; REQUEST_HEADER_BYTES];
        bytes[..4].copy_from_slice(&[0x25, 0x60, 0x95, 0x13]);
        bytes[5] = 1;
        bytes[7] = 6;
        bytes[15] = 9;
        bytes[22] = 0x10;
        bytes[26] = 0x02;
        let request = parse_request(&bytes).unwrap();
        assert_eq!(
            request,
            Request { command: Command::WriteZeroes, flags: 1, cookie: 9, offset: 0x1000, length: 0x200 }
        );
        bytes[0] = 0;
        assert_eq!(parse_request(&bytes).unwrap_err().found, 0x0060_9513);
    }

    #[test]
    fn ranges_end_within_the_export() {
        let size = PARAMETERS.size_bytes;
        assert!(validate(&request(Command::Read, 0, size - 1, 1), &PARAMETERS).is_ok());
        assert_eq!(kind(request(Command::Read, 0, size - 1, 2), &PARAMETERS), ErrorKind::Invalid);
        assert_eq!(kind(request(Command::Read, 0, u64::MAX, 2), &PARAMETERS), ErrorKind::Invalid);
        assert_eq!(kind(request(Command::Write, 0, size, 1), &PARAMETERS), ErrorKind::NoSpace);
        assert_eq!(
            kind(request(Command::WriteZeroes, 0, u64::MAX, u32::MAX), &PARAMETERS),
            ErrorKind::NoSpace
        );
        assert_eq!(kind(request(Command::Trim, 0, size, 1), &PARAMETERS), ErrorKind::Invalid);
        assert_eq!(kind(request(Command::BlockStatus, 0, 0, 0), &PARAMETERS), ErrorKind::Invalid);
    }

    #[test]
    fn only_payload_commands_are_short() {
        let parameters = TransmissionParameters { size_bytes: 1 << 40, ..PARAMETERS };
        let long = REQUEST_BYTES_MAX + 1;
        assert!(validate(&request(Command::Read, 0, 0, REQUEST_BYTES_MAX), &parameters).is_ok());
        assert_eq!(kind(request(Command::Read, 0, 0, long), &parameters), ErrorKind::Invalid);
        assert_eq!(kind(request(Command::Write, 0, 0, long), &parameters), ErrorKind::Invalid);
        for command in [Command::Trim, Command::Cache, Command::WriteZeroes, Command::BlockStatus] {
            assert!(validate(&request(command, 0, 0, u32::MAX), &parameters).is_ok());
        }
    }

    #[test]
    fn changes_need_a_writable_export() {
        let parameters = TransmissionParameters { read_only: true, ..PARAMETERS };
        for command in [Command::Write, Command::Trim, Command::WriteZeroes] {
            assert_eq!(kind(request(command, 0, 0, 1), &parameters), ErrorKind::NotPermitted);
        }
        assert!(validate(&request(Command::Read, 0, 0, 1), &parameters).is_ok());
        assert_eq!(validate(&request(Command::Flush, 0, 0, 0), &parameters).unwrap(), Action::Flush);
    }

    #[test]
    fn flags_belong_to_their_commands() {
        let all =
            [FLAG_FUA, FLAG_NO_HOLE, FLAG_DONT_FRAGMENT, FLAG_REQUEST_ONE, FLAG_FAST_ZERO, 1 << 5, 1 << 15];
        let accepted = |command| {
            all.into_iter()
                .filter(|&f| validate(&request(command, f, 0, 1), &PARAMETERS).is_ok())
                .sum::<u16>()
        };
        assert_eq!(accepted(Command::Read), FLAG_FUA | FLAG_DONT_FRAGMENT);
        assert_eq!(accepted(Command::Write), FLAG_FUA);
        assert_eq!(accepted(Command::Flush), FLAG_FUA);
        assert_eq!(accepted(Command::Trim), FLAG_FUA);
        assert_eq!(accepted(Command::WriteZeroes), FLAG_FUA | FLAG_NO_HOLE | FLAG_FAST_ZERO);
        assert_eq!(accepted(Command::BlockStatus), FLAG_FUA | FLAG_REQUEST_ONE);
        assert_eq!(accepted(Command::Cache), FLAG_FUA);
        assert_eq!(accepted(Command::Unknown(8)), 0);
        let simple = TransmissionParameters { structured_replies: false, contexts: false, ..PARAMETERS };
        assert_eq!(kind(request(Command::Read, FLAG_DONT_FRAGMENT, 0, 1), &simple), ErrorKind::Invalid);
        assert_eq!(kind(request(Command::BlockStatus, 0, 0, 1), &simple), ErrorKind::Invalid);
    }
}
