//! The laboratory's own test bed: namespaces that hold its sites, the processes that run there, what they cost, and cleaning
//! up after all of it.
//!
//! ```text
//! farside-lab              the outer process: waits, passes signals on, removes what is on disk; unshares the PID namespace
//!   └ init (pid 1)         own mount and network namespace; reaps; its end takes every process, mount and network down
//!       └ farside-lab      the command itself, with a [`TestBed`]
//!           └ scripts, emulator threads, …
//! ```
//!
//! Guarantees: traffic stays on loopback and the laboratory's own devices; a `kill -9` of any of the three makes the
//! kernel end all of the others' processes, mounts and network namespaces; what stays on disk then (the run's directory,
//! cgroup directories, loop devices) is found by a lock that nobody holds any more ([`stale`]) and removed by the next
//! start; two laboratories on one machine share nothing but the machine.

mod cgroup;
mod error;
mod interrupt;
mod log;
mod loops;
mod netns;
mod process;
mod run;
mod sandbox;
mod site;
pub mod stale;
mod topology;

pub use error::TestBedError;
pub use process::{Ended, Running, wait_all};
pub use sandbox::{Scratch, TestBed, begin, enter, shell_status};
pub use site::Site;
pub use topology::{Hosts, Laid, MAX_PATHS};
