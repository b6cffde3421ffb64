//! A conversation with the kernel over netlink: messages, and what it says to each.
//!
//! The kernel works on a message while it is sent. When `send` returns, every answer lies in the socket: nothing here waits.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NLMSG_ALIGNTO, NetlinkBuffer, NetlinkDeserializable, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};

/// Longest datagram that is expected: an acknowledgement has 36 bytes, a description of a table about 100.
const ANSWER_MAX: usize = 8192;

/// A socket and the number of its next message.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// What the kernel said.
#[derive(Debug)]
pub(super) struct Answers<M> {
    /// The first message that it refused, counted from 0, and why.
    pub(super) refusal: Option<(usize, io::Error)>,
    /// How many it did.
    pub(super) done: usize,
    /// What it told.
    pub(super) told: Vec<M>,
}

impl Netlink {
    /// A socket of this protocol, in the network namespace of this thread. It stays there, wherever the thread goes.
    pub(super) fn open(protocol: isize) -> io::Result<Netlink> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        // Answers without the message that they answer: twenty of them fit into the socket anywhere.
        socket.set_cap_ack(true)?;
        Ok(Netlink { socket, sequence: 1 })
    }

    /// Sends messages as one, each with its flags beside NLM_F_REQUEST, and gathers the answers.
    pub(super) fn exchange<M>(&mut self, messages: Vec<(u16, M)>) -> io::Result<Answers<M>>
    where
        M: NetlinkSerializable + NetlinkDeserializable,
    {
        let first = self.sequence;
        let mut bytes = Vec::new();
        for (flags, message) in messages {
            bytes.extend(encode(NLM_F_REQUEST | flags, self.sequence, message));
            self.sequence = self.sequence.wrapping_add(1);
        }
        self.socket.send_to(&bytes, &kernel(), 0)?;
        self.answers(first)
    }

    /// One request that is acknowledged.
    pub(super) fn request<M>(&mut self, flags: u16, message: M) -> io::Result<()>
    where
        M: NetlinkSerializable + NetlinkDeserializable,
    {
        let answers = self.exchange(vec![(NLM_F_ACK | flags, message)])?;
        match answers.refusal {
            Some((_, error)) => Err(error),
            None if answers.done == 1 => Ok(()),
            None => Err(io::Error::other("the kernel did not acknowledge a netlink message")),
        }
    }

    fn answers<M: NetlinkDeserializable>(&self, first: u32) -> io::Result<Answers<M>> {
        let mut answers = Answers { refusal: None, done: 0, told: Vec::new() };
        let mut datagram = Vec::with_capacity(ANSWER_MAX);
        loop {
            datagram.clear();
            match self.socket.recv(&mut datagram, nix::libc::MSG_DONTWAIT) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(answers),
                Err(error) => return Err(error),
            }
            for message in messages_in(&datagram) {
                let message = NetlinkMessage::<M>::deserialize(message).map_err(io::Error::other)?;
                let index = message.header.sequence_number.wrapping_sub(first) as usize;
                match message.payload {
                    NetlinkPayload::Error(error) if error.code.is_none() => answers.done += 1,
                    NetlinkPayload::Error(error) if answers.refusal.is_none() => {
                        answers.refusal = Some((index, error.to_io()));
                    }
                    NetlinkPayload::InnerMessage(told) => answers.told.push(told),
                    _ => {}
                }
            }
        }
    }
}

/// The kernel's own address.
pub(super) fn kernel() -> SocketAddr {
    SocketAddr::new(0, 0)
}

/// A message's bytes.
pub(super) fn encode<M: NetlinkSerializable>(flags: u16, sequence: u32, message: M) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// The messages of a datagram, each from its header on; what is cut off at its end is left out.
pub(super) fn messages_in(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = NetlinkBuffer::new_checked(rest).ok()?.length() as usize;
        let message = rest.get(..length)?;
        let next = length.next_multiple_of(usize::from(NLMSG_ALIGNTO));
        rest = rest.get(next..).unwrap_or_default();
        Some(message)
    })
}
