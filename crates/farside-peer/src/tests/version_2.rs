//! What version 2 says, as bytes: bundles, lanes and their openings. A field that is added later must
//! leave all of it as it is.

use std::path::PathBuf;

use bytes::Bytes;
use prost::Message;

use crate::control::{self, Body, MoreLanes, Opening};
use crate::hello::{Role, VERSIONS, parse_hello};
use farside_link::Attach;

/// Bytes as version 2 writes them; never made anew.
fn frozen(name: &str) -> Bytes {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus/version-2").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).into()
}

/// What is read, and that it is written so, too.
fn opening(name: &str) -> Opening {
    let opening = Opening::decode(frozen(name)).unwrap();
    assert_eq!(opening.encode_to_vec(), frozen(name), "{name}");
    opening
}

async fn frame(name: &str) -> Body {
    let (body, beside, _) = control::read(&mut &frozen(name)[..]).await.unwrap().expect("a frame");
    assert_eq!(beside, control::Beside::default(), "{name}: nothing that came later");
    assert_eq!(control::encode(body.clone()), frozen(name), "{name}");
    body
}

#[test]
fn openings_are_the_frozen_bytes() {
    for (name, low_priority) in [("opening", false), ("opening-low-priority", true)] {
        let opening = opening(name);
        assert_eq!((opening.format, &opening.header[..]), (1, &b"echo"[..]));
        assert_eq!(opening.low_priority, low_priority);
        // Field 15, a number: of a version that knows more.
        let newer = [&frozen(name)[..], &[15 << 3, 1]].concat();
        assert_eq!(Opening::decode(&newer[..]).unwrap(), opening);
    }
}

#[tokio::test]
async fn frames_of_bundles_are_the_frozen_bytes() {
    let Body::OpenBundle(open) = frame("frame-open-bundle").await else { panic!("another kind") };
    assert_eq!((&open.bundle[..], open.opening), (&[0x22; 16][..], opening("opening-low-priority")));
    let more = MoreLanes { bundle: Bytes::from_static(&[0x22; 16]), lanes: 7 };
    assert_eq!(frame("frame-more-lanes").await, Body::MoreLanes(more));
}

#[tokio::test]
async fn an_attach_is_the_frozen_bytes() {
    let attach = Attach { bundle: [0x77; 16], opening: frozen("opening") };
    assert_eq!(attach.encode(), frozen("attach"));
    assert_eq!(Attach::read(&mut &frozen("attach")[..]).await.unwrap(), Some(attach));
}

#[test]
fn the_hello_of_a_lane_is_the_frozen_bytes() {
    let bytes = frozen("hello-lane");
    let hello = parse_hello(bytes[..].try_into().unwrap(), &VERSIONS).unwrap();
    assert_eq!((hello.versions, hello.role, hello.session), ((1, 2), Role::Lane, [0x11; 16]));
    assert_eq!(hello.encode()[..], bytes);
}
