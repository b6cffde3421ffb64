//! What the two sides of a mirror say to each other. The destination asks; the source answers.
//!
//! ```text
//!   destination                                     source
//!   describe {relationship, volume}        ──call──►  rights; size
//!   begin {relationship, transfer, bases}  ──call──►  rights; snapshot, pinned; newest common base
//!                                          ◄────────  plan {base, steps}
//!   for each step:
//!     open stream {transfer, step}         ─stream─►  rights; difference, reads, frames
//!       held*, held end                    ────────►  (of a step that was cut: what need not travel again)
//!                                          ◄────────  scanned*, working*, frame*, step end  (or failure)
//!       (and, where much may be here already: ◄ ask*, ► answer*)
//!       (of other volumes that were offered as bases: ◄ withdraw*)
//!     (checkpoint, own content root = the step's, commit, pin)
//!     acknowledge {relationship, snapshot} ──call──►  pin moves to the new base, the old one goes
//!   end {transfer}                         ──call──►  the transfer's place is free (also after a failure)
//!   release {relationship}                 ──call──►  no base is kept any more
//! ```
//!
//! Calls are Protocol Buffers: fields a side does not know are skipped, and the version says what may be expected.
//! Messages of a data stream have a header of five bytes (kind, length); see [`stream`]. Everything that comes from
//! the peer passes through a checked conversion in [`convert`] before it is used. Documented in `docs/protocol.md`.

pub mod convert;
pub mod group;
pub mod held;
pub mod known;
pub mod messages;
pub mod stream;
mod versions;

pub use convert::short_identity;
pub use messages::*;
pub(crate) use versions::check_version;
pub use versions::{PROTOCOL_VERSION, PROTOCOL_VERSION_OLDEST, check_request};
