//! Replies on their way to the socket.
//!
//! Whoever has a reply sends it: the thread that made the call writes it straight to the socket, if the socket
//! takes it and nobody else is writing, which saves a switch to another thread for every reply. It also sends
//! what others queued meanwhile, in one vectored write. When the socket is full it leaves the rest, and the
//! connection's own task ([`ReplyQueue::pump`]) goes on when there is room. No thread ever waits here.
//!
//! The queue has no bound of its own: each reply holds the reservation of its request, which bounds it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::limits::SLICES_PER_SEND;

/// A reply and the reservation its request holds until the last byte is with the kernel.
pub(crate) struct Reply<Reservation> {
    pieces: VecDeque<Bytes>,
    _reservation: Reservation,
}

impl<Reservation> Reply<Reservation> {
    pub(crate) fn new(pieces: Vec<Bytes>, reservation: Reservation) -> Self {
        Reply { pieces: pieces.into(), _reservation: reservation }
    }
}

/// The replies of one connection.
pub(crate) struct ReplyQueue<W, Reservation> {
    state: Mutex<State<W, Reservation>>,
    /// Wakes [`pump`](Self::pump); whoever polls the socket leaves this waker with it.
    waker: Waker,
    socket_ready: Arc<SocketReady>,
    /// Cancelled when the socket takes no more: the peer is gone.
    broken: CancellationToken,
}

struct State<W, Reservation> {
    /// The way out; `None` while somebody is sending, and for ever once broken or closed.
    outlet: Option<Outlet<W, Reservation>>,
    waiting: VecDeque<Reply<Reservation>>,
    /// Somebody wanted to send while another was at it: that one must poll the socket once more before it leaves,
    /// for the wake-up that sent the former here will not come again.
    poll_again: bool,
    ended: bool,
    sent_bytes: u64,
}

struct Outlet<W, Reservation> {
    writer: W,
    sending: VecDeque<Reply<Reservation>>,
}

#[derive(Default)]
struct SocketReady(Notify);

impl Wake for SocketReady {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl<W: AsyncWrite + Unpin, Reservation> ReplyQueue<W, Reservation> {
    pub(crate) fn new(writer: W, broken: CancellationToken) -> Self {
        let socket_ready = Arc::new(SocketReady::default());
        let state = State {
            outlet: Some(Outlet { writer, sending: VecDeque::new() }),
            waiting: VecDeque::new(),
            poll_again: false,
            ended: false,
            sent_bytes: 0,
        };
        let waker = Waker::from(Arc::clone(&socket_ready));
        ReplyQueue { state: Mutex::new(state), waker, socket_ready, broken }
    }

    /// Queues `reply` and sends what the socket takes. Never waits. After the connection broke, drops it.
    pub(crate) fn push(&self, reply: Reply<Reservation>) {
        self.push_all([reply]);
    }

    /// The same with several, which go out together.
    pub(crate) fn push_all(&self, replies: impl IntoIterator<Item = Reply<Reservation>>) {
        {
            let mut state = self.state.lock();
            if state.ended {
                return;
            }
            state.waiting.extend(replies);
        }
        self.send();
    }

    /// Sends whenever the socket has room again. Returns only when the client has accepted nothing for
    /// `stall_max` though replies wait for it.
    pub(crate) async fn pump(&self, stall_max: Duration) {
        let mut sent_before = None;
        loop {
            match tokio::time::timeout(stall_max, self.socket_ready.0.notified()).await {
                Ok(()) => self.send(),
                Err(_) => {
                    let state = self.state.lock();
                    let waits = !state.waiting.is_empty()
                        || state.outlet.as_ref().is_some_and(|outlet| !outlet.sending.is_empty());
                    let sent = waits.then_some(state.sent_bytes);
                    // Stalled if the same byte waited at the beginning of this interval.
                    if sent.is_some() && sent == sent_before {
                        return;
                    }
                    sent_before = sent;
                }
            }
        }
    }

    /// Gives up what is not sent and returns the writer, unless somebody is using it this moment; that one drops
    /// it. To be called when the connection has ended.
    pub(crate) fn end(&self) -> Option<W> {
        let (outlet, waiting) = {
            let mut state = self.state.lock();
            state.ended = true;
            (state.outlet.take(), std::mem::take(&mut state.waiting))
        };
        drop(waiting);
        outlet.map(|outlet| outlet.writer)
    }

    fn send(&self) {
        let mut outlet = {
            let mut state = self.state.lock();
            let Some(outlet) = state.outlet.take() else {
                state.poll_again = true;
                return;
            };
            outlet
        };
        let mut context = Context::from_waker(&self.waker);
        loop {
            {
                let mut state = self.state.lock();
                state.poll_again = false;
                outlet.sending.append(&mut state.waiting);
            }
            let mut sent_bytes = 0;
            let outcome = outlet.poll_send(&mut context, &mut sent_bytes);
            let mut state = self.state.lock();
            state.sent_bytes += sent_bytes;
            let go_on = match &outcome {
                _ if state.ended => return,
                Poll::Ready(Ok(())) => !state.waiting.is_empty(),
                Poll::Pending => state.poll_again,
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "NBD client no longer takes replies");
                    state.ended = true;
                    let waiting = std::mem::take(&mut state.waiting);
                    drop(state);
                    drop(waiting);
                    self.broken.cancel();
                    return;
                }
            };
            if !go_on {
                state.outlet = Some(outlet);
                return;
            }
        }
    }
}

impl<W: AsyncWrite + Unpin, Reservation> Outlet<W, Reservation> {
    /// Sends until nothing is left or the socket is full. Drops a reply, and its reservation, with its last byte.
    fn poll_send(&mut self, context: &mut Context<'_>, sent_bytes: &mut u64) -> Poll<io::Result<()>> {
        while !self.sending.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_PER_SEND];
            let mut count = 0;
            for (slice, piece) in
                slices.iter_mut().zip(self.sending.iter().flat_map(|reply| reply.pieces.iter()))
            {
                *slice = IoSlice::new(piece);
                count += 1;
            }
            let sent = ready!(Pin::new(&mut self.writer).poll_write_vectored(context, &slices[..count]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *sent_bytes += sent as u64;
            self.advance(sent);
        }
        Pin::new(&mut self.writer).poll_flush(context)
    }

    fn advance(&mut self, mut sent: usize) {
        while let Some(reply) = self.sending.front_mut() {
            while let Some(piece) = reply.pieces.front_mut() {
                if piece.len() > sent {
                    piece.advance(sent);
                    return;
                }
                sent -= piece.len();
                reply.pieces.pop_front();
            }
            self.sending.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    const THREADS: u8 = 4;
    const REPLIES: u32 = 2000;
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Many threads push into a pipe that is full almost always, so that sending is left and taken up again at every
    /// point. A lost wake-up would leave the reader waiting for ever.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_reply_arrives_whole_however_full_the_socket() {
        let (mut client, writer) = tokio::io::duplex(37);
        let queue = Arc::new(ReplyQueue::new(writer, CancellationToken::new()));
        let pump = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.pump(PATIENCE).await }
        });
        let reservation = Arc::new(());
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (queue, reservation) = (Arc::clone(&queue), Arc::clone(&reservation));
                std::thread::spawn(move || {
                    for number in 0..REPLIES {
                        let mut head = vec![thread, (number % 50) as u8];
                        head.extend(number.to_be_bytes());
                        let payload = vec![thread; number as usize % 50];
                        queue.push(Reply::new(vec![head.into(), payload.into()], Arc::clone(&reservation)));
                    }
                })
            })
            .collect();
        let mut next = [0; THREADS as usize];
        let received = async {
            for _ in 0..u32::from(THREADS) * REPLIES {
                let mut head = [0; 6];
                client.read_exact(&mut head).await.unwrap();
                let (thread, length) = (head[0], usize::from(head[1]));
                let mut payload = vec![0; length];
                client.read_exact(&mut payload).await.unwrap();
                assert_eq!(payload, vec![thread; length]);
                let number = u32::from_be_bytes(head[2..].try_into().unwrap());
                assert_eq!(number, next[usize::from(thread)], "replies of one thread keep their order");
                next[usize::from(thread)] += 1;
            }
        };
        tokio::time::timeout(PATIENCE, received).await.expect("no wake-up is lost");
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        pump.abort();
        assert!(pump.await.is_err_and(|error| error.is_cancelled()));
        drop(queue);
        assert_eq!(Arc::strong_count(&reservation), 1, "each reply has given its reservation back");
    }

    type Meanwhile = Box<dyn FnOnce() + Send>;

    /// A socket that is full at the first try, and has room again before that try has returned.
    struct FullForAMoment {
        meanwhile: Arc<Mutex<Option<Meanwhile>>>,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    impl AsyncWrite for FullForAMoment {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            if let Some(meanwhile) = self.meanwhile.lock().take() {
                meanwhile();
                return Poll::Pending;
            }
            self.taken.lock().extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_wake_up_during_a_send_is_not_lost() {
        let (meanwhile, taken) = (Arc::new(Mutex::new(None::<Meanwhile>)), Arc::default());
        let writer = FullForAMoment { meanwhile: Arc::clone(&meanwhile), taken: Arc::clone(&taken) };
        let queue = Arc::new(ReplyQueue::new(writer, CancellationToken::new()));
        let woken = Arc::clone(&queue);
        // What the pump does when woken; it finds the socket in use and leaves.
        *meanwhile.lock() = Some(Box::new(move || woken.send()));
        queue.push(Reply::new(vec![Bytes::from_static(b"reply")], ()));
        assert_eq!(*taken.lock(), b"reply");
    }

    #[tokio::test]
    async fn a_broken_socket_is_reported_and_frees_the_reservation() {
        let (client, writer) = tokio::io::duplex(37);
        let broken = CancellationToken::new();
        let queue = ReplyQueue::new(writer, broken.clone());
        let reservation = Arc::new(());
        queue.push(Reply::new(vec![Bytes::from_static(&[0; 100])], Arc::clone(&reservation)));
        assert_eq!(Arc::strong_count(&reservation), 2, "more than the socket takes");
        drop(client);
        tokio::select! {
            () = broken.cancelled() => {}
            () = queue.pump(PATIENCE) => panic!("a broken socket is not a stalled one"),
        }
        queue.push(Reply::new(vec![Bytes::from_static(b"more")], Arc::clone(&reservation)));
        assert_eq!(Arc::strong_count(&reservation), 1);
        assert!(queue.end().is_none());
    }
}
