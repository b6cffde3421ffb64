//! How a simulated disk fails: which of its requests, after how many that succeed, and how.

use std::io;

use rustix::io::Errno;

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Reads alone.
    Reads,
    /// Writes, and making the disk longer.
    Writes,
    /// Syncs alone.
    Syncs,
    /// Every request.
    All,
}

/// What a request that fails does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The kernel says that the medium failed; nothing is done.
    Io,
    /// The kernel says that there is no room: the file system that the pool's file lies on is full. Nothing is done.
    NoSpace,
    /// Only the first half is done, sectors of 512 bytes rounded down. A sync does nothing.
    Short,
    /// A sync fails, and what was not synced is lost, kept or torn by this seed, for reads as well: the disk was reset, or the kernel
    /// forgot what it could not write. Other requests fail as with [`Failure::Io`].
    Forgets(u64),
}

impl Failure {
    pub(crate) fn error(self, kind: Requests) -> io::Error {
        match (self, kind) {
            (Failure::Short, Requests::Reads) => io::ErrorKind::UnexpectedEof.into(),
            (Failure::Short, Requests::Writes) => io::ErrorKind::WriteZero.into(),
            (Failure::NoSpace, _) => io::Error::from_raw_os_error(Errno::NOSPC.raw_os_error()),
            _ => io::Error::from_raw_os_error(Errno::IO.raw_os_error()),
        }
    }
}

/// A plan of failures: the next `after` requests of a kind succeed, then `times` fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Which requests.
    pub requests: Requests,
    /// How many of them succeed first.
    pub after: u64,
    /// How many fail then; [`u64::MAX`]: all.
    pub times: u64,
    /// How.
    pub failure: Failure,
}

impl Failing {
    /// What becomes of the next request of `kind`.
    pub(crate) fn next(&mut self, kind: Requests) -> Option<Failure> {
        if self.requests != Requests::All && self.requests != kind {
            return None;
        }
        if self.after > 0 {
            self.after -= 1;
            return None;
        }
        if self.times == 0 {
            return None;
        }
        self.times = self.times.saturating_sub(u64::from(self.times != u64::MAX));
        Some(self.failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_the_requests_of_its_kind_alone() {
        let mut plan = Failing { requests: Requests::Writes, after: 2, times: 1, failure: Failure::Short };
        assert_eq!(plan.next(Requests::Reads), None);
        assert_eq!([plan.next(Requests::Writes), plan.next(Requests::Writes)], [None, None]);
        assert_eq!(plan.next(Requests::Syncs), None);
        assert_eq!(plan.next(Requests::Writes), Some(Failure::Short));
        assert_eq!(plan.next(Requests::Writes), None, "once");
        let mut forever =
            Failing { requests: Requests::All, after: 0, times: u64::MAX, failure: Failure::Io };
        assert!((0..10).all(|_| forever.next(Requests::Syncs) == Some(Failure::Io)));
    }
}
