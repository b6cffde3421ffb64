//! Every bound of this crate in one place, each with the reason for its number.

use std::time::Duration;

/// Time for a connection attempt to one address.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// A name may have several addresses: the next is dialled when the one before has not answered for so long.
pub const DIAL_NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// Time for the closing message (last frame, close_notify) before the socket is dropped.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// First pause between two dials of a peer.
pub const REDIAL_MIN: Duration = Duration::from_millis(500);
/// Longest pause between two dials of a peer.
pub const REDIAL_MAX: Duration = Duration::from_secs(30);

/// Bytes that a socket takes beyond what is on its way. It asks for more at half of it, and a busy daemon needs half a millisecond
/// until it writes: 64 KiB last that long at 1 Gb/s.
pub const UNSENT_MAX: u32 = 128 * 1024;

/// What is read from a socket at once, bytes: four TLS records, as they are written.
pub const READ_AHEAD: usize = 64 * 1024;

/// The most lanes of a stream on each path, and the most that the other side may ask for: 1 Gb/s with 300 ms are 16 buffers of
/// 2 MiB.
pub const LANES_PER_PATH_MAX: usize = 16;
/// Bytes that a stream has sent before it gets more than one lane on a path: less is over before the handshake is.
pub const MORE_LANES_AFTER: u64 = 256 << 10;
/// A path that is preferred carries data again when it has worked for so long: one that comes and goes does not take data along.
pub const FAILBACK_AFTER: Duration = Duration::from_secs(10);
/// Idle lanes of a session. Each holds a socket, and buffers of some 10 KiB.
pub const IDLE_LANES_MAX: usize = 32;
/// How long a lane is kept idle: updates that come every minute find one.
pub const IDLE_LANE_TIMEOUT: Duration = Duration::from_secs(90);

/// The shortest pause between two signs of life on a quiet connection that can be set, and the one where nothing is.
pub const KEEPALIVE_MIN: Duration = Duration::from_secs(2);
/// The longest: longer than that no NAT on the way remembers a connection.
pub const KEEPALIVE_MAX: Duration = Duration::from_secs(600);
/// Paths to a peer: more pairs of addresses than a host has links.
pub const PATHS_MAX: usize = 8;
/// Other daemons of a peer's site whose addresses are known.
pub const OTHERS_MAX: usize = 16;
/// Longest address of a peer, bytes.
pub const ADDRESS_MAX: usize = 255;

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
pub const ATTACH_OPENING_MAX: usize = 5 * 1024;

/// What each side may send on a bundle before it has received anything, bytes, and the smallest window. Part of the protocol.
pub const WINDOW_MIN: u64 = 64 * 1024;
/// The window that an automatic one starts from, bytes, where nothing better is known, and what every stream may have of each
/// direction whatever others have: the 128 streams that a session may have at once are as much as [`WINDOW_BUDGET`], outside of it.
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
/// Standstills in a row after which what was on its way in them counts all the same: then it is no outage, but a line that has become
/// much longer.
pub const STANDSTILLS_MAX: u32 = 3;
/// The same when no other lane moves either: then the path is suspected, and dialled anew.
pub const LANE_STALL_ALONE: Duration = Duration::from_secs(3);
/// Data that stands for so long on a path that answers pings is taken for full packets that do not pass.
pub const LARGE_PACKETS_STAND_FOR: Duration = Duration::from_secs(10);
/// The same, in retransmission time-outs of the kernel: with 200 ms to begin with, and twice as long each time, the fourth is
/// over after 3 s; on a line of 2 s round trip after half a minute.
pub const LARGE_PACKETS_TIMEOUTS: u32 = 4;
/// A path answers if something small was answered within so long: pings go every two seconds.
pub const SMALL_PACKETS_WITHIN: Duration = Duration::from_secs(6);
/// How often that is looked at, while data is on its way.
pub const PACKETS_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Segments that connections are made with where larger ones do not pass, bytes, one after the other. With the headers of
/// IPv6 and TCP the first fits the 1280 bytes that every path of IPv6 has, through most tunnels too. The second is what any host
/// of IPv4 must take.
pub const SEGMENT_SIZES: [u32; 2] = [1200, 536];
/// After so long full packets are tried again on such a path.
pub const LARGE_PACKETS_AGAIN_AFTER: Duration = Duration::from_secs(3600);
/// They pass again once a connection with them has carried so much, bytes: more than the handshake.
pub const LARGE_PACKETS_PROVEN_BY: u64 = 256 << 10;
/// How often lanes that owe progress are looked at.
pub const LANE_LOOK_EVERY: Duration = Duration::from_millis(250);
/// Over what time a lane's rate is measured.
pub const LANE_RATE_OVER: Duration = Duration::from_millis(250);
/// A lane that was told something and has been silent for so long is pinged.
pub const LANE_QUIET_MAX: Duration = Duration::from_secs(1);
/// How often a sender without credit asks whether there is some that no ack has announced to it.
pub const WINDOW_PROBE_EVERY: Duration = Duration::from_secs(2);
/// How long a bundle waits for a lane when it has none.
pub const LANELESS_MAX: Duration = Duration::from_secs(30);
/// Time for both sides to leave a lane when the bundle has ended.
pub const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a stream whose application is gone after its shutdown may make no progress.
pub const LINGER_MAX: Duration = Duration::from_secs(60);
/// Under a limit: credit that may be granted ahead of what arrives, beside a round trip's worth.
pub const CREDIT_AHEAD: Duration = Duration::from_millis(50);
/// Under a limit that was lowered: credit of before is held back if it would last for longer, a round trip aside.
pub const CREDIT_HELD_AFTER: Duration = Duration::from_secs(1);
/// Under a limit: the least credit that is told by itself, bytes, so that a slow link is not full of acks.
pub const CREDIT_PIECE: u64 = 4096;
/// Under a limit: what is told by itself is worth so much time.
pub const CREDIT_TIME: Duration = Duration::from_millis(15);
/// A low priority: how often it looks at the queues of its lanes, and sends what its rate allows for that time. Each look is a
/// system call a lane.
pub const LOW_PRIORITY_LOOK_EVERY: Duration = Duration::from_millis(2);
/// A low priority: what it did not send in time it makes up for, up to so much; a timer of a busy machine may be that late.
pub const LOW_PRIORITY_CATCH_UP: Duration = Duration::from_millis(20);
/// A low priority: a segment is not cut smaller than this to keep within its cap, bytes; a packet of an Ethernet.
pub const LOW_PRIORITY_SEGMENT_MIN: u64 = 1448;
