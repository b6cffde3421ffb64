//! How a conversation with a client ends, in negotiation and in transmission, and how its bytes are read.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::error::NbdError;
use crate::limits::REQUEST_BYTES_MAX;
use crate::protocol::WrongMagic;

/// Why a conversation ended as it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Ending {
    /// The client said so.
    #[error("the client disconnected")]
    Disconnected,
    /// The client closed its side between two commands, or takes no more replies.
    #[error("the client hung up")]
    HungUp,
    /// The server is going down.
    #[error("the server is shutting down")]
    Shutdown,
    /// The client's right has ended.
    #[error("the client may not have it any more")]
    Revoked,
    /// The owner of the export wants its connections closed.
    #[error("the export was closed")]
    ExportClosed,
}

/// Why a conversation could not go on. The connection is closed; nothing else is touched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("this does not speak NBD, or lost its place in the stream: {0}")]
    Garbage(#[from] WrongMagic),
    #[error("this does not speak NBD: unknown client flags {flags:#x}")]
    ClientFlags { flags: u32 },
    #[error("handshake option {code} announces {length} bytes; at most {limit}")]
    OptionTooLong { code: u32, length: u32, limit: u32 },
    #[error("no export was chosen within {limit} handshake options")]
    TooManyOptions { limit: u32 },
    #[error("it did not ask for TLS within {limit} handshake options, and nothing is served here without")]
    NoTls { limit: u32 },
    #[error(
        "its old handshake (NBD_OPT_EXPORT_NAME) did not ask for TLS first, and nothing is served here without"
    )]
    PlainExportName,
    #[error("no TLS session: {0}")]
    Tls(io::Error),
    #[error("the handshake took longer than {0:?}")]
    HandshakeTime(Duration),
    #[error(
        "export {name:?} was refused ({reason}); this client's old handshake (NBD_OPT_EXPORT_NAME) cannot be told \
         why"
    )]
    ExportRefused { name: String, reason: NbdError },
    #[error("a write announces {length} bytes; at most {REQUEST_BYTES_MAX}")]
    WriteTooLong { length: u32 },
    #[error("the client sent nothing of a write's payload for {0:?}")]
    PayloadStalled(Duration),
    #[error("the client accepted none of its replies for {0:?}")]
    Stalled(Duration),
    #[error("the connection broke within {within}: {source}")]
    Broke { within: &'static str, source: io::Error },
}

impl ConnectionError {
    pub(crate) fn broke(within: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| ConnectionError::Broke { within, source }
    }
}

/// Fills an array, or returns `None` if the stream ends before its first byte.
pub(crate) async fn read_or_end<R: AsyncRead + Unpin, const BYTES: usize>(
    reader: &mut R,
) -> io::Result<Option<[u8; BYTES]>> {
    let mut bytes = [0; BYTES];
    let first = match reader.read(&mut bytes).await {
        Ok(first) => first,
        // Under TLS: it hung up without saying so. Between two messages nothing is lost by that.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
        Err(error) => return Err(error),
    };
    if first == 0 {
        return Ok(None);
    }
    reader.read_exact(&mut bytes[first..]).await?;
    Ok(Some(bytes))
}
