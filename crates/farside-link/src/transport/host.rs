//! What this host lets a TCP connection have, and what its administrator could change. Reading is one function; what is to be said
//! about it is pure.

use std::path::Path;

use super::options::Congestion;

/// Settings of the host that bound every connection. What could not be read is empty, and nothing is said about it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostTcp {
    /// Names of the congestion controls that a program without rights may ask for.
    pub allowed: Vec<String>,
    /// Names of those that are loaded.
    pub available: Vec<String>,
    /// Name of the one that a connection has which asks for none.
    pub default: Option<String>,
    /// A connection that paused begins anew with ten segments. Congestion controls that pace themselves (BBR) do not heed it.
    pub slow_start_after_idle: Option<bool>,
    /// The most that the kernel grows a send buffer to, bytes.
    pub send_buffer_max: Option<u64>,
    /// The same for receiving.
    pub receive_buffer_max: Option<u64>,
    /// Whether packets that are too large for the path, and of which no router tells, are found out: 0 never, 1 after a loss, 2
    /// always.
    pub mtu_probing: Option<u64>,
}

/// The least that either buffer should be allowed to grow to: three times OC-3 at 100 ms, and it costs nothing until it is used.
const BUFFER_WANTED: u64 = 16 * 1024 * 1024;

impl HostTcp {
    /// Reads `/proc/sys/net`.
    pub fn read() -> HostTcp {
        HostTcp::read_below(Path::new("/proc/sys/net/ipv4"))
    }

    fn read_below(directory: &Path) -> HostTcp {
        let words = |name: &str| -> Vec<String> {
            let text = std::fs::read_to_string(directory.join(name)).unwrap_or_default();
            text.split_ascii_whitespace().map(str::to_owned).collect()
        };
        let number = |name: &str, at: usize| words(name).get(at)?.parse().ok();
        HostTcp {
            allowed: words("tcp_allowed_congestion_control"),
            available: words("tcp_available_congestion_control"),
            default: words("tcp_congestion_control").into_iter().next(),
            slow_start_after_idle: number("tcp_slow_start_after_idle", 0).map(|set: u64| set != 0),
            send_buffer_max: number("tcp_wmem", 2),
            receive_buffer_max: number("tcp_rmem", 2),
            mtu_probing: number("tcp_mtu_probing", 0),
        }
    }

    /// What makes connections that ask for `asked` slower than they need to be on a long or lossy link: for each a sentence with
    /// what to do about it. Empty where there is nothing to do.
    pub fn advice(&self, asked: &Congestion) -> Vec<String> {
        let mut said = Vec::new();
        let default = self.default.as_deref().unwrap_or("the host's own");
        let mut granted = default;
        if let Congestion::Named(name) = asked {
            let is_allowed = |name: &str| self.allowed.iter().any(|allowed| allowed == name);
            if default == name || is_allowed(name) {
                granted = name;
            } else if self.available.iter().any(|available| available == name) {
                said.push(format!(
                    "this host uses {default} instead of {name} for farside's connections, unless farsided has \
                     CAP_NET_ADMIN. To allow {name}: sysctl net.ipv4.tcp_allowed_congestion_control='{} {name}'",
                    self.allowed.join(" ")
                ));
            } else if !self.available.is_empty() {
                said.push(format!(
                    "this host uses {default} instead of {name}, because {name} is not loaded: modprobe tcp_{name}. \
                     Until then farside uses more connections for a stream and loses rate with each lost packet"
                ));
            }
        }
        if self.slow_start_after_idle == Some(true) && !granted.starts_with("bbr") {
            said.push(format!(
                "a connection with {granted} falls back to slow start after each pause. To let it keep its rate: \
                 sysctl net.ipv4.tcp_slow_start_after_idle=0"
            ));
        }
        for (name, direction, most) in
            [("wmem", "send", self.send_buffer_max), ("rmem", "receive", self.receive_buffer_max)]
        {
            if let Some(most) = most.filter(|most| *most < BUFFER_WANTED) {
                said.push(format!(
                    "{direction} buffers are limited to {most} bytes (about {} MB/s per connection at 100 ms). To \
                     raise the limit: sysctl net.ipv4.tcp_{name}='4096 131072 {BUFFER_WANTED}'",
                    // A buffer holds about half its size in data, and a round trip is a tenth of a second.
                    most / 2 * 10 / 1_000_000
                ));
            }
        }
        if self.mtu_probing == Some(0) {
            said.push(
                "a path that silently drops large packets would stall transfers. To let the kernel find the size \
                 that passes: sysctl net.ipv4.tcp_mtu_probing=1"
                    .to_owned(),
            );
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(allowed: &str, available: &str, default: &str) -> HostTcp {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        HostTcp {
            allowed: words(allowed),
            available: words(available),
            default: Some(default.to_owned()),
            slow_start_after_idle: Some(true),
            send_buffer_max: Some(BUFFER_WANTED),
            receive_buffer_max: Some(BUFFER_WANTED),
            mtu_probing: Some(1),
        }
    }

    fn advice(host: &HostTcp) -> Vec<String> {
        host.advice(&Congestion::bbr())
    }

    #[test]
    fn where_bbr_is_granted_nothing_is_to_be_done() {
        assert_eq!(advice(&host("reno bbr", "reno cubic bbr", "cubic")), Vec::<String>::new());
        assert_eq!(advice(&host("reno", "reno bbr", "bbr")), Vec::<String>::new());
        assert_eq!(advice(&HostTcp::default()), Vec::<String>::new());
    }

    #[test]
    fn what_is_refused_missing_or_small_is_said_with_what_to_do() {
        let said = advice(&host("reno cubic", "reno cubic bbr", "cubic"));
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("tcp_allowed_congestion_control='reno cubic bbr'"), "{said:?}");
        assert!(said[1].contains("tcp_slow_start_after_idle=0"), "{said:?}");
        assert!(advice(&host("reno cubic", "reno cubic", "cubic"))[0].contains("modprobe tcp_bbr"));
        let small = HostTcp {
            send_buffer_max: Some(4 << 20),
            mtu_probing: Some(0),
            ..host("reno bbr", "reno bbr", "cubic")
        };
        let said = advice(&small);
        assert!(
            said[0].starts_with("send buffers are limited to 4194304 bytes (about 20 MB/s per connection"),
            "{said:?}"
        );
        assert!(said[1].contains("tcp_mtu_probing=1"), "{said:?}");
        // Who leaves it to the host is told of the host's own only.
        assert!(host("reno", "reno", "cubic").advice(&Congestion::Host)[0].contains("slow start"));
    }

    #[test]
    fn reads_what_the_kernel_writes_and_does_without_the_rest() {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("tcp_wmem", "4096\t16384\t4194304\n"),
            ("tcp_slow_start_after_idle", "0\n"),
            ("tcp_allowed_congestion_control", "reno bbr\n"),
            ("tcp_mtu_probing", "nonsense\n"),
        ] {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let host = HostTcp::read_below(directory.path());
        assert_eq!((host.send_buffer_max, host.receive_buffer_max), (Some(4_194_304), None));
        assert_eq!((host.slow_start_after_idle, host.mtu_probing), (Some(false), None));
        assert_eq!(host.allowed, ["reno", "bbr"]);
    }
}
