//! The seams between farside and the machine it runs on.
//!
//! Everything that would make two runs differ (time, randomness, what a disk kept after a power failure) is
//! reached through a small trait of this crate, so that two whole sites can run in one process on a clock the
//! test moves and on disks the test can tear. The real implementations are here too.
//!
//! * [`Clock`]: wall time for people and records, monotonic time for intervals.
//! * [`Cores`]: how many processors are idle.
//! * [`Randomness`]: ids, tokens, jitter; seeded in tests.
//! * [`BlockDevice`]: where a pool lies; a file, a raw device, or a simulated disk.
//! * [`Histogram`]: how long things took, counted.
//! * [`LogOutput`]: standard error, whose reader may stand still.
//! * [`private_file`]: files with a key.
//!
//! The transport seam (a byte stream to a peer) is in `farside-link`, the only room that dials.

mod at_path;
pub mod block;
pub mod clock;
pub mod cores;
pub mod device;
mod draft;
mod file_system;
pub mod histogram;
mod holders;
pub mod log_output;
mod loop_device;
mod page_cache;
pub mod private_file;
pub mod process;
pub mod random;
mod ring;
pub mod simulated_disk;
pub mod simulated_failures;
mod thin;

pub use at_path::{AtPath, Found};
pub use block::{BLOCK_BYTES, Block, BlockBuffer};
pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use cores::{Cores, ManualCores, SystemCores};
pub use device::{BlockDevice, DeviceError, FileDevice};
pub use file_system::free_bytes_at;
pub use histogram::Histogram;
pub use log_output::{LogOutput, LostLines};
pub use process::{
    ProcessIdentity, group_and_session, host_name, lower_priority, open_files_max, raise_open_files,
    run_when_idle,
};
pub use random::{OsRandomness, Randomness, SeededRandomness};
pub use simulated_disk::{CrashFate, SimulatedDisk};
pub use simulated_failures::{Failing, Failure, Requests};
pub use thin::FileRoom;
