//! The link of a bad day: a TCP relay on loopback that can be slow, can swallow everything while its sockets stay open,
//! and can be cut. It counts what passes, so that a moment of a transfer can be named in bytes rather than in seconds.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What a pump takes at once, bytes: a moment is hit this exactly.
const PIECE: usize = 16 << 10;

/// A relay that runs until it is dropped.
pub struct Relay {
    /// Where it is dialled.
    pub address: String,
    link: Arc<Link>,
}

struct Link {
    target: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes per second towards whoever dialled; none: as fast as it goes.
    rate: Option<u64>,
    /// When the next piece may pass at that rate.
    free_at: Option<Instant>,
    /// Bytes that have passed towards whoever dialled.
    passed: u64,
    /// Nothing passes from this count on, in either direction.
    hole_at: Option<u64>,
    /// Whoever dials is sent away.
    is_cut: bool,
    is_over: bool,
    sockets: Vec<TcpStream>,
}

impl Relay {
    /// Relays to `target`, unhindered.
    pub fn start(target: &str) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let link = Arc::new(Link { target: target.into(), state: Mutex::default(), changed: Condvar::new() });
        let accepting = Arc::clone(&link);
        std::thread::spawn(move || {
            while let Ok((dialled, _)) = listener.accept() {
                if accepting.state().is_over {
                    break;
                }
                accepting.connect(dialled);
            }
        });
        Relay { address: address.to_string(), link }
    }

    /// Bytes per second from the target to whoever dialled it.
    pub fn limit(&self, rate: Option<u64>) {
        let mut state = self.link.state();
        (state.rate, state.free_at) = (rate, None);
    }

    /// Bytes that have passed from the target to whoever dialled it.
    pub fn passed(&self) -> u64 {
        self.link.state().passed
    }

    /// Waits until this many bytes have passed in all; false if they have not within `patience`.
    pub fn wait_for(&self, passed: u64, patience: Duration) -> bool {
        let state = self.link.state();
        let waited = self.link.changed.wait_timeout_while(state, patience, |s| s.passed < passed);
        !waited.unwrap().1.timed_out()
    }

    /// A black hole: the connections stay, and nothing passes any more in either direction.
    pub fn swallow(&self) {
        let mut state = self.link.state();
        state.hole_at = Some(state.passed);
    }

    /// Everything passes again, what was held back included; whoever dials is let in.
    pub fn heal(&self) {
        let mut state = self.link.state();
        (state.hole_at, state.is_cut) = (None, false);
        self.link.changed.notify_all();
    }

    /// Ends all connections, and every new one at once, until it heals.
    pub fn cut(&self) {
        let mut state = self.link.state();
        state.is_cut = true;
        for socket in state.sockets.drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.heal();
        self.cut();
        self.link.state().is_over = true;
        self.link.changed.notify_all();
        // The one that accepts looks up.
        let _ = TcpStream::connect(self.address.parse::<SocketAddr>().unwrap());
    }
}

impl Link {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn connect(self: &Arc<Link>, dialled: TcpStream) {
        if self.state().is_cut {
            return;
        }
        // Nobody there: whoever dialled finds the connection closed.
        let Ok(target) = TcpStream::connect(&self.target) else { return };
        let clone = |socket: &TcpStream| socket.try_clone().unwrap();
        self.state().sockets.extend([clone(&dialled), clone(&target)]);
        for (from, into, is_counted) in [(clone(&dialled), clone(&target), false), (target, dialled, true)] {
            let link = Arc::clone(self);
            std::thread::spawn(move || {
                link.pump(&from, &into, is_counted);
                let _ = from.shutdown(Shutdown::Both);
                let _ = into.shutdown(Shutdown::Both);
            });
        }
    }

    fn pump(&self, mut from: &TcpStream, mut into: &TcpStream, is_counted: bool) {
        let mut piece = [0; PIECE];
        loop {
            let Ok(length @ 1..) = from.read(&mut piece) else { return };
            if let Some(until) = self.admit(length, is_counted) {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
            }
            if into.write_all(&piece[..length]).is_err() {
                return;
            }
        }
    }

    /// Counts a piece in when it may pass; then says until when the rate holds it back.
    fn admit(&self, length: usize, is_counted: bool) -> Option<Instant> {
        let is_hole = |s: &mut State| !s.is_over && s.hole_at.is_some_and(|at| s.passed >= at);
        let mut state = self.changed.wait_while(self.state(), is_hole).unwrap();
        if !is_counted {
            return None;
        }
        state.passed += length as u64;
        self.changed.notify_all();
        let rate = state.rate?;
        let from = state.free_at.unwrap_or_else(Instant::now).max(Instant::now());
        state.free_at = Some(from + Duration::from_secs_f64(length as f64 / rate as f64));
        state.free_at
    }
}
