//! What is said before TLS: nothing of any export.
//!
//! Every byte is taken from the socket itself, none is read ahead. So whatever an attacker puts behind STARTTLS in the
//! clear goes to TLS, which refuses it: it cannot be taken for something that came protected.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use zerocopy::IntoBytes;

use crate::conversation::{ConnectionError, read_or_end};
use crate::limits::{PLAIN_OPTION_BYTES_MAX, PLAIN_OPTIONS_MAX};
use crate::negotiation::ClientFlags;
use crate::protocol::Greeting;
use crate::protocol::option::{ClientOption, OptionAnswer, OptionRefusal, parse_option, parse_option_header};

/// Greets, and goes on until the client asks for TLS and has been told that it may begin. `None`: it left.
pub(crate) async fn until_starttls<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
) -> Result<Option<ClientFlags>, ConnectionError> {
    send(stream, Greeting::fixed_newstyle().as_bytes()).await?;
    let broke = ConnectionError::broke("the client's flags");
    let Some(flags) = read_or_end(stream).await.map_err(broke)? else { return Ok(None) };
    let flags = ClientFlags::from_wire(flags)?;
    for _ in 0..PLAIN_OPTIONS_MAX {
        let broke = ConnectionError::broke("the header of an option");
        let Some(header) = read_or_end(stream).await.map_err(broke)? else { return Ok(None) };
        let (code, length) = parse_option_header(&header)?;
        if length > PLAIN_OPTION_BYTES_MAX {
            return Err(ConnectionError::OptionTooLong { code, length, limit: PLAIN_OPTION_BYTES_MAX });
        }
        let mut data = vec![0; length as usize];
        let broke = ConnectionError::broke("the data of an option");
        stream.read_exact(&mut data).await.map_err(broke)?;
        let answer = OptionAnswer::to(code);
        let bytes = match parse_option(code, &data) {
            Ok(ClientOption::StartTls) => {
                send(stream, &answer.ack()).await?;
                return Ok(Some(flags));
            }
            Ok(ClientOption::Abort) => {
                // The client need not wait for this answer, and often does not.
                let _ = send(stream, &answer.ack()).await;
                return Ok(None);
            }
            // There is no way to refuse it but to leave.
            Ok(ClientOption::ExportName(_)) => return Err(ConnectionError::PlainExportName),
            Err(error) if matches!(parse_option(code, &[]), Ok(ClientOption::StartTls)) => {
                answer.refuse(OptionRefusal::Invalid, &error.message)
            }
            _ => answer.refuse(
                OptionRefusal::TlsRequired,
                "this server speaks TLS only, with a certificate of the client",
            ),
        };
        send(stream, &bytes).await?;
    }
    Err(ConnectionError::NoTls { limit: PLAIN_OPTIONS_MAX })
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> Result<(), ConnectionError> {
    let broke = ConnectionError::broke("an answer before TLS");
    stream.write_all(bytes).await.map_err(&broke)?;
    stream.flush().await.map_err(&broke)
}
