//! What the server serves: the seam to whoever owns the data.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::error::NbdError;

/// All that can be opened. Calls may block: the server makes them on its own threads.
pub trait ExportSource: Send + Sync + 'static {
    /// The exports a client is told of when it asks for a list.
    fn list(&self) -> Vec<ExportListing>;

    /// The metadata contexts of the export `name` besides `base:allocation`: those that a query names in full, and, for a
    /// client that only asks (`set` is false), those whose name begins with a query that ends in `:`, or all if there is
    /// no query.
    fn contexts(&self, _name: &str, _queries: &[String], _set: bool) -> Result<Vec<String>, NbdError> {
        Ok(Vec::new())
    }

    /// Opens the export `name` for one connection. The connection holds the answer until it ends, so an owner
    /// who must know its clients can count what it gave out. The empty name is the protocol's "default export".
    fn open(&self, name: &str) -> Result<Arc<dyn Export>, NbdError>;

    /// The same, by whoever wants to know which client that is: `client` is what the log calls it.
    fn open_for(&self, name: &str, client: &str) -> Result<Arc<dyn Export>, NbdError> {
        let _ = client;
        self.open(name)
    }

    /// What [`open`](Self::open) would give, for a client that only asks.
    fn describe(&self, name: &str) -> Result<ExportDescription, NbdError> {
        Ok(self.open(name)?.description())
    }
}

/// One line of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportListing {
    /// The name to open it by.
    pub name: String,
    /// A few words for people; may be empty.
    pub about: String,
}

/// What a client is told of an export when it opens it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportDescription {
    /// Size in bytes. A connection keeps to the size that it was told at its beginning.
    pub size_bytes: u64,
    /// Changes are refused with EPERM before they reach the export.
    pub read_only: bool,
    /// Several connections may be used as one: a flush on one covers what was answered on the others.
    pub multi_conn: bool,
    /// A few words for people; may be empty.
    pub about: String,
}

/// A run of bytes of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Its length in bytes, more than 0.
    pub length: u64,
    /// It takes no room: writing to it may need space.
    pub hole: bool,
    /// It reads as zeros.
    pub zero: bool,
}

/// A run of bytes of which a metadata context says the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marked {
    /// Its length in bytes, more than 0.
    pub length: u64,
    /// What the context says of it.
    pub flags: u32,
}

/// A metadata context of an open export. Its calls are made like those of an [`Export`].
pub trait MetadataContext: Send + Sync + 'static {
    /// What it says of `offset` and after: at least one run, at most `runs_max`, in order and without gaps. May say less
    /// than `length`; what it says beyond is ignored.
    fn status(&self, offset: u64, length: u64, runs_max: usize) -> Result<Vec<Marked>, NbdError>;
}

/// How zeros are to be written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ZeroMode {
    /// A hole will do. Otherwise the client would rather have the room kept; an export that cannot keep room
    /// for zeros may make a hole all the same, since what is read is the same.
    pub may_trim: bool,
    /// Refuse with [`NotSupported`](crate::ErrorKind::NotSupported), having changed nothing, rather than take as
    /// long as writing the zeros as data would.
    pub fast_only: bool,
    /// On stable storage before the call returns.
    pub fua: bool,
}

/// One of several writes: see [`Export::write`].
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// Where to.
    pub offset: u64,
    /// What.
    pub bytes: &'a [u8],
    /// On stable storage before it is answered.
    pub fua: bool,
}

/// An open export.
///
/// Calls block, come from several threads at once, and lie within `0..size_bytes` with lengths above 0; offsets
/// and lengths are bytes, aligned to nothing. `trim`, `write_zeroes` and `block_status` span up to 4 GiB - 1,
/// `read` and `write` up to [`REQUEST_BYTES_MAX`](crate::REQUEST_BYTES_MAX). Buffers begin on a 4096-byte boundary.
/// The client is answered when the call has returned, and not before.
pub trait Export: Send + Sync + 'static {
    /// What the client is told.
    fn description(&self) -> ExportDescription;

    /// Fills *all* of `buffer` with what is at `offset`, or fails. The buffer's old bytes are those of some
    /// earlier request: an implementation that leaves part of it unfilled would show them to this client.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), NbdError>;

    /// Several reads that came together; what became of each. Asked only if [`overlaps_reads`](Self::overlaps_reads).
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<(), NbdError>> {
        reads.iter_mut().map(|(offset, buffer)| self.read(*offset, buffer)).collect()
    }

    /// Those of several reads that wait for nobody, where they arrive, without a thread being woken: not for a device, nor for somebody
    /// who waits for one. Which ones were done; the others are asked for again. Unlike the others this call never blocks.
    fn read_at_once(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<bool> {
        vec![false; reads.len()]
    }

    /// Whether the reads of one call of [`read_many`](Self::read_many) go on at the same time.
    fn overlaps_reads(&self) -> bool {
        false
    }

    /// Writes `bytes` at `offset`; with `fua` they are on stable storage when this returns.
    fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> Result<(), NbdError>;

    /// Several writes that came together, in their order; what became of each. Where it is cheaper than one after the other.
    fn write_many(&self, writes: &[Write<'_>]) -> Vec<Result<(), NbdError>> {
        writes.iter().map(|write| self.write(write.offset, write.bytes, write.fua)).collect()
    }

    /// The same where they arrive, without a thread being woken, if nobody has to be waited for: not for a device, nor for somebody who
    /// waits for one. `None`, and nothing is done, if somebody has to. Unlike the others this call never blocks.
    fn write_many_at_once(&self, _writes: &[Write<'_>]) -> Option<Vec<Result<(), NbdError>>> {
        None
    }

    /// Puts on stable storage whatever was answered before this call, on whichever connection.
    fn flush(&self) -> Result<(), NbdError>;

    /// The client no longer needs these bytes. What cannot be released (the edges of a partial block) may stay.
    fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), NbdError>;

    /// Makes these bytes read as zeros, edges included.
    fn write_zeroes(&self, offset: u64, length: u64, mode: ZeroMode) -> Result<(), NbdError>;

    /// What lies at `offset` and after: at least one extent, at most `extents_max`, in order and without gaps.
    /// May describe less than `length`; what it describes beyond is ignored.
    fn block_status(&self, offset: u64, length: u64, extents_max: usize) -> Result<Vec<Extent>, NbdError>;

    /// Opens one of the contexts that [`ExportSource::contexts`] has told of.
    fn context(&self, name: &str) -> Result<Arc<dyn MetadataContext>, NbdError> {
        Err(NbdError::invalid(format_args!("there is no metadata context {name:?}")))
    }

    /// These bytes will be read soon. Whatever that makes faster may be done now.
    fn cache(&self, _offset: u64, _length: u64) -> Result<(), NbdError> {
        Ok(())
    }

    /// Cancelled by the owner when connections to this export must end (say, a replica is broken off): nothing
    /// more is read from the client, commands under way finish, and the connection closes.
    fn closed(&self) -> CancellationToken;
}
