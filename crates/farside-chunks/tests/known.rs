//! What one site tells the other of its store: round trips, and bytes that are no such message.

use std::collections::{BTreeMap, BTreeSet};

use farside_chunks::known::HOLDINGS_MAX;
use farside_chunks::{ContainerName, Holdings, OriginId, Ranges};
use proptest::prelude::*;

fn holdings() -> impl Strategy<Value = Vec<(ContainerName, Ranges)>> {
    let number = prop_oneof![0..50u64, any::<u64>()];
    let places = prop_oneof![0..40u16, 0..4096u16];
    let one = (0..3u8, number, proptest::collection::vec(places, 0..16));
    proptest::collection::vec(one, 0..200).prop_map(|all| {
        let all = all.into_iter().map(|(origin, number, places)| {
            (ContainerName { origin: OriginId([origin; 16]), number }, Ranges::of(places))
        });
        all.collect::<BTreeMap<_, _>>().into_iter().collect()
    })
}

proptest! {
    #[test]
    fn what_is_said_is_heard(said in holdings()) {
        let mut bytes = Vec::new();
        prop_assert!(Holdings(said.clone()).encode(&mut bytes).0.is_empty());
        prop_assert_eq!(Holdings::decode(&bytes), Some(Holdings(said)));
    }

    #[test]
    fn other_bytes_are_refused_or_bounded(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Some(holdings) = Holdings::decode(&bytes) {
            prop_assert!(holdings.0.len() <= HOLDINGS_MAX);
        }
    }
}

#[test]
fn the_containers_of_500_gb_are_said_in_150_kb() {
    let origin = OriginId([7; 16]);
    let mut left =
        Holdings((0..30_000).map(|number| (ContainerName { origin, number }, Ranges::of(0..1600))).collect());
    let (mut bytes, mut messages) = (0, 0);
    while !left.0.is_empty() {
        let mut message = Vec::new();
        left = left.encode(&mut message);
        assert!(Holdings::decode(&message).is_some());
        (bytes, messages) = (bytes + message.len(), messages + 1);
    }
    assert!(bytes < 160_000 && messages == 8, "{bytes} bytes in {messages} messages");
}

proptest! {
    #[test]
    fn ranges_are_the_places_they_were_made_of(
        places in proptest::collection::vec(0..60u16, 0..80),
        cut in 0..60u16,
    ) {
        let mut set: BTreeSet<u16> = places.iter().copied().collect();
        let mut ranges = Ranges::of(places);
        prop_assert!((0..61).all(|place| ranges.has(place) == set.contains(&place)));
        prop_assert_eq!(ranges.places(), set.len());
        let mut gone = cut;
        while set.remove(&gone) {
            gone += 1;
        }
        ranges.cut(cut);
        prop_assert!((0..61).all(|place| ranges.has(place) == set.contains(&place)));
        prop_assert_eq!(ranges.is_empty(), set.is_empty());
    }
}
