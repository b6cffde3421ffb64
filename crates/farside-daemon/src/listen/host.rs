//! By which names a daemon may be called. A page elsewhere can have its own name resolve to this address, and ask as if it were ours: the
//! name in `Host` tells it. Pure.

use std::net::{IpAddr, Ipv6Addr};

/// Whether what a client calls this daemon by (`Host`, with or without a port) is one of its names. An address always is: whoever asks for
/// it has not been led here by a name.
pub(crate) fn is_called(called: &str, host_name: &str, names: &[String]) -> bool {
    let name = without_port(called);
    let is_address = name.parse::<IpAddr>().is_ok()
        || name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .is_some_and(|name| name.parse::<Ipv6Addr>().is_ok());
    let mut own = ["localhost", host_name].into_iter().chain(names.iter().map(String::as_str));
    is_address || own.any(|own| own.eq_ignore_ascii_case(name))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_their_port() {
        for (host, name) in [
            ("farside", "farside"),
            ("farside:7443", "farside"),
            ("127.0.0.1:1", "127.0.0.1"),
            ("[::1]:7443", "[::1]"),
            ("[::1]", "[::1]"),
            ("", ""),
        ] {
            assert_eq!(without_port(host), name, "{host}");
        }
    }

    #[test]
    fn addresses_and_own_names_are_right_and_those_of_others_are_not() {
        let names = ["storage.example".to_owned()];
        let is_ours = |called: &str| is_called(called, "north-2", &names);
        for own in ["10.0.0.2:7443", "[fd00::2]:7443", "localhost", "North-2:7443", "storage.example:7443"] {
            assert!(is_ours(own), "{own}");
        }
        for other in
            ["", "evil.example", "evil.example:7443", "north-2.evil.example", "storage.example.", "[x]"]
        {
            assert!(!is_ours(other), "{other}");
        }
    }
}
