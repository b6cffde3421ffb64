//! Every bound of this crate in one place, each with the reason for its number. Those of connections, lanes and throttles are in
//! [`farside_link::limits`].

use std::time::Duration;

use farside_link::limits::ATTACH_OPENING_MAX;

/// Time for TLS and the hello together, from the accepted connection on. A satellite path needs about 3 s.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A new session's next path is dialled when the one before has not answered for so long: more than a round trip by satellite
/// and less than the pause of a kernel before it tries again.
pub const DIAL_NEXT_PATH_AFTER: Duration = Duration::from_millis(800);
/// Time for a whole pairing after the hello.
pub const PAIRING_TIMEOUT: Duration = Duration::from_secs(10);
/// Time until a data stream must be open, dial-back included.
pub const STREAM_OPEN_TIMEOUT: Duration = Duration::from_secs(25);
/// How often each side pings over the control connection.
pub const PING_EVERY: Duration = Duration::from_secs(2);
/// Silence on the control connection after which the link counts as lost. With [`PING_EVERY`] a black hole is
/// found within 14 s.
pub const SILENCE_MAX: Duration = Duration::from_secs(12);
/// Silence that whoever looks is told of: two pings in turn had no answer. A replica must not look as fresh as the link until the
/// session is given up.
pub const SILENCE_TOLD_AFTER: Duration = Duration::from_secs(5);
/// The same for a session that is suspected because its peer dialled anew.
pub const SUSPECT_SILENCE_MAX: Duration = Duration::from_secs(4);
/// A session whose peer has other daemons, and of which nothing was heard for so long though it was asked, is one that another daemon may
/// have by now: four pings in a row without an answer. Those are tried then. Nothing that still gets through a bad link takes as long.
pub const ELSEWHERE_AFTER: Duration = Duration::from_secs(8);
/// The same of one without any connection: there is nothing that could still get through.
pub const ELSEWHERE_AFTER_LANELESS: Duration = Duration::from_secs(3);
/// How often each of them is tried, and how often it is looked whether there is a reason.
pub const ELSEWHERE_EVERY: Duration = Duration::from_millis(500);
/// How long one may take for a connection and TLS: four round trips by satellite.
pub const ELSEWHERE_WITHIN: Duration = Duration::from_secs(3);
/// A session is asked whether its peer lives before another process with the same key replaces it; so long it has for the answer.
/// A peer that restarted, and whose old session is a ghost, waits no longer than that.
pub const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Something that arrives within the last of it is a sign that the answer may be behind it.
pub const ANSWER_QUIET: Duration = Duration::from_secs(1);
/// How long such an answer is waited for: half of [`HANDSHAKE_TIMEOUT`], which the newcomer has for all of its hello.
pub const ANSWER_MOVING_MAX: Duration = Duration::from_secs(5);
/// How often it is looked whether something arrived.
pub const ANSWER_LOOKED_AT_EVERY: Duration = Duration::from_millis(100);
/// One of two living sites with a key that was refused is not taken until the other was gone for so long: longer than most
/// links are down, and than a site takes to restart. Also how long it is shown after it was last heard of; it dials every 30 s.
pub const OTHER_SITE_WAITS: Duration = Duration::from_secs(5 * 60);
/// Lives of a peer's daemon that are remembered, and processes that were refused.
pub const INSTANCES_REMEMBERED: usize = 8;
/// Pause between two lines that another living site has a peer's key: one that restarts over and over does not fill the log.
pub const OTHER_SITE_LINES_EVERY: Duration = Duration::from_secs(60);
/// A session that lived this long resets the pause.
pub const SESSION_PROVEN_AFTER: Duration = Duration::from_secs(10);

/// Connections that have not yet shown a known key, all origins together: with TLS buffers of at most about 80 KiB each and
/// what is read ahead, 18 MiB.
pub const UNAUTHENTICATED_MAX: usize = 128;
/// The same from one origin (IPv4 address, IPv6 /64), so that one unknown host cannot take all places.
pub const UNAUTHENTICATED_PER_ORIGIN_MAX: usize = 16;
/// The same from an origin where a pinned peer has proved itself: two data streams of 32 lanes each and a session may come
/// at the same moment, from two sites behind one address.
pub const UNAUTHENTICATED_PER_KNOWN_ORIGIN_MAX: usize = 96;
/// Origins of pinned peers that are remembered.
pub const ORIGINS_KNOWN_MAX: usize = 256;

/// Calls that one side may have under way on a session. With answers of
/// [`CALL_BYTES_MAX`] this bounds what waits in memory to 32 MiB for each direction.
pub const CALLS_OUTSTANDING_MAX: usize = 32;
/// Data streams that one side may hold open on a session.
pub const STREAMS_OPEN_MAX: usize = 64;
/// Data streams of both sides together that a side accepts; twice the other's own limit, because an end is seen later there.
pub const STREAMS_SERVED_MAX: usize = 2 * STREAMS_OPEN_MAX;
/// Lanes of all bundles of a session together that the dialled side takes: a bundle on each place of one side, some of them with
/// several lanes. A site that wants more gets on with fewer.
pub const SESSION_LANES_MAX: usize = 256;
/// How long a lane waits for its session to be installed: between two lines of one task, on a machine that is busy.
pub const LANE_BEFORE_SESSION_MAX: Duration = Duration::from_millis(200);
/// Lanes of a session that are dialled at the same time: with several peers behind one address these count against
/// [`UNAUTHENTICATED_PER_KNOWN_ORIGIN_MAX`].
pub const LANES_DIALLED_AT_ONCE: usize = 12;
/// How long a connection is kept that was made for a first copy still to be agreed upon: half of [`HANDSHAKE_TIMEOUT`].
pub const PREOPENED_FOR: Duration = Duration::from_secs(5);
/// How often a stream is looked at for lanes that it without or could use: once in a round trip of a long line, a system call a lane.
pub const LANES_LOOKED_AT_EVERY: Duration = Duration::from_millis(100);
/// Paths that are told apart in the status of one session: those of the peer, of mirrors with paths of their own, and former ones.
pub const PATHS_NUMBERED_MAX: usize = 64;
/// Longest pause between two dials for a bundle that has no lane at all: within [`SILENCE_MAX`] there are several, so that a cut
/// of some seconds is a pause and no lost session.
pub const LANELESS_REDIAL_MAX: Duration = Duration::from_secs(1);
/// Ended bundles remembered, so that a lane that comes too late opens none of them anew: more than are open at a time.
pub const BUNDLES_REMEMBERED: usize = 256;
/// Frames queued for the control connection.
pub const CONTROL_QUEUE: usize = 2 * CALLS_OUTSTANDING_MAX;
/// Small frames (pings, requests for streams) that overtake the calls.
pub const CONTROL_URGENT_QUEUE: usize = STREAMS_SERVED_MAX;
/// Largest control frame: a call of the largest size and its envelope.
pub const CONTROL_FRAME_MAX: usize = CALL_BYTES_MAX + 64;
/// Longest text of a refusal, bytes; more is cut.
pub const REFUSAL_TEXT_MAX: usize = 4096;
/// Largest message of a pairing, bytes: it comes from an unauthenticated connection.
pub const PAIRING_MESSAGE_MAX: usize = 1024;

/// Invitations open at the same time.
pub const INVITES_OPEN_MAX: usize = 16;
/// Spent or expired invitations remembered, so that a late joiner is told why.
pub const INVITES_REMEMBERED_MAX: usize = 64;
/// Failed proofs after which an invitation is withdrawn.
pub const INVITE_FAILURES_MAX: u32 = 5;
/// Failed pairings from one origin before it has to wait: a person who copies the wrong line tries again at once.
pub const PAIRING_FAILURES_FREE: u32 = 4;
/// Wait after the next one; it doubles with each.
pub const PAIRING_BACKOFF_MIN: Duration = Duration::from_secs(2);
/// Longest wait; after twice as long without a failure they are forgotten.
pub const PAIRING_BACKOFF_MAX: Duration = Duration::from_secs(15 * 60);
/// Failed pairings of all origins within [`PAIRING_FAILURES_WITHIN`], after which those that have failed wait for its end.
pub const PAIRING_FAILURES_MAX: usize = 60;
/// See [`PAIRING_FAILURES_MAX`].
pub const PAIRING_FAILURES_WITHIN: Duration = Duration::from_secs(60);
/// Origins whose failed pairings are remembered; of more, the oldest are forgotten.
pub const PAIRING_ORIGINS_MAX: usize = 1024;
/// Longest life of an invitation.
pub const INVITE_VALID_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Log lines about unauthenticated connections within [`UNAUTHENTICATED_LINES_WITHIN`]; the rest is counted.
pub const UNAUTHENTICATED_LINES_MAX: usize = 20;
/// See [`UNAUTHENTICATED_LINES_MAX`].
pub const UNAUTHENTICATED_LINES_WITHIN: Duration = Duration::from_secs(60);

/// Longest name of a site, bytes of UTF-8.
pub const SITE_NAME_MAX: usize = 64;
/// Largest identity file read, bytes.
pub const IDENTITY_FILE_MAX: u64 = 64 * 1024;

/// Largest request or answer of a call, bytes.
pub const CALL_BYTES_MAX: usize = 1 << 20;
/// Largest header of a data stream, bytes.
pub const HEADER_BYTES_MAX: usize = 4096;
// The opening of a stream, its header and what the session says with it, fits the attach of a lane.
const _: () = assert!(HEADER_BYTES_MAX + 1024 <= ATTACH_OPENING_MAX);
