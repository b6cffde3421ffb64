//! The connections of an HTTP listener: each is watched from its socket and from its requests, and leaves in time.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::{IncomingStream, Listener};
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::course::{Course, Manners, longest_waiting};
use super::origin::{FromSomewhere, Origin};

/// Everybody at one listener.
struct Crowd {
    manners: Manners,
    stop: CancellationToken,
    guests: Mutex<Present>,
    /// A place is free, or somebody has begun to wait for its client.
    changed: Notify,
}

#[derive(Default)]
struct Present {
    by_number: BTreeMap<u64, Arc<Guest>>,
    next: u64,
}

/// One connection.
struct Guest {
    number: u64,
    /// What it shares its places with.
    neighbourhood: Option<IpAddr>,
    course: Mutex<Course>,
    /// Others need its place.
    leave: CancellationToken,
    crowd: Arc<Crowd>,
}

impl Crowd {
    /// A place for somebody new: a free one, or that of the connection that has said nothing for longest. Only if every
    /// one is being answered the newcomer waits. Whoever has all places of an address gives up one of his own; if all of those
    /// are being answered, the newcomer is turned away.
    async fn admit(self: &Arc<Self>, neighbourhood: Option<IpAddr>) -> Option<Arc<Guest>> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let mut present = self.guests.lock();
                let is_near = |guest: &Guest| neighbourhood.is_some() && guest.neighbourhood == neighbourhood;
                let near = present.by_number.values().filter(|guest| is_near(guest)).count();
                if near >= self.manners.places_each {
                    if !present.displace(is_near) {
                        return None;
                    }
                } else if present.by_number.len() >= self.manners.places {
                    present.displace(|_| true);
                }
                if present.by_number.len() < self.manners.places {
                    let guest = Arc::new(Guest {
                        number: present.next,
                        neighbourhood,
                        course: Mutex::new(Course::new(Instant::now())),
                        leave: CancellationToken::new(),
                        crowd: Arc::clone(self),
                    });
                    present.next += 1;
                    present.by_number.insert(guest.number, Arc::clone(&guest));
                    return Some(guest);
                }
            }
            changed.await;
        }
    }
}

impl Present {
    /// Takes the place of the one that has said nothing for longest among these; false: none of them waits.
    fn displace(&mut self, among: impl Fn(&Guest) -> bool) -> bool {
        let candidates = self.by_number.iter().filter(|(_, guest)| among(guest));
        let waits = candidates.map(|(number, guest)| (*number, guest.waits_since()));
        let displaced = longest_waiting(waits).and_then(|at| self.by_number.remove(&at));
        displaced.inspect(|guest| guest.leave.cancel()).is_some()
    }
}

impl Guest {
    fn waits_since(&self) -> Option<Instant> {
        self.course.lock().waits_since()
    }

    fn change(&self, change: impl FnOnce(&mut Course, Instant)) {
        let (before, after) = {
            let mut course = self.course.lock();
            let before = course.waits_since();
            change(&mut course, Instant::now());
            (before, course.waits_since())
        };
        if before.is_none() && after.is_some() {
            self.crowd.changed.notify_waiters();
        }
    }
}

/// A listener whose connections have [`Manners`].
pub(crate) struct Guests<L> {
    listener: L,
    crowd: Arc<Crowd>,
}

impl<L> Guests<L> {
    /// Until `stop`; then whoever is not being answered leaves.
    pub(crate) fn new(listener: L, manners: Manners, stop: CancellationToken) -> Guests<L> {
        let crowd = Crowd { manners, stop, guests: Mutex::default(), changed: Notify::new() };
        Guests { listener, crowd: Arc::new(crowd) }
    }
}

impl<L: Listener<Io: FromSomewhere>> Listener for Guests<L> {
    type Io = Watched<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (io, address, guest) = loop {
            let (io, address) = self.listener.accept().await;
            let origin = io.origin();
            match self.crowd.admit(origin.neighbourhood()).await {
                Some(guest) => break (io, address, guest),
                None => {
                    tracing::debug!(from = %origin, "a client has all the connections that one address may have");
                    crate::metrics::api_refused("no-place");
                }
            }
        };
        let watched = Watched {
            io,
            leave: Box::pin(guest.leave.clone().cancelled_owned()),
            stop: Box::pin(self.crowd.stop.clone().cancelled_owned()),
            sleep: Box::pin(tokio::time::sleep(self.crowd.manners.header)),
            guest,
        };
        (watched, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A socket that fails when its client has had its time.
pub(crate) struct Watched<T> {
    io: T,
    guest: Arc<Guest>,
    leave: Pin<Box<WaitForCancellationFutureOwned>>,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    sleep: Pin<Box<Sleep>>,
}

impl<T> Watched<T> {
    /// Fails once the client has had its time, and has the task look again when it has.
    fn overdue(&mut self, cx: &mut Context<'_>) -> Option<io::Error> {
        if self.leave.as_mut().poll(cx).is_ready() {
            return Some(io::Error::new(io::ErrorKind::ConnectionAborted, "others need the place"));
        }
        let is_stopping = self.stop.as_mut().poll(cx).is_ready();
        let deadline = self.guest.course.lock().deadline(&self.guest.crowd.manners, is_stopping)?;
        self.sleep.as_mut().reset(deadline.into());
        self.sleep.as_mut().poll(cx).is_ready().then(|| io::ErrorKind::TimedOut.into())
    }

    fn wrote<U>(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<U>>) -> Poll<io::Result<U>> {
        self.guest.change(|course, now| course.writes(poll.is_pending(), now));
        match poll {
            Poll::Pending => self.overdue(cx).map_or(Poll::Pending, |error| Poll::Ready(Err(error))),
            ready => ready,
        }
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        let crowd = &self.guest.crowd;
        crowd.guests.lock().by_number.remove(&self.guest.number);
        crowd.changed.notify_waiters();
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.guest.course.lock().header_is_too_long(&self.guest.crowd.manners) {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the header is too long")));
        }
        let before = buffer.filled().len();
        match Pin::new(&mut self.io).poll_read(cx, buffer) {
            Poll::Pending => self.overdue(cx).map_or(Poll::Pending, |error| Poll::Ready(Err(error))),
            ready => {
                let bytes = buffer.filled().len() - before;
                if bytes > 0 {
                    self.guest.change(|course, now| course.heard(bytes, now));
                }
                ready
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.wrote(cx, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.wrote(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// What a request knows of its connection.
#[derive(Clone)]
pub(crate) struct Visit {
    guest: Arc<Guest>,
    origin: Origin,
}

impl<L: Listener<Io: FromSomewhere>> Connected<IncomingStream<'_, Guests<L>>> for Visit {
    fn connect_info(stream: IncomingStream<'_, Guests<L>>) -> Visit {
        let Watched { io, guest, .. } = stream.io();
        Visit { guest: Arc::clone(guest), origin: io.origin() }
    }
}

/// Tells the connection of each request that it is being answered, what is waited for, and when that is over; and the request
/// where it comes from.
pub(crate) async fn attend(mut request: Request, next: Next) -> Response {
    let visit = request.extensions_mut().remove::<ConnectInfo<Visit>>();
    let Some(ConnectInfo(Visit { guest, origin })) = visit else { return next.run(request).await };
    request.extensions_mut().insert(origin);
    guest.change(|course, _| course.request_begins());
    let request = request.map(|body| Body::new(Awaited { body, guest: Arc::clone(&guest) }));
    let response = next.run(request).await;
    response.map(|body| Body::new(Answer { body, guest }))
}

/// A request's body.
struct Awaited {
    body: Body,
    guest: Arc<Guest>,
}

impl HttpBody for Awaited {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let poll = Pin::new(&mut self.body).poll_frame(cx);
        self.guest.change(|course, now| course.body_awaited(poll.is_pending(), now));
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.guest.change(|course, now| course.body_ends(now));
    }
}

/// The body of an answer; dropped when it has been handed to the socket, or the client is gone.
struct Answer {
    body: Body,
    guest: Arc<Guest>,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.guest.change(|course, now| course.request_ends(now));
    }
}
