//! `mail`: a mail store of eight volumes, each a file system of its own, on five days.
//!
//! Six volumes hold Maildirs (a file per message), two hold mbox files (all messages of a folder in one). Messages have
//! headers, text whose words follow Zipf's law, replies that quote, and attachments of which some go to many mailboxes in
//! several volumes. Day 1 is a store in use; each later day brings new mail (4 % of what is there), and people read,
//! move and delete. Indexes are rewritten as servers do it.

mod message;
mod store;

use std::fs;

use rand::Rng;

use super::filesystem::{Content, FileSystem};
use super::making::Making;
use super::{DataError, MIB, seeded};
use message::Post;
use store::{Kind, Mailbox};

/// As many as the set has.
pub(super) const VOLUMES: u32 = 8;

/// The later of the volumes hold mbox files.
const MAILDIR_VOLUMES: u32 = 6;

pub(super) const DAYS: &[&str] = &["day-1", "day-2", "day-3", "day-4", "day-5"];

/// How much of a volume is taken on day 1, with the tails of files.
const FILL: f64 = 0.6;

/// New mail of a day, as a share of what day 1 has. About half as much is deleted.
const NEW_SHARE: f64 = 0.04;

/// What the journal and tables take of even the smallest volume.
const TABLES_BYTES: u64 = 5 * MIB;

/// A mailbox for every so many bytes of a volume, at least two.
const BYTES_PER_MAILBOX: u64 = 2 * MIB;

/// A volume must hold a few messages with attachments.
pub(super) const MINIMUM_BYTES: u64 = 8 * MIB * VOLUMES as u64;

/// A message and the mailboxes that it goes to.
struct Delivery {
    message: u64,
    mailboxes: Vec<usize>,
}

pub(super) fn make(making: &mut Making<'_>) -> Result<(), DataError> {
    let mailboxes_per_volume = (making.volume_bytes() / BYTES_PER_MAILBOX).max(2) as usize;
    let people = mailboxes_per_volume * VOLUMES as usize;
    let post = Post::new(making.seed(), people);
    let room = (making.volume_bytes().saturating_sub(TABLES_BYTES) as f64 * FILL) as u64;
    let mut mailboxes = Vec::new();
    let mut file_systems = Vec::new();
    for volume in 0..VOLUMES {
        let name = format!("mail-{volume}.img");
        file_systems.push(FileSystem::create(making, &name, u64::from(volume), Content::Small)?);
        let kind = if volume < MAILDIR_VOLUMES { Kind::Maildir } else { Kind::Mbox };
        mailboxes.extend((0..mailboxes_per_volume).map(|_| Mailbox::new(kind)));
    }
    let mut next = 0;
    for (number, day) in DAYS.iter().enumerate() {
        let share = if number == 0 { 1.0 } else { NEW_SHARE };
        let deliveries = deliver(&post, &mut next, (room as f64 * share) as u64, mailboxes_per_volume);
        making.begin(day)?;
        for (volume, file_system) in file_systems.iter().enumerate() {
            making.step(&format!("{day}: writing volume {volume}"))?;
            let mounted = file_system.mount()?;
            let mine = volume * mailboxes_per_volume..(volume + 1) * mailboxes_per_volume;
            for delivery in &deliveries {
                for owner in delivery.mailboxes.iter().copied().filter(|owner| mine.contains(owner)) {
                    let bytes = post.render(delivery.message, owner);
                    let home = mounted.root().join("home").join(post.login(owner));
                    mailboxes[owner].deliver(&home, &post, delivery.message, owner, &bytes)?;
                }
            }
            for owner in mine {
                let home = mounted.root().join("home").join(post.login(owner));
                fs::create_dir_all(&home).map_err(DataError::io("create", &home))?;
                let mut chance =
                    seeded::stream(making.seed(), "mailbox day", (owner * DAYS.len() + number) as u64);
                mailboxes[owner].tidy(&home, number == 0, &mut chance)?;
            }
            mounted.unmount()?;
            making.step(&format!("{day}: keeping volume {volume}"))?;
            making.capture(file_system.image())?;
        }
    }
    Ok(())
}

/// Messages until every volume has about `room` bytes more; `next` is the next message's number. A mailbox in a volume
/// that has its share gets nothing more in this round.
fn deliver(post: &Post, next: &mut u64, room: u64, mailboxes_per_volume: usize) -> Vec<Delivery> {
    let mut taken = [0; VOLUMES as usize];
    let mut deliveries = Vec::new();
    while taken.iter().any(|bytes| *bytes < room) {
        let message = *next;
        *next += 1;
        let mut mailboxes = post.mailboxes(message);
        mailboxes.retain(|owner| {
            let volume = owner / mailboxes_per_volume;
            let mine = taken[volume] < room;
            if mine {
                taken[volume] += post.length(message).next_multiple_of(4096);
            }
            mine
        });
        if !mailboxes.is_empty() {
            deliveries.push(Delivery { message, mailboxes });
        }
    }
    deliveries
}

/// Counted from 0, small ones more often.
fn skewed(count: usize, chance: &mut impl Rng) -> usize {
    let drawn: f64 = chance.random();
    ((drawn * drawn * count as f64) as usize).min(count.saturating_sub(1))
}
