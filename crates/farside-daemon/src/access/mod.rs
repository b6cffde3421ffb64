//! Who may use the API over HTTPS: tokens for programs, accounts for people.
//!
//! A token is 256 random bits. Only its hash is kept, and a plain one is enough: there is nothing to guess. A password is kept
//! as a salted, slow hash (Argon2id), and how often one may be tried is limited. Whoever logs in gets a session, which lives in
//! memory: a restart ends it, and so does a change of the account.
//!
//! * [`principal`]: who asks, and what they may do.
//! * [`book`]: tokens, accounts and sessions that are known.
//! * [`accounts_file`]: accounts at rest.
//! * [`passwords`]: how they are hashed and compared.
//! * [`attempts`]: how often somebody may try.
//!
//! Not guarded against: whoever opens the control socket, or reads and writes the data directory.

mod accounts_file;
mod attempts;
mod book;
mod passwords;
mod principal;

pub(crate) use book::{Access, SESSION_LIFE};
pub(crate) use principal::{Principal, Who};
