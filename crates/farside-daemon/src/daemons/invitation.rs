//! How a daemon comes to be of a site: a code, good once, opens the site's key, which waits in the database, sealed.
//!
//! Whoever is to join has the database already: it holds the site's state. So the key travels there, and the daemons need not reach one
//! another. The code has 256 bits, so that a copy of the database is of no use without it. Pure.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest::{Context, SHA256};
use zeroize::Zeroizing;

const PREFIX: &str = "farside-daemon1_";
/// Bytes of a code.
const SECRET_BYTES: usize = 32;
/// Digits of an id by which a person names an invitation; the database is asked for so many (`desk.rs`).
const NAME_DIGITS: usize = 8;
/// Longest text looked at.
const TEXT_MAX: usize = 1024;

/// A code. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Code(Zeroizing<[u8; SECRET_BYTES]>);

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

fn hash(what: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    context.update(what.as_bytes());
    parts.iter().for_each(|part| context.update(part));
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Code {
    pub(crate) fn new(secret: [u8; SECRET_BYTES]) -> Code {
        Code(Zeroizing::new(secret))
    }

    /// As it is told: with a check, so that a code that is mistyped is not taken for one that is over.
    pub(crate) fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{PREFIX}{}_{}", hex(&self.0[..]), hex(&self.check())))
    }

    fn check(&self) -> [u8; 4] {
        let whole = hash("farside daemon code 1 check", &[&self.0[..]]);
        [whole[0], whole[1], whole[2], whole[3]]
    }

    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Code, &'static str> {
        const NONE: &str = "this is no code for a daemon; one begins with farside-daemon1_ and is printed by farside site invite";
        const MISTYPED: &str = "the code is mistyped or incomplete; copy it again, it has not been used";
        if text.len() > TEXT_MAX {
            return Err(NONE);
        }
        let text: String = text.split_whitespace().collect();
        let (secret, check) = text.strip_prefix(PREFIX).ok_or(NONE)?.split_once('_').ok_or(MISTYPED)?;
        let mut bytes = [0; SECRET_BYTES];
        if secret.len() != 2 * SECRET_BYTES || !secret.is_ascii() {
            return Err(MISTYPED);
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&secret[2 * at..2 * at + 2], 16).map_err(|_| MISTYPED)?;
        }
        let code = Code::new(bytes);
        if hex(&code.check()) == check { Ok(code) } else { Err(MISTYPED) }
    }

    /// By what it is found.
    pub(crate) fn id(&self) -> String {
        hex(&hash("farside daemon code 1 id", &[&self.0[..]])[..16])
    }

    /// What it is called where those that can still be used are listed.
    pub(crate) fn name(&self) -> String {
        self.id()[..NAME_DIGITS].to_owned()
    }

    fn key(&self) -> Result<RandomizedNonceKey, aws_lc_rs::error::Unspecified> {
        let key = Zeroizing::new(hash("farside daemon code 1 key", &[&self.0[..]]));
        RandomizedNonceKey::new(&AES_256_GCM, &key[..])
    }

    /// The key of a site, for whoever has this code.
    ///
    /// # Errors
    /// The library refuses.
    pub(crate) fn seal(&self, identity: &str) -> Result<Vec<u8>, String> {
        let mut bytes = identity.as_bytes().to_vec();
        let sealed = self.key().and_then(|key| {
            let nonce = key.seal_in_place_append_tag(Aad::from(self.id()), &mut bytes)?;
            Ok([nonce.as_ref().as_slice(), &bytes].concat())
        });
        sealed.map_err(|_| String::from("the site's key cannot be sealed"))
    }

    /// And back.
    ///
    /// # Errors
    /// It was sealed with another code, or is damaged.
    pub(crate) fn open(&self, sealed: &[u8]) -> Result<Zeroizing<String>, String> {
        let wrong = || String::from("what waits for this code in the database is damaged; invite again");
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN).ok_or_else(wrong)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| wrong())?;
        let mut bytes = Zeroizing::new(sealed.to_vec());
        let key = self.key().map_err(|_| wrong())?;
        let opened = key.open_in_place(nonce, Aad::from(self.id()), &mut bytes).map_err(|_| wrong())?;
        String::from_utf8(opened.to_vec()).map(Zeroizing::new).map_err(|_| wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_with_a_code_opens_with_that_alone() {
        let code = Code::new([7; SECRET_BYTES]);
        let again = Code::parse(&format!(" {}\n", code.text().as_str())).unwrap();
        assert!(again == code && !format!("{code:?}").contains("07"));
        let sealed = code.seal("a key").unwrap();
        assert!(!String::from_utf8_lossy(&sealed).contains("a key"));
        assert_eq!(again.open(&sealed).unwrap().as_str(), "a key");
        let other = Code::new([8; SECRET_BYTES]);
        assert!(other.open(&sealed).is_err() && other.id() != code.id());
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert!(code.open(&damaged).is_err(), "{at}");
            assert!(code.open(&sealed[..at]).is_err(), "{at}");
        }
    }

    #[test]
    fn a_code_that_is_mistyped_is_called_so() {
        let text = Code::new([7; SECRET_BYTES]).text();
        for at in PREFIX.len()..text.len() {
            let mut wrong = text.to_string();
            let other = if wrong.as_bytes()[at] == b'0' { "1" } else { "0" };
            wrong.replace_range(at..=at, other);
            assert!(Code::parse(&wrong).unwrap_err().contains("mistyped"), "{wrong}");
        }
        for none in ["", "farside1_00", "é", &"x".repeat(5000)] {
            assert!(Code::parse(none).unwrap_err().contains("no code"), "{none}");
        }
        assert!(Code::parse("farside-daemon1_é_").unwrap_err().contains("mistyped"));
    }
}
