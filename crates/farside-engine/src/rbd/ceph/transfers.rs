//! Many reads, or writes, of an image at a time: one after the other each would take what the cluster takes to answer.

use std::collections::VecDeque;
use std::ptr;
use std::sync::Arc;

use super::failed::{Failed, check};
use super::image::Image;
use super::library::{Handle, Rbd};

/// An image's data lies in objects of this size, unless its maker wanted it otherwise; no request crosses from one to the next.
const PIECE_BYTES: u64 = 4 << 20;
/// Requests under way at once: 64 of 4 KiB each were 2,700 a second where one at a time were 125.
const DEPTH: usize = 64;
/// Bytes of writes under way at once: their buffers are held until they are on the medium.
const WRITING_BYTES_MAX: u64 = 32 << 20;
/// Most bytes made zeros by one request: 64 objects.
const ZEROES_BYTES_MAX: u64 = 256 << 20;

/// A request that is under way; it may be waited for.
struct Request {
    rbd: &'static Rbd,
    completion: Handle,
}

// SAFETY: a completion may be waited for and released by any thread.
#[allow(unsafe_code, reason = "a handle of librbd goes from thread to thread")]
unsafe impl Send for Request {}

impl Request {
    /// A completion, not told to anybody yet.
    fn new(image: &Image) -> Result<Request, Failed> {
        let mut completion: Handle = ptr::null_mut();
        // SAFETY: there is no callback; the handle is written before it is used.
        #[allow(unsafe_code, reason = "a call of librbd")]
        let made =
            unsafe { (image.rbd.rbd_aio_create_completion)(ptr::null_mut(), ptr::null(), &mut completion) };
        check("rbd_aio_create_completion", made)?;
        Ok(Request { rbd: image.rbd, completion })
    }

    /// Waits for the end of a request that began, and answers what it answered.
    fn wait(&self, call: &'static str) -> Result<usize, Failed> {
        // SAFETY: the completion was given to a request that began, which ends: Ceph's calls have time-outs.
        #[allow(unsafe_code, reason = "calls of librbd")]
        let answer = unsafe {
            (self.rbd.rbd_aio_wait_for_complete)(self.completion);
            (self.rbd.rbd_aio_get_return_value)(self.completion)
        };
        usize::try_from(answer)
            .map_err(|_| Failed { call, errno: i32::try_from(answer.unsigned_abs()).unwrap_or(5) })
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // SAFETY: it has ended, or never began; nobody uses the handle after this.
        #[allow(unsafe_code, reason = "a call of librbd")]
        unsafe {
            (self.rbd.rbd_aio_release)(self.completion);
        }
    }
}

/// Reads into buffers that are borrowed: each is waited for before the borrow ends, whatever happens.
struct Reads(VecDeque<(Request, usize)>);

impl Reads {
    fn finish_one(&mut self) -> Result<(), Failed> {
        let Some((request, wanted)) = self.0.pop_front() else { return Ok(()) };
        let read = request.wait("rbd_aio_read")?;
        if read == wanted { Ok(()) } else { Err(Failed { call: "rbd_aio_read", errno: 5 }) }
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        while !self.0.is_empty() {
            _ = self.finish_one();
        }
    }
}

impl Image {
    /// Reads ranges, each into the buffer beside its offset; all of them lie inside the image.
    pub(crate) fn read(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<(), Failed> {
        let mut reads = Reads(VecDeque::new());
        for (offset, buffer) in ranges {
            let mut at = *offset;
            let mut rest = &mut **buffer;
            while !rest.is_empty() {
                let length = (rest.len() as u64).min(PIECE_BYTES - at % PIECE_BYTES) as usize;
                let piece;
                (piece, rest) = rest.split_at_mut(length);
                if reads.0.len() >= DEPTH {
                    reads.finish_one()?;
                }
                let request = Request::new(self)?;
                // SAFETY: it writes these bytes until it has ended. They are borrowed, exclusively, for longer than `reads` lives, which
                // waits for each request before it goes.
                #[allow(unsafe_code, reason = "a call of librbd")]
                let began = unsafe {
                    (self.rbd.rbd_aio_read)(
                        self.handle,
                        at,
                        length,
                        piece.as_mut_ptr().cast(),
                        request.completion,
                    )
                };
                check("rbd_aio_read", began)?;
                reads.0.push_back((request, length));
                at += length as u64;
            }
        }
        while !reads.0.is_empty() {
            reads.finish_one()?;
        }
        Ok(())
    }
}

struct Write {
    request: Request,
    /// What is written: librbd reads it until the request has ended.
    _bytes: Vec<u8>,
    offset: u64,
    length: u64,
}

/// Writes of an image that are under way. The first that failed is told, again and again: what it did not write is missing.
pub(crate) struct Writes {
    image: Arc<Image>,
    under_way: VecDeque<Write>,
    bytes: u64,
    failed: Option<Failed>,
}

impl Writes {
    /// None so far.
    pub(crate) fn new(image: Arc<Image>) -> Writes {
        Writes { image, under_way: VecDeque::new(), bytes: 0, failed: None }
    }

    /// Begins to write.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Failed> {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = (rest.len() as u64).min(PIECE_BYTES - at % PIECE_BYTES);
            let piece;
            (piece, rest) = rest.split_at(length as usize);
            self.make_room(at, length, length)?;
            let (request, piece) = (Request::new(&self.image)?, piece.to_vec());
            // SAFETY: it reads the bytes of `piece` until it has ended. They stay where they are, and live, as long as the entry that
            // is made of them here; that goes only after the request was waited for.
            #[allow(unsafe_code, reason = "a call of librbd")]
            let began = unsafe {
                (self.image.rbd.rbd_aio_write)(
                    self.image.handle,
                    at,
                    piece.len(),
                    piece.as_ptr().cast(),
                    request.completion,
                )
            };
            self.began(began, "rbd_aio_write", Write { request, _bytes: piece, offset: at, length })?;
            at += length;
        }
        Ok(())
    }

    /// Begins to make a range zeros; the cluster frees what it can of it.
    pub(crate) fn zero(&mut self, offset: u64, length: u64) -> Result<(), Failed> {
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let length = (end - at).min(ZEROES_BYTES_MAX - at % ZEROES_BYTES_MAX);
            self.make_room(at, length, 0)?;
            let request = Request::new(&self.image)?;
            // SAFETY: nothing of this process is read or written by it.
            #[allow(unsafe_code, reason = "a call of librbd")]
            let began = unsafe {
                (self.image.rbd.rbd_aio_write_zeroes)(
                    self.image.handle,
                    at,
                    length as usize,
                    request.completion,
                    0,
                    0,
                )
            };
            self.began(
                began,
                "rbd_aio_write_zeroes",
                Write { request, _bytes: Vec::new(), offset: at, length },
            )?;
            at += length;
        }
        Ok(())
    }

    fn began(&mut self, answer: i32, call: &'static str, write: Write) -> Result<(), Failed> {
        check(call, answer)?;
        self.bytes += write._bytes.len() as u64;
        self.under_way.push_back(write);
        Ok(())
    }

    /// Waits until a write of a range can begin: not beside one of the same bytes, and not one too many.
    fn make_room(&mut self, offset: u64, length: u64, buffered: u64) -> Result<(), Failed> {
        let overlaps = |write: &Write| write.offset < offset + length && offset < write.offset + write.length;
        while self.under_way.len() >= DEPTH
            || (self.bytes + buffered > WRITING_BYTES_MAX && !self.under_way.is_empty())
            || self.under_way.iter().any(overlaps)
        {
            self.finish_one();
        }
        self.failed.map_or(Ok(()), Err)
    }

    fn finish_one(&mut self) {
        let Some(write) = self.under_way.pop_front() else { return };
        if let Err(failed) = write.request.wait("rbd_aio_write") {
            self.failed.get_or_insert(failed);
        }
        self.bytes -= write._bytes.len() as u64;
    }

    /// Waits for all of them: what was written is on the medium when this returns.
    pub(crate) fn finish(&mut self) -> Result<(), Failed> {
        while !self.under_way.is_empty() {
            self.finish_one();
        }
        self.failed.map_or_else(|| self.image.flush(), Err)
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        while !self.under_way.is_empty() {
            self.finish_one();
        }
    }
}
