//! The queue in which SYNs and probes wait for a verdict (NFQUEUE), read and answered over netlink.
//!
//! The crate `nfq` does not do: it shows no descriptor, so that no runtime can wait for it; and what arrives while it is being set up
//! is thrown away there and waits for ever. Numbers are those of the kernel's `linux/netfilter/nfnetlink_queue.h`.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use netlink_packet_core::{
    DefaultNla, ErrorBuffer, NLA_HEADER_SIZE, NLM_F_ACK, NLM_F_REQUEST, NLMSG_ERROR, NetlinkBuffer,
    NlasIterator,
};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily, NetfilterSubsystem,
};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{AsyncSocket, Socket, TokioSocket};
use nix::libc::{EINTR, ENOBUFS, ENOENT, EPERM};
use nix::sys::socket::{setsockopt, sockopt};

use super::error::{KernelError, has_net_admin};
use super::netlink::{encode, kernel, messages_in};
use crate::packet::{self, LOOK_AT, Packet};
use crate::rules::{REFUSED, TAKEN};

/// Most packets that are held at once. Two seconds of a hang hold so many at 4,000 new connections a second; they cost the kernel
/// some 16 MB. What comes then goes its plain way.
pub const QUEUE_LENGTH: u32 = 8192;
/// Room for packets that are not read yet, bytes: a SYN takes about 1.3 kB there, and the kernel doubles the figure.
const RECEIVE_BUFFER: usize = 8 << 20;
/// Longest datagram: what is looked at, and some 300 bytes about it.
const DATAGRAM_MAX: usize = LOOK_AT + 3 * 1024;

const SUBSYSTEM: u8 = 3;
const PACKET: u8 = 0;
const VERDICT: u8 = 1;
const CONFIG: u8 = 2;

const PACKET_HEADER: u16 = 1;
const VERDICT_HEADER: u16 = 2;
const MARK: u16 = 3;
const PAYLOAD: u16 = 10;

const CONFIG_COMMAND: u16 = 1;
const CONFIG_PARAMETERS: u16 = 2;
const CONFIG_LENGTH: u16 = 3;
const CONFIG_MASK: u16 = 4;
const CONFIG_FLAGS: u16 = 5;
const BIND: u8 = 1;
const UNBIND: u8 = 2;
const COPY_PACKET: u8 = 2;
/// What finds the queue or its socket full goes on, instead of being dropped.
const FAIL_OPEN: u32 = 1;

const DROP: u32 = 0;
const ACCEPT: u32 = 1;

/// What becomes of a held packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It goes its plain way.
    Plain,
    /// The transparent listener gets it.
    Take,
    /// Its sender gets a reset, as from the server.
    Refuse,
    /// Nobody gets it.
    Drop,
}

/// Where a held packet came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// It came in.
    Outside,
    /// A program on this box sent it.
    ThisBox,
}

/// A packet that the kernel holds until it is decided about. If this is dropped without a decision, by a panic for example, the
/// packet goes its plain way.
///
/// Some are gone before that: the kernel drops everything held when anybody removes rules of netfilter from the network namespace,
/// or when the interface goes. A decision then does nothing, and the client sends its SYN again.
pub struct Held {
    /// What it is.
    pub packet: Packet,
    /// Where it came from.
    pub origin: Origin,
    id: u32,
    number: u16,
    socket: Arc<TokioSocket>,
    is_decided: bool,
}

impl Held {
    /// Lets it go, from any thread. After an error the packet is not held either, unless the kernel refuses twice.
    pub fn decide(mut self, decision: Decision) -> io::Result<()> {
        self.say(decision)?;
        self.is_decided = true;
        Ok(())
    }

    fn say(&self, decision: Decision) -> io::Result<()> {
        let verdict = if decision == Decision::Drop { DROP } else { ACCEPT };
        let mut attributes =
            vec![attribute(VERDICT_HEADER, [verdict, self.id].map(u32::to_be_bytes).concat())];
        match decision {
            Decision::Take => attributes.push(attribute(MARK, TAKEN.to_be_bytes())),
            Decision::Refuse => attributes.push(attribute(MARK, REFUSED.to_be_bytes())),
            Decision::Plain | Decision::Drop => {}
        }
        send(self.socket.socket_ref(), message(VERDICT, self.number, attributes), 0)
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("packet", &self.packet).field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_decided {
            let _ = self.say(Decision::Plain);
        }
    }
}

/// The queue. While it is open, the rules hold SYNs for it; without it they go their plain way. Dropping it lets go everything that
/// waits in it, plainly, and what [`Held`] is still out is dropped by the kernel: decide about those first.
pub struct SynQueue {
    socket: Arc<TokioSocket>,
    number: u16,
    /// Read, and not handed out.
    waiting: VecDeque<Held>,
    datagram: Vec<u8>,
}

impl SynQueue {
    /// Opens queue `number` in the network namespace of this thread. Must be called inside a tokio runtime. Fails if another
    /// process reads the queue ([`KernelError`] inside).
    pub fn open(number: u16) -> io::Result<SynQueue> {
        const WHAT: &str = "read the queue of held connections";
        let mut socket = TokioSocket::new(NETLINK_NETFILTER).map_err(|error| KernelError::of(WHAT, error))?;
        socket.socket_mut().bind_auto()?;
        // Packets that do not fit go on; that some did not is nothing to be told.
        socket.socket_ref().set_no_enobufs(true)?;
        // Beyond the host's limit; inside a user namespace only up to it.
        setsockopt(socket.socket_ref(), sockopt::RcvBufForce, &RECEIVE_BUFFER)
            .or_else(|_| setsockopt(socket.socket_ref(), sockopt::RcvBuf, &RECEIVE_BUFFER))?;
        let (socket, datagram) = (Arc::new(socket), Vec::with_capacity(DATAGRAM_MAX));
        let mut queue = SynQueue { socket, number, waiting: VecDeque::new(), datagram };
        queue.bind().map_err(|error| match error.raw_os_error() {
            Some(EPERM) if has_net_admin() => KernelError::QueueTaken { number },
            _ => KernelError::of(WHAT, error),
        })?;
        Ok(queue)
    }

    /// The next packet. Nothing is lost if this is cancelled.
    pub async fn recv(&mut self) -> io::Result<Held> {
        loop {
            if let Some(held) = self.waiting.pop_front() {
                return Ok(held);
            }
            self.datagram.clear();
            match poll_fn(|context| self.socket.poll_recv(context, &mut self.datagram)).await {
                Ok(()) => {
                    self.sort()?;
                }
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// As [`Held::decide`].
    pub fn decide(&mut self, held: Held, decision: Decision) -> io::Result<()> {
        held.decide(decision)
    }

    fn bind(&mut self) -> io::Result<()> {
        let range = u32::try_from(LOOK_AT).map_err(io::Error::other)?;
        let mut parameters = range.to_be_bytes().to_vec();
        parameters.push(COPY_PACKET);
        let attributes = vec![
            attribute(CONFIG_COMMAND, [BIND, 0, 0, 0]),
            attribute(CONFIG_PARAMETERS, parameters),
            attribute(CONFIG_LENGTH, QUEUE_LENGTH.to_be_bytes()),
            attribute(CONFIG_MASK, FAIL_OPEN.to_be_bytes()),
            attribute(CONFIG_FLAGS, FAIL_OPEN.to_be_bytes()),
        ];
        send(self.socket.socket_ref(), message(CONFIG, self.number, attributes), NLM_F_ACK)?;
        // The answer lies in the socket, perhaps behind packets.
        loop {
            receive(self.socket.socket_ref(), &mut self.datagram)?;
            if self.sort()? {
                return Ok(());
            }
        }
    }

    /// Takes what was received: packets into `waiting`. Whether an acknowledgement was among it.
    fn sort(&mut self) -> io::Result<bool> {
        let mut is_acknowledged = false;
        for bytes in messages_in(&self.datagram) {
            let Ok(netlink) = NetlinkBuffer::new_checked(bytes) else { continue };
            let body = netlink.payload();
            match netlink.message_type() {
                NLMSG_ERROR => match ErrorBuffer::new_checked(body).ok().and_then(|error| error.code()) {
                    None => is_acknowledged = true,
                    // A verdict on a packet that was gone.
                    Some(code) if code.get() == -ENOENT => {}
                    Some(code) => return Err(io::Error::from_raw_os_error(-code.get())),
                },
                kind if kind == message_type(PACKET) => {
                    if let Some((id, origin, payload)) = packet(body) {
                        self.waiting.push_back(Held {
                            packet: packet::parse(payload),
                            origin,
                            id,
                            number: self.number,
                            socket: Arc::clone(&self.socket),
                            is_decided: false,
                        });
                    }
                }
                _ => {}
            }
        }
        Ok(is_acknowledged)
    }
}

impl fmt::Debug for SynQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.waiting.len();
        f.debug_struct("SynQueue")
            .field("number", &self.number)
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}

impl Drop for SynQueue {
    fn drop(&mut self) {
        // Bounded, though packets may still come.
        for _ in 0..QUEUE_LENGTH {
            if receive(self.socket.socket_ref(), &mut self.datagram).is_err() {
                break;
            }
            let _ = self.sort();
        }
        self.waiting.clear();
        // The socket may live on in a `Held`: the queue must not.
        let unbind = vec![attribute(CONFIG_COMMAND, [UNBIND, 0, 0, 0])];
        let _ = send(self.socket.socket_ref(), message(CONFIG, self.number, unbind), 0);
    }
}

/// Id, origin and bytes of a packet that the kernel hands over.
fn packet(body: &[u8]) -> Option<(u32, Origin, &[u8])> {
    /// `nfgenmsg`: family, version, the queue's number.
    const HEADER: usize = 4;
    /// `NF_INET_LOCAL_OUT`.
    const OUTPUT: u8 = 3;
    let mut header = None;
    let mut payload: &[u8] = &[];
    for attribute in NlasIterator::new(body.get(HEADER..)?) {
        let attribute = attribute.ok()?;
        let (kind, end) = (attribute.kind(), usize::from(attribute.length()));
        let value = attribute.into_inner().get(NLA_HEADER_SIZE..end)?;
        match kind {
            // Its id, the protocol below IP's header, and the hook.
            PACKET_HEADER => header = value.first_chunk::<7>(),
            PAYLOAD => payload = value,
            _ => {}
        }
    }
    let [i0, i1, i2, i3, _, _, hook] = *header?;
    let origin = if hook == OUTPUT { Origin::ThisBox } else { Origin::Outside };
    Some((u32::from_be_bytes([i0, i1, i2, i3]), origin, payload))
}

fn receive(socket: &Socket, datagram: &mut Vec<u8>) -> io::Result<()> {
    datagram.clear();
    socket.recv(datagram, 0).map(drop)
}

/// Errors after which the next packet comes as if nothing had been.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(ENOBUFS | EINTR))
}

fn send(socket: &Socket, message: NetfilterMessage, flags: u16) -> io::Result<()> {
    let bytes = encode(NLM_F_REQUEST | flags, 0, message);
    socket.send_to(&bytes, &kernel(), 0).map(drop)
}

fn message(message_type: u8, number: u16, attributes: Vec<DefaultNla>) -> NetfilterMessage {
    let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, number);
    let subsys = NetfilterSubsystem::Other(SUBSYSTEM);
    NetfilterMessage::new(header, NetfilterMessageInner::Other { subsys, message_type, attributes })
}

fn message_type(kind: u8) -> u16 {
    u16::from_be_bytes([SUBSYSTEM, kind])
}

fn attribute(kind: u16, value: impl Into<Vec<u8>>) -> DefaultNla {
    DefaultNla::new(kind, value.into())
}
