//! Other sites' APIs, over the sessions with peers: what a peer lets this site see and do there, and the other way round.
//!
//! ```text
//!  console, farside --site b ──► API of a: /sites/b/… ──► ask ══ a stream of the session with b ══► door ──► API of b
//! ```
//!
//! A site is asked by HTTP on a data stream of the session: what is asked is what its own API answers, so a manager has no protocol
//! of its own, and nothing to lose. What a peer may do is a role that this site gives it (`peer set --role`), an *operator*'s at
//! most, and of that no more than whoever asks may do at their own site.
//!
//! * [`door`]: peers come in.
//! * [`ask`]: a peer is asked.
//! * [`look`]: all of them are asked how they are.
//! * [`seen`]: what they said last.
//! * [`shares`]: how many streams that may take.

pub(crate) mod ask;
pub(crate) mod door;
pub(crate) mod look;
pub(crate) mod seen;
pub(crate) mod shares;

/// The header of a stream that carries requests to the API. No message of the mirrors' protocol begins like this: of their first byte
/// the low three bits are 0 to 5, of this one 7.
const STREAM_HEADER: &[u8] = b"\x7ffarside api 1";

/// Who asks at the site that passes a request on: `account ann`. Believed of peers alone.
pub(crate) const WHO_HEADER: &str = "x-farside-who";
/// What they may do there.
pub(crate) const ROLE_HEADER: &str = "x-farside-role";
