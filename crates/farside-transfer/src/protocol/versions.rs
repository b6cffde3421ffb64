//! Which versions are spoken. Pure.
//!
//! A destination asks in its own version. A source answers those from [`PROTOCOL_VERSION_OLDEST`] to its own, and refuses
//! any other (code `version`), naming both. Today that is one version; one that comes after it may keep this one: a
//! destination that is refused is told which version the source speaks, and can ask again in that.

use super::messages::{Body, Request};

/// Version of the calls and streams of this module.
pub const PROTOCOL_VERSION: u32 = 6;
/// The oldest version that is still spoken.
pub const PROTOCOL_VERSION_OLDEST: u32 = 6;

/// What a request asks, if this side may answer it; otherwise why not, with both versions named.
pub fn check_request(request: Request) -> Result<Body, String> {
    check_version(request.version)?;
    request
        .body
        .ok_or_else(|| "the source does not know this kind of request; upgrade farside at the source".into())
}

/// Whether this side speaks `version`; otherwise why not.
pub(crate) fn check_version(version: u32) -> Result<(), String> {
    if (PROTOCOL_VERSION_OLDEST..=PROTOCOL_VERSION).contains(&version) {
        return Ok(());
    }
    Err(format!(
        "mirror protocol versions differ: the source speaks {PROTOCOL_VERSION}, the destination {version}"
    ))
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::super::messages::Describe;
    use super::*;

    #[test]
    fn another_version_is_refused_with_both_named() {
        let describe = Some(Body::Describe(Describe::default()));
        assert!(check_request(Request { version: 6, body: describe.clone() }).is_ok());
        for version in [0, 1, 2, 3, 4, 5, 7, u32::MAX] {
            let refused = check_request(Request { version, body: describe.clone() }).unwrap_err();
            assert!(refused.contains("source speaks 6"), "{refused}");
            assert!(refused.contains(&format!("destination {version}")), "{refused}");
        }
        assert!(check_request(Request { version: 6, body: None }).unwrap_err().contains("upgrade"));
    }

    /// What version 2 wrote, byte for byte: *begin* of an update of p/v to q/r with one candidate.
    const BEGIN_OF_VERSION_2: &[u8] = &[
        0x08, 0x02, 0x1a, 0x5b, 0x0a, 0x10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0x12, 0x10, 2, 2,
        2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0x1a, 0x03, b'p', b'/', b'v', 0x22, 0x03, b'q', b'/', b'r',
        0x28, 0x02, 0x32, 0x27, 0x0a, 0x10, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 0x12, 0x10, 4, 4,
        4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 0x18, 0x80, 0x20, 0x40, 0x07,
    ];

    #[test]
    fn a_request_of_version_2_is_read_and_refused() {
        let request = Request::decode(BEGIN_OF_VERSION_2).unwrap();
        let Some(Body::Begin(begin)) = &request.body else { panic!("{request:?}") };
        assert_eq!((begin.volume.as_str(), begin.kind, begin.role_change), ("p/v", 2, 7));
        let refused = check_request(request).unwrap_err();
        assert!(refused.contains("source speaks 6, the destination 2"), "{refused}");
    }
}
