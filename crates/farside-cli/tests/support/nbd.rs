//! The smallest NBD client that will do: one command at a time, simple replies. What it was answered, and in which
//! order, is exactly known, which tests of durability need.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const OPT_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;

/// What a client talks over.
pub trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A connection to one export.
pub struct Client {
    stream: Box<dyn Stream>,
    pub size_bytes: u64,
    pub read_only: bool,
    cookie: u64,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("read_only", &self.read_only).finish_non_exhaustive()
    }
}

fn number<const N: usize>(stream: &mut dyn Stream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Takes the greeting, and answers it: fixed newstyle, no zeroes.
pub fn greeted(stream: &mut dyn Stream) -> io::Result<()> {
    let greeting: [u8; 18] = number(stream)?;
    assert_eq!(&greeting[..8], b"NBDMAGIC");
    stream.write_all(&3u32.to_be_bytes())
}

/// Sends an option, and takes the kind of one answer to it.
pub fn option(stream: &mut dyn Stream, code: u32, data: &[u8]) -> io::Result<u32> {
    let mut bytes = OPTION_MAGIC.to_vec();
    bytes.extend_from_slice(&code.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    stream.write_all(&bytes)?;
    assert_eq!(u64::from_be_bytes(number(stream)?), OPTION_REPLY_MAGIC);
    assert_eq!(u32::from_be_bytes(number(stream)?), code);
    let kind = u32::from_be_bytes(number(stream)?);
    let length = u32::from_be_bytes(number(stream)?) as usize;
    stream.read_exact(&mut vec![0; length])?;
    Ok(kind)
}

impl Client {
    /// Opens an export; a refusal by the server is an error of kind `Other`.
    pub fn open(socket: &Path, export: &str) -> io::Result<Client> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        greeted(&mut stream)?;
        Client::go(Box::new(stream), export)
    }

    /// The same on a stream that has been greeted.
    pub fn go(mut stream: Box<dyn Stream>, export: &str) -> io::Result<Client> {
        let mut data = (export.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(export.as_bytes());
        data.extend_from_slice(&0u16.to_be_bytes());
        stream.write_all(OPTION_MAGIC)?;
        stream.write_all(&OPT_GO.to_be_bytes())?;
        stream.write_all(&(data.len() as u32).to_be_bytes())?;
        stream.write_all(&data)?;
        stream.flush()?;
        let mut client = Client { stream, size_bytes: 0, read_only: false, cookie: 0 };
        loop {
            assert_eq!(u64::from_be_bytes(number(&mut *client.stream)?), OPTION_REPLY_MAGIC);
            let _option: [u8; 4] = number(&mut *client.stream)?;
            let kind = u32::from_be_bytes(number(&mut *client.stream)?);
            let length = u32::from_be_bytes(number(&mut *client.stream)?) as usize;
            let mut data = vec![0; length];
            client.stream.read_exact(&mut data)?;
            match kind {
                REPLY_ACK => return Ok(client),
                REPLY_INFO if data[..2] == [0, 0] => {
                    client.size_bytes = u64::from_be_bytes(data[2..10].try_into().unwrap());
                    client.read_only = u16::from_be_bytes(data[10..12].try_into().unwrap()) & 2 != 0;
                }
                REPLY_INFO => {}
                _ => return Err(io::Error::other(String::from_utf8_lossy(&data).into_owned())),
            }
        }
    }

    fn command(
        &mut self,
        kind: u16,
        offset: u64,
        length: u32,
        payload: &[u8],
        into: &mut [u8],
    ) -> io::Result<()> {
        self.cookie += 1;
        let mut request = REQUEST_MAGIC.to_be_bytes().to_vec();
        request.extend_from_slice(&0u16.to_be_bytes());
        request.extend_from_slice(&kind.to_be_bytes());
        request.extend_from_slice(&self.cookie.to_be_bytes());
        request.extend_from_slice(&offset.to_be_bytes());
        request.extend_from_slice(&length.to_be_bytes());
        request.extend_from_slice(payload);
        self.stream.write_all(&request)?;
        self.stream.flush()?;
        assert_eq!(u32::from_be_bytes(number(&mut *self.stream)?), SIMPLE_REPLY_MAGIC);
        let error = u32::from_be_bytes(number(&mut *self.stream)?);
        assert_eq!(u64::from_be_bytes(number(&mut *self.stream)?), self.cookie);
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error as i32));
        }
        self.stream.read_exact(into)
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.command(WRITE, offset, bytes.len() as u32, bytes, &mut [])
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.command(FLUSH, 0, 0, &[], &mut [])
    }

    pub fn trim(&mut self, offset: u64, length: u32) -> io::Result<()> {
        self.command(TRIM, offset, length, &[], &mut [])
    }

    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.command(READ, offset, buffer.len() as u32, &[], buffer)
    }

    /// `length` bytes from `offset`.
    pub fn bytes(&mut self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// The whole export.
    pub fn read_all(&mut self) -> Vec<u8> {
        let mut all = vec![0; self.size_bytes as usize];
        for (index, part) in all.chunks_mut(1 << 20).enumerate() {
            self.read(index as u64 * (1 << 20), part).unwrap();
        }
        all
    }
}
