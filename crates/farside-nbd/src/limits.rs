//! Every bound of the server, in one place.

use std::time::Duration;

/// The longest READ or WRITE in bytes, told to clients as the maximum block size. 32 MiB is what the protocol
/// lets a client assume, and what Linux's client uses at most.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// What is told as the preferred block size: the store's block.
pub(crate) const PREFERRED_BLOCK_BYTES: u32 = 4096;

/// The longest option data. The longest sensible option holds one name and some queries of 4096 bytes each.
pub(crate) const OPTION_BYTES_MAX: u32 = 64 << 10;

/// The protocol's own limit for any string.
pub(crate) const STRING_BYTES_MAX: usize = 4096;

/// Options in one handshake, which has its time too. `nbdinfo --list` asks twice of each export, all on one connection.
pub(crate) const OPTIONS_MAX: u32 = 1 << 16;
/// Exports not given of which one handshake is logged.
pub(crate) const NOT_GIVEN_LOGGED_MAX: u32 = 4;

/// Options before a client asks for TLS; well-behaved ones ask for it first.
pub(crate) const PLAIN_OPTIONS_MAX: u32 = 16;

/// The longest data of such an option: it is read and thrown away.
pub(crate) const PLAIN_OPTION_BYTES_MAX: u32 = 8 << 10;

/// Lines logged about unknown network clients within [`STRANGER_LINES_WITHIN`]; the rest are counted.
pub(crate) const STRANGER_LINES_MAX: u32 = 20;

/// See [`STRANGER_LINES_MAX`].
pub(crate) const STRANGER_LINES_WITHIN: Duration = Duration::from_secs(60);

/// A network client that is silent for so long is asked by the kernel whether it is still there, ...
pub(crate) const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// ... again after so long, ...
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// ... so many times. A machine that lost power is given up after about a minute and a half.
pub(crate) const KEEPALIVE_PROBES: u32 = 6;

/// What was sent to a network client may stay unacknowledged for so long.
pub(crate) const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(90);

/// Queries in one option about metadata contexts.
pub(crate) const CONTEXT_QUERIES_MAX: u32 = 64;

/// Metadata contexts that one connection may choose.
pub(crate) const CONTEXTS_MAX: usize = 16;

/// Metadata contexts that are told of in one list.
pub(crate) const CONTEXTS_LISTED_MAX: usize = 1024;

/// Extents of one context in one answer to BLOCK_STATUS: 64 KiB on the wire. The client asks again for the rest.
pub(crate) const EXTENTS_PER_REPLY_MAX: usize = 8192;

/// Bytes that an answer to BLOCK_STATUS is reckoned at, for each context.
pub(crate) const STATUS_REPLY_BYTES: u32 = 8 * EXTENTS_PER_REPLY_MAX as u32;

/// A run of zeros inside a READ is sent as a hole if it is this long; a READ that is shorter is not examined for
/// holes at all. Below this, looking costs more than the memory copy it saves.
pub(crate) const HOLE_BYTES_MIN: u64 = 64 << 10;

/// Read-ahead on a connection's socket. Small writes arrive several to a system call, at the price of one copy
/// out of this buffer; payloads longer than it go straight into their own buffer.
pub(crate) const SOCKET_BUFFER_BYTES: usize = 32 << 10;

/// Bytes of writes, and of reads, that are carried out where they arrive: most of their time goes to fingerprints, and others of that connection wait
/// for it. Above, waking a thread is little beside it.
pub(crate) const AT_ONCE_BYTES_MAX: usize = 64 << 10;
/// Reads and writes up to this size that arrive together are carried out together: one call, one turn at the medium, one reply to the
/// socket. Longer ones gain nothing, and would wait for each other.
pub(crate) const JOINED_REQUEST_BYTES_MAX: u32 = 32 << 10;

/// So many bytes of them in one call, at most: the next ones are for another thread.
pub(crate) const JOINED_BYTES_MAX: u32 = 256 << 10;

/// So many of them.
pub(crate) const JOINED_REQUESTS_MAX: usize = 64;

/// Slices handed to one vectored write on a socket (the kernel takes up to 1024).
pub(crate) const SLICES_PER_SEND: usize = 64;

/// Text sent with an error; the rest is cut off.
pub(crate) const ERROR_TEXT_BYTES_MAX: usize = 1024;

/// Bytes kept in free buffers for the next requests, over all connections.
pub(crate) const FREE_BUFFER_BYTES_MAX: usize = 64 << 20;

/// Failed commands logged one by one, per connection; the rest are counted and told when it ends. A host that
/// retries a bad block for ever must not fill the log.
pub(crate) const ERRORS_LOGGED_MAX: u32 = 20;

/// How many of those who hold the room that a client waits for are named in the log.
pub(crate) const HOLDERS_NAMED_MAX: usize = 4;

/// Between two tries to accept when the process is out of file descriptors.
pub(crate) const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Bounds that the owner may want to choose. The defaults suit one daemon serving some hundred volumes to many hosts.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections on Unix sockets at once; one more is closed at once. Each takes an open file.
    pub connections_max: usize,
    /// Network connections that have not proved to be a known host's. One more displaces the oldest of the address that
    /// holds most. They do not count in `connections_max`.
    pub unauthenticated_max: usize,
    /// From accepting a network connection until its client has proved who it is.
    pub tls_handshake_max: Duration,
    /// Connections of known hosts over the network at once, beside `connections_max` and the places kept for each host.
    pub network_connections_max: usize,
    /// Those of one host.
    pub host_connections_max: usize,
    /// Places of each host that no other host can take.
    pub host_connections_kept: usize,
    /// From accepting a connection (over the network: from proving who it is) until its client has chosen an export.
    pub handshake_max: Duration,
    /// Commands of one connection received and not yet answered. fio, qemu and Linux's client use up to 64 or 128.
    pub requests_in_flight_max: u32,
    /// Payload bytes of those, per connection; at least [`REQUEST_BYTES_MAX`]. Buffers come in powers of two, so
    /// the memory behind these bytes may be up to twice as much.
    pub connection_bytes_max: u32,
    /// Payload bytes in flight over all connections, beside their shares; at least `connection_bytes_max`. Replies that
    /// a stalled client does not fetch count, so it is many times the former.
    pub server_bytes_max: u32,
    /// Payload bytes that a known host's connection, and each of the first [`shares_max`](Self::shares_max) others, may have in flight whatever others hold: enough
    /// for hosts' ordinary reads and writes; Linux's client sends up to 1280 KiB by default.
    pub connection_share_bytes: u32,
    /// Local connections with such a share, 512 MiB together. One that goes leaves it to one that comes.
    pub shares_max: usize,
    /// The share of the others, bytes: one small command goes on, what is longer waits for the budget. 512 MiB together as well.
    pub small_share_bytes: u32,
    /// Threads that make calls into exports, over all connections. They mostly wait: for reads of the medium, and
    /// for a common sync, which is the cheaper the more flushes share it.
    pub threads_max: usize,
    /// A client that has waited so long for room is told of in the log, with those who hold it.
    pub wait_logged_after: Duration,
    /// A client that sends not one byte of a write's payload for so long is given up.
    pub payload_stall_max: Duration,
    /// A client that accepts not one byte of its replies for so long is given up.
    pub reply_stall_max: Duration,
    /// At a shutdown, how long replies are offered to a client that does not fetch them. Calls under way are waited
    /// for without limit: they are the store's, not the client's.
    pub shutdown_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 16_384,
            unauthenticated_max: 256,
            tls_handshake_max: Duration::from_secs(10),
            network_connections_max: 256,
            host_connections_max: 64,
            host_connections_kept: 2,
            handshake_max: Duration::from_secs(30),
            requests_in_flight_max: 128,
            connection_bytes_max: 32 << 20,
            server_bytes_max: 512 << 20,
            connection_share_bytes: 2 << 20,
            shares_max: 256,
            small_share_bytes: 32 << 10,
            threads_max: 32,
            wait_logged_after: Duration::from_secs(5),
            payload_stall_max: Duration::from_secs(30),
            reply_stall_max: Duration::from_secs(300),
            shutdown_grace: Duration::from_secs(5),
        }
    }
}

impl Limits {
    /// The same limits, each raised to the least with which any single request can be served.
    pub(crate) fn at_least_usable(mut self) -> Self {
        self.connections_max = self.connections_max.max(1);
        self.unauthenticated_max = self.unauthenticated_max.max(1);
        self.host_connections_kept = self.host_connections_kept.max(1);
        self.host_connections_max = self.host_connections_max.max(self.host_connections_kept);
        self.requests_in_flight_max = self.requests_in_flight_max.max(1);
        self.threads_max = self.threads_max.max(1);
        self.connection_bytes_max = self.connection_bytes_max.max(REQUEST_BYTES_MAX);
        self.server_bytes_max = self.server_bytes_max.max(self.connection_bytes_max);
        self
    }
}

const _: () = assert!(STATUS_REPLY_BYTES * CONTEXTS_MAX as u32 <= REQUEST_BYTES_MAX);
const _: () = assert!(STRING_BYTES_MAX < OPTION_BYTES_MAX as usize);
const _: () = assert!(HOLE_BYTES_MIN < REQUEST_BYTES_MAX as u64);
// So that a READ split at its holes makes fewer chunks than one BLOCK_STATUS may list.
const _: () = assert!(REQUEST_BYTES_MAX as u64 / HOLE_BYTES_MIN < EXTENTS_PER_REPLY_MAX as u64);
