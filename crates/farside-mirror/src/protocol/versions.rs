//! Which version carries what. Pure.
//!
//! A destination asks in its own version. A source that does not speak it says so (code `version`), and the
//! destination asks again in the oldest version that carries the same question, if there is one. A source answers every
//! version from [`PROTOCOL_VERSION_OLDEST`] to its own, as that version says.

use super::messages::{Begin, Body, Request};
use super::{PROTOCOL_VERSION, PROTOCOL_VERSION_OLDEST};

/// Number of [`Begin::kind`](Begin) up to which version 1 knows them.
const KIND_OF_VERSION_1_MAX: u32 = 2;

/// The oldest version in which `body` means what it says.
pub fn oldest_that_carries(body: &Body) -> u32 {
    match body {
        Body::Begin(begin) if begin.kind > KIND_OF_VERSION_1_MAX => 2,
        Body::Describe(_) | Body::Begin(_) | Body::Acknowledge(_) | Body::End(_) | Body::Release(_) => 1,
        Body::Compare(_) | Body::Overtaken(_) | Body::Swap(_) => 2,
    }
}

/// `body` as a side of version `version` writes it: what that version does not know is left out.
pub fn without_what_is_newer(body: Body, version: u32) -> Body {
    match body {
        Body::Begin(begin) if version < 2 => Body::Begin(Begin { staged: None, turn: 0, ..begin }),
        other => other,
    }
}

/// What a request asks, if this side may answer it; otherwise why not, with both versions named.
pub fn check_request(request: Request) -> Result<Body, String> {
    check_version(request.version)?;
    let Some(body) = request.body else {
        return Err("a request of a kind this site does not know; upgrade it".into());
    };
    let oldest = oldest_that_carries(&body);
    if request.version < oldest {
        return Err(format!(
            "this call needs mirror protocol version {oldest} at both sites: the source speaks {PROTOCOL_VERSION}, the \
             destination {}",
            request.version
        ));
    }
    Ok(without_what_is_newer(body, request.version))
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

    use super::super::messages::{Describe, HalfBrought, Swap};
    use super::*;

    fn request(version: u32, body: Body) -> Request {
        Request { version, body: Some(body) }
    }

    #[test]
    fn what_a_version_does_not_know_is_neither_asked_nor_answered_in_it() {
        let describe = Body::Describe(Describe::default());
        assert!(check_request(request(1, describe.clone())).is_ok());
        assert!(check_request(request(2, describe.clone())).is_ok());
        for version in [0, 3, u32::MAX] {
            let refused = check_request(request(version, describe.clone())).unwrap_err();
            assert!(refused.contains("speaks 2") && refused.contains(&version.to_string()), "{refused}");
        }
        let resync = Body::Begin(Begin { kind: 3, ..Begin::default() });
        for body in [resync, Body::Swap(Swap::default())] {
            assert!(check_request(request(2, body.clone())).is_ok());
            let refused = check_request(request(1, body)).unwrap_err();
            assert!(refused.contains("speaks 2") && refused.contains("destination 1"), "{refused}");
        }
        assert!(check_request(Request { version: 2, body: None }).unwrap_err().contains("upgrade"));
    }

    #[test]
    fn a_question_in_the_older_version_leaves_out_what_is_newer() {
        let begin = Begin { kind: 2, staged: Some(HalfBrought::default()), turn: 7, ..Begin::default() };
        let older = without_what_is_newer(Body::Begin(begin.clone()), 1);
        assert_eq!(older, Body::Begin(Begin { staged: None, turn: 0, ..begin.clone() }));
        assert_eq!(without_what_is_newer(Body::Begin(begin.clone()), 2), Body::Begin(begin));
    }

    /// What version 1 wrote, byte for byte.
    const BEGIN_OF_VERSION_1: &[u8] = &[
        0x08, 0x01, 0x1a, 0x59, 0x0a, 0x10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0x12, 0x10, 2, 2,
        2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0x1a, 0x03, b'p', b'/', b'v', 0x22, 0x03, b'q', b'/', b'r',
        0x28, 0x02, 0x32, 0x27, 0x0a, 0x10, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 0x12, 0x10, 4, 4,
        4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 0x18, 0x80, 0x20,
    ];

    #[test]
    fn a_request_of_version_1_is_read_as_it_was_meant() {
        let body = check_request(Request::decode(BEGIN_OF_VERSION_1).unwrap()).unwrap();
        let Body::Begin(begin) = &body else { panic!("{body:?}") };
        assert_eq!((begin.relationship[0], begin.transfer[0]), (1, 2));
        assert_eq!((begin.volume.as_str(), begin.destination.as_str(), begin.kind), ("p/v", "q/r", 2));
        assert_eq!((begin.candidates[0].uuid[0], begin.candidates[0].size_bytes), (3, 4096));
        assert_eq!(begin.staged, None);
        // And this side still writes it so.
        let again = Request { version: 1, body: Some(without_what_is_newer(body, 1)) };
        assert_eq!(again.encode_to_vec(), BEGIN_OF_VERSION_1);
    }
}
