//! The journal after a point: the chain of batches, where it ends and whether it may end there.
//!
//! Two passes, as recovery makes them. The first follows the chain from the superblock's position and finds the end
//! and the highest sequence that a batch *proves* (says it was synced before that batch was written). The second
//! applies the records; data that unproven batches map is compared with its fingerprints, and the first mismatch ends the
//! journal before its batch, since no flush can have been answered. A mismatch in a proven batch is a loss.

use farside_format::journal::{self, BATCH_BYTES_MAX, BatchHeader, POSITION_MAX, Record};
use farside_format::superblock::JOURNAL_START;
use farside_format::{BLOCK_BYTES, Fingerprint, FormatError, Superblock};
use farside_platform::BlockBuffer;

use crate::point::Point;
use crate::reader::Reader;
use crate::replay::{Fault, Replay};
use crate::report::{JournalEnd, JournalReport, Location, VersionReport, What};

const LOST_HINT: &str = "writes that hosts were told are safe are lost from here on; the point before them is whole. Keep \
                         the device as it is and restore from the mirror, or from a snapshot";
const REFUSED_HINT: &str = "what it held is not known; if the pool opens nothing is missing, and the journal overwrites it when it \
                            comes round";
const RECORD_HINT: &str = "the batch is whole but contradicts the state before it; do not write to this pool";

/// What the journal after a point says.
pub(crate) struct Outcome {
    pub(crate) report: JournalReport,
    pub(crate) versions: Option<Vec<VersionReport>>,
    /// Sequence that the next batch would have.
    end_sequence: u64,
    /// The birth epoch at the end.
    epoch: Option<u64>,
}

struct Batch {
    position: u64,
    sequence: u64,
    checksum: [u8; 16],
}

/// Limits that the newest point's journal sets to that of the older one.
struct Seen<'s> {
    newest: &'s Superblock,
    outcome: &'s Outcome,
}

/// Checks the journal after a point.
pub(crate) fn check(
    reader: &mut Reader<'_>,
    point: &Point,
    older: Option<(&Superblock, &Outcome)>,
) -> Outcome {
    let seen = older.map(|(newest, outcome)| Seen { newest, outcome });
    Scan { reader, point, superblock: &point.superblock, seen }.run()
}

/// Opening from the older superblock must lead to the same state.
pub(crate) fn check_older(reader: &mut Reader<'_>, older: &Point, newest: &Point, seen: &Outcome) {
    let ring = older.superblock.journal_blocks * BLOCK_BYTES as u64;
    let apart = newest.superblock.journal_position.checked_sub(older.superblock.journal_position);
    if apart.is_none_or(|bytes| bytes > ring) {
        // Noted when the superblocks were compared.
        return;
    }
    let errors = reader.errors();
    let outcome = check(reader, older, Some((&newest.superblock, seen)));
    let at = Location { generation: Some(older.superblock.generation), ..Location::default() };
    if outcome.end_sequence != seen.end_sequence || outcome.report.end_position != seen.report.end_position {
        reader.error(
            What::EitherSuperblock,
            at,
            format!("the journal to end at batch {}, as it does after the newest point", seen.end_sequence),
            format!("its end at batch {}: {}", outcome.end_sequence, outcome.report.end),
            "if the newest superblock is lost, flushed writes are lost with it; open the pool now, which makes a new point",
        );
        return;
    }
    if outcome.epoch.is_some() && seen.epoch.is_some() && outcome.epoch != seen.epoch {
        reader.error(
            What::EitherSuperblock,
            at.clone(),
            format!("birth epoch {:?} at the end of the journal", seen.epoch),
            format!("{:?}", outcome.epoch),
            "births would not be reproduced by the older superblock",
        );
    }
    // With other errors around, differences say nothing new.
    if let (Some(from_older), Some(from_newest)) = (&outcome.versions, &seen.versions)
        && reader.errors() == errors
    {
        compare_versions(reader, &at, from_older, from_newest);
    }
}

fn compare_versions(
    reader: &mut Reader<'_>,
    at: &Location,
    from_older: &[VersionReport],
    from_newest: &[VersionReport],
) {
    // Deleted versions are reaped in points, not in the journal.
    let live = |versions: &[VersionReport]| -> Vec<VersionReport> {
        let mut versions: Vec<_> = versions.iter().filter(|v| !v.deleted).cloned().collect();
        versions.sort_by_key(|v| v.id);
        for version in &mut versions {
            version.mapped_blocks = None;
        }
        versions
    };
    let (mut from_older, mut from_newest) = (live(from_older), live(from_newest));
    // Where a damaged map leaves one without a root, or the newest point has given blocks up since, roots say nothing.
    for (a, b) in from_older.iter_mut().zip(&mut from_newest) {
        if a.content_root.is_none() || b.content_root.is_none() {
            (a.content_root, b.content_root) = (None, None);
        }
    }
    let differing = from_newest
        .iter()
        .filter(|v| !from_older.contains(v))
        .chain(from_older.iter().filter(|v| !from_newest.iter().any(|n| n.id == v.id)));
    for version in differing {
        let describe = |version: Option<&VersionReport>| {
            version.map_or("none".into(), |v| {
                let root = v.content_root.map_or("unknown".into(), |r| r.to_string());
                format!("{:?} `{}`, {} bytes, content root {root}", v.kind, v.volume_name, v.size_bytes)
            })
        };
        let by_id = |versions: &[VersionReport]| describe(versions.iter().find(|v| v.id == version.id));
        let at = Location {
            volume: Some(version.volume_name.clone()),
            snapshot: version.snapshot.clone(),
            version: Some(version.id),
            ..at.clone()
        };
        let (expected, found) = (by_id(&from_newest), by_id(&from_older));
        reader.error(
            What::EitherSuperblock,
            at,
            expected,
            found,
            "if the newest superblock is lost, this version opens in another state",
        );
    }
}

struct Scan<'s, 'a> {
    reader: &'s mut Reader<'a>,
    point: &'s Point,
    superblock: &'s Superblock,
    seen: Option<Seen<'s>>,
}

impl Scan<'_, '_> {
    fn ring_bytes(&self) -> u64 {
        self.superblock.journal_blocks * BLOCK_BYTES as u64
    }

    fn at(&self, sequence: u64, position: u64) -> Location {
        let place = JOURNAL_START + position % self.ring_bytes() / BLOCK_BYTES as u64;
        Location {
            generation: Some(self.superblock.generation),
            batch: Some(sequence),
            place: Some(place),
            ..Location::default()
        }
    }

    /// Reads blocks of the ring from a position on, around its end if need be.
    fn read_ring(&mut self, position: u64, blocks: usize) -> Result<BlockBuffer, String> {
        let ring_blocks = self.superblock.journal_blocks;
        let first = position / BLOCK_BYTES as u64 % ring_blocks;
        let before_end = blocks.min((ring_blocks - first) as usize);
        let mut head = BlockBuffer::zeroed(before_end);
        self.reader.read(JOURNAL_START + first, &mut head)?;
        if before_end == blocks {
            return Ok(head);
        }
        let mut tail = BlockBuffer::zeroed(blocks - before_end);
        self.reader.read(JOURNAL_START, &mut tail)?;
        let mut whole = BlockBuffer::zeroed(blocks);
        whole[..before_end * BLOCK_BYTES].copy_from_slice(&head);
        whole[before_end * BLOCK_BYTES..].copy_from_slice(&tail);
        Ok(whole)
    }

    /// The batch at a position, whole; the error says why there is none.
    fn read_batch(&mut self, position: u64) -> Result<(BatchHeader, BlockBuffer), String> {
        let text = |e: FormatError| e.to_string();
        let first = self.read_ring(position, 1)?;
        let header = journal::decode_batch_header(&first).map_err(text)?;
        // At most BATCH_BYTES_MAX: the header's lengths were checked.
        let blocks = (header.ring_bytes() as usize).min(BATCH_BYTES_MAX) / BLOCK_BYTES;
        let bytes = self.read_ring(position, blocks)?;
        let (header, _) = journal::decode_batch(&bytes).map_err(text)?;
        Ok((header, bytes))
    }

    fn run(mut self) -> Outcome {
        let (first, position) = (self.superblock.journal_sequence, self.superblock.journal_position);
        if position > POSITION_MAX || first > POSITION_MAX {
            let at = Location { generation: Some(self.superblock.generation), ..Location::default() };
            let expected = "a journal position and sequence below 2^62";
            self.reader.error(What::Journal, at, expected, format!("{position}, {first}"), LOST_HINT);
            return self.outcome(0, None, position, JournalEnd::Unusable, None, first);
        }
        let (batches, mut proven, mut end_position, mut end) = self.chain();
        let mut end_sequence = first + batches.len() as u64;
        if let Some(seen) = &self.seen {
            self.check_crossing(&batches, end_position, seen.newest.clone());
        } else if end != JournalEnd::RingFull {
            let beyond = self.check_end(end_sequence, end_position, &end);
            proven = proven.max(beyond.filter(|beyond| *beyond >= first));
        }
        let mut replay = Replay::new(self.point, self.seen.is_some() || !self.other_slot_usable());
        for batch in &batches {
            if self.seen.as_ref().is_some_and(|s| batch.sequence >= s.outcome.end_sequence) {
                end = self.seen.as_ref().map_or(end, |s| s.outcome.report.end.clone());
            } else if let Err(why) = self.apply(batch, proven, &mut replay) {
                end = why;
            } else {
                continue;
            }
            (end_sequence, end_position) = (batch.sequence, batch.position);
            break;
        }
        self.outcome(end_sequence - first, proven, end_position, end, replay, end_sequence)
    }

    /// Whether the point before this one is on the medium too; then the one after this one is not.
    fn other_slot_usable(&self) -> bool {
        self.reader.has_older_point()
    }

    fn outcome(
        self,
        batches: u64,
        proven: Option<u64>,
        end_position: u64,
        end: JournalEnd,
        replay: Option<Replay<'_>>,
        end_sequence: u64,
    ) -> Outcome {
        let wanted = self.reader.options.replay;
        let report = JournalReport {
            first_sequence: self.superblock.journal_sequence,
            batches,
            records: replay.as_ref().map_or(0, |r| r.records),
            proven,
            end_position,
            end,
        };
        let epoch = replay.as_ref().map(|r| r.epoch());
        let versions = replay.filter(|_| wanted).map(|r| r.report(self.reader));
        Outcome { report, versions, end_sequence, epoch }
    }

    /// First pass: the chain, the highest sequence proven, where it ends and why.
    fn chain(&mut self) -> (Vec<Batch>, Option<u64>, u64, JournalEnd) {
        let start = self.superblock.journal_position;
        let (mut position, mut sequence) = (start, self.superblock.journal_sequence);
        let mut previous = self.superblock.journal_chain;
        let mut open_epoch = self.superblock.open_epoch;
        let mut batches = Vec::new();
        let mut proven = None;
        let end = loop {
            if position - start >= self.ring_bytes() {
                break JournalEnd::RingFull;
            }
            let header = match self.read_batch(position) {
                Ok((header, _)) => header,
                Err(why) => break JournalEnd::NoBatch(why),
            };
            let differs = [
                ("pool", header.pool != self.superblock.pool),
                ("sequence", header.sequence != sequence),
                ("position", header.position != position),
                ("chain", header.previous != previous),
                ("length", position + header.ring_bytes() - start > self.ring_bytes()),
            ];
            if let Some((field, _)) = differs.iter().find(|(_, differs)| *differs) {
                break JournalEnd::AnotherBatch(field);
            }
            let at = self.at(sequence, position);
            if header.proven >= sequence {
                let expected = format!("a batch that proves less than its own sequence {sequence}");
                self.reader.error(
                    What::Journal,
                    at.clone(),
                    expected,
                    header.proven.to_string(),
                    RECORD_HINT,
                );
            }
            if header.open_epoch < open_epoch {
                let expected = format!("an open epoch of at least {open_epoch}");
                self.reader.error(What::Journal, at, expected, header.open_epoch.to_string(), RECORD_HINT);
            }
            open_epoch = open_epoch.max(header.open_epoch);
            proven = proven.max((header.proven >= self.superblock.journal_sequence).then_some(header.proven));
            batches.push(Batch { position, sequence, checksum: header.checksum });
            previous = header.checksum;
            position += header.ring_bytes();
            sequence += 1;
        };
        (batches, proven, position, end)
    }

    /// Rule 1: no later batch on the ring may prove the sequence at which the chain ends. Answers the highest that one proves.
    fn check_end(&mut self, sequence: u64, position: u64, end: &JournalEnd) -> Option<u64> {
        const STRIDE_BLOCKS: u64 = 256;
        let ring_blocks = self.superblock.journal_blocks;
        let mut proven = None;
        let mut first = 0;
        while first < ring_blocks {
            let count = STRIDE_BLOCKS.min(ring_blocks - first);
            let blocks = match self.read_ring(first * BLOCK_BYTES as u64, count as usize) {
                Ok(blocks) => blocks,
                Err(_) => self.read_around((first, count), sequence, position),
            };
            for (index, block) in (first..).zip(blocks.chunks_exact(BLOCK_BYTES)) {
                let Ok(header) = journal::decode_batch_header(block) else { continue };
                if header.pool != self.superblock.pool {
                    continue;
                }
                let here = index * BLOCK_BYTES as u64;
                let in_place = header.position % self.ring_bytes() == here;
                let proves = header.sequence > sequence
                    && header.position > position
                    && Some(header.proven) > proven
                    && header.position < self.superblock.journal_position + self.ring_bytes();
                // Records are short and never hold a batch, so a whole batch elsewhere was written to the wrong place.
                if (in_place && !proves) || self.read_batch(here).is_err() {
                    continue;
                }
                if in_place && header.proven < sequence {
                    proven = Some(header.proven);
                    continue;
                }
                let at = self.at(sequence, position);
                let expected = format!("batch {sequence}");
                let found = if in_place {
                    format!("{end}; batch {} proves that it was synced", header.sequence)
                } else {
                    format!(
                        "{end}; batch {} lies at the wrong place, byte {here} of the ring",
                        header.sequence
                    )
                };
                self.reader.error(What::Journal, at, expected, found, LOST_HINT);
                return proven;
            }
            first += count;
        }
        proven
    }

    /// Blocks of the ring, zeros where the medium refuses.
    fn read_around(&mut self, (first, count): (u64, u64), sequence: u64, position: u64) -> BlockBuffer {
        let mut buffer = BlockBuffer::zeroed(count as usize);
        for (index, block) in (first..).zip(buffer.chunks_mut(BLOCK_BYTES)) {
            match self.read_ring(index * BLOCK_BYTES as u64, 1) {
                Ok(read) => block.copy_from_slice(&read),
                Err(why) => {
                    let at = Location { place: Some(JOURNAL_START + index), ..self.at(sequence, position) };
                    self.reader.error(What::Journal, at, "a readable block of the ring", why, REFUSED_HINT);
                }
            }
        }
        buffer
    }

    /// The older point's journal runs through the position of the newest.
    fn check_crossing(&mut self, batches: &[Batch], end_position: u64, newest: Superblock) {
        let start = (
            self.superblock.journal_position,
            self.superblock.journal_sequence,
            self.superblock.journal_chain,
        );
        let after = |i: usize| {
            let next = batches.get(i + 1).map_or(end_position, |b| b.position);
            (next, batches[i].sequence + 1, batches[i].checksum)
        };
        let crossing = std::iter::once(start)
            .chain((0..batches.len()).map(after))
            .find(|(position, ..)| *position >= newest.journal_position);
        let expected = (newest.journal_position, newest.journal_sequence, newest.journal_chain);
        if crossing != Some(expected) {
            let at = self.at(newest.journal_sequence, newest.journal_position);
            let found = match crossing {
                Some((position, sequence, _)) => {
                    format!("batch {sequence} at position {position}, or another chain")
                }
                None => format!("the end of its journal at position {end_position}"),
            };
            self.reader.error(
                What::EitherSuperblock,
                at,
                format!("the older point's journal to lead to batch {} at {}", expected.1, expected.0),
                found,
                "if the newest superblock is lost, flushed writes are lost with it; open the pool now, which makes a new point",
            );
        }
    }

    /// Second pass, one batch: data, then records.
    fn apply(
        &mut self,
        batch: &Batch,
        proven: Option<u64>,
        replay: &mut Option<Replay<'_>>,
    ) -> Result<(), JournalEnd> {
        let at = self.at(batch.sequence, batch.position);
        let (header, bytes) = self.read_batch(batch.position).map_err(JournalEnd::NoBatch)?;
        let payload = &bytes[journal::BATCH_HEADER_BYTES..][..header.payload_bytes];
        let records = Record::decode_all(payload, header.records).map_err(|why| {
            self.reader.error(What::JournalRecord, at.clone(), "records", why.to_string(), RECORD_HINT);
            JournalEnd::Record(why.to_string())
        })?;
        self.compare_data(batch, proven, &records, &at)?;
        let Some(replay) = replay else { return Ok(()) };
        for (index, record) in records.iter().enumerate() {
            replay.apply(self.reader, record, index + 1 == records.len()).map_err(
                |Fault { expected, found }| {
                    let why = format!("record {index} of batch {}: {found}", batch.sequence);
                    self.reader.error(
                        What::JournalRecord,
                        at.clone(),
                        expected,
                        format!("record {index}: {found}"),
                        RECORD_HINT,
                    );
                    JournalEnd::Record(why)
                },
            )?;
        }
        Ok(())
    }

    fn compare_data(
        &mut self,
        batch: &Batch,
        proven: Option<u64>,
        records: &[Record],
        at: &Location,
    ) -> Result<(), JournalEnd> {
        // From the older point, what the newest holds is proven by it, and what comes after was looked at before.
        let was_compared = self.seen.as_ref().is_some_and(|s| batch.sequence >= s.newest.journal_sequence);
        let is_proven = self.seen.is_some() || proven.is_some_and(|p| batch.sequence <= p);
        if was_compared || (is_proven && !self.reader.options.read_data) {
            return Ok(());
        }
        for record in records {
            let (Record::Map { version, block, place, fingerprints, .. }
            | Record::Share { version, block, place, fingerprints, .. }) = record
            else {
                continue;
            };
            // Shared blocks were on the medium before: they end no journal, and are looked at only for damage.
            let is_shared = matches!(record, Record::Share { .. });
            if is_shared && !self.reader.options.read_data {
                continue;
            }
            let mut data = BlockBuffer::zeroed(fingerprints.len());
            let read = self.reader.read(place.0, &mut data);
            for (i, fingerprint) in fingerprints.iter().enumerate() {
                let found = match &read {
                    Ok(()) => Fingerprint::of_block(&data[i * BLOCK_BYTES..][..BLOCK_BYTES]).to_string(),
                    Err(why) => why.clone(),
                };
                if read.is_ok() && found == fingerprint.to_string() {
                    continue;
                }
                let place = place.0 + i as u64;
                if !is_proven && !is_shared {
                    return Err(JournalEnd::Data(format!(
                        "batch {} was never proven, and its data at place {place} is not what it says",
                        batch.sequence
                    )));
                }
                let at = Location {
                    version: Some(*version),
                    level: Some(0),
                    position: Some(block + i as u64),
                    place: Some(place),
                    ..at.clone()
                };
                let hint =
                    "this block was flushed and its bytes are lost; write it anew or take it from the mirror";
                self.reader.error(What::JournalData, at, fingerprint.to_string(), found, hint);
            }
        }
        Ok(())
    }
}
