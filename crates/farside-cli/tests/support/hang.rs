//! Files whose opening waits in the kernel for somebody who does not answer; needs root. Where that cannot be had a test says that it is
//! skipped; `FARSIDE_REQUIRE_LAB=1` makes that a failure.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::sys::fanotify::{
    EventFFlags, Fanotify, FanotifyResponse, InitFlags, MarkFlags, MaskFlags, Response,
};

/// Has whoever opens the file wait until this is dropped.
pub struct Hang(Fanotify);

impl Hang {
    pub fn at(path: &Path) -> Option<Hang> {
        Hang::with(path, MaskFlags::FAN_OPEN_PERM)
    }

    /// Those who open any file of the directory.
    pub fn in_directory(path: &Path) -> Option<Hang> {
        Hang::with(path, MaskFlags::FAN_OPEN_PERM | MaskFlags::FAN_EVENT_ON_CHILD)
    }

    fn with(path: &Path, what: MaskFlags) -> Option<Hang> {
        let hang = || {
            let asked =
                Fanotify::init(InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_CLOEXEC, EventFFlags::O_RDONLY)?;
            let here: BorrowedFd<'_> = nix::fcntl::AT_FDCWD;
            asked.mark(MarkFlags::FAN_MARK_ADD, what, here.as_fd(), Some(path))?;
            Ok::<_, nix::Error>(asked)
        };
        match hang() {
            Ok(asked) => Some(Hang(asked)),
            Err(error) => {
                assert!(std::env::var_os("FARSIDE_REQUIRE_LAB").is_none(), "no file that hangs: {error}");
                eprintln!("**** skipped, no file that hangs (root is needed): {error}");
                None
            }
        }
    }

    /// Waits until somebody opens, and lets him go on.
    pub fn let_one_go(&self) {
        for event in self.0.read_events().unwrap() {
            let Some(file) = event.fd() else { continue };
            self.0.write_response(FanotifyResponse::new(file, Response::FAN_ALLOW)).unwrap();
        }
    }

    /// Waits until somebody opens, who then waits for ever. Answers once he does.
    pub fn has_one(&self) {
        // Whoever is killed waits no more; nobody answers him.
        assert!(!self.0.read_events().unwrap().is_empty());
    }
}
