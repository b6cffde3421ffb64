//! The invitations of a site: few, short-lived, each good once. They are kept in memory: a restart withdraws them.
//!
//! Expiry goes by the monotonic clock, so that a step of the wall clock neither kills nor prolongs one.

use std::collections::VecDeque;
use std::time::Duration;

use aws_lc_rs::hmac;
use farside_platform::{Randomness, Timestamp};
use zeroize::Zeroizing;

use super::code::{PairingCode, TOKEN_BYTES};
use crate::error::Refusal;
use crate::error::SessionError;
use crate::id::PeerId;
use crate::limits::{INVITE_FAILURES_MAX, INVITE_VALID_MAX, INVITES_OPEN_MAX, INVITES_REMEMBERED_MAX};

/// An open invitation, as told to whoever made it.
#[derive(Clone, Debug)]
pub struct Invite {
    /// What to carry to the other site.
    pub code: PairingCode,
    /// What it is called in lists; says nothing of the code.
    pub id: String,
    /// Until when it is good, by this site's wall clock.
    pub expires_at: Timestamp,
}

/// An invitation that can still be used, as it is listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenInvite {
    /// What it is called.
    pub id: String,
    /// How long it is still good.
    pub left: Duration,
}

/// Names an invitation without giving anything of its token away.
pub(crate) type InviteId = [u8; 16];

/// What people call one: 32 bits, in hexadecimal. Few are open at a time.
pub(crate) fn short_name(id: &InviteId) -> String {
    id.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// The key with which knowledge of a token is proved.
pub(crate) fn proving_key(token: &[u8; TOKEN_BYTES]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, derive(token, b"farside pairing proof 1").as_ref())
}

pub(crate) fn invite_id(token: &[u8; TOKEN_BYTES]) -> InviteId {
    let mut id = [0; 16];
    id.copy_from_slice(&derive(token, b"farside pairing invitation 1").as_ref()[..16]);
    id
}

fn derive(token: &[u8; TOKEN_BYTES], purpose: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, token), purpose)
}

enum Fate {
    Open { key: Box<hmac::Key>, failures: u32 },
    Used,
    Expired,
    Withdrawn,
    Cancelled,
}

struct Entry {
    id: InviteId,
    expires: Duration,
    fate: Fate,
}

/// All of them, oldest first. `now` is always the monotonic clock's.
#[derive(Default)]
pub(crate) struct Invites {
    entries: VecDeque<Entry>,
}

fn refusal(code: &str, message: &str) -> Refusal {
    Refusal { code: code.to_owned(), message: message.to_owned() }
}

impl Invites {
    /// Opens one.
    pub(crate) fn open(
        &mut self,
        inviter: PeerId,
        valid: Duration,
        now: Duration,
        random: &dyn Randomness,
    ) -> Result<PairingCode, SessionError> {
        if valid.is_zero() || valid > INVITE_VALID_MAX {
            let days = INVITE_VALID_MAX.as_secs() / 86_400;
            return Err(SessionError::Local(format!("an invitation is valid for up to {days} days")));
        }
        self.expire(now);
        let open = self.entries.iter().filter(|e| matches!(e.fate, Fate::Open { .. })).count();
        if open >= INVITES_OPEN_MAX {
            return Err(SessionError::Local(format!(
                "{INVITES_OPEN_MAX} invitations are open; let one be used or expire"
            )));
        }
        while self.entries.len() >= INVITES_REMEMBERED_MAX {
            // The oldest that is not open; there is one, since fewer are open than are remembered.
            let spent = self.entries.iter().position(|e| !matches!(e.fate, Fate::Open { .. }));
            self.entries.remove(spent.unwrap_or(0));
        }
        let mut token = Zeroizing::new([0; TOKEN_BYTES]);
        random.fill(&mut token[..]);
        let fate = Fate::Open { key: Box::new(proving_key(&token)), failures: 0 };
        self.entries.push_back(Entry { id: invite_id(&token), expires: now + valid, fate });
        Ok(PairingCode::new(inviter, token))
    }

    /// Those that can still be used, oldest first.
    pub(crate) fn open_ones(&mut self, now: Duration) -> Vec<OpenInvite> {
        self.expire(now);
        let open = self.entries.iter().filter(|e| matches!(e.fate, Fate::Open { .. }));
        open.map(|e| OpenInvite { id: short_name(&e.id), left: e.expires.saturating_sub(now) }).collect()
    }

    /// Has an open invitation be good no more. Answers what it was; none if no open one is called so.
    pub(crate) fn cancel(&mut self, id: &str, now: Duration) -> Option<OpenInvite> {
        self.expire(now);
        let is_it = |e: &&mut Entry| matches!(e.fate, Fate::Open { .. }) && short_name(&e.id) == id;
        let entry = self.entries.iter_mut().find(is_it)?;
        entry.fate = Fate::Cancelled;
        Some(OpenInvite { id: id.to_owned(), left: entry.expires.saturating_sub(now) })
    }

    /// Whether there is anything to say to a joiner: an open invitation, or one it can be told the end of.
    pub(crate) fn any_remembered(&mut self, now: Duration) -> bool {
        self.expire(now);
        !self.entries.is_empty()
    }

    /// Spends an invitation if `proof` over `message` is right; the key, to prove it in turn.
    pub(crate) fn spend(
        &mut self,
        id: &InviteId,
        message: &[u8],
        proof: &[u8],
        now: Duration,
    ) -> Result<hmac::Key, Refusal> {
        self.expire(now);
        let entry = self.entries.iter_mut().find(|e| e.id == *id).ok_or_else(|| {
            refusal("not-found", "the inviting site does not know this invitation; ask for a new one")
        })?;
        match &mut entry.fate {
            Fate::Used => Err(refusal("used", "this invitation was used already; ask for a new one")),
            Fate::Expired => Err(refusal("expired", "this invitation has expired; ask for a new one")),
            Fate::Cancelled => {
                Err(refusal("withdrawn", "the inviting site took this invitation back; ask for a new one"))
            }
            Fate::Withdrawn => Err(refusal(
                "withdrawn",
                "this invitation was withdrawn after failed attempts; ask for a new one",
            )),
            Fate::Open { key, failures } => {
                // Compared in constant time.
                if hmac::verify(key, message, proof).is_ok() {
                    let key = hmac::Key::clone(key);
                    entry.fate = Fate::Used;
                    return Ok(key);
                }
                *failures += 1;
                if *failures >= INVITE_FAILURES_MAX {
                    entry.fate = Fate::Withdrawn;
                }
                Err(refusal("forbidden", "the token is wrong; copy the pairing code again"))
            }
        }
    }

    fn expire(&mut self, now: Duration) {
        for entry in &mut self.entries {
            if matches!(entry.fate, Fate::Open { .. }) && entry.expires <= now {
                entry.fate = Fate::Expired;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_platform::SeededRandomness;

    const MINUTE: Duration = Duration::from_secs(60);

    fn invited(invites: &mut Invites, now: Duration) -> PairingCode {
        invites.open(PeerId([1; 32]), MINUTE, now, &SeededRandomness::new(now.as_nanos() as u64 + 1)).unwrap()
    }

    fn spend(invites: &mut Invites, code: &PairingCode, now: Duration) -> Result<(), String> {
        let proof = hmac::sign(&proving_key(code.token()), b"m");
        invites.spend(&invite_id(code.token()), b"m", proof.as_ref(), now).map(drop).map_err(|r| r.code)
    }

    #[test]
    fn each_is_good_once_and_for_its_time() {
        let mut invites = Invites::default();
        let (first, second) = (invited(&mut invites, MINUTE), invited(&mut invites, 2 * MINUTE - MINUTE / 2));
        assert_eq!(spend(&mut invites, &first, MINUTE), Ok(()));
        assert_eq!(spend(&mut invites, &first, MINUTE), Err("used".into()));
        assert_eq!(spend(&mut invites, &second, 3 * MINUTE), Err("expired".into()));
        let unknown = PairingCode::new(PeerId([1; 32]), Zeroizing::new([9; TOKEN_BYTES]));
        assert_eq!(spend(&mut invites, &unknown, MINUTE), Err("not-found".into()));
    }

    #[test]
    fn wrong_proofs_withdraw_it() {
        let mut invites = Invites::default();
        let code = invited(&mut invites, MINUTE);
        let id = invite_id(code.token());
        for _ in 0..INVITE_FAILURES_MAX {
            assert_eq!(invites.spend(&id, b"m", b"no proof", MINUTE).unwrap_err().code, "forbidden");
        }
        assert_eq!(spend(&mut invites, &code, MINUTE), Err("withdrawn".into()));
    }

    #[test]
    fn one_that_was_taken_back_is_good_no_more_and_the_others_are() {
        let mut invites = Invites::default();
        let (first, second) = (invited(&mut invites, MINUTE), invited(&mut invites, MINUTE + MINUTE / 2));
        let open = invites.open_ones(2 * MINUTE - MINUTE / 4);
        assert_eq!(open.iter().map(|o| o.left).collect::<Vec<_>>(), [MINUTE / 4, 3 * MINUTE / 4]);
        assert!(invites.cancel("nothing", MINUTE).is_none());
        assert_eq!(invites.cancel(&open[0].id, MINUTE).unwrap().id, open[0].id);
        assert!(invites.cancel(&open[0].id, MINUTE).is_none(), "it is over already");
        assert_eq!(spend(&mut invites, &first, MINUTE), Err("withdrawn".into()));
        assert_eq!(invites.open_ones(MINUTE).len(), 1);
        assert_eq!(spend(&mut invites, &second, MINUTE), Ok(()));
        assert!(invites.open_ones(MINUTE).is_empty());
    }

    #[test]
    fn their_number_is_bounded() {
        let mut invites = Invites::default();
        for _ in 0..INVITES_OPEN_MAX {
            invited(&mut invites, MINUTE);
        }
        assert!(invites.open(PeerId([1; 32]), MINUTE, MINUTE, &SeededRandomness::new(1)).is_err());
        for n in 3..300 {
            invited(&mut invites, n * MINUTE);
        }
        assert!(invites.entries.len() <= INVITES_REMEMBERED_MAX);
    }
}
