//! Every bound of this crate in one place, each with the reason for its number.

use std::time::Duration;

/// Time for TLS and the hello together, from the accepted connection on. A satellite path needs about 3 s.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a connection attempt to one address.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
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

/// Connections that have not yet shown a known key, all origins together: with TLS buffers of at most about 80 KiB each,
/// 10 MiB.
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
/// The lowest rate that can be set, bytes per second: an ISDN channel. Below it a packet is more than 2 % of ten seconds.
pub const RATE_MIN: u64 = 8_000;
/// The highest, bytes per second: more than any link; what is above is "unlimited".
pub const RATE_MAX: u64 = 1_000_000_000_000;
