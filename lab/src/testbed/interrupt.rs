//! Ctrl-C and SIGTERM: every wait of the laboratory ends at the first, so that it stops in order. The process that works
//! heeds only the first, because one Ctrl-C reaches it up to three times (from the terminal, and passed on by the two
//! processes above), and no clock tells an echo from a person. The second Ctrl-C is the outer process's to count, which
//! gets each once: [`Requests`].

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::error::TestBedError;

/// Which signals ask the laboratory to stop.
pub(crate) const STOP_SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// What a program ends with that SIGINT stopped, as shells have it.
pub(crate) const INTERRUPTED_STATUS: u8 = 130;

/// What the outer process does about a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// It goes to the processes below, which stop in order.
    PassOn,
    /// Everything is taken down now.
    EndAtOnce,
}

/// The requests to stop that the outer process has had. Whoever sends SIGTERM or SIGHUP may send it twice at once
/// (`timeout` does: to the process and to its group), so that only SIGINT can be a second request.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    asked: bool,
}

impl Requests {
    pub(crate) fn note(&mut self, signal: i32) -> Response {
        match std::mem::replace(&mut self.asked, true) {
            true if signal == SIGINT => Response::EndAtOnce,
            _ => Response::PassOn,
        }
    }
}

/// Whether the laboratory was asked to stop; clones tell the same.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    /// The signal that asked first; 0 for none.
    signal: Arc<AtomicI32>,
    /// Readable from the first request on, for ever.
    readable: Arc<UnixStream>,
    writable: Arc<UnixStream>,
}

impl Interrupt {
    /// One that nobody has asked yet.
    pub(crate) fn new() -> Result<Self, TestBedError> {
        let (readable, writable) = UnixStream::pair().map_err(TestBedError::system("socket pair"))?;
        Ok(Self { signal: Arc::default(), readable: Arc::new(readable), writable: Arc::new(writable) })
    }

    /// Listens to the process's signals from now on.
    pub(crate) fn listen(&self) -> Result<(), TestBedError> {
        let failed = || TestBedError::system("listen to signals");
        let mut signals = Signals::new(STOP_SIGNALS).map_err(failed())?;
        let interrupt = self.clone();
        let listen = move || signals.forever().for_each(|signal| interrupt.ask(signal));
        thread::Builder::new().name("signals".into()).spawn(listen).map_err(failed())?;
        Ok(())
    }

    /// Asks for a stop.
    pub(crate) fn ask(&self, signal: i32) {
        if self.signal.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            // The socket's buffer is empty and the other end is held here: one byte cannot fail.
            let _: io::Result<usize> = (&*self.writable).write(&[1]);
        }
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.signal().is_some()
    }

    /// The signal that asked first.
    pub(crate) fn signal(&self) -> Option<Signal> {
        Signal::try_from(self.signal.load(Ordering::SeqCst)).ok()
    }

    /// Waits until it is asked for.
    pub(crate) fn wait(&self) -> Result<(), TestBedError> {
        while !self.is_asked() {
            let mut fds = [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(TestBedError::system("wait for a signal")(error.into())),
            }
        }
        Ok(())
    }

    /// To be polled beside what else is waited for.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ctrl_c_counts_as_the_second_request() {
        for (signals, last) in [
            (&[SIGINT][..], Response::PassOn),
            (&[SIGTERM, SIGTERM, SIGHUP], Response::PassOn),
            (&[SIGINT, SIGTERM], Response::PassOn),
            (&[SIGINT, SIGINT], Response::EndAtOnce),
            (&[SIGTERM, SIGINT], Response::EndAtOnce),
        ] {
            let mut requests = Requests::default();
            let responses: Vec<Response> = signals.iter().map(|signal| requests.note(*signal)).collect();
            assert_eq!(responses.last(), Some(&last), "{signals:?}");
            assert_eq!(responses[0], Response::PassOn, "{signals:?}");
        }
    }
}
