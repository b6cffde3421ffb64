//! What is in a message. Everything follows from its number, so that one message is the same in every mailbox that it
//! goes to, however often it is rendered. Pure.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rand::{Rng, RngCore};
use rand_chacha::ChaCha8Rng;

use super::super::seeded;
use super::super::text::Vocabulary;
use super::skewed;

/// When the first message was sent, in seconds of Unix time.
const FIRST: i64 = 1_704_153_600;

/// Seconds between two messages, on average.
const SECONDS_BETWEEN: u64 = 180;

/// Chance that a message answers one of those before it, and how far back it looks.
const REPLY: f64 = 0.45;
const REPLY_BACK: u64 = 400;

/// How many messages above it an answer quotes.
const QUOTED: u32 = 3;

/// Chance of an attachment; and that it is one that others send around at the time as well.
const ATTACHMENT: f64 = 0.09;
const ATTACHMENT_SHARED: f64 = 0.4;

/// Messages in which a file is sent around.
const SHARED_FOR: u64 = 60;

/// Attachments are this long, each doubling as likely as the one before; two in three are compressed formats.
const ATTACHMENT_BYTES_MIN: u64 = 4 * 1024;
const ATTACHMENT_DOUBLINGS: f64 = 6.5;
const ATTACHMENT_COMPRESSED: f64 = 0.67;

/// Chance that a message goes to a list, and who is on it: one in eight.
const TO_LIST: f64 = 0.04;

/// Bytes of base64 in a line of mail.
const BASE64_LINE: usize = 76;

const DOMAIN: &str = "mail.example";

/// The people and what they write.
pub(super) struct Post {
    seed: u64,
    vocabulary: Vocabulary,
    logins: Vec<String>,
}

/// What is decided first about a message.
struct Envelope {
    from: usize,
    to: Vec<usize>,
    parent: Option<u64>,
    attachment: Option<u64>,
}

impl Post {
    pub(super) fn new(seed: u64, people: usize) -> Self {
        let vocabulary = Vocabulary::new(seed);
        let mut chance = seeded::stream(seed, "logins", 0);
        let logins = (0..people).map(|number| format!("{}{number}", vocabulary.word(&mut chance))).collect();
        Self { seed, vocabulary, logins }
    }

    /// Name of a person's mailbox.
    pub(super) fn login(&self, owner: usize) -> &str {
        &self.logins[owner]
    }

    /// Where a message goes: to its recipients, and to its sender's own copies.
    pub(super) fn mailboxes(&self, message: u64) -> Vec<usize> {
        let envelope = self.envelope(message);
        let mut all = envelope.to;
        all.push(envelope.from);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether it is the person's own message.
    pub(super) fn is_from(&self, message: u64, owner: usize) -> bool {
        self.envelope(message).from == owner
    }

    /// Seconds of Unix time.
    pub(super) fn time(&self, message: u64) -> i64 {
        FIRST
            + (message * SECONDS_BETWEEN
                + self.chance("message time", message).random_range(0..SECONDS_BETWEEN)) as i64
    }

    /// About how long it is, bytes: enough to plan with.
    pub(super) fn length(&self, message: u64) -> u64 {
        let attachment =
            self.envelope(message).attachment.map_or(0, |id| self.attachment_length(id) * 78 / 57);
        self.text(message).len() as u64 * 2 + 900 + attachment
    }

    /// The sender's name and address.
    fn person(&self, owner: usize) -> String {
        let login = &self.logins[owner];
        let mut name = login.trim_end_matches(|letter: char| letter.is_ascii_digit()).to_owned();
        name[..1].make_ascii_uppercase();
        format!("{name} <{login}@{DOMAIN}>")
    }

    fn chance(&self, purpose: &str, number: u64) -> ChaCha8Rng {
        seeded::stream(self.seed, purpose, number)
    }

    fn envelope(&self, message: u64) -> Envelope {
        let mut chance = self.chance("envelope", message);
        let people = self.logins.len();
        let parent = (message > 0 && chance.random_bool(REPLY)).then(|| {
            let back = REPLY_BACK.min(message) as usize;
            message - 1 - skewed(back, &mut chance) as u64
        });
        let mut to: Vec<usize> = Vec::new();
        let from = match parent {
            // Somebody who got it answers to who wrote it.
            Some(parent) => {
                let parent = self.envelope(parent);
                to.push(parent.from);
                parent.to[chance.random_range(0..parent.to.len())]
            }
            None => skewed(people, &mut chance),
        };
        if chance.random_bool(TO_LIST) {
            let list = chance.random_range(0..8);
            to.extend((0..people).filter(|owner| owner % 8 == list));
        }
        for _ in 0..chance.random_range(1..4) {
            to.push(skewed(people, &mut chance));
        }
        to.sort_unstable();
        to.dedup();
        let attachment = chance.random_bool(ATTACHMENT).then(|| {
            if chance.random_bool(ATTACHMENT_SHARED) { message / SHARED_FOR * SHARED_FOR } else { message }
        });
        Envelope { from, to, parent, attachment }
    }

    /// What its author wrote, without what is quoted.
    fn text(&self, message: u64) -> String {
        let mut chance = self.chance("text", message);
        // Most are short, a few are long.
        let bytes = 120 << skewed(6, &mut chance);
        let mut text = self.vocabulary.paragraphs(bytes, &mut chance);
        if chance.random_bool(0.7) {
            let _ = write!(text, "\n-- \n{}\n", self.signature(self.envelope(message).from));
        }
        text
    }

    fn signature(&self, owner: usize) -> String {
        let mut chance = self.chance("signature", owner as u64);
        let (unit, place) = (self.vocabulary.phrase(3, &mut chance), self.vocabulary.phrase(4, &mut chance));
        format!("{}\n{unit}\n{place}", self.person(owner))
    }

    /// Text and, below it, up to `depth` messages that it answers, each with one `>` more.
    fn body(&self, message: u64, depth: u32) -> String {
        let mut body = self.text(message);
        if let Some(parent) = self.envelope(message).parent.filter(|_| depth > 0) {
            let _ = write!(
                body,
                "\nOn {}, {} wrote:\n",
                self.date(parent),
                self.person(self.envelope(parent).from)
            );
            for line in self.body(parent, depth - 1).lines() {
                let _ = writeln!(body, "> {line}");
            }
        }
        body
    }

    fn date(&self, message: u64) -> String {
        let time = Timestamp::from_second(self.time(message)).unwrap_or_default();
        time.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string()
    }

    fn id(&self, message: u64) -> String {
        format!("<{:016x}@{DOMAIN}>", self.chance("message id", message).next_u64())
    }

    fn subject(&self, message: u64) -> String {
        match self.envelope(message).parent {
            Some(parent) => {
                let subject = self.subject(parent);
                if subject.starts_with("Re: ") { subject } else { format!("Re: {subject}") }
            }
            None => {
                let mut chance = self.chance("subject", message);
                self.vocabulary.phrase(chance.random_range(2..8), &mut chance)
            }
        }
    }

    fn attachment_length(&self, id: u64) -> u64 {
        let doublings = self.chance("attached length", id).random_range(0.0..ATTACHMENT_DOUBLINGS);
        (ATTACHMENT_BYTES_MIN as f64 * doublings.exp2()) as u64
    }

    fn attachment(&self, id: u64) -> Vec<u8> {
        let mut chance = self.chance("attachment", id);
        let length = self.attachment_length(id) as usize;
        if chance.random_bool(ATTACHMENT_COMPRESSED) {
            let mut bytes = vec![0; length];
            chance.fill_bytes(&mut bytes);
            return bytes;
        }
        // A table, as spreadsheets export it.
        let mut table = String::with_capacity(length + 100);
        let mut row = 0;
        while table.len() < length {
            row += 1;
            let _ = writeln!(
                table,
                "{row};{};{:.2};{}",
                self.vocabulary.phrase(2, &mut chance),
                chance.random_range(0.0..10_000.0),
                chance.random_range(0..500)
            );
        }
        table.truncate(length);
        table.into_bytes()
    }

    /// The message as it lies in one mailbox: what servers on the way wrote differs, all else is the same everywhere.
    pub(super) fn render(&self, message: u64, owner: usize) -> Vec<u8> {
        let envelope = self.envelope(message);
        let mut chance = self.chance("received", message << 16 | owner as u64);
        let (sender, login) = (self.login(envelope.from), self.login(owner));
        let date = self.date(message);
        let mut head = format!(
            "Return-Path: <{sender}@{DOMAIN}>\nDelivered-To: {login}@{DOMAIN}\n\
             Received: from mx{}.{DOMAIN} (mx.{DOMAIN} [192.0.2.{}])\n\tby store.{DOMAIN} with LMTP id {:012x}\n\t\
             for <{login}@{DOMAIN}>; {date}\nReceived: from desk.{DOMAIN} (desk [198.51.100.{}])\n\t\
             (using TLSv1.3 with cipher TLS_AES_256_GCM_SHA384 (256/256 bits))\n\t\
             by mx.{DOMAIN} (Postfix) with ESMTPSA id {:010X}; {date}\n",
            chance.random_range(1..4),
            chance.random_range(1..255),
            chance.next_u64() >> 16,
            chance.random_range(1..255),
            chance.next_u64() >> 24,
        );
        let to: Vec<String> = envelope.to.iter().map(|owner| self.person(*owner)).collect();
        // Writing to a String cannot fail.
        let _ = write!(
            head,
            "Date: {date}\nFrom: {}\nTo: {}\nSubject: {}\nMessage-ID: {}\n",
            self.person(envelope.from),
            to.join(",\n\t"),
            self.subject(message),
            self.id(message)
        );
        if let Some(parent) = envelope.parent {
            let id = self.id(parent);
            let _ = write!(head, "In-Reply-To: {id}\nReferences: {id}\n");
        }
        head.push_str("User-Agent: Mutt/2.2.9\nMIME-Version: 1.0\n");
        let body = self.body(message, QUOTED);
        let Some(id) = envelope.attachment else {
            return format!("{head}Content-Type: text/plain; charset=utf-8\n\n{body}").into_bytes();
        };
        let border = format!("=_{:016x}", self.chance("border", message).next_u64());
        let mut whole = format!(
            "{head}Content-Type: multipart/mixed; boundary=\"{border}\"\n\n--{border}\nContent-Type: text/plain; \
             charset=utf-8\n\n{body}\n--{border}\nContent-Type: application/octet-stream\nContent-Disposition: attachment; \
             filename=\"file-{id}.bin\"\nContent-Transfer-Encoding: base64\n\n"
        );
        let encoded = STANDARD.encode(self.attachment(id));
        for line in encoded.as_bytes().chunks(BASE64_LINE) {
            whole.push_str(&String::from_utf8_lossy(line));
            whole.push('\n');
        }
        let _ = writeln!(whole, "--{border}--");
        whole.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 11;
    const MESSAGES: u64 = 600;

    #[test]
    fn a_message_is_the_same_whenever_it_is_rendered_and_nearly_the_same_for_all() {
        let (one, other) = (Post::new(SEED, 16), Post::new(SEED, 16));
        let another_seed = Post::new(SEED + 1, 16);
        let (mut planned, mut real) = (0, 0);
        for message in 0..MESSAGES {
            let mailboxes = one.mailboxes(message);
            assert_eq!(mailboxes, other.mailboxes(message));
            let bytes = one.render(message, mailboxes[0]);
            assert_eq!(bytes, other.render(message, mailboxes[0]));
            planned += one.length(message);
            real += bytes.len() as u64;
            if let Some(last) = mailboxes.iter().skip(1).last() {
                let text = |bytes: &[u8]| {
                    String::from_utf8_lossy(bytes).split_once("\nDate: ").map(|two| two.1.to_owned())
                };
                assert_eq!(text(&bytes), text(&one.render(message, *last)), "message {message}");
                assert_ne!(
                    bytes,
                    one.render(message, *last),
                    "message {message} has no Delivered-To of its own"
                );
            }
        }
        // Volumes are filled by plan: all together it holds, whatever single messages do.
        let ratio = planned as f64 / real as f64;
        assert!((0.7..1.4).contains(&ratio), "{planned} bytes planned, {real} written");
        assert_ne!(one.render(0, 0), another_seed.render(0, 0));
    }

    #[test]
    fn replies_quote_and_attachments_go_around() {
        let post = Post::new(SEED, 16);
        let mut attached: Vec<u64> = Vec::new();
        let mut replies = 0;
        for message in 0..MESSAGES {
            let envelope = post.envelope(message);
            attached.extend(envelope.attachment);
            let Some(parent) = envelope.parent else { continue };
            replies += 1;
            assert!(parent < message);
            assert!(post.envelope(parent).to.contains(&envelope.from), "who answers {parent} got it");
            let first = post.text(parent).lines().next().map(|line| format!("> {line}"));
            assert!(
                first.is_some_and(|line| post.body(message, QUOTED).contains(&line)),
                "{message} quotes {parent}"
            );
            assert!(post.subject(message).starts_with("Re: "));
        }
        let share = f64::from(replies) / MESSAGES as f64;
        assert!((share - REPLY).abs() < 0.08, "{share} of {MESSAGES} are replies");
        let all = attached.len();
        attached.sort_unstable();
        attached.dedup();
        assert!(
            all > 30 && attached.len() < all,
            "{} of {all} attachments are different ones",
            attached.len()
        );
    }
}
