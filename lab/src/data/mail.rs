//! `mail`: a mail store of eight volumes, each a file system of its own, on five days.
//!
//! Six volumes hold Maildirs (a file per message), two hold mbox files (all messages of a mailbox in one). Messages have
//! headers, text whose words follow Zipf's law, quoted answers, and attachments of which some go around in all volumes. Day 1 is a
//! store in use; each later day brings new mail, some is read (its file is renamed) and some deleted (in an mbox, what
//! follows moves). Each mailbox has an index that is written anew beside the old one.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::{Rng, RngCore};
use rand_chacha::ChaCha8Rng;

use super::error::DataError;
use super::filesystem::{Content, FileSystem};
use super::making::Making;
use super::seeded;
use super::set::MIB;
use super::text::Vocabulary;

/// As many as the set has.
pub(super) const VOLUMES: u32 = 8;

/// The later of the volumes hold mbox files.
const MAILDIR_VOLUMES: u32 = 6;

pub(super) const DAYS: &[&str] = &["day-1", "day-2", "day-3", "day-4", "day-5"];

/// How much of a volume is taken on day 1, and new mail of a day as a share of that.
const FILL: f64 = 0.6;
const NEW_SHARE: f64 = 0.04;

/// What the journal and tables take of even the smallest volume.
const TABLES_BYTES: u64 = 5 * MIB;

/// A mailbox for every so many bytes of a volume, at least two.
const BYTES_PER_MAILBOX: u64 = 2 * MIB;

/// Chances that a message answers an earlier one, and of an attachment; one in three of these goes around.
const ANSWER: f64 = 0.45;
const ATTACHMENT: f64 = 0.09;
const SHARED: f64 = 0.33;

/// Attachments are this long, each doubling as likely as the one before; two in three are compressed formats.
const ATTACHMENT_BYTES_MIN: f64 = 4096.0;
const ATTACHMENT_DOUBLINGS: f64 = 6.5;
const COMPRESSED: f64 = 0.67;

/// What an owner does in a day with each message: chances.
const READ: f64 = 0.7;
const DELETE: f64 = 0.03;

/// When the first message was sent, in seconds of Unix time, and the seconds between two.
const FIRST: u64 = 1_704_153_600;
const BETWEEN: u64 = 180;

/// A volume must hold a few messages with attachments.
pub(super) const MINIMUM_BYTES: u64 = 8 * MIB * VOLUMES as u64;

pub(super) fn make(making: &mut Making<'_>) -> Result<(), DataError> {
    let count = (making.volume_bytes() / BYTES_PER_MAILBOX).max(2);
    let room = making.volume_bytes().saturating_sub(TABLES_BYTES) as f64 * FILL;
    let mut volumes = Vec::new();
    for volume in 0..VOLUMES {
        let name = format!("mail-{volume}.img");
        let file_system = FileSystem::create(making, &name, u64::from(volume), Content::Small)?;
        let is_mbox = volume >= MAILDIR_VOLUMES;
        let mailboxes: Vec<Mailbox> =
            (0..count).map(|number| Mailbox { number, is_mbox, messages: Vec::new() }).collect();
        let chance = seeded::stream(making.seed(), "mail volume", u64::from(volume));
        volumes.push((file_system, mailboxes, chance));
    }
    let writer = Writer::new(making.seed());
    for (number, day) in DAYS.iter().enumerate() {
        let bytes = if number == 0 { room } else { room * NEW_SHARE };
        making.begin(day)?;
        for (volume, (file_system, mailboxes, chance)) in volumes.iter_mut().enumerate() {
            making.step(&format!("{day}: writing volume {volume}"))?;
            let mounted = file_system.mount()?;
            let mut written = 0.0;
            while written < bytes {
                let mailbox = chance.random_range(0..mailboxes.len());
                let message = writer.message(number as u64, volume as u64, chance);
                // A Maildir's file takes whole blocks.
                written += message.len().next_multiple_of(4096) as f64;
                mailboxes[mailbox].deliver(mounted.root(), &message)?;
            }
            for mailbox in mailboxes {
                mailbox.tidy(mounted.root(), chance)?;
            }
            mounted.unmount()?;
            making.step(&format!("{day}: keeping volume {volume}"))?;
            making.capture(file_system.image())?;
        }
    }
    Ok(())
}

/// A mailbox: a directory with a file per message, or one file with all.
struct Mailbox {
    number: u64,
    is_mbox: bool,
    messages: Vec<Stored>,
}

struct Stored {
    name: u64,
    is_read: bool,
    /// Only what an mbox holds.
    text: String,
}

impl Stored {
    fn file(&self) -> String {
        if self.is_read { format!("cur/{}.store:2,S", self.name) } else { format!("new/{}.store", self.name) }
    }
}

impl Mailbox {
    fn home(&self, root: &Path) -> std::path::PathBuf {
        root.join("home").join(format!("user{:03}", self.number))
    }

    fn deliver(&mut self, root: &Path, message: &str) -> Result<(), DataError> {
        let name = FIRST + self.messages.last().map_or(0, |last| last.name - FIRST + BETWEEN);
        let text =
            if self.is_mbox { format!("From sender@store {name}\n{message}\n") } else { String::new() };
        let stored = Stored { name, is_read: false, text };
        if !self.is_mbox {
            let home = self.home(root);
            for part in ["new", "cur"] {
                let part = home.join(part);
                fs::create_dir_all(&part).map_err(DataError::io("create", &part))?;
            }
            let path = home.join(stored.file());
            fs::write(&path, message).map_err(DataError::io("write", &path))?;
        }
        self.messages.push(stored);
        Ok(())
    }

    /// The owner's day: reads and deletes; then the mbox and the index are written.
    fn tidy(&mut self, root: &Path, chance: &mut ChaCha8Rng) -> Result<(), DataError> {
        let home = self.home(root);
        fs::create_dir_all(&home).map_err(DataError::io("create", &home))?;
        let mut kept = Vec::new();
        for mut stored in std::mem::take(&mut self.messages) {
            let from = home.join(stored.file());
            let (reads, deletes) = (chance.random_bool(READ), chance.random_bool(DELETE));
            if deletes {
                if !self.is_mbox {
                    fs::remove_file(&from).map_err(DataError::io("remove", &from))?;
                }
                continue;
            }
            stored.is_read |= reads;
            let to = home.join(stored.file());
            if !self.is_mbox && to != from {
                fs::rename(&from, &to).map_err(DataError::io("rename", &from))?;
            }
            kept.push(stored);
        }
        self.messages = kept;
        if self.is_mbox {
            let whole: String = self.messages.iter().map(|stored| stored.text.as_str()).collect();
            rewrite(&home.join("mbox"), whole.as_bytes())?;
        }
        let index: String =
            self.messages.iter().map(|stored| format!("{} {}\n", stored.name, stored.is_read)).collect();
        let fresh = home.join("index.new");
        fs::write(&fresh, index).map_err(DataError::io("write", &fresh))?;
        fs::rename(&fresh, home.join("index")).map_err(DataError::io("rename", &fresh))
    }
}

/// Writes in place, so that what did not move keeps its blocks.
fn rewrite(path: &Path, bytes: &[u8]) -> Result<(), DataError> {
    use std::io::Write as _;
    let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
    file.and_then(|mut file| {
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)
    })
    .map_err(DataError::io("write", path))
}

/// Writes messages.
struct Writer {
    seed: u64,
    vocabulary: Vocabulary,
}

impl Writer {
    fn new(seed: u64) -> Self {
        Self { seed, vocabulary: Vocabulary::new(seed) }
    }

    fn message(&self, day: u64, volume: u64, chance: &mut ChaCha8Rng) -> String {
        let words = &self.vocabulary;
        let (from, to) = (words.phrase(2, chance), words.phrase(2, chance));
        let subject = words.phrase(chance.random_range(2..8), chance);
        let mut text = format!(
            "Received: from mx{}.mail.example ([192.0.2.{}]) by store{volume}.mail.example with LMTP id {:012x}\n\
             From: <{from}@mail.example>\nTo: <{to}@mail.example>\nSubject: {subject}\nMessage-ID: <{:016x}@mail.example>\n\
             MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"=_part\"\n\n--=_part\n\n",
            chance.random_range(1..4),
            chance.random_range(1..255),
            chance.next_u64() >> 16,
            chance.next_u64(),
        );
        let length = 120 << chance.random_range(0..6).min(chance.random_range(0..6));
        text.push_str(&words.paragraphs(length, chance));
        if chance.random_bool(ANSWER) {
            // The same thread is quoted again and again.
            let mut thread = seeded::stream(self.seed, "thread", day * 40 + chance.random_range(0..80));
            for line in words.paragraphs(thread.random_range(200..2000), &mut thread).lines() {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "> {line}");
            }
        }
        if chance.random_bool(ATTACHMENT) {
            let shared = chance.random_bool(SHARED).then(|| day * 10 + chance.random_range(0..20));
            let mut own =
                seeded::stream(self.seed, "attachment", shared.unwrap_or_else(|| chance.next_u64()));
            text.push_str("\n--=_part\nContent-Transfer-Encoding: base64\n\n");
            for line in STANDARD.encode(self.attachment(&mut own)).as_bytes().chunks(76) {
                text.push_str(&String::from_utf8_lossy(line));
                text.push('\n');
            }
        }
        text
    }

    fn attachment(&self, chance: &mut ChaCha8Rng) -> Vec<u8> {
        let length = (ATTACHMENT_BYTES_MIN * chance.random_range(0.0..ATTACHMENT_DOUBLINGS).exp2()) as usize;
        if chance.random_bool(COMPRESSED) {
            let mut bytes = vec![0; length];
            chance.fill_bytes(&mut bytes);
            return bytes;
        }
        self.vocabulary.paragraphs(length, chance).into_bytes()
    }
}
