//! A client of bare bytes, for what well-behaved clients never send. Its numbers are written out from the protocol,
//! not taken from the server.

use std::path::Path;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::serve::PATIENCE;

pub const OPT_EXPORT_NAME: u32 = 1;
pub const OPT_ABORT: u32 = 2;
pub const OPT_LIST: u32 = 3;
pub const OPT_STARTTLS: u32 = 5;
pub const OPT_INFO: u32 = 6;
pub const OPT_GO: u32 = 7;
pub const OPT_STRUCTURED_REPLY: u32 = 8;
pub const OPT_LIST_META_CONTEXT: u32 = 9;
pub const OPT_SET_META_CONTEXT: u32 = 10;

pub const REP_ACK: u32 = 1;
pub const REP_INFO: u32 = 3;
pub const REP_META_CONTEXT: u32 = 4;
pub const REP_ERR_UNSUP: u32 = (1 << 31) | 1;
pub const REP_ERR_INVALID: u32 = (1 << 31) | 3;
pub const REP_ERR_TLS_REQD: u32 = (1 << 31) | 5;
pub const REP_ERR_TOO_BIG: u32 = (1 << 31) | 9;
pub const REP_ERR_UNKNOWN: u32 = (1 << 31) | 6;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;

pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 2;
pub const DF: u16 = 4;
pub const REQ_ONE: u16 = 8;
pub const FAST_ZERO: u16 = 16;

pub const EPERM: u32 = 1;
pub const EIO: u32 = 5;
pub const EINVAL: u32 = 22;
pub const ENOSPC: u32 = 28;
pub const ENOTSUP: u32 = 95;

pub struct RawClient<S = UnixStream> {
    pub stream: S,
    pub structured: bool,
}

/// An answer to a command, all its chunks together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub cookie: u64,
    pub error: u32,
    /// Kind and payload of each chunk; of a simple reply to a READ, kind 1 and the data.
    pub chunks: Vec<(u16, Vec<u8>)>,
}

impl RawClient<UnixStream> {
    /// Connects, and takes the greeting.
    pub async fn connect(socket: &Path) -> Self {
        Self::greeted(UnixStream::connect(socket).await.unwrap()).await
    }

    /// Connects and opens `export`, with structured replies and `base:allocation` if `structured`.
    pub async fn open(socket: &Path, export: &str, structured: bool) -> Self {
        Self::opened(UnixStream::connect(socket).await.unwrap(), export, structured).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> RawClient<S> {
    /// Takes the greeting on `stream`.
    pub async fn greeted(stream: S) -> Self {
        let mut client = RawClient { stream, structured: false };
        assert_eq!(client.take(18).await, b"NBDMAGICIHAVEOPT\0\x03");
        client
    }

    /// The same, on `stream`.
    pub async fn opened(stream: S, export: &str, structured: bool) -> Self {
        let mut client = Self::greeted(stream).await;
        client.send(&3_u32.to_be_bytes()).await;
        client.chosen(export, structured).await
    }

    /// Opens `export` on a stream that has been greeted, by `client` and server.
    pub async fn chosen(mut self, export: &str, structured: bool) -> Self {
        let client = &mut self;
        if structured {
            assert_eq!(client.option(OPT_STRUCTURED_REPLY, &[]).await, [(REP_ACK, vec![])]);
            let mut data = string(export);
            data.extend(1_u32.to_be_bytes());
            data.extend(string("base:allocation"));
            let answers = client.option(OPT_SET_META_CONTEXT, &data).await;
            assert_eq!(answers[0].0, REP_META_CONTEXT);
            client.structured = true;
        }
        let answers = client.option(OPT_GO, &go(export)).await;
        assert_eq!(answers.iter().map(|answer| answer.0).collect::<Vec<_>>(), [REP_INFO, REP_ACK]);
        self
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        let sent = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        timeout(PATIENCE, sent).await.expect("the server takes it").unwrap();
    }

    pub async fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = vec![0; bytes];
        timeout(PATIENCE, self.stream.read_exact(&mut buffer)).await.expect("the server answers").unwrap();
        buffer
    }

    async fn take_u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take(2).await.try_into().unwrap())
    }

    async fn take_u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).await.try_into().unwrap())
    }

    async fn take_u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take(8).await.try_into().unwrap())
    }

    /// What comes until the server closes; a reset counts as closing.
    pub async fn take_to_end(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, self.stream.read_to_end(&mut rest)).await.expect("the server closes");
        rest
    }

    /// Sends an option and takes its answers, down to the last.
    pub async fn option(&mut self, code: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send(&option(code, data)).await;
        let mut answers = Vec::new();
        loop {
            assert_eq!(self.take_u64().await, 0x0003_e889_0455_65a9);
            assert_eq!(self.take_u32().await, code);
            let reply = self.take_u32().await;
            let length = self.take_u32().await as usize;
            answers.push((reply, self.take(length).await));
            if reply == REP_ACK || reply >= 1 << 31 {
                return answers;
            }
        }
    }

    /// Sends a command without payload and takes the next answer.
    pub async fn command(&mut self, flags: u16, command: u16, offset: u64, length: u32) -> Answer {
        self.send(&request(flags, command, 42, offset, length)).await;
        let answer = self.answer(if command == READ { length } else { 0 }).await;
        assert_eq!(answer.cookie, 42);
        answer
    }

    pub async fn write(&mut self, flags: u16, offset: u64, bytes: &[u8]) -> Answer {
        self.send(&request(flags, WRITE, 43, offset, bytes.len() as u32)).await;
        self.send(bytes).await;
        self.answer(0).await
    }

    /// Takes the next answer; a simple one without error carries `read_bytes`.
    pub async fn answer(&mut self, read_bytes: u32) -> Answer {
        let mut answer: Option<Answer> = None;
        loop {
            match self.take_u32().await {
                0x6744_6698 => {
                    assert!(answer.is_none(), "a simple reply among chunks");
                    let error = self.take_u32().await;
                    let cookie = self.take_u64().await;
                    let data = if error == 0 { self.take(read_bytes as usize).await } else { vec![] };
                    let chunks = if data.is_empty() { vec![] } else { vec![(1, data)] };
                    return Answer { cookie, error, chunks };
                }
                0x668e_33ef => {
                    assert!(self.structured);
                    let flags = self.take_u16().await;
                    let kind = self.take_u16().await;
                    let cookie = self.take_u64().await;
                    let length = self.take_u32().await as usize;
                    let payload = self.take(length).await;
                    let answer =
                        answer.get_or_insert_with(|| Answer { cookie, error: 0, chunks: Vec::new() });
                    assert_eq!(answer.cookie, cookie, "chunks of two answers mixed");
                    if kind == 0x8001 {
                        answer.error = u32::from_be_bytes(payload[..4].try_into().unwrap());
                    }
                    answer.chunks.push((kind, payload));
                    if flags & 1 != 0 {
                        return answer.clone();
                    }
                }
                other => panic!("no reply begins with {other:#x}"),
            }
        }
    }
}

pub fn option(code: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(code.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

pub fn string(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

/// Data of INFO and GO that ask for nothing beside.
pub fn go(export: &str) -> Vec<u8> {
    let mut bytes = string(export);
    bytes.extend([0, 0]);
    bytes
}

pub fn request(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}
