//! Ctrl-C and SIGTERM: every wait of the laboratory ends at the first, so that it stops in order; the second ends it at
//! once, and the kernel takes everything down.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::error::GroundError;

/// Which signals ask the laboratory to stop.
pub(crate) const STOP_SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// One Ctrl-C arrives up to three times: from the terminal, and passed on by the two processes above. Half a second is
/// longer than a busy machine needs for that, and shorter than a person's second try.
const ECHO: Duration = Duration::from_millis(500);

/// What a program ends with that SIGINT stopped, as shells have it.
const INTERRUPTED_STATUS: i32 = 130;

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
    pub(crate) fn new() -> Result<Self, GroundError> {
        let (readable, writable) = UnixStream::pair().map_err(GroundError::system("socket pair"))?;
        Ok(Self { signal: Arc::default(), readable: Arc::new(readable), writable: Arc::new(writable) })
    }

    /// Listens to the process's signals from now on.
    pub(crate) fn listen(&self) -> Result<(), GroundError> {
        let failed = || GroundError::system("listen to signals");
        let mut signals = Signals::new(STOP_SIGNALS).map_err(failed())?;
        let interrupt = self.clone();
        let listen = move || {
            let mut first: Option<Instant> = None;
            for signal in signals.forever() {
                match first {
                    None => {
                        first = Some(Instant::now());
                        interrupt.ask(signal);
                    }
                    Some(first) if first.elapsed() > ECHO => process::exit(INTERRUPTED_STATUS),
                    Some(_) => {}
                }
            }
        };
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
    pub(crate) fn wait(&self) -> Result<(), GroundError> {
        while !self.is_asked() {
            let mut fds = [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(GroundError::system("wait for a signal")(error.into())),
            }
        }
        Ok(())
    }

    /// To be polled beside what else is waited for.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}
