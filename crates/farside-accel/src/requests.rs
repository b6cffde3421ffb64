//! Requests on the socket between `farsided` and the accelerator's process, and the descriptors that come with them.
//!
//! A descriptor is handed over with the first byte of its request's line. Who may open a file opens it, or has somebody open it
//! for him; this process opens none.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use zeroize::{Zeroize, Zeroizing};

use crate::control::{Command, LINE_MAX, Line, Request};
use crate::policy::{Policy, WrittenPolicy};

/// Read at once, bytes.
const READ_AT_ONCE: usize = 64 << 10;
/// Descriptors that are waiting for their request: no more than one comes with each.
const DESCRIPTORS_MAX: usize = 64;

/// Reads requests. What it has read is wiped: the site's key is in the first.
pub(crate) struct RequestReader {
    from: OwnedReadHalf,
    /// What came after the last line. Never grows where it is: nothing of it stays behind in memory that is given back.
    buffer: Zeroizing<Vec<u8>>,
    descriptors: VecDeque<OwnedFd>,
}

/// A request, and the descriptor that came with it.
pub(crate) struct Received {
    pub(crate) request: Request,
    pub(crate) descriptor: Option<OwnedFd>,
}

impl RequestReader {
    pub(crate) fn new(from: OwnedReadHalf) -> RequestReader {
        RequestReader { from, buffer: Zeroizing::new(Vec::new()), descriptors: VecDeque::new() }
    }

    /// The next request; none at the end.
    ///
    /// # Errors
    /// A sentence that holds nothing of what was read.
    pub(crate) async fn next(&mut self) -> Result<Option<Received>, String> {
        let mut searched = 0;
        let end = loop {
            if let Some(at) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                break searched + at;
            }
            searched = self.buffer.len();
            if searched > LINE_MAX {
                return Err("farsided says more than a line may have".to_owned());
            }
            let read = self.read().await.map_err(|error| format!("farsided cannot be heard: {error}"))?;
            if read == 0 {
                return Ok(None);
            }
        };
        let request = serde_json::from_slice::<Request>(&self.buffer[..end]);
        let rest = Zeroizing::new(self.buffer[end + 1..].to_vec());
        self.buffer = rest;
        // The text of the error may hold what was read, and so the key.
        let request = request
            .map_err(|_| "farsided says what is not understood; are both of the same release?".to_owned())?;
        let descriptor = if request.command.has_descriptor() { self.descriptors.pop_front() } else { None };
        Ok(Some(Received { request, descriptor }))
    }

    async fn read(&mut self) -> io::Result<usize> {
        let mut bytes = Zeroizing::new([0; READ_AT_ONCE]);
        let socket: &UnixStream = self.from.as_ref();
        let read = loop {
            socket.readable().await?;
            match socket.try_io(Interest::READABLE, || receive(socket, &mut bytes[..], &mut self.descriptors))
            {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => break read?,
            }
        };
        if self.descriptors.len() > DESCRIPTORS_MAX {
            return Err(io::Error::other("more descriptors than requests"));
        }
        let wanted = self.buffer.len() + read;
        if wanted > self.buffer.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity(wanted.next_power_of_two()));
            larger.extend_from_slice(&self.buffer);
            self.buffer = larger;
        }
        self.buffer.extend_from_slice(&bytes[..read]);
        Ok(read)
    }
}

fn receive(socket: &UnixStream, bytes: &mut [u8], into: &mut VecDeque<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket.as_fd(), &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            into.extend(descriptors);
        }
    }
    Ok(received.bytes)
}

/// Writes a request's line, and hands over a descriptor with it.
///
/// # Errors
/// The other end is gone.
pub async fn write_request(
    to: &mut OwnedWriteHalf,
    mut line: Zeroizing<Vec<u8>>,
    descriptor: Option<OwnedFd>,
) -> io::Result<()> {
    let mut sent = 0;
    if let (Some(descriptor), false) = (descriptor, line.is_empty()) {
        let socket: &UnixStream = to.as_ref();
        sent = loop {
            socket.writable().await?;
            match socket.try_io(Interest::WRITABLE, || send(socket, &line[..1], &descriptor)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => break sent?,
            }
        };
    }
    let written = to.write_all(&line[sent..]).await;
    line.zeroize();
    written
}

fn send(socket: &UnixStream, bytes: &[u8], descriptor: &OwnedFd) -> io::Result<usize> {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    Ok(sendmsg(socket.as_fd(), &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// For the fuzzer: whatever either side of the socket says, it is understood, or refused.
pub fn fuzz_control(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        let _ = serde_json::from_slice::<Line>(line);
        let Ok(request) = serde_json::from_slice::<Request>(line) else { continue };
        let policies = match &request.command {
            Command::Start(settings) => &settings.policies,
            Command::Policies { policies, .. } => policies,
            _ => continue,
        };
        for written in policies {
            // As it is told again: the same.
            let Ok(policy) = Policy::try_from(written) else { continue };
            assert_eq!(Policy::try_from(&WrittenPolicy::from(&policy)), Ok(policy));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[tokio::test]
    async fn a_descriptor_comes_with_its_request_and_with_no_other() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (_keep, mut to) = ours.into_split();
        let (from, _keep_too) = theirs.into_split();
        let mut reader = RequestReader::new(from);
        let (mut kept, given) = std::os::unix::net::UnixStream::pair().unwrap();
        let line = |id, command| {
            let mut line = serde_json::to_vec(&Request { id, command }).unwrap();
            line.push(b'\n');
            Zeroizing::new(line)
        };
        let preposition = || Command::Preposition { id: 7, peer: "south".to_owned() };
        write_request(&mut to, line(1, Command::Connections), None).await.unwrap();
        write_request(&mut to, line(2, preposition()), Some(given.into())).await.unwrap();
        write_request(&mut to, line(3, preposition()), None).await.unwrap();
        let first = reader.next().await.unwrap().unwrap();
        assert!(first.request.id == 1 && first.descriptor.is_none());
        let second = reader.next().await.unwrap().unwrap();
        let mut got = std::os::unix::net::UnixStream::from(second.descriptor.unwrap());
        got.write_all(b"through it").unwrap();
        drop(got);
        let mut text = String::new();
        kept.read_to_string(&mut text).unwrap();
        assert_eq!((second.request.id, text.as_str()), (2, "through it"));
        assert!(reader.next().await.unwrap().unwrap().descriptor.is_none());
        to.write_all(b"{\"secret\n").await.unwrap();
        let error = reader.next().await.err().unwrap();
        assert!(!error.contains("secret"), "{error}");
        drop(to);
        assert!(reader.next().await.unwrap().is_none());
    }
}
