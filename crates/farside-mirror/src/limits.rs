//! Every limit of this crate, with its reason; those of a transfer are in [`farside_transfer::limits`].

use std::time::Duration;

/// Most transfers that a destination runs at the same time; more wait. EqualLogic's replication calls it the *transfer size* and
/// lets it be 1 to 16. Sixteen hold about 200 MiB here and 1.3 to 1.8 GiB at a source ([`ENCODERS_PER_TRANSFER`](farside_transfer::limits::ENCODERS_PER_TRANSFER)).
pub const TRANSFERS_MAX: usize = 16;
/// The transfer size of a site where nobody has set it, as EqualLogic's.
pub const TRANSFER_SIZE_DEFAULT: usize = TRANSFERS_MAX;
/// How long a first copy keeps its place while a transfer of another kind waits, or one of a peer that has fewer places. What it
/// has brought stays, and to go on costs a comparison: small beside minutes of copying.
pub const FIRST_COPY_TURN: Duration = Duration::from_secs(300);
/// The same while only first copies of as busy a peer wait.
pub const FIRST_COPY_LONG_TURN: Duration = Duration::from_secs(3600);
/// Whoever waits for a turn is due at the latest so long after it came, whatever its objective: a mirror of once a day waits no
/// longer for those of every second.
pub const DUE_WITHIN: Duration = Duration::from_secs(600);
/// How long the source is waited for that is to take the snapshot of a transfer that waits; without it the snapshot is taken when
/// the transfer begins.
pub const RESERVE_WAIT: Duration = Duration::from_secs(5);
/// How often those who wait look whether a first copy has had its turn.
pub const GIVE_WAY_LOOK_EVERY: Duration = Duration::from_secs(10);
/// Transfers a source serves for one peer: as many as that peer runs.
pub const SERVED_PER_PEER_MAX: usize = TRANSFERS_MAX;
const _: () = assert!(2 * SERVED_PER_PEER_MAX == farside_transfer::limits::SERVED_MAX);
/// How long a transfer started by the schedule waits for a session before it gives way to the next tick.
pub const SCHEDULED_LINK_WAIT: Duration = Duration::from_secs(60);
/// Shortest interval of a schedule.
pub const EVERY_MIN: Duration = Duration::from_secs(1);
/// Longest interval of a schedule.
pub const EVERY_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// Shortest recovery point objective: an update a second and what it takes.
pub const OBJECTIVE_MIN: Duration = Duration::from_secs(2);
/// After an update that failed the next is tried after so small a part of the objective.
pub const OBJECTIVE_RETRIES: u32 = 4;
/// Part of an objective that is kept back for what no forecast knows.
pub const OBJECTIVE_MARGIN: f64 = 0.1;
/// The same while nobody has seen an update of the mirror.
pub const OBJECTIVE_MARGIN_UNKNOWN: f64 = 0.5;
/// Updates that a mirror learns from: at an objective of a minute a quarter of an hour.
pub const PACE_UPDATES: usize = 16;
/// Longest timetable (the five fields), bytes.
pub const TIMETABLE_BYTES_MAX: usize = 256;
/// Longest name of a time zone, bytes; the longest there is has 32.
pub const TIME_ZONE_BYTES_MAX: usize = 64;
/// How far ahead a timetable sleeps: so soon it notices that the wall clock was set, or that the machine slept.
pub const WALL_LOOK_EVERY: Duration = Duration::from_secs(60);
/// A wall clock that is set back by less does not bring a tick again that has fallen: what a time service corrects.
pub const STEP_BACK_KEPT: Duration = Duration::from_secs(60);
/// Longest schedule that is taken from a peer as text, bytes: the longest timetable with its time zone, or an interval.
pub const SCHEDULE_BYTES_MAX: usize = TIMETABLE_BYTES_MAX + 1 + TIME_ZONE_BYTES_MAX;
/// How long a break waits for the transfer that it has cancelled, and then for each line it writes into the database.
/// Neither is needed for it: a break is over in under two seconds whatever hangs.
pub const BREAK_PATIENCE: Duration = Duration::from_millis(400);
/// How long one wait for a session takes of somebody who waits for as long as it lasts.
pub const NOTICE_LINK_WAIT: Duration = Duration::from_secs(60);
/// How long a divergence notice rests after it could not even wait for a session (the peer is not paired any more), or after it was
/// refused a notice; then twice as long each time, up to [`NOTICE_LINK_WAIT`].
pub const NOTICE_REST: Duration = Duration::from_secs(5);
/// How long a notice waits whose session was lost under it; then twice as long each time, up to [`NOTICE_REST`].
pub const NOTICE_LOST_REST: Duration = Duration::from_millis(50);
/// How often a source is told again what it has noted already: it may have lost its state database since, in the same session.
/// A call of 100 bytes.
pub const NOTICE_AGAIN: Duration = Duration::from_secs(60);
/// Mirrors that were deleted and of which their sources are still to be told; the oldest are given up.
pub const ENDINGS_MAX: usize = 1024;
/// Refusals after which a source is not told any more of a base that it did not hear of in time: the next transfer tells it.
/// Two hours.
pub const LATE_ACKNOWLEDGEMENTS_MAX: u32 = 120;
/// Attempts to take the last snapshot of a volume before a role change: a host that came between two of its steps
/// and went again is found out, and the attempt repeated.
pub const FENCE_ATTEMPTS: usize = 3;
/// Commands that wait for a mirror's driver.
pub const COMMANDS_MAX: usize = 64;
/// Requests that wait for one transfer to end.
pub const WAITERS_MAX: usize = 256;
/// Relationships that one peer may keep bases for at this site.
pub const RELATIONSHIPS_PER_PEER_MAX: usize = 1024;
/// How often a source looks whether its pools have room for hosts: a host that writes 1 GB/s fills 2 GB in between, a
/// twenty-fifth of the default reserve of a pool of 1 TB.
pub const BUDGET_CHECK_EVERY: Duration = Duration::from_secs(2);
/// How often it measures what is kept for destinations, at most.
pub const BUDGETS_MEASURED_EVERY: Duration = Duration::from_secs(60);
/// Rest after measuring, in times of its work: a twentieth of a disk at most.
pub const BUDGET_REST: u32 = 20;
/// How long what was released may take to come free, before more goes for the same need.
pub const FREED_WITHIN: Duration = Duration::from_secs(30);
/// The same while only the lower half of the reserve is left.
pub const FREED_WITHIN_IN_NEED: Duration = Duration::from_secs(10);
/// How long something has to be seen over its age before that counts: a clock that was wrong when the daemon started is put right by
/// then.
pub const AGE_SEEN_FOR: Duration = Duration::from_secs(24 * 3600);
/// By so much the wall clock has to differ from what has passed for that to be told.
pub const CLOCK_JUMP: Duration = Duration::from_secs(3600);
/// What part of a pool a base must keep to be released while only the upper half of the reserve is used: 0.4 %.
pub const PRESSED_PART_MIN: u64 = 256;
/// Relationships of which a source remembers the last message, besides those it keeps bases for; then those are
/// forgotten.
pub const ROLE_CHANGES_SEEN_MAX: usize = 8192;
/// Transfers in a row that may lose their session before the request behind them is given up (the next tick tries
/// again). A request waits for the session to come back each time.
pub const LOSSES_IN_A_ROW_MAX: u32 = 3;
/// How long a person waits at most for a peer that keeps a session and does not answer, where the answer costs it nothing.
pub const ANSWER_WAIT: Duration = Duration::from_secs(20);
/// How long the source of a volume is asked where it stands, for each site that may be asked through it: 8 s for 16, and each of
/// them gives up before the one that asked it.
pub const HOP_WAIT: Duration = Duration::from_millis(500);
/// Bytes on the wire with which a transfer counts as one that got on before it lost its session, so that its loss is the
/// first in a row: a link that breaks every hour does not end a copy of a week. More than the largest plan.
pub const GOT_ON_BYTES: u64 = 1 << 20;
/// A scheduled update that found the source's pool not open comes again after so long; then twice as long each time. A daemon that takes
/// over has the pools of its cluster open within some ten seconds.
pub const SOURCE_RETRY_MIN: Duration = Duration::from_secs(5);
/// At most so long: a refusal costs a round trip.
pub const SOURCE_RETRY_MAX: Duration = Duration::from_secs(60);
/// How long the schedule of a mirror rests after a transfer found no room, unless there is room before; twice as long each time.
pub const ROOM_RETRY_MIN: Duration = Duration::from_secs(60);
/// At most so long: an hour of a full pool costs a comparison and a few hundred bytes.
pub const ROOM_RETRY_MAX: Duration = Duration::from_secs(3600);
