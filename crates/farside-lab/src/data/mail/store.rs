//! How mailboxes lie on disk, and what their owners do with them: Maildir (a file per message, its flags in its name) and
//! mbox (one file per folder, new mail at its end, what is deleted taken out by moving the rest forward in place). Both keep
//! indexes: one is written anew beside the old one, one in place.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::super::DataError;
use super::message::Post;

/// Which of the two forms a volume has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Maildir,
    Mbox,
}

/// Folders of a mailbox; the first gets what comes, the second what its owner sent, the third what he keeps.
const FOLDERS: [&str; 3] = ["INBOX", "Sent", "Archive"];
const INBOX: usize = 0;
const SENT: usize = 1;
const ARCHIVE: usize = 2;

/// What an owner does in a day with each message in his inbox: chances, of the messages that are left by the one before.
const READ: f64 = 0.7;
const DELETE: f64 = 0.03;
const MOVE: f64 = 0.04;

/// A store in use has most of its mail read and filed: the same on day 1, which stands for months.
const MOVE_AT_FIRST: f64 = 0.5;

/// A mailbox, as its files are.
pub(super) struct Mailbox {
    kind: Kind,
    folders: [Folder; 3],
}

#[derive(Default)]
struct Folder {
    messages: Vec<Stored>,
    next_uid: u32,
}

struct Stored {
    uid: u32,
    /// Without flags.
    name: String,
    /// In `cur/` with these flags; in `new/` as long as nobody has seen it. Mboxes keep flags in the index alone.
    seen: bool,
    bytes: u64,
    time: i64,
}

impl Stored {
    fn file(&self) -> String {
        if self.seen { format!("cur/{}:2,S", self.name) } else { format!("new/{}", self.name) }
    }
}

impl Mailbox {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, folders: Default::default() }
    }

    /// A message comes in, as a server delivers it; one that the owner sent goes to that folder.
    pub(super) fn deliver(
        &mut self,
        home: &Path,
        post: &Post,
        message: u64,
        owner: usize,
        bytes: &[u8],
    ) -> Result<(), DataError> {
        let number = if post.is_from(message, owner) { SENT } else { INBOX };
        let place = self.place(home, number);
        let folder = &mut self.folders[number];
        folder.next_uid += 1;
        let time = post.time(message);
        let mut stored = Stored {
            uid: folder.next_uid,
            name: format!(
                "{time}.M{:06}P{}.store,S={}",
                message % 1_000_000,
                1000 + message % 30_000,
                bytes.len()
            ),
            seen: number == SENT,
            bytes: bytes.len() as u64,
            time,
        };
        match self.kind {
            Kind::Maildir => {
                for part in ["tmp", "new", "cur"] {
                    let part = place.join(part);
                    fs::create_dir_all(&part).map_err(DataError::io("create", &part))?;
                }
                let (written, delivered) = (place.join("tmp").join(&stored.name), place.join(stored.file()));
                fs::write(&written, bytes).map_err(DataError::io("write", &written))?;
                fs::rename(&written, &delivered).map_err(DataError::io("rename", &written))?;
            }
            Kind::Mbox => {
                if let Some(parent) = place.parent() {
                    fs::create_dir_all(parent).map_err(DataError::io("create", parent))?;
                }
                let mut entry = format!("From {}@store {time}\n", post.login(owner)).into_bytes();
                entry.extend_from_slice(bytes);
                entry.push(b'\n');
                stored.bytes = entry.len() as u64;
                let file = OpenOptions::new().append(true).create(true).open(&place);
                file.and_then(|mut file| file.write_all(&entry))
                    .map_err(DataError::io("append to", &place))?;
            }
        }
        folder.messages.push(stored);
        Ok(())
    }

    /// The owner's day: reads, deletes, files away; then the indexes are written.
    pub(super) fn tidy(
        &mut self,
        home: &Path,
        at_first: bool,
        chance: &mut ChaCha8Rng,
    ) -> Result<(), DataError> {
        let moving = if at_first { MOVE_AT_FIRST } else { MOVE };
        let mut fates = Vec::new();
        for _ in &self.folders[INBOX].messages {
            // Drawn for each message alike, whatever becomes of it.
            let (read, delete, file) =
                (chance.random_bool(READ), chance.random_bool(DELETE), chance.random_bool(moving));
            fates.push((
                read,
                if delete {
                    Fate::Gone
                } else if file {
                    Fate::Moved
                } else {
                    Fate::Stays
                },
            ));
        }
        match self.kind {
            Kind::Maildir => self.tidy_maildir(home, &fates)?,
            Kind::Mbox => self.tidy_mbox(home, &fates)?,
        }
        for number in 0..FOLDERS.len() {
            self.write_index(home, number)?;
        }
        Ok(())
    }

    fn tidy_maildir(&mut self, home: &Path, fates: &[(bool, Fate)]) -> Result<(), DataError> {
        let (inbox, archive) = (self.place(home, INBOX), self.place(home, ARCHIVE));
        let cur = archive.join("cur");
        fs::create_dir_all(&cur).map_err(DataError::io("create", &cur))?;
        let cur = inbox.join("cur");
        fs::create_dir_all(&cur).map_err(DataError::io("create", &cur))?;
        let mut kept = Vec::new();
        for (mut stored, (read, fate)) in
            std::mem::take(&mut self.folders[INBOX].messages).into_iter().zip(fates)
        {
            let from = inbox.join(stored.file());
            if *fate == Fate::Gone {
                fs::remove_file(&from).map_err(DataError::io("remove", &from))?;
                continue;
            }
            // Only what was read is filed away.
            let moved = *fate == Fate::Moved;
            stored.seen |= *read || moved;
            let to = if moved { &archive } else { &inbox }.join(stored.file());
            if to != from {
                fs::rename(&from, &to).map_err(DataError::io("rename", &from))?;
            }
            if moved { self.folders[ARCHIVE].take_in(stored) } else { kept.push(stored) }
        }
        self.folders[INBOX].messages = kept;
        Ok(())
    }

    fn tidy_mbox(&mut self, home: &Path, fates: &[(bool, Fate)]) -> Result<(), DataError> {
        let (inbox, archive) = (self.place(home, INBOX), self.place(home, ARCHIVE));
        if self.folders[INBOX].messages.is_empty() {
            return Ok(());
        }
        let old = fs::read(&inbox).map_err(DataError::io("read", &inbox))?;
        let (mut kept_bytes, mut moved_bytes) = (Vec::with_capacity(old.len()), Vec::new());
        // Up to here the file stays as it is.
        let mut first_change = None;
        let (mut kept, mut at) = (Vec::new(), 0);
        for (mut stored, (read, fate)) in
            std::mem::take(&mut self.folders[INBOX].messages).into_iter().zip(fates)
        {
            let entry = &old[at..at + stored.bytes as usize];
            at += entry.len();
            stored.seen |= *read || *fate == Fate::Moved;
            if *fate == Fate::Stays {
                kept_bytes.extend_from_slice(entry);
                kept.push(stored);
                continue;
            }
            first_change.get_or_insert(kept_bytes.len());
            if *fate == Fate::Moved {
                moved_bytes.extend_from_slice(entry);
                self.folders[ARCHIVE].take_in(stored);
            }
        }
        self.folders[INBOX].messages = kept;
        let file = OpenOptions::new().append(true).create(true).open(&archive);
        file.and_then(|mut file| file.write_all(&moved_bytes))
            .map_err(DataError::io("append to", &archive))?;
        if let Some(first_change) = first_change {
            let file = OpenOptions::new().write(true).open(&inbox).map_err(DataError::io("open", &inbox))?;
            file.write_all_at(&kept_bytes[first_change..], first_change as u64)
                .and_then(|()| file.set_len(kept_bytes.len() as u64))
                .map_err(DataError::io("write", &inbox))?;
        }
        Ok(())
    }

    /// The list of names is written anew and takes the old one's place; the index is written in place.
    fn write_index(&self, home: &Path, number: usize) -> Result<(), DataError> {
        let folder = &self.folders[number];
        let place = self.place(home, number);
        let (list, index) = match self.kind {
            Kind::Maildir => (place.join("uidlist"), place.join("index")),
            Kind::Mbox => (place.with_extension("uidlist"), place.with_extension("index")),
        };
        if let Some(parent) = list.parent() {
            fs::create_dir_all(parent).map_err(DataError::io("create", parent))?;
        }
        let mut names = format!("3 V1704153600 N{}\n", folder.next_uid + 1);
        let mut records = Vec::with_capacity(folder.messages.len() * 32);
        let mut offset = 0u64;
        for stored in &folder.messages {
            // Writing to a String cannot fail.
            let _ = writeln!(names, "{} S{} :{}", stored.uid, stored.bytes, stored.name);
            records.extend_from_slice(&stored.uid.to_le_bytes());
            records.extend_from_slice(&u32::from(stored.seen).to_le_bytes());
            for word in [stored.bytes, stored.time.cast_unsigned(), offset] {
                records.extend_from_slice(&word.to_le_bytes());
            }
            offset += stored.bytes;
        }
        let written = list.with_extension("tmp");
        fs::write(&written, names).map_err(DataError::io("write", &written))?;
        fs::rename(&written, &list).map_err(DataError::io("rename", &written))?;
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&index);
        file.and_then(|file| {
            file.write_all_at(&records, 0)?;
            file.set_len(records.len() as u64)
        })
        .map_err(DataError::io("write", &index))
    }

    /// A Maildir's directory, or an mbox's file.
    fn place(&self, home: &Path, number: usize) -> PathBuf {
        match (self.kind, number) {
            (Kind::Maildir, INBOX) => home.join("Maildir"),
            (Kind::Maildir, _) => home.join("Maildir").join(format!(".{}", FOLDERS[number])),
            (Kind::Mbox, _) => home.join("mail").join(FOLDERS[number]),
        }
    }
}

impl Folder {
    fn take_in(&mut self, mut stored: Stored) {
        self.next_uid += 1;
        stored.uid = self.next_uid;
        self.messages.push(stored);
    }
}

/// What becomes of a message in the inbox.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Stays,
    Moved,
    Gone,
}
