//! The string that a person carries from one site to the other.
//!
//! `farside1_KEYHASH_TOKEN_CHECK`: the format's version, then in hexadecimal the inviter's key hash (32 bytes, the
//! id that `peer list` shows), the token (16 bytes) and the first 4 bytes of a SHA-256 over both. The check tells a
//! mistyped code from one that has expired, before anything is dialled.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{Context, SHA256};
use zeroize::Zeroizing;

use crate::id::PeerId;

const PREFIX: &str = "farside1";
const ANY_PREFIX: &str = "farside";
/// Bytes of a token: 128 bits.
pub(crate) const TOKEN_BYTES: usize = 16;
/// Longest text looked at; whitespace included.
const TEXT_MAX: usize = 1024;

/// An invitation. `Display` writes the secret; `Debug` does not.
#[derive(Clone, PartialEq, Eq)]
pub struct PairingCode {
    inviter: PeerId,
    token: Zeroizing<[u8; TOKEN_BYTES]>,
}

/// Why a text is no code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CodeError {
    /// Something else altogether.
    #[error(
        "this is not a pairing code; a code begins with {PREFIX}_ and is printed by: farside peer invite"
    )]
    NotACode,
    /// Of a newer format.
    #[error("this pairing code was made by a newer farside; upgrade this site")]
    OtherVersion,
    /// The check does not fit.
    #[error("the pairing code is mistyped or incomplete; copy it again, it has not been used")]
    Mistyped,
}

impl PairingCode {
    pub(crate) fn new(inviter: PeerId, token: Zeroizing<[u8; TOKEN_BYTES]>) -> Self {
        PairingCode { inviter, token }
    }

    /// Whose invitation it is.
    pub fn inviter(&self) -> PeerId {
        self.inviter
    }

    pub(crate) fn token(&self) -> &[u8; TOKEN_BYTES] {
        &self.token
    }

    fn check(&self) -> [u8; 4] {
        let mut context = Context::new(&SHA256);
        context.update(b"farside pairing code 1");
        context.update(&self.inviter.0);
        context.update(&self.token[..]);
        let hash = context.finish();
        let mut check = [0; 4];
        check.copy_from_slice(&hash.as_ref()[..4]);
        check
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Display for PairingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}_{}_{}_{}", self.inviter, Hex(&self.token[..]), Hex(&self.check()))
    }
}

impl fmt::Debug for PairingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PairingCode").field("inviter", &self.inviter).finish_non_exhaustive()
    }
}

/// Exactly `N` bytes of hexadecimal.
fn from_hex<const N: usize>(text: &str) -> Option<Zeroizing<[u8; N]>> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = Zeroizing::new([0; N]);
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |d: u8| char::from(d).to_digit(16);
        *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
    }
    Some(bytes)
}

impl FromStr for PairingCode {
    type Err = CodeError;

    /// Ignores white space (mail programs break lines) and case.
    fn from_str(text: &str) -> Result<Self, CodeError> {
        if text.len() > TEXT_MAX {
            return Err(CodeError::NotACode);
        }
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let text = Zeroizing::new(text.to_ascii_lowercase());
        let (prefix, rest) = text.split_once('_').ok_or(CodeError::NotACode)?;
        if prefix != PREFIX {
            let version = prefix.strip_prefix(ANY_PREFIX).filter(|v| v.parse::<u32>().is_ok());
            return Err(if version.is_some() { CodeError::OtherVersion } else { CodeError::NotACode });
        }
        let mut parts = rest.split('_');
        let mut next = || parts.next().ok_or(CodeError::Mistyped);
        let inviter = from_hex::<32>(next()?).ok_or(CodeError::Mistyped)?;
        let token = from_hex::<TOKEN_BYTES>(next()?).ok_or(CodeError::Mistyped)?;
        let check = from_hex::<4>(next()?).ok_or(CodeError::Mistyped)?;
        let code = PairingCode { inviter: PeerId(*inviter), token };
        if parts.next().is_some() || code.check() != *check {
            return Err(CodeError::Mistyped);
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code() -> PairingCode {
        PairingCode::new(PeerId([0xab; 32]), Zeroizing::new([7; TOKEN_BYTES]))
    }

    #[test]
    fn travels_as_one_word() {
        let text = code().to_string();
        assert!(!text.contains(char::is_whitespace));
        assert_eq!(text.parse::<PairingCode>().unwrap(), code());
        let wrapped = format!("  {}\n{}\r\n", &text[..40], text[40..].to_ascii_uppercase());
        assert_eq!(wrapped.parse::<PairingCode>().unwrap(), code());
    }

    #[test]
    fn every_single_typing_error_is_seen() {
        let text = code().to_string();
        for at in PREFIX.len() + 1..text.len() {
            let mut typo = text.clone().into_bytes();
            typo[at] = if typo[at] == b'3' { b'8' } else { b'3' };
            let typo = String::from_utf8(typo).unwrap();
            assert_eq!(typo.parse::<PairingCode>(), Err(CodeError::Mistyped), "at {at}");
        }
        for cut in PREFIX.len() + 1..text.len() {
            assert_eq!(text[..cut].parse::<PairingCode>(), Err(CodeError::Mistyped), "cut at {cut}");
        }
        assert_eq!(format!("{text}_").parse::<PairingCode>(), Err(CodeError::Mistyped));
    }

    #[test]
    fn other_texts_are_refused() {
        assert_eq!("hello".parse::<PairingCode>(), Err(CodeError::NotACode));
        assert_eq!("".parse::<PairingCode>(), Err(CodeError::NotACode));
        assert_eq!("farside2_00".parse::<PairingCode>(), Err(CodeError::OtherVersion));
        assert_eq!("farside1_ä".repeat(200).parse::<PairingCode>(), Err(CodeError::NotACode));
    }

    #[test]
    fn debug_shows_no_token() {
        assert!(!format!("{:?}", code()).contains("07"), "{:?}", code());
    }
}
