use std::collections::HashMap;

use farside_format::{Birth, Fingerprint, Place, Pointer};

use super::candidates::Candidates;
use super::choice::Moves;
use super::member::At;
use crate::fingerprint_index::LeafAt;

fn at(volume: u64, block: u64, content: u8, place: u64, birth: u64) -> At {
    let pointer =
        Pointer { fingerprint: Fingerprint([content; 16]), place: Place(place), birth: Birth(birth) };
    At { volume, head: volume + 100, block, pointer }
}

fn candidates(of: &[At]) -> Candidates {
    let mut found = Candidates::new();
    for at in of {
        found.entry(at.pointer.fingerprint).or_default().push(*at);
    }
    found
}

type Told = (u64, u64, u64, u64, usize);

fn choose(own: &[At], others: &[At], extra: &[(u64, u32)]) -> (Vec<Told>, usize) {
    let extra: HashMap<u64, u32> = extra.iter().copied().collect();
    let chosen = Moves::choose(own, candidates(others), extra, 255, |_| false);
    let tell = |m: &super::choice::Move| {
        (m.target.volume, m.target.block, m.source.volume, m.source.block, m.twins.len())
    };
    (chosen.moves.iter().map(tell).collect(), chosen.limited.len())
}

#[test]
fn neighbours_move_together_and_the_older_one_is_kept() {
    let own = [at(1, 10, 7, 500, 9), at(1, 11, 8, 501, 9), at(1, 12, 9, 502, 2)];
    let others = [at(2, 40, 7, 300, 3), at(2, 41, 8, 301, 3), at(2, 42, 9, 302, 3)];
    assert_eq!(choose(&own, &others, &[]), (vec![(1, 10, 2, 40, 2), (2, 42, 1, 12, 1)], 0));
    // What is shared already goes before what is old.
    assert_eq!(choose(&own, &others, &[(502, 0), (302, 1)]).0, [(1, 10, 2, 40, 3)]);
}

#[test]
fn what_a_snapshot_has_is_kept_rather_than_what_is_older() {
    let (own, other) = ([at(1, 10, 7, 500, 9)], [at(2, 40, 7, 300, 3)]);
    let held = |of: u64| move |at: &At| at.volume == of;
    let target = |of: u64| {
        Moves::choose(&own, candidates(&other), HashMap::new(), 255, held(of)).moves[0].target.volume
    };
    assert_eq!((target(1), target(2)), (2, 1));
}

#[test]
fn what_lies_at_the_same_place_and_a_block_itself_are_no_others() {
    let own = [at(1, 10, 7, 500, 9)];
    assert_eq!(choose(&own, &[at(1, 10, 7, 499, 3), at(2, 40, 7, 500, 1)], &[]), (vec![], 0));
    assert_eq!(choose(&own, &[at(1, 10, 7, 499, 3), at(2, 40, 7, 480, 1)], &[]).0, [(1, 10, 2, 40, 1)]);
}

#[test]
fn equal_blocks_at_hand_join_the_first_and_what_it_joins() {
    let own: Vec<At> = (0..4).map(|n| at(1, n, 7, 500 + n, 9)).collect();
    assert_eq!(choose(&own, &[], &[]).0, [(1, 1, 1, 0, 1), (1, 2, 1, 0, 1), (1, 3, 1, 0, 1)]);
    // The other one moves here, and the next ones follow it.
    let older = [at(1, 0, 7, 500, 1), at(1, 1, 7, 501, 9)];
    assert_eq!(choose(&older, &[at(2, 9, 7, 300, 3)], &[]).0, [(2, 9, 1, 0, 1), (1, 1, 1, 0, 1)]);
}

#[test]
fn a_place_with_all_the_owners_it_may_have_is_left_and_another_one_begins() {
    let own = [at(1, 0, 7, 500, 9), at(1, 1, 7, 501, 9)];
    let (moves, limited) = choose(&own, &[at(2, 9, 7, 300, 3)], &[(300, 255)]);
    assert_eq!((moves, limited), (vec![(1, 1, 1, 0, 1)], 1));
}

#[test]
fn content_that_goes_on_is_followed() {
    let own: Vec<At> = (120..128).map(|n| at(1, n, n as u8, 500 + n, 9)).collect();
    let others: Vec<At> = (120..128).map(|n| at(2, n + 5, n as u8, 300 + n, 3)).collect();
    let moves = Moves::choose(&own, candidates(&others), HashMap::new(), 255, |_| false);
    assert_eq!(moves.follow(0), [LeafAt { volume: 2, leaf: 1 }]);
    // Seen from the other one, whose blocks reach into its leaf 1.
    assert_eq!(moves.follow(1), [LeafAt { volume: 1, leaf: 1 }]);
    assert_eq!(moves.follow(2), []);
}
