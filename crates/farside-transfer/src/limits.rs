//! Every limit of a transfer, with its reason.

use std::time::Duration;

/// Transfers a source serves for all peers together, twice as many as a destination runs; more are told to come again.
pub const SERVED_MAX: usize = 32;
/// Size of a volume whose first copy begins with several connections where the peer is far, bytes. Less has gone before they pay.
pub const BULK_MIN: u64 = 16 << 20;
/// Frames that were encoded, between two stages of a transfer: encode, send; receive, decode. Of at most 1 MiB each.
pub const FRAMES_BETWEEN_STAGES: usize = 2;
/// Frames that are still to be encoded, between two stages of a source: read, search, encode. With its prefix one has about
/// 6 MiB, at *strong* in a first copy up to 12.
pub const FRAMES_BEFORE_ENCODING: usize = 1;
/// Frames of one transfer that are being encoded at the same time. With those in the other stages a transfer holds at most
/// about 45 MiB of frames at its source (75 at *strong* in a first copy), 10 MiB of anchors and 26 MiB of fingerprints ([`REPEATS_PER_GENERATION`]), and 12 MiB
/// at its destination.
pub const ENCODERS_PER_TRANSFER: usize = 3;
/// Memory of frames that is kept to be used again: of as many as are encoded at the same time, and as wait on either side.
pub const SPARES_MAX: usize = ENCODERS_PER_TRANSFER + 2 * FRAMES_BEFORE_ENCODING;
/// Runs of a difference in one batch between the stages: 32 KiB.
pub const RUNS_PER_BATCH: usize = 1024;
/// Batches of runs between two stages.
pub const BATCHES_BETWEEN_STAGES: usize = 2;
/// Fingerprints of the incremental that are looked up at once: those of four frames, 16 KiB.
pub const FINGERPRINTS_PER_LOOKUP: u64 = 1024;
/// Blocks of which a transfer remembers that it has sent them, so that the same content is not sent again: between one and
/// two such generations of the newest, 1.8 to 3.6 GB of data. It fills a table of 13 MiB just so (7/8 of 2^19 places).
pub const REPEATS_PER_GENERATION: usize = 458_752;
/// Snapshots a destination names as possible bases, newest first.
pub const CANDIDATES_MAX: usize = 1024;
/// Snapshots that travel in one transfer. With names of 128 bytes their list stays within a call's largest answer.
pub const STEPS_MAX: usize = 2048;
/// Snapshots that a destination keeps to have a point in common with other destinations of the same volume. Each of them needs one,
/// and two while a transfer to it runs. Of more destinations those that were brought up to date last count. As many a source keeps
/// for those that follow its destination.
pub const COMMON_MAX: usize = 16;
/// Mirrors of a group that are updated together. One call names them, one record of a pool publishes them.
pub const GROUP_MAX: usize = 256;
/// Longest name of a snapshot or half of a volume's name, bytes; the engine's own rule.
pub const NAME_BYTES_MAX: usize = 128;
/// Longest text of a failure that is taken from a peer, bytes; the rest is cut.
pub const FAILURE_TEXT_MAX: usize = 1024;
/// Largest message of a data stream other than a frame, bytes.
pub const STREAM_MESSAGE_BYTES_MAX: usize = 8192;
/// Runs in one chunk of a held list: of at most 14 bytes each.
pub const HELD_RUNS_PER_CHUNK: u64 = 2048;
/// Data blocks with short fingerprints in one chunk of a held list: 32 KiB of them. Also the blocks whose fingerprints a
/// source looks up at once.
pub const HELD_BLOCKS_PER_CHUNK: u64 = 4096;
/// Largest chunk of a held list, bytes: its runs, their count and their fingerprints.
pub const HELD_CHUNK_BYTES_MAX: usize = 64 << 10;
const _: () =
    assert!(3 + 14 * HELD_RUNS_PER_CHUNK + 8 * HELD_BLOCKS_PER_CHUNK <= HELD_CHUNK_BYTES_MAX as u64);
/// Least memory of an index of similar content: of a volume of 1.5 GiB with the default budget.
pub const INDEX_BYTES_MIN: u64 = 256 << 10;
/// Size of a volume that its index can reach; a larger one is indexed so far.
pub const INDEXED_BYTES_MAX: u64 = 16 << 40;
/// After so long without a transfer that uses it, at most twice as long, an index leaves memory; the next transfer reads its file,
/// 171 MiB for a TiB. Of mirrors that update more often all indexes stay: they would be read as often.
pub const INDEX_IDLE_MAX: Duration = Duration::from_secs(600);
/// Content entered since an index was saved, for each byte that it has, after which it is saved again: an eighth of what it
/// stands for.
pub const INDEX_SAVED_PART: u64 = 512;
/// Runs of blocks of which an index remembers that it has not seen them: 16 bytes each, 1 MiB for a volume. Known data comes in
/// stretches of 512 KiB as a rule, of which these are 32 GiB at least.
pub const MISSING_RUNS_MAX: usize = 1 << 16;
/// Bytes of a snapshot that are read at once to rebuild its index.
pub const REBUILD_PIECE_BYTES: u64 = 1 << 20;
/// Rest after each piece of a rebuild, in times of its work: a quarter of a core and of a disk at most.
pub const REBUILD_REST: u32 = 3;
/// Size of a volume from which an absent index is rebuilt: of a smaller one the transfers themselves bring it back soon.
pub const REBUILT_FROM_BYTES: u64 = 4 << 20;
/// Chunks of a held list between the stream and the merge; the rest waits at the destination.
pub const HELD_CHUNKS_BETWEEN_STAGES: usize = 2;
/// Entries of one question for known data: 8 bytes each and at most 14 for where it is.
pub const ASK_ENTRIES_MAX: u64 = 2048;
/// Blocks that one question is about, those of nodes included: 64 MiB, which a destination reads again and hashes before it
/// answers; a fraction of a second of work, so that the answers before it do not wait long.
pub const ASK_BLOCKS_MAX: u64 = 1 << 14;
/// Largest question, bytes: its runs, their counts and its fingerprints. An answer is smaller than
/// [`STREAM_MESSAGE_BYTES_MAX`]: at most a run of four bytes for every second entry.
pub const ASK_BYTES_MAX: usize = 48 << 10;
const _: () = assert!(3 * 7 + (14 + 8) * ASK_ENTRIES_MAX <= ASK_BYTES_MAX as u64);
const _: () = assert!(2 * 7 + 4 * ASK_ENTRIES_MAX.div_ceil(2) + 16 <= STREAM_MESSAGE_BYTES_MAX as u64);
/// Questions of a stream that are not answered yet: 2 MiB of them at the destination, at most, where each entry has 16 bytes. Enough for
/// [`KNOWN_READ_AHEAD_BLOCKS`] if every block is asked for by itself.
pub const ASKS_IN_FLIGHT_MAX: usize = 64;
const _: () = assert!(KNOWN_READ_AHEAD_BLOCKS <= ASKS_IN_FLIGHT_MAX as u64 * ASK_ENTRIES_MAX);
/// Questions that a destination works on at the same time: while one reads and hashes, the other finds what it needs next.
pub const ADOPTERS_PER_TRANSFER: usize = 2;
/// Other mirrors that a destination looks at, to find what it may offer of them: a site of thousands would else go through all of
/// its volumes for each transfer.
pub const CROSS_VOLUME_CHECKED_MAX: usize = 256;
/// How often a destination looks whether what it offers of other volumes was deleted: a moment beside [`CROSS_VOLUME_KEPT_MAX`].
pub const CROSS_VOLUME_CHECKED_EVERY: Duration = Duration::from_secs(2);
/// How long a destination still serves frames that name what was deleted together with its mirror, unless the source withdraws
/// it before: so long at most its space stays in use. That is five frames of 1 MiB over a T1 (1.5 Mb/s): as a rule what the source
/// had coded ahead has arrived by then, and so has its word that it names it no more.
pub const CROSS_VOLUME_KEPT_MAX: Duration = Duration::from_secs(30);
/// Frames in a row that resemble nothing of another volume, after which its index is asked for few: 64 sampled anchors of a
/// frame cost 64 indexes 2 to 4 ms, a third of the time of a frame at *standard*.
pub const CROSS_VOLUME_FRUITLESS_MAX: u32 = 32;
/// Of so many frames that index is then asked for one.
pub const CROSS_VOLUME_RETRIED_EVERY: u64 = 8;
/// Blocks that a destination takes at once, 8 MiB, before it looks whether the transfer was cancelled.
pub const ADOPTED_BLOCKS: u64 = 2048;
/// Blocks of data that wait at a source for answers, or behind one that does: 512 MiB, of which no byte is read, and at
/// most 2 MiB of fingerprints. In the 300 ms of a long round trip that is known data at 1.7 GB/s. (A link of 1 Gb/s carries
/// questions by nodes for more than anybody has: 10 bytes for 512 KiB.)
pub const KNOWN_READ_AHEAD_BLOCKS: u64 = 1 << 17;
/// Of these, blocks of which samples are asked for: 96 MiB. Two round trips of 300 ms at 1 Gb/s, one for the samples and one for
/// what lies beside those that were known; and a destination whose index has only samples remembers the neighbourhoods of
/// its last hits, 128 MiB, until it is asked for the rest.
pub const KNOWN_SAMPLED_BLOCKS: u64 = 3 << 13;
/// Units of questions that wait at a source: twice as many as whole ones of 128 blocks fill the read-ahead, because
/// scattered change makes smaller ones.
pub const KNOWN_UNITS_MAX: usize = 2 * (KNOWN_READ_AHEAD_BLOCKS / 128) as usize;
/// Answers of a stream whose digest is wrong, after which its source asks no more. Between honest sides that happens once in
/// 2^64 blocks; whoever is wrong twice is wrong for another reason.
pub const KNOWN_MISMATCHES_MAX: u32 = 1;
/// Pieces of a held list that a source goes through before it looks up: at most a few milliseconds without fingerprints,
/// a few hundred with 4096 of them each.
pub const MERGE_STEPS: usize = 1024;
/// Staged bytes after which a transfer makes them durable: what a crash of the destination costs at most, besides what
/// came within [`CHECKPOINT_EVERY`]. At 100 MB/s that is a journal batch and a sync three times in a second, shared with
/// the hosts' flushes.
pub const CHECKPOINT_BYTES: u64 = 32 << 20;
/// Age of staged bytes after which a transfer makes them durable: so a slow link loses no more than two seconds of work.
pub const CHECKPOINT_EVERY: Duration = Duration::from_secs(2);
/// Silence of a data stream after which the transfer fails. A source that is comparing metadata says so every
/// [`SCAN_REPORT_EVERY`].
pub const STREAM_SILENCE_MAX: Duration = Duration::from_secs(300);
/// How long a step may go on without a block arriving, whatever its source says that it does: it holds a place that others wait
/// for. A comparison that finds something, or goes through what is staged here, counts as a block.
pub const STEP_STALL_MAX: Duration = Duration::from_secs(1800);
/// How long one message of a data stream may take to be written: a destination that stops reading gives its place at
/// the source back. The largest message is a frame of about 1 MiB, so a link of 4 kB/s is still fast enough.
pub const STREAM_STALL_MAX: Duration = Duration::from_secs(300);
/// How long an answer to a call may take; the longest is a snapshot on a busy pool and the roots of its neighbours.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// How often a source that compares metadata reports how far it is.
pub const SCAN_REPORT_EVERY: Duration = Duration::from_secs(1);
/// Extents counted in one go on a blocking thread.
pub const SCAN_BATCH: usize = 4096;
/// Time over which the shown rate is smoothed.
pub const RATE_WINDOW: Duration = Duration::from_secs(5);
/// A transfer of which nothing has come for so long stands: round trips, and queues of narrow lines, are shorter.
pub const STANDS_AFTER: Duration = Duration::from_secs(10);
/// For so long after its first bytes a transfer has no rate yet.
pub const RATE_UNKNOWN_FOR: Duration = Duration::from_secs(1);
/// How long the closing message to a source may take after a transfer has failed; nothing depends on it.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Highest number of a role change that is believed: what is counted stays far below it, and fits a database's
/// signed integer.
pub const ROLE_CHANGE_MAX: u64 = 1 << 62;
/// Mirrors in a row that are told of: what a volume follows, and what that follows. Nobody has sixteen sites in a chain; a ring
/// of that length is found where it closes.
pub const HOPS_MAX: usize = 16;
/// Longest `PEER:POOL/VOL` of a peer, bytes: three names.
pub const PLACE_BYTES_MAX: usize = 3 * NAME_BYTES_MAX + 2;
/// How often a step that met a full pool looks whether what an earlier transfer had staged, and what was thrown away for it, has
/// come free: the pool gives that back in the background, in steps. If five seconds in all are not enough, the next
/// transfer begins with what is free by then.
pub const ROOM_WAITS_MAX: u32 = 10;
/// See [`ROOM_WAITS_MAX`].
pub const ROOM_WAIT: Duration = Duration::from_millis(500);
/// For so many bytes of data a pool needs one more for nodes, at least: a leaf for each 128 blocks, of which half are full. What is
/// scattered needs more, and shows on the way.
pub const NODES_PART: u64 = 64;

/// How often a base is chosen, while what was chosen is deleted by whoever it was kept for.
pub const GONE_ATTEMPTS: usize = 4;
/// Lines of the log about what one peer asks for in vain, or makes fail, in each [`LINES_EVERY`]; the rest is counted.
pub const LINES_MAX: u32 = 10;
/// See [`LINES_MAX`].
pub const LINES_EVERY: Duration = Duration::from_secs(60);
