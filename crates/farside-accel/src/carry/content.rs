//! What is worth doing for the bytes of one direction. Pure.
//!
//! What is encrypted is known by how it begins, where that is certain, and goes as it is from then on: no two sessions of a
//! cipher have a chunk in common. What merely gets no smaller (pictures, archives, noise) is measured; it is not compressed any
//! more, and its chunks are still kept and named, since the same file may come once more. A sample now and then, after each
//! pause, and where the bytes themselves do not look like noise, finds what has changed: a connection that is used again for the
//! next file, a text in an archive of pictures.

use crate::policy::{Action, Demotion};

/// Literals after which is judged whether they get smaller.
const JUDGED: u64 = 256 << 10;
/// Share of their bytes that literals may have on the wire and still have got smaller.
const SMALLER: f64 = 0.97;
/// The same of a sample, which is compressed with the least effort and without history.
const SAMPLE_SMALLER: f64 = 0.95;
/// Bytes of a sample at most.
pub(super) const SAMPLE: usize = 64 << 10;
/// A sample of fewer literals says nothing.
const SAMPLE_MIN: usize = 1 << 10;
/// Bytes until the next sample, at first and at most.
const SKIPPED: (u64, u64) = (1 << 20, 8 << 20);
/// A sample that was taken for what bytes look like, and was wrong, is followed by none of that kind for so many bytes.
const NOT_BELIEVED_FOR: u64 = 1 << 20;
/// Bytes of a part that are counted to see whether they look like noise.
const COUNTED: usize = 4 << 10;
/// Noise has each byte as often as any other: two of it are the same once in 256 times. What is so more often by this factor does not
/// look like noise: text 15 times, programs 5 times. What was compressed or encrypted stays below 1.05.
const UNLIKE_NOISE: f64 = 1.3;
/// Parts whose beginning is looked at: some protocols agree in plain text that they go on encrypted.
const LOOKED_AT: u32 = 16;

/// How the next part goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// The bytes as they are.
    AsIs,
    /// A block that is not compressed.
    Chunks,
    /// A block that is.
    Full,
    /// A block of [`SAMPLE`] bytes at most, compressed with the least effort.
    Sample,
}

/// What was seen of one direction.
#[derive(Debug)]
pub(super) struct Content {
    action: Action,
    verdict: Option<Demotion>,
    looked_at: u32,
    /// Literals since the last judgement, and what they were on the wire.
    literals: u64,
    on_the_wire: u64,
    until_sample: u64,
    next_skip: u64,
    /// The next part does not look like noise.
    is_unlike_noise: bool,
    /// Bytes for which that is not believed.
    not_believed: u64,
}

impl Content {
    /// For what is done for the connection.
    pub(super) fn new(action: Action) -> Content {
        Content {
            action,
            verdict: None,
            looked_at: 0,
            literals: 0,
            on_the_wire: 0,
            until_sample: 0,
            next_skip: SKIPPED.0,
            is_unlike_noise: false,
            not_believed: 0,
        }
    }

    /// Why less is done than the policy says.
    pub(super) fn verdict(&self) -> Option<Demotion> {
        self.verdict
    }

    /// A part begins with these bytes.
    pub(super) fn looks_at(&mut self, part: &[u8]) {
        if self.looked_at < LOOKED_AT {
            self.looked_at += 1;
            if begins_encrypted(part, self.looked_at == 1) {
                self.verdict = Some(Demotion::Encrypted);
            }
        }
        let is_asked = self.verdict == Some(Demotion::Incompressible) && self.not_believed == 0;
        self.is_unlike_noise = is_asked && is_unlike_noise(part);
    }

    /// How the next part goes; `is_after_pause`: the client has said nothing for a while.
    pub(super) fn way(&self, is_after_pause: bool) -> Way {
        match self.verdict {
            Some(Demotion::Encrypted) => Way::AsIs,
            Some(_)
                if self.action.compresses()
                    && (is_after_pause || self.until_sample == 0 || self.is_unlike_noise) =>
            {
                Way::Sample
            }
            Some(_) if self.action.refers() => Way::Chunks,
            Some(_) => Way::AsIs,
            None if self.action.compresses() => Way::Full,
            None if self.action.refers() => Way::Chunks,
            None => Way::AsIs,
        }
    }

    /// A part of `bytes` went that way, of which `literals` were no references, and was `on_the_wire`.
    pub(super) fn went(&mut self, way: Way, bytes: usize, literals: usize, on_the_wire: usize) {
        self.until_sample = self.until_sample.saturating_sub(bytes as u64);
        self.not_believed = self.not_believed.saturating_sub(bytes as u64);
        match way {
            Way::AsIs | Way::Chunks => {}
            Way::Full => self.measures(literals, on_the_wire),
            Way::Sample if literals < SAMPLE_MIN => {}
            Way::Sample if on_the_wire as f64 <= SAMPLE_SMALLER * literals as f64 => {
                *self = Content { looked_at: self.looked_at, ..Content::new(self.action) };
            }
            Way::Sample => {
                if self.is_unlike_noise {
                    self.not_believed = NOT_BELIEVED_FOR;
                }
                self.until_sample = self.next_skip;
                self.next_skip = (2 * self.next_skip).min(SKIPPED.1);
            }
        }
    }

    /// Literals went over the wire as so many bytes.
    pub(super) fn measures(&mut self, literals: usize, on_the_wire: usize) {
        if self.verdict == Some(Demotion::Encrypted) {
            return;
        }
        self.literals += literals as u64;
        self.on_the_wire += on_the_wire as u64;
        if self.literals < JUDGED {
            return;
        }
        let got_smaller = self.on_the_wire as f64 <= SMALLER * self.literals as f64;
        self.verdict = (!got_smaller).then_some(Demotion::Incompressible);
        (self.literals, self.on_the_wire) = (0, 0);
        (self.until_sample, self.next_skip) = (SKIPPED.0, SKIPPED.0);
    }
}

/// Whether some bytes repeat as they do not in noise. Takes some microseconds, however long the part is.
fn is_unlike_noise(part: &[u8]) -> bool {
    if part.len() < COUNTED {
        return false;
    }
    let mut counts = [0_u32; 256];
    for byte in part.iter().step_by(part.len() / COUNTED).take(COUNTED) {
        counts[usize::from(*byte)] += 1;
    }
    // Pairs that are the same, of all pairs.
    let same: u64 = counts.iter().map(|count| u64::from(*count) * u64::from(count.saturating_sub(1))).sum();
    let all = (COUNTED * (COUNTED - 1)) as f64;
    same as f64 * 256.0 > UNLIKE_NOISE * all
}

/// Whether what follows is certainly encrypted: TLS's first record of either side, or SSH's first line.
fn begins_encrypted(part: &[u8], is_first: bool) -> bool {
    is_tls_hello(part) || (is_first && (part.starts_with(b"SSH-2.0-") || part.starts_with(b"SSH-1.99-")))
}

/// A record (RFC 8446, 5.1) with a handshake message that is a ClientHello or ServerHello (4.1), whose lengths and versions fit.
fn is_tls_hello(part: &[u8]) -> bool {
    let Some((head, _)) = part.split_first_chunk::<44>() else { return false };
    let record = usize::from(u16::from_be_bytes([head[3], head[4]]));
    let message = usize::from(head[6]) << 16 | usize::from(u16::from_be_bytes([head[7], head[8]]));
    let is_record = head[0] == 22 && head[1] == 3 && head[2] <= 4 && (42..=16_384).contains(&record);
    // A long message goes on in the next record; after a short one may stand others.
    let is_hello = matches!(head[5], 1 | 2) && (38..=65_536).contains(&message);
    let is_version = head[9] == 3 && head[10] <= 4;
    is_record && is_hello && is_version && head[43] <= 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngCore, SeedableRng};

    const KIB: usize = 1 << 10;

    fn hello(kind: u8) -> Vec<u8> {
        let mut hello = vec![22, 3, 1, 0, 200, kind, 0, 0, 196, 3, 3];
        hello.extend_from_slice(&[7; 32]);
        hello.push(32);
        hello.resize(205, 9);
        hello
    }

    #[test]
    fn what_is_encrypted_is_known_by_its_beginning() {
        for begin in [hello(1), hello(2), b"SSH-2.0-OpenSSH_10.0\r\n".to_vec()] {
            let mut content = Content::new(Action::Full);
            content.looks_at(&begin);
            assert_eq!((content.verdict(), content.way(true)), (Some(Demotion::Encrypted), Way::AsIs));
        }
        // After a request in plain text, as with a proxy or a database; SSH says its version first of all.
        let mut content = Content::new(Action::Full);
        content.looks_at(b"CONNECT example.org:443 HTTP/1.1\r\n\r\n");
        content.looks_at(b"SSH-2.0-a line of a text\n");
        assert_eq!(content.way(false), Way::Full);
        content.looks_at(&hello(1));
        assert_eq!(content.way(false), Way::AsIs);
    }

    #[test]
    fn what_only_resembles_it_is_not() {
        let wrong = |at: usize, byte: u8| {
            let mut wrong = hello(1);
            wrong[at] = byte;
            wrong
        };
        let not = [wrong(0, 23), wrong(1, 2), wrong(3, 0xff), wrong(5, 0), wrong(9, 2), wrong(43, 33)];
        for part in not.iter().map(Vec::as_slice).chain([&hello(1)[..43], b"", b"GET / HTTP/1.1\r\n"]) {
            let mut content = Content::new(Action::Full);
            content.looks_at(part);
            assert_eq!(content.verdict(), None, "{part:?}");
        }
    }

    #[test]
    fn noise_is_noticed_within_256_kib_and_sampled_after_that() {
        let mut content = Content::new(Action::Full);
        for _ in 0..4 {
            assert_eq!(content.way(false), Way::Full);
            content.went(Way::Full, 64 * KIB, 64 * KIB, 64 * KIB + 50);
        }
        assert_eq!(content.verdict(), Some(Demotion::Incompressible));
        let (mut samples, parts) = (0, 100 << 4);
        for _ in 0..parts {
            let way = content.way(false);
            samples += u32::from(way == Way::Sample);
            assert!(matches!(way, Way::Sample | Way::Chunks));
            content.went(way, 64 * KIB, 64 * KIB, 64 * KIB + 50);
        }
        assert!((10..=20).contains(&samples), "{samples} of 100 MiB");
    }

    #[test]
    fn text_after_noise_is_compressed_again() {
        let mut content = Content::new(Action::Lz);
        content.went(Way::Full, 256 * KIB, 256 * KIB, 256 * KIB);
        assert_eq!((content.way(false), content.way(true)), (Way::AsIs, Way::Sample));
        content.went(Way::Sample, 60 * KIB, 60 * KIB, 20 * KIB);
        assert_eq!((content.way(false), content.verdict()), (Way::Full, None));
    }

    fn noise(bytes: usize, seed: u64) -> Vec<u8> {
        let mut noise = vec![0; bytes];
        StdRng::seed_from_u64(seed).fill_bytes(&mut noise);
        noise
    }

    #[test]
    fn text_in_the_middle_of_noise_is_sampled_at_once() {
        let mut content = Content::new(Action::Full);
        content.went(Way::Full, 256 * KIB, 256 * KIB, 256 * KIB);
        for seed in 0..1000 {
            content.looks_at(&noise(64 * KIB, seed));
            assert_eq!(content.way(false), Way::Chunks, "FARSIDE_SEED={seed}");
        }
        let text = b"some words in a row. ".repeat(1000);
        content.looks_at(&text);
        assert_eq!(content.way(false), Way::Sample);
        // It got no smaller after all, and is not asked for a while; then it does.
        content.went(Way::Sample, 20 * KIB, 20 * KIB, 20 * KIB);
        content.looks_at(&text);
        assert_eq!(content.way(false), Way::Chunks);
        content.went(Way::Chunks, 1 << 20, 1 << 20, 1 << 20);
        content.looks_at(&text);
        assert_eq!(content.way(false), Way::Sample);
        content.went(Way::Sample, 20 * KIB, 20 * KIB, 5 * KIB);
        assert_eq!((content.way(false), content.verdict()), (Way::Full, None));
    }

    #[test]
    fn references_are_not_measured() {
        let mut content = Content::new(Action::Full);
        for _ in 0..100 {
            content.went(Way::Full, 1 << 20, 100, 150);
        }
        assert_eq!(content.verdict(), None);
    }
}
