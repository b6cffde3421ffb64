//! A server that sends and takes what it is asked for, and clients that compare every byte.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

use crate::bed::{PATIENCE, SERVER};
use crate::space::Space;

pub(crate) const MIB: u32 = 1 << 20;
/// A file repeats itself after so many bytes.
const FILE: usize = 16 << 20;

/// The bytes of a file: noise, and 4 KiB in 16 that compress.
pub(crate) fn file(number: u32) -> Arc<Vec<u8>> {
    static FILES: Mutex<Option<HashMap<u32, Arc<Vec<u8>>>>> = Mutex::new(None);
    let mut files = FILES.lock().unwrap();
    let made = files.get_or_insert_default().entry(number).or_insert_with(|| {
        let mut bytes = vec![0; FILE];
        StdRng::seed_from_u64(u64::from(number) + 20_261_124).fill_bytes(&mut bytes);
        for part in bytes.chunks_mut(16 << 10) {
            for byte in &mut part[..4 << 10] {
                *byte = b'a' + *byte % 4;
            }
        }
        Arc::new(bytes)
    });
    Arc::clone(made)
}

/// What a client wants, in this order: to send, to half-close, to get. Each side's last word is its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    pub(crate) file: u32,
    /// Bytes to the server.
    pub(crate) up: u32,
    /// Bytes to the client.
    pub(crate) down: u32,
    /// Written at once, by whoever sends; 0: 64 KiB.
    pub(crate) piece: u32,
    /// Between two pieces, microseconds.
    pub(crate) pause: u32,
}

/// A file of so many bytes, as fast as it goes.
pub(crate) fn fetch(file: u32, bytes: u32) -> Request {
    Request { file, down: bytes, ..Request::default() }
}

/// The same the other way.
pub(crate) fn send(file: u32, bytes: u32) -> Request {
    Request { file, up: bytes, down: 1, ..Request::default() }
}

/// A file that takes two seconds for each 8 MiB, so that there is time for something to happen.
pub(crate) fn fetch_slowly(file: u32, bytes: u32) -> Request {
    Request { file, down: bytes, piece: 32 << 10, pause: 8_000, ..Request::default() }
}

/// The same the other way.
pub(crate) fn send_slowly(file: u32, bytes: u32) -> Request {
    Request { file, up: bytes, down: 1, piece: 32 << 10, pause: 8_000 }
}

const HEAD: usize = 20;

impl Request {
    fn to_bytes(self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        let words = [self.file, self.up, self.down, self.piece, self.pause];
        for (place, word) in head.chunks_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        head
    }

    fn of(head: &[u8; HEAD]) -> Request {
        let word = |at: usize| u32::from_le_bytes(head[4 * at..4 * at + 4].try_into().unwrap());
        Request { file: word(0), up: word(1), down: word(2), piece: word(3), pause: word(4) }
    }

    fn write(&self, to: &mut impl Write, bytes: u32) -> io::Result<()> {
        let file = file(self.file);
        let piece = if self.piece == 0 { 64 << 10 } else { self.piece as usize };
        let (mut at, bytes) = (0, bytes as usize);
        while at < bytes {
            let part = piece.min(bytes - at).min(FILE - at % FILE);
            to.write_all(&file[at % FILE..at % FILE + part])?;
            at += part;
            if self.pause > 0 {
                thread::sleep(Duration::from_micros(u64::from(self.pause)));
            }
        }
        Ok(())
    }

    /// Reads so many bytes, and then the end.
    fn read(&self, from: &mut impl Read, bytes: u32, received: &AtomicU64) -> Result<(), Broken> {
        let file = file(self.file);
        let (mut at, bytes) = (0, bytes as usize);
        let mut part = vec![0; (64 << 10).min(bytes + 1)];
        loop {
            let got = match from.read(&mut part) {
                Ok(0) if at == bytes => return Ok(()),
                Ok(0) => return Err(Broken::Cut(at)),
                Ok(got) => got,
                Err(error) => return Err(Broken::of(error, at)),
            };
            let whole = got.min(FILE - at % FILE);
            let is_right = part[..whole] == file[at % FILE..at % FILE + whole]
                && part[whole..got] == file[..got - whole]
                && at + got <= bytes;
            if !is_right {
                return Err(Broken::Wrong(at));
            }
            at += got;
            received.store(at as u64, Ordering::Relaxed);
        }
    }
}

/// How a connection did not end as it should; with the bytes that had come.
#[derive(Debug)]
#[allow(dead_code, reason = "shown where a test fails")]
pub(crate) enum Broken {
    /// There was none.
    NoConnection(io::Error),
    Reset(usize),
    /// An end before the end: somebody would take this for all.
    Cut(usize),
    Wrong(usize),
    /// Nothing came for [`PATIENCE`].
    Hangs(usize),
    Else(io::Error),
}

impl Broken {
    fn of(error: io::Error, at: usize) -> Broken {
        match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Broken::Reset(at),
            ErrorKind::WouldBlock => Broken::Hangs(at),
            _ => Broken::Else(error),
        }
    }

    /// As a program sees that its connection is gone.
    pub(crate) fn is_reset(&self) -> bool {
        match self {
            Broken::Reset(_) => true,
            // While it was being made.
            Broken::NoConnection(error) => error.kind() == ErrorKind::ConnectionReset,
            _ => false,
        }
    }
}

/// How a transfer ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) result: Result<(), Broken>,
    /// The client's.
    pub(crate) port: u16,
    /// Until it was connected.
    pub(crate) set_up: Duration,
    /// All of it.
    pub(crate) seconds: f64,
}

/// A client at work.
pub(crate) struct Transfer {
    thread: JoinHandle<Ended>,
    received: Arc<AtomicU64>,
}

impl Transfer {
    pub(crate) fn start(client: &Space, request: Request) -> Transfer {
        Transfer::start_to(client, SERVER, request)
    }

    pub(crate) fn start_to(client: &Space, server: &str, request: Request) -> Transfer {
        let received = Arc::<AtomicU64>::default();
        let (counted, server) = (Arc::clone(&received), server.parse().unwrap());
        let thread = client.inside(|| thread::spawn(move || transfer(server, request, PATIENCE, &counted)));
        Transfer { thread, received }
    }

    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Waits until so many bytes have come.
    #[track_caller]
    pub(crate) fn is_at(&self, bytes: u32) {
        let began = Instant::now();
        while self.received() < u64::from(bytes) && !self.thread.is_finished() {
            assert!(began.elapsed() < PATIENCE, "{} bytes in {PATIENCE:?}", self.received());
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn end(self) -> Ended {
        self.thread.join().unwrap()
    }
}

/// One transfer of a client in the namespace of this thread. `received` counts on the side that receives more slowly: the server's
/// part is not seen.
pub(crate) fn transfer(to: SocketAddr, request: Request, patience: Duration, received: &AtomicU64) -> Ended {
    let began = Instant::now();
    let mut ended = Ended { result: Ok(()), port: 0, set_up: Duration::ZERO, seconds: 0.0 };
    ended.result = match TcpStream::connect_timeout(&to, patience) {
        Err(error) => Err(Broken::NoConnection(error)),
        Ok(mut socket) => {
            ended.set_up = began.elapsed();
            ended.port = socket.local_addr().unwrap().port();
            socket.set_read_timeout(Some(patience)).unwrap();
            socket.set_write_timeout(Some(patience)).unwrap();
            let said = socket.write_all(&request.to_bytes()).and_then(|()| {
                received.store(0, Ordering::Relaxed);
                let mut counted = Counted { socket: &socket, written: received };
                request.write(&mut counted, request.up)?;
                socket.shutdown(Shutdown::Write)
            });
            match said {
                // Closed by the other side in the middle.
                Err(error) if error.kind() == ErrorKind::NotConnected => Err(Broken::Reset(0)),
                Err(error) => Err(Broken::of(error, 0)),
                Ok(()) => request.read(&mut socket, request.down, received),
            }
        }
    };
    ended.seconds = began.elapsed().as_secs_f64();
    ended
}

struct Counted<'a> {
    socket: &'a TcpStream,
    written: &'a AtomicU64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.socket.write(bytes)?;
        self.written.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// Serves requests until the tests end.
pub(crate) struct Server {
    wrong: Arc<Mutex<Vec<String>>>,
    /// Connections that it has accepted.
    accepted: Arc<AtomicU64>,
    /// Those that have ended, well or not.
    ended: Arc<AtomicU64>,
}

impl Server {
    pub(crate) fn start(space: &Space, at: &str) -> Server {
        let server = Server { wrong: Arc::default(), accepted: Arc::default(), ended: Arc::default() };
        server.also(space, at);
        server
    }

    /// Listens there, too.
    pub(crate) fn also(&self, space: &Space, at: &str) {
        let (wrong, accepted, ended) =
            (Arc::clone(&self.wrong), Arc::clone(&self.accepted), Arc::clone(&self.ended));
        space.inside(|| {
            let listener = TcpListener::bind(at).unwrap();
            thread::spawn(move || {
                for socket in listener.incoming() {
                    let Ok(socket) = socket else { continue };
                    accepted.fetch_add(1, Ordering::Relaxed);
                    let (wrong, ended) = (Arc::clone(&wrong), Arc::clone(&ended));
                    thread::spawn(move || {
                        if let Err(Broken::Wrong(at) | Broken::Cut(at)) = serve(socket) {
                            wrong.lock().unwrap().push(format!("after {at} bytes"));
                        }
                        ended.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
        });
    }

    pub(crate) fn wrong(&self) -> Vec<String> {
        self.wrong.lock().unwrap().clone()
    }

    /// Connections that it has now.
    pub(crate) fn open(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed) - self.ended.load(Ordering::Relaxed)
    }
}

fn serve(mut socket: TcpStream) -> Result<(), Broken> {
    // As servers do that are connected to by somebody who says nothing.
    socket.set_read_timeout(Some(2 * PATIENCE)).unwrap();
    let mut head = [0; HEAD];
    socket.read_exact(&mut head).map_err(|error| Broken::of(error, 0))?;
    let request = Request::of(&head);
    request.read(&mut socket, request.up, &AtomicU64::new(0))?;
    let said = request.write(&mut socket, request.down);
    said.and_then(|()| socket.shutdown(Shutdown::Write)).map_err(|error| Broken::of(error, 0))
}
