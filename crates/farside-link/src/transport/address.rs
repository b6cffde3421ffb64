//! Addresses as they are written: `HOST:PORT`, IPv6 in brackets.

/// `HOST:PORT` split; the host without brackets.
pub fn split_address(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() { None } else { Some((host, port.parse().ok()?)) }
}

/// The host of `address` with another port.
pub fn with_port(address: &str, port: u16) -> Option<String> {
    let (host, _) = split_address(address)?;
    Some(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_split_and_join() {
        assert_eq!(split_address("site-a:7440"), Some(("site-a", 7440)));
        assert_eq!(split_address("[::1]:7440"), Some(("::1", 7440)));
        assert_eq!(split_address("site-a"), None);
        assert_eq!(split_address(":7440"), None);
        assert_eq!(split_address("a:70000"), None);
        assert_eq!(with_port("[::1]:50123", 7440).as_deref(), Some("[::1]:7440"));
        assert_eq!(with_port("10.0.0.1:50123", 7440).as_deref(), Some("10.0.0.1:7440"));
    }
}
