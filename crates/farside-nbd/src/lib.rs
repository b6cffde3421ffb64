//! NBD server: host I/O on volumes and snapshots.
//!
//! Speaks the [NBD protocol] in its fixed newstyle, on Unix sockets, and over TCP under TLS with a certificate of the
//! client (`network.rs`). It knows nothing of
//! pools; what it serves is an [`ExportSource`] of [`Export`]s, whose calls block and are made from a bounded
//! pool of threads, never from the async runtime.
//!
//! A request's way, one stop a line:
//!
//! ```text
//! connection.rs   read_requests      header from the socket, room reserved, payload received
//! protocol/request.rs  parse_request, validate     pure; everything a client can get wrong is refused here
//! call_pool.rs    submit             off the runtime, on to a thread that may block
//! command.rs      perform            the call into the export (a long read: its status, then each run of data)
//! reply_queue.rs  push               on to the socket, from that same thread if the socket has room
//! ```
//!
//! # Guarantees
//!
//! 1. A command is answered only after the export's call returned; so what a flush covers is decided by the
//!    export alone (farside's store: every command of the volume answered on any connection before the flush
//!    arrived).
//! 2. Nothing a client sends, in whatever order or length, stops the server or reaches an export out of range,
//!    on a read-only export as a change, or with a flag that was not offered. [`fuzz`] holds it to that.
//! 3. Requests and bytes in flight, threads, connections and waits for a client are bounded by [`Limits`]. A client
//!    that sends half a write, or does not fetch its replies, leaves every other one a share of its own.
//! 4. A shutdown, or the owner's [`Export::closed`], ends a connection only after its commands under way have
//!    been carried out.
//!
//! # What it does not do
//!
//! 64-bit extended headers and resize are answered "unsupported". Requests of one
//! connection run concurrently and may be answered out of order, as the protocol allows. Overlapping requests
//! in flight are the client's own race.
//!
//! | protocol feature | here |
//! | --- | --- |
//! | `EXPORT_NAME`, `ABORT`, `LIST`, `INFO`, `GO` | yes |
//! | `STARTTLS` | over TCP, and nothing before it; TLS 1.3 |
//! | `STRUCTURED_REPLY`, `DF`, hole chunks | yes; simple replies without it |
//! | `LIST_META_CONTEXT`, `SET_META_CONTEXT` | `base:allocation`, and what the export has: several at once |
//! | `READ`, `WRITE`, `FLUSH`, `TRIM`, `WRITE_ZEROES`, `BLOCK_STATUS`, `CACHE`, `DISC` | yes, at any byte offset |
//! | `FUA`, `NO_HOLE`, `FAST_ZERO`, `REQ_ONE` | yes |
//! | `CAN_MULTI_CONN` | where the export says so |
//! | block sizes | minimum 1, preferred 4096, maximum 32 MiB |
//!
//! [NBD protocol]: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md

mod accept;
mod buffer_pool;
mod call_pool;
mod client;
mod command;
mod connection;
mod context;
mod conversation;
mod doorstep;
mod error;
mod export;
pub mod fuzz;
mod host_places;
mod joined;
mod limits;
mod listen;
mod negotiation;
mod network;
mod protocol;
mod reply_queue;
mod room;
mod server;
mod starttls;

pub use error::{ErrorKind, NbdError};
pub use export::{
    Export, ExportDescription, ExportListing, ExportSource, Extent, Marked, MetadataContext, Write, ZeroMode,
};
pub use limits::{Limits, REQUEST_BYTES_MAX};
pub use listen::{BindError, bind_unix};
pub use network::{Admitted, Hosts, Refused};
pub use server::Server;
