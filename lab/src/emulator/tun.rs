//! A TUN device in a network namespace: the end of a link that hosts see.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::sched::{CloneFlags, setns};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use super::EmulatorError;

/// Packets that the kernel keeps for the emulator. At 1 Gb/s these are 200 ms of full packets: more than a thread of
/// real-time priority is ever kept from running. A packet that finds no room is a device drop.
const TX_QUEUE_PACKETS: u32 = 16_384;

/// Largest text of `/proc/net/dev` that is read: a namespace of the laboratory has a handful of devices.
const STATISTICS_BYTES_MAX: usize = 16 << 10;

/// A TUN device, up, without addresses.
#[derive(Debug)]
pub struct Tun {
    name: String,
    device: Device,
    /// `/proc/net/dev` as the device's namespace shows it: which namespace is fixed when it is opened.
    statistics: File,
}

/// The library's device, which is not [`Debug`].
struct Device(SyncDevice);

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Device")
    }
}

/// Packets that the kernel dropped at a device since it exists.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct DeviceDrops {
    /// Hosts sent them; the emulator never saw them.
    pub(super) from_host: u64,
    /// The emulator gave them out; hosts never saw them.
    pub(super) to_host: u64,
}

impl Tun {
    /// Makes a TUN device `name` in the namespace `netns` (a file such as `/run/netns/a`), or in that of the caller, and
    /// brings it up. IPv6 is off on it: the kernel would send packets of its own through the link. It goes away when this is
    /// dropped.
    ///
    /// # Errors
    /// [`EmulatorError`]: no such namespace, no `/dev/net/tun`, not allowed, name taken.
    pub fn open(netns: Option<&Path>, name: &str, mtu: u32) -> Result<Self, EmulatorError> {
        let netns = netns.map(Path::to_owned);
        let name = name.to_owned();
        // A thread of its own, as a namespace is entered by a thread and this one must stay where it is.
        let opener = std::thread::Builder::new()
            .name("tun-open".to_owned())
            .spawn(move || {
                if let Some(path) = netns {
                    File::open(&path)
                        .and_then(|file| Ok(setns(file, CloneFlags::CLONE_NEWNET)?))
                        .map_err(|source| EmulatorError::Namespace { path, source })?;
                }
                Self::open_here(&name, mtu)
            })
            .map_err(EmulatorError::Thread)?;
        opener.join().unwrap_or_else(|_| {
            Err(EmulatorError::Thread(io::Error::other("it panicked while it opened a device")))
        })
    }

    fn open_here(name: &str, mtu: u32) -> Result<Self, EmulatorError> {
        let failed = |doing| move |source| EmulatorError::Device { name: name.to_owned(), doing, source };
        let mtu =
            u16::try_from(mtu).map_err(|_| failed("set its MTU")(io::ErrorKind::InvalidInput.into()))?;
        let device = DeviceBuilder::new()
            .name(name)
            .layer(Layer::L3)
            .mtu(mtu)
            .tx_queue_len(TX_QUEUE_PACKETS)
            .enable(false)
            .build_sync()
            .map_err(failed("create it (it needs root and /dev/net/tun)"))?;
        device.set_nonblocking(true).map_err(failed("make it non-blocking"))?;
        match std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1") {
            // A kernel without IPv6 has nothing to switch off.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("switch IPv6 off")(error));
            }
            _ => {}
        }
        device.enabled(true).map_err(failed("bring it up"))?;
        let statistics = File::open("/proc/thread-self/net/dev").map_err(failed("open its statistics"))?;
        Ok(Self { name: name.to_owned(), device: Device(device), statistics })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next packet from the hosts.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; any other means that the device is gone.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.device.0.recv(buffer)
    }

    /// Gives a packet to the hosts.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub(super) fn write(&self, packet: &[u8]) -> io::Result<usize> {
        self.device.0.send(packet)
    }

    /// What waits for packets.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.0.as_fd()
    }

    /// What the kernel has dropped at it.
    ///
    /// # Errors
    /// [`EmulatorError::Device`] if the statistics cannot be read.
    pub(super) fn drops(&self) -> Result<DeviceDrops, EmulatorError> {
        let failed =
            |source| EmulatorError::Device { name: self.name.clone(), doing: "read its statistics", source };
        let mut text = vec![0; STATISTICS_BYTES_MAX];
        let mut length = 0;
        loop {
            match self.statistics.read_at(&mut text[length..], length as u64) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let text = String::from_utf8_lossy(&text[..length]);
        parse_drops(&text, &self.name)
            .ok_or_else(|| failed(io::Error::other("the device is not in /proc/net/dev")))
    }
}

/// Drops and errors of device `name` in the text of `/proc/net/dev`. A TUN device *receives* what its user writes.
fn parse_drops(text: &str, name: &str) -> Option<DeviceDrops> {
    let numbers = text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    // Eight of reception (bytes packets errs drop …), then eight of transmission.
    let numbers =
        numbers.split_whitespace().map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>()?;
    Some(DeviceDrops {
        to_host: numbers.get(2)? + numbers.get(3)?,
        from_host: numbers.get(10)? + numbers.get(11)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_read_from_the_kernels_table() {
        let text = "Inter-|   Receive                    |  Transmit\n \
             face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n\
             \x20   lo:       1       2    3    4    5     6          7         8        9      10   11   12   13    14      15         16\n\
             \x20 wan0:     100       2    1    3    0     0          0         0      900      10   20   40    0     0       0          0\n\
             wan01:        7       7    7    7    7     7          7         7        7       7    7    7    7     7       7          7\n";
        let drops = parse_drops(text, "wan0").unwrap();
        assert_eq!((drops.to_host, drops.from_host), (4, 60));
        assert_eq!(parse_drops(text, "wan"), None);
    }
}
