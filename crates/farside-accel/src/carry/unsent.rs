//! What the other end of a socket has not acknowledged (`TCP_INFO`).

// What the macro declares is public, so what it speaks of must be; outside this crate none of it is seen.
#![allow(unreachable_pub)]

use nix::libc;
use nix::{getsockopt_impl, sockopt_impl};
use tokio::net::TcpStream;

/// The beginning of the kernel's `struct tcp_info`, as numbers of 32 bits; up to what Linux 4.6 has.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Unsent {
    _before: [u32; 6],
    /// Segments on their way.
    unacked: u32,
    _between: [u32; 29],
    /// Bytes that were not sent yet.
    notsent_bytes: u32,
    _after: u32,
}

sockopt_impl!(
    /// Reads [`Unsent`].
    ReadUnsent,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    Unsent
);

/// Segments on their way, and bytes that wait; none once all has arrived, or nobody is there any more.
pub(super) fn unsent(socket: &TcpStream) -> Option<(u32, u32)> {
    let Unsent { unacked, notsent_bytes, .. } = nix::sys::socket::getsockopt(socket, ReadUnsent).ok()?;
    Some((unacked, notsent_bytes)).filter(|unsent| *unsent != (0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn what_was_not_taken_is_unsent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let from = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut to, _) = listener.accept().await.unwrap();
        assert_eq!(unsent(&from), None);
        let mut written = 0;
        while let Ok(bytes) = from.try_write(&[7; 65_536]) {
            written += bytes;
        }
        assert!(unsent(&from).is_some(), "{written}");
        to.read_exact(&mut vec![0; written]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(unsent(&from), None);
    }
}
