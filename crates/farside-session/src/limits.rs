//! Every bound of this crate in one place, each with the reason for its number.

use std::time::Duration;

/// Time for TLS and the hello together, from the accepted connection on. A satellite path needs about 3 s.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a connection attempt to one address.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
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
/// The same for a session that is doubted because its peer dialled anew.
pub const SUSPECT_SILENCE_MAX: Duration = Duration::from_secs(4);
/// Time for a farewell (last frame, close_notify) before the socket is dropped.
pub const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
/// First pause between two dials of a peer.
pub const REDIAL_MIN: Duration = Duration::from_millis(500);
/// Longest pause between two dials of a peer.
pub const REDIAL_MAX: Duration = Duration::from_secs(30);
/// A session that lived this long resets the pause.
pub const SESSION_PROVEN_AFTER: Duration = Duration::from_secs(10);

/// Bytes that a socket takes beyond what is on its way. It asks for more at half of it, and a busy daemon needs half a millisecond
/// until it writes: 64 KiB last that long at 1 Gb/s.
pub const UNSENT_MAX: u32 = 128 * 1024;

/// What is read from a socket at once, bytes: four TLS records, as they are written.
pub const READ_AHEAD: usize = 64 * 1024;

/// Connections that have not yet shown a known key, all origins together: with TLS buffers of at most about 80 KiB each and
/// what is read ahead, 18 MiB.
pub const UNAUTHENTICATED_MAX: usize = 128;
/// The same from one origin (IPv4 address, IPv6 /64), so that one stranger cannot take all places.
pub const UNAUTHENTICATED_PER_ORIGIN_MAX: usize = 16;
/// The same from an origin where a pinned peer has proved itself: two data streams of 32 lanes each and a session may come
/// at the same moment, from two sites behind one address.
pub const UNAUTHENTICATED_PER_KNOWN_ORIGIN_MAX: usize = 96;
/// Origins of pinned peers that are remembered.
pub const ORIGINS_KNOWN_MAX: usize = 256;

/// Calls that one side may have under way on a session. With answers of
/// [`CALL_BYTES_MAX`](crate::CALL_BYTES_MAX) this bounds what waits in memory to 32 MiB for each direction.
pub const CALLS_OUTSTANDING_MAX: usize = 32;
/// Data streams that one side may hold open on a session.
pub const STREAMS_OPEN_MAX: usize = 64;
/// Data streams of both sides together that a side accepts; twice the other's own limit, because an end is seen later there.
pub const STREAMS_SERVED_MAX: usize = 2 * STREAMS_OPEN_MAX;
/// Lanes of all bundles of a session together that the dialled side takes: a bundle on each place of one side, some of them with
/// several lanes. A site that wants more gets on with fewer.
pub const SESSION_LANES_MAX: usize = 256;
/// Lanes of a session that are dialled at the same time: with several peers behind one address these count against
/// [`UNAUTHENTICATED_PER_KNOWN_ORIGIN_MAX`].
pub const LANES_DIALLED_AT_ONCE: usize = 12;
/// How long a connection is kept that was made for a first copy still to be agreed upon: half of [`HANDSHAKE_TIMEOUT`].
pub const CONNECTIONS_READY_FOR: Duration = Duration::from_secs(5);
/// The most lanes of a stream on each path, and the most that the other side may ask for: 1 Gb/s with 300 ms are 16 buffers of
/// 2 MiB.
pub const LANES_PER_PATH_MAX: usize = 16;
/// Bytes that a stream has sent before it gets more than one lane on a path: less is over before the handshake is.
pub const MORE_LANES_AFTER: u64 = 256 << 10;
/// How often a stream is looked at for lanes that it lacks or could use: once in a round trip of a long line, a system call a lane.
pub const LANES_LOOKED_AT_EVERY: Duration = Duration::from_millis(100);
/// Paths that are told apart in the figures of one session: those of the peer, of mirrors with paths of their own, and former ones.
pub const PATHS_NUMBERED_MAX: usize = 64;
/// Longest pause between two dials for a bundle that has no lane at all: within [`SILENCE_MAX`] there are several, so that a cut
/// of some seconds is a pause and no lost session.
pub const LANELESS_REDIAL_MAX: Duration = Duration::from_secs(1);
/// Ended bundles remembered, so that a lane that comes too late opens none of them anew: more than are open at a time.
pub const BUNDLES_REMEMBERED: usize = 256;
/// A path that is preferred carries data again when it has worked for so long: one that comes and goes does not take data along.
pub const FAILBACK_AFTER: Duration = Duration::from_secs(10);
/// Warm lanes of a session. Each holds a socket, and buffers of some 10 KiB.
pub const WARM_LANES_MAX: usize = 32;
/// How long a lane stays warm: updates that come every minute find one.
pub const WARM_LANES_IDLE_MAX: Duration = Duration::from_secs(90);
/// Frames queued for the control connection.
pub const CONTROL_QUEUE: usize = 2 * CALLS_OUTSTANDING_MAX;
/// Small frames (pings, requests for streams) that overtake the calls.
pub const CONTROL_URGENT_QUEUE: usize = STREAMS_SERVED_MAX;
/// Largest control frame: a call of the largest size and its envelope.
pub const CONTROL_FRAME_MAX: usize = crate::CALL_BYTES_MAX + 64;
/// Longest text of a refusal, bytes; more is cut.
pub const REFUSAL_TEXT_MAX: usize = 4096;
/// Largest message of a pairing, bytes: it comes from a stranger.
pub const PAIRING_MESSAGE_MAX: usize = 1024;

/// Invitations open at the same time.
pub const INVITES_OPEN_MAX: usize = 16;
/// Spent or expired invitations remembered, so that a late guest is told why.
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

/// Log lines about strangers within [`STRANGER_LINES_WITHIN`]; the rest is counted.
pub const STRANGER_LINES_MAX: usize = 20;
/// See [`STRANGER_LINES_MAX`].
pub const STRANGER_LINES_WITHIN: Duration = Duration::from_secs(60);

/// Longest name of a site, bytes of UTF-8.
pub const SITE_NAME_MAX: usize = 64;
/// Paths to a peer: more pairs of addresses than a host has links.
pub const PATHS_MAX: usize = 8;
/// Longest address of a peer, bytes.
pub const ADDRESS_MAX: usize = 255;
/// Largest identity file read, bytes.
pub const IDENTITY_FILE_MAX: u64 = 64 * 1024;

/// What one stream gets at a time from a limit that others wait at too. Shorter turns are smoother, and cost more segments.
pub const THROTTLE_QUANTUM: Duration = Duration::from_millis(10);
/// The smallest turn, bytes: what a packet of an Ethernet carries (MTU 1500, IPv4, TCP timestamps), so that at low
/// rates what is sent fills packets. Over ten seconds at the lowest rate it is 1.8 %.
pub const THROTTLE_QUANTUM_MIN: u64 = 1448;
/// The largest turn, bytes: two segments of the largest size with all that is around them.
pub const THROTTLE_QUANTUM_MAX: u64 = 132 * 1024;
/// What a limit saves up while nobody asks, and so the longest burst.
pub const THROTTLE_DEPTH: Duration = Duration::from_millis(20);
/// What a limit saves up for those who wait and come late to collect: a timer or a thread of a busy machine may be that late.
/// It is 1 % of ten seconds.
pub const THROTTLE_CATCH_UP: Duration = Duration::from_millis(100);
/// What may be owed at most for bytes that went without asking (answers to calls, pings), so that those who ask are
/// never kept out for longer.
pub const THROTTLE_DEBT_MAX: Duration = Duration::from_secs(1);
/// The longest pause before a stream that waits asks again: a limit that was changed meanwhile holds from then on.
pub const THROTTLE_LOOK_AGAIN: Duration = Duration::from_millis(50);
/// A stream that has not asked for so long has nothing to send; what is booked for it goes to the others.
pub const THROTTLE_UNUSED_AFTER: Duration = Duration::from_millis(500);
/// Longest text of a throttle with its times, bytes.
pub const THROTTLE_RULES_BYTES_MAX: usize = 512;
/// Times in a throttle: each day its own, morning, noon and night.
pub const THROTTLE_RULES_MAX: usize = 24;
/// The lowest rate that can be set, bytes per second: an ISDN channel. Below it a packet is more than 2 % of ten seconds.
pub const RATE_MIN: u64 = 8_000;
/// The highest, bytes per second: more than any link; what is above is "unlimited".
pub const RATE_MAX: u64 = 1_000_000_000_000;

/// Most lanes of a bundle: what one stream may take of a link that others use too.
pub const LANES_MAX: usize = 32;
/// Payload of a data segment, bytes. With its header, an ack and a pong before it a batch is 64 KiB: four full TLS
/// records, and what rustls takes at once.
pub const SEGMENT_PAYLOAD_MAX: usize = 64 * 1024 - 80;
/// The smallest full segment, bytes, for lanes so slow that a large one would hold up what comes after it: one TLS record.
pub const SEGMENT_PAYLOAD_SLOW: usize = 16 * 1024 - 64;
/// The time that a full segment may take on a slow lane.
pub const SEGMENT_TIME: Duration = Duration::from_millis(50);
/// Segments of a stream that are unacknowledged at the sender, and pieces that wait out of order at the receiver: 64
/// MiB in pieces of 4 KiB. It bounds what the bookkeeping of tiny segments costs.
pub const SEGMENTS_HELD_MAX: usize = 16 * 1024;
/// The end of the longest stream, bytes: far from where sums of offsets and lengths wrap.
pub const STREAM_BYTES_MAX: u64 = 1 << 62;
/// Longest reason of an abort, bytes of UTF-8.
pub const BUNDLE_REASON_MAX: usize = 512;
/// Longest opening that an attach carries, bytes: a stream's header and what the session says with it.
pub const ATTACH_OPENING_MAX: usize = crate::HEADER_BYTES_MAX + 1024;

/// What each side may send on a bundle before it has heard anything, bytes, and the smallest window. Part of the protocol.
pub const WINDOW_MIN: u64 = 64 * 1024;
/// The window that an automatic one starts from, bytes, where nothing better is known, and what every stream may have of each
/// direction whatever others have: all [`STREAMS_SERVED_MAX`] of a session at once are as much as [`WINDOW_BUDGET`], outside of it.
pub const WINDOW_START: u64 = 2 << 20;
/// The largest window of a stream, bytes: 1 Gb/s at 500 ms.
pub const WINDOW_MAX: u64 = 64 << 20;
/// What all windows of a site that grew past [`WINDOW_START`] have together, bytes, and what its senders retain past
/// that until it is acknowledged.
pub const WINDOW_BUDGET: u64 = 256 << 20;

/// What an application may write ahead of the lanes: so much time of what they deliver together, so that they find something
/// whenever they ask, and an application that adapts to the link notices soon that it is slow.
pub const SEND_AHEAD: Duration = Duration::from_millis(50);
/// The same at least, bytes: a third of a second on a T1. With 256 KiB an application that compresses for the link saw only after
/// 1.4 s that a T1 is slow, which cost 4 % of a first copy.
pub const SEND_AHEAD_MIN: u64 = 64 << 10;
/// The same at most, bytes: 8 ms at 1 Gb/s.
pub const SEND_AHEAD_MAX: u64 = 1 << 20;
/// Bytes of a lane's after which it acks, at most; with small windows a quarter of the window.
pub const ACK_EVERY_MAX: u64 = 256 * 1024;
/// Time after data until it is acked, where bytes do not make it sooner.
pub const ACK_AFTER: Duration = Duration::from_millis(10);
/// Reads of a lane before others on its thread have their turn; each brings up to a TLS record.
pub const LANE_READS_IN_TURN: usize = 64;
/// Least time without progress after which a lane that owes some is stalled, while others move.
pub const LANE_STALL_MIN: Duration = Duration::from_secs(1);
/// The same, in round trips of the lane, queues included.
pub const LANE_STALL_ROUND_TRIPS: u32 = 4;
/// The most that makes of it.
pub const LANE_STALL_MAX: Duration = Duration::from_secs(20);
/// The same when no other lane moves either: then the path is doubted, and dialled anew.
pub const LANE_STALL_ALONE: Duration = Duration::from_secs(3);
/// How often lanes that owe progress are looked at.
pub const LANE_LOOK_EVERY: Duration = Duration::from_millis(250);
/// Over what time a lane's rate is measured.
pub const LANE_RATE_OVER: Duration = Duration::from_millis(250);
/// A lane that was told something and has been silent for so long is pinged.
pub const LANE_QUIET_MAX: Duration = Duration::from_secs(1);
/// How often a sender without credit asks whether there is some that it has not heard of.
pub const WINDOW_PROBE_EVERY: Duration = Duration::from_secs(2);
/// How long a bundle waits for a lane when it has none.
pub const LANELESS_MAX: Duration = Duration::from_secs(30);
/// Time for both sides to leave a lane when the bundle has ended.
pub const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a stream whose application is gone after its shutdown may make no progress.
pub const LINGER_MAX: Duration = Duration::from_secs(60);
/// Under a limit: credit that may be granted ahead of what arrives, beside a round trip's worth.
pub const CREDIT_AHEAD: Duration = Duration::from_millis(50);
/// Under a limit: the least credit that is told by itself, bytes, so that a slow link is not full of acks.
pub const CREDIT_PIECE: u64 = 4096;
/// Under a limit: what is told by itself is worth so much time.
pub const CREDIT_TIME: Duration = Duration::from_millis(15);
/// A low priority: how often it looks at the queues of its lanes, and lets go what its rate allows for that time. Each look is a
/// system call a lane.
pub const YIELDING_LOOK_EVERY: Duration = Duration::from_millis(2);
/// A low priority: what it did not let go in time it makes up for, up to so much; a timer of a busy machine may be that late.
pub const YIELDING_CATCH_UP: Duration = Duration::from_millis(20);
/// A low priority: a segment is not cut smaller than this to keep within its cap, bytes; a packet of an Ethernet.
pub const YIELDING_SEGMENT_MIN: u64 = 1448;
