//! What two boxes say to each other: frames on two data streams of their session, which together are a *trunk*. Pure.
//!
//! ```text
//! frame = kind (1 byte) | flow (LEB128) | bytes of the body (LEB128) | body
//! ```
//!
//! A trunk is opened by the box that has the clients, for the connections (*flows*) that these make. One stream is for what must
//! not wait: agreement, credit, and the bytes of flows that say little. The other one is for flows that have much to send. A
//! flow may change between them at any block, so blocks carry a sequence number.
//!
//! | kind | from | body |
//! | --- | --- | --- |
//! | hello | both, first | [`Hello`] |
//! | open | client's box | [`Open`]: connect to this server, as this client |
//! | opened | server's box | [`Opened`]: the server has accepted |
//! | refused | server's box | [`Refused`]: why there is no connection; the flow is over |
//! | data | both | sequence number (LEB128), bytes of the flow as they are |
//! | block | both | sequence number (LEB128), a block of `farside-chunks`: references, new chunks, literals |
//! | block alone | both | the same; the history of its literals ends with it |
//! | rest | both | sequence number, credit given back: this direction is decoded anew from here on |
//! | ask | both | sequence number of a block that could not be made of what is here, and the chunk that is missing, if it is one |
//! | answer | both | sequence number, the block said without references |
//! | fin | both | how many blocks there were (LEB128): no more follow in this direction |
//! | done | both | all of this direction has been delivered |
//! | reset | both | the connection was reset after so many blocks (LEB128); with an empty body: the flow is over at once |
//! | credit | both | so many more bytes may come, and how many blocks have been delivered (LEB128 each) |
//! | holdings | both | what the sender's chunk store holds of the two boxes' realm, and no longer holds |
//! | ping, pong | both | eight bytes, given back |
//! | probed | server's box | nonce of a probe that came by (16 bytes) |

mod frame;
mod fuzz;
mod message;
mod probe;
mod version;

pub use frame::{FRAME_MAX, Frame, FrameError, FrameReader, Kind};
pub use fuzz::{fuzz_frames, fuzz_probe};
pub use message::{
    Hello, Open, OpenTarget, Opened, REASON_TEXT_MAX, Refusal, Refused, action_from_code, action_to_code,
    ask_body, parse_ask,
};
pub use probe::{NONCE_BYTES, Nonce, ProbeDatagram};
pub use version::{PART_COST, PLAIN_MAX, VERSION};
