//! Pairing: two sites that do not know each other pin each other's keys, by a string that a person carries.
//!
//! The inviter makes a [`PairingCode`]: its key hash and a one-time token of 128 bits. The joiner dials and stops in the
//! TLS handshake unless that very key answers: nothing is ever told to somebody in between. Both then prove that they
//! know the token, by HMAC-SHA256 over both key hashes and the TLS exporter: a proof is good in its own
//! connection only. The inviter keeps a key derived from the token, not the token.
//!
//! ```text
//! joiner   → inviter   hello (pairing)
//! inviter → joiner     answer
//! joiner   → inviter   Request  { invitation, proof, where it listens }
//! inviter → joiner     Accepted { proof, where it listens }  or  Refused { code, message }
//! ```
//!
//! Whoever reads the code before it is used can be the joiner: carry it by a way you trust, and compare the key in the
//! inviter's log with the joiner's own.
//!
//! The inviter spends the token and pins before it accepts; the joiner pins when it has checked the inviter's proof. If the
//! connection breaks in between, the inviter lists a joiner that does not know it: it has proved the token, so it
//! was meant to be listed; inviting it again repairs the rest.

mod code;
mod failures;
mod invites;
pub(crate) mod protocol;

pub use code::{CodeError, PairingCode};
pub(crate) use failures::Failures;
pub use invites::{Invite, OpenInvite};
pub(crate) use invites::{Invites, invite_id, short_name};
pub(crate) use protocol::Reachable;
pub use protocol::fuzz_pairing;
