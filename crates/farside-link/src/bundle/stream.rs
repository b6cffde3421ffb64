//! What the application holds of a bundle: it reads and writes.
//!
//! A flush waits until everything written is in the lanes' sockets; a shutdown does too, the end of the stream included. Dropped after a
//! shutdown, the stream is delivered in the background, for as long as that makes progress ([`LINGER_MAX`](crate::limits::LINGER_MAX)). Dropped
//! without, it aborts the bundle.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::receiver::Read;
use super::state::{Bundle, Loss, Phase, WriterWaits};
use crate::options::Priority;

/// See the module.
pub struct BundleStream {
    bundle: Arc<Bundle>,
    /// Being read.
    piece: Bytes,
}

impl BundleStream {
    pub(super) fn new(bundle: Arc<Bundle>) -> BundleStream {
        BundleStream { bundle, piece: Bytes::new() }
    }

    /// The next piece; empty at the end.
    fn poll_piece(&self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let bundle = &self.bundle;
        let mut inward = bundle.inward.lock();
        if let Some(loss) = inward.loss.as_ref().filter(|loss| !loss.after_reading) {
            return Poll::Ready(Err(loss.error()));
        }
        let piece = match inward.receiver.read() {
            Read::Piece(piece) => piece,
            Read::End => return Poll::Ready(Ok(Bytes::new())),
            Read::Nothing => match &inward.loss {
                Some(loss) => return Poll::Ready(Err(loss.error())),
                None => {
                    inward.reader = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            },
        };
        bundle.grant(&mut inward);
        let is_due = !inward.ack_due && inward.receiver.is_ack_due();
        inward.ack_due |= is_due;
        drop(inward);
        if is_due {
            bundle.ack_soon();
        }
        Poll::Ready(Ok(piece))
    }

    fn poll_handed_out(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut outward = self.bundle.outward.lock();
        if let Some(loss) = &outward.loss {
            return Poll::Ready(Err(loss.error()));
        }
        if outward.is_handed_out() {
            return Poll::Ready(Ok(()));
        }
        outward.writer = Some((cx.waker().clone(), WriterWaits::UntilHandedOut));
        Poll::Pending
    }

    fn poll_write_all(&self, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut outward = self.bundle.outward.lock();
        if let Some(loss) = &outward.loss {
            return Poll::Ready(Err(loss.error()));
        }
        if outward.sender.is_finished() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::BrokenPipe,
                "written to after its shutdown",
            )));
        }
        let mut written = 0;
        for buf in bufs {
            let taken = outward.sender.write(buf);
            written += taken;
            if taken < buf.len() {
                break;
            }
        }
        if written == 0 && bufs.iter().any(|buf| !buf.is_empty()) {
            outward.writer = Some((cx.waker().clone(), WriterWaits::ForRoom));
            return Poll::Pending;
        }
        outward.wake_lanes();
        outward.paced(self.bundle.now());
        drop(outward);
        if self.bundle.options.priority == Priority::Low {
            // Nobody has looked while there was nothing to send, so less than a segment may be allowed.
            self.bundle.wakeup.notify_one();
        }
        Poll::Ready(Ok(written))
    }
}

impl AsyncRead for BundleStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        while buf.remaining() > 0 {
            if self.piece.is_empty() {
                match self.poll_piece(cx) {
                    Poll::Ready(Ok(piece)) if piece.is_empty() => break,
                    Poll::Ready(Ok(piece)) => self.piece = piece,
                    // What was read already comes first.
                    Poll::Ready(Err(_)) | Poll::Pending if buf.filled().len() > before => break,
                    Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            let bytes = self.piece.len().min(buf.remaining());
            buf.put_slice(&self.piece[..bytes]);
            self.piece.advance(bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for BundleStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_all(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_all(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_handed_out(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        {
            let mut outward = self.bundle.outward.lock();
            outward.sender.finish();
            outward.wake_lanes();
        }
        self.poll_handed_out(cx)
    }
}

impl Drop for BundleStream {
    fn drop(&mut self) {
        if self.bundle.lanes.lock().phase != Phase::Open {
            return;
        }
        {
            let mut outward = self.bundle.outward.lock();
            if outward.sender.is_finished() {
                outward.lingering = Some((Instant::now(), outward.sender.undelivered()));
                self.bundle.wakeup.notify_one();
                return;
            }
        }
        self.bundle.lose(Loss {
            kind: io::ErrorKind::ConnectionAborted,
            reason: "its application closed it".to_owned(),
            after_reading: false,
            notify: true,
        });
    }
}
