//! What the kernel tells of a TCP connection (`TCP_INFO`), and the options that no library has by name.
//!
//! `socket2` and `rustix` do not read TCP_INFO, and the `tcp_info` of `libc` has no name for the byte with *application limited*.
//! `nix` lets its users declare socket options of their own: its macros make the calls.
//!
//! The structure has grown at its end with the kernel, and a kernel gives as much of it as it is asked for, or as it has.
//! What is asked for here is what Linux 4.19 has; one older than 5.0 (2019) is not asked ([`is_known_here`]).

// What the macros declare is public, so what it speaks of must be; outside this crate none of it is seen.
#![allow(unreachable_pub)]

use std::sync::OnceLock;

use nix::libc;
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};

/// The beginning of the kernel's `struct tcp_info`, up to what Linux 4.19 has. Times are in microseconds where nothing else is
/// said; its names and order are the kernel's.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpInfo {
    state: u8,
    ca_state: u8,
    /// Time-outs in a row, since something was acknowledged.
    pub(super) retransmits: u8,
    probes: u8,
    backoff: u8,
    options: u8,
    window_scales: u8,
    /// Lowest bit: the delivery rate was of a time with too little to send.
    rate_flags: u8,
    rto: u32,
    ato: u32,
    pub(super) snd_mss: u32,
    rcv_mss: u32,
    pub(super) unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pub(super) pmtu: u32,
    rcv_ssthresh: u32,
    pub(super) rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    /// In segments.
    pub(super) snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    /// Bytes per second; all ones: not paced.
    pub(super) pacing_rate: u64,
    max_pacing_rate: u64,
    pub(super) bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    pub(super) notsent_bytes: u32,
    /// All ones: not measured.
    pub(super) min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    /// Bytes per second; 0: not measured.
    pub(super) delivery_rate: u64,
    pub(super) busy_time: u64,
    pub(super) rwnd_limited: u64,
    pub(super) sndbuf_limited: u64,
    /// In segments.
    pub(super) delivered: u32,
    delivered_ce: u32,
    /// Repeated ones included.
    pub(super) bytes_sent: u64,
    pub(super) bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,
}

impl TcpInfo {
    pub(super) fn is_app_limited(&self) -> bool {
        self.rate_flags & 1 != 0
    }
}

sockopt_impl!(
    /// Reads [`TcpInfo`].
    ReadTcpInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    TcpInfo
);

sockopt_impl!(
    /// The most that the connection sends, bytes per second; all ones: no limit.
    MaxPacingRate,
    Both,
    libc::SOL_SOCKET,
    libc::SO_MAX_PACING_RATE,
    u64
);

/// Linux 5.0 or later runs here: before that a pacing rate had 32 bits, as it has on machines of 32 bits. `nix` takes a shorter
/// answer than was asked for as a defect and panics.
pub(super) fn is_known_here() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
        release.is_ok_and(|release| version(&release).is_some_and(|version| version >= (5, 0)))
            && cfg!(target_pointer_width = "64")
    })
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lies_where_the_kernel_has_it() {
        assert_eq!(size_of::<TcpInfo>(), 224);
        assert_eq!(std::mem::offset_of!(TcpInfo, rtt), std::mem::offset_of!(libc::tcp_info, tcpi_rtt));
        assert_eq!(
            std::mem::offset_of!(TcpInfo, delivery_rate),
            std::mem::offset_of!(libc::tcp_info, tcpi_delivery_rate)
        );
        assert_eq!(
            std::mem::offset_of!(TcpInfo, reord_seen),
            std::mem::offset_of!(libc::tcp_info, tcpi_reord_seen)
        );
    }

    #[test]
    fn reads_the_kernels_version() {
        assert_eq!(version("6.18.44\n"), Some((6, 18)));
        assert_eq!(version("4.19-rc1"), Some((4, 19)));
        assert_eq!(version("5.10.0-28-amd64"), Some((5, 10)));
        assert_eq!(version("unknown"), None);
    }
}
