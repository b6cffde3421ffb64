//! When a service can be counted on. Pure: the caller reads the kernel's tables and the file system.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A sign that a script has come so far that others may count on it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ready {
    /// Something at the script's site listens on this TCP port: `tcp:8730`. Seen in the kernel's tables, so that no packet
    /// is spent on it.
    Tcp(u16),
    /// This path exists, below `HERE`: `file:farside.sock`.
    File(PathBuf),
}

impl Ready {
    /// Whether the kernel's table of TCP sockets (`/proc/PID/net/tcp` of a process at the site, or `tcp6`, or both one
    /// after the other) shows a listener on `port`.
    pub fn is_listening(table: &str, port: u16) -> bool {
        // sl  local_address rem_address   st …: addresses as hexadecimal ADDRESS:PORT, state 0A is LISTEN.
        table.lines().any(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let local = fields.next().and_then(|address| address.rsplit_once(':'));
            let state = fields.nth(1);
            state == Some("0A") && local.and_then(|(_, hex)| u16::from_str_radix(hex, 16).ok()) == Some(port)
        })
    }
}

impl FromStr for Ready {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            || format!("{text:?} is no sign of readiness: write \"tcp:PORT\" or \"file:PATH\" (below HERE)");
        match text.split_once(':') {
            Some(("tcp", port)) => {
                port.parse().ok().filter(|port| *port != 0).map(Ready::Tcp).ok_or_else(wrong)
            }
            Some(("file", path)) if !path.is_empty() && !path.starts_with('/') && !path.contains("..") => {
                Ok(Ready::File(path.into()))
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ready::Tcp(port) => write!(f, "tcp:{port}"),
            Ready::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0101120A:221A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   1: 0101120A:C001 0201120A:2328 01 00000000:00000000 00:00000000 00000000     0        0 2
  sl  local_address                         remote_address                        st tx_queue rx_queue
   0: 00000000000000000000000000000000:1F40 00000000000000000000000000000000:0000 0A 00000000:00000000
";

    #[test]
    fn listeners_are_seen_in_both_tables_and_connections_are_none() {
        assert!(Ready::is_listening(TABLE, 8730));
        assert!(Ready::is_listening(TABLE, 8000));
        assert!(!Ready::is_listening(TABLE, 0xC001));
        assert!(!Ready::is_listening(TABLE, 9000), "the far end of a connection listens elsewhere");
    }

    #[test]
    fn signs_are_read_and_others_refused() {
        for text in ["tcp:8730", "file:farside.sock", "file:run/x"] {
            assert_eq!(text.parse::<Ready>().expect(text).to_string(), text);
        }
        for text in ["tcp:", "tcp:0", "tcp:70000", "8730", "file:/etc/passwd", "file:../x", "file:", "udp:1"]
        {
            let error = text.parse::<Ready>().expect_err(text);
            assert!(error.contains("tcp:PORT"), "{error}");
        }
    }
}
