//! The planner against a model of a destination: a set of contents, and what it says of them.

use std::collections::{HashMap, HashSet};

use farside_format::fingerprint::FAN_OUT;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::protocol::known::{Answer, encode_answer, encode_ask};

/// Content of each block; 0 is a hole.
type Image = Vec<u64>;

fn of_block(content: u64) -> Fingerprint {
    if content == 0 {
        return Fingerprint::HOLE;
    }
    let mut block = vec![0; BLOCK_BYTES as usize];
    block[..8].copy_from_slice(&content.to_le_bytes());
    Fingerprint::of_block(&block)
}

fn of_node(image: &[u64], node: u64) -> Fingerprint {
    let mut children = [Fingerprint::HOLE; FAN_OUT];
    let first = (node * NODE_BLOCKS) as usize;
    for (child, content) in children.iter_mut().zip(image.get(first..).unwrap_or_default()) {
        *child = of_block(*content);
    }
    Fingerprint::of_node(1, &children)
}

fn metadata(image: &Image) -> Metadata {
    let (ours, of_nodes) = (image.clone(), image.clone());
    Metadata {
        blocks: Box::new(move |first, count| {
            Ok((first..first + count).map(|p| of_block(ours[p as usize])).collect())
        }),
        nodes: Some(Box::new(move |first, count| {
            Ok((first..first + count).map(|n| of_node(&of_nodes, n)).collect())
        })),
    }
}

/// What the other side has, by the front of its fingerprint; it answers as it should unless it lies.
#[derive(Default)]
struct Destination {
    has: HashMap<u64, Fingerprint>,
    /// Batches whose answers have a wrong digest.
    lies: HashSet<u64>,
    asks: u64,
    entries: u64,
    wire_bytes: u64,
}

impl Destination {
    fn with(image: &Image) -> Destination {
        let mut has: HashSet<Fingerprint> = image.iter().map(|content| of_block(*content)).collect();
        has.extend((0..image.len() as u64 / NODE_BLOCKS).map(|node| of_node(image, node)));
        has.remove(&Fingerprint::HOLE);
        Destination { has: has.into_iter().map(|f| (short(f), f)).collect(), ..Destination::default() }
    }

    fn answer(&mut self, ask: &Ask) -> Vec<u8> {
        let mut answer = Answer { batch: ask.batch, ..Answer::default() };
        let mut fingerprints = Vec::new();
        for (at, entry) in ask.nodes.iter().chain(&ask.blocks).enumerate() {
            let Some(found) = self.has.get(&entry.short) else { continue };
            fingerprints.push(*found);
            match answer.held.last_mut() {
                Some(run) if run.end == at => run.end += 1,
                _ => answer.held.push(at..at + 1),
            }
        }
        if !fingerprints.is_empty() {
            answer.digest = digest(fingerprints.iter());
            answer.digest[3] ^= u8::from(self.lies.contains(&ask.batch));
        }
        let bytes = encode_answer(&answer);
        self.asks += 1;
        self.entries += ask.entries() as u64;
        self.wire_bytes += (encode_ask(ask).len() + bytes.len()) as u64;
        bytes
    }
}

/// Runs of up to `longest` blocks.
fn runs(image: &Image, longest: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (position, content) in (0..).zip(image) {
        let kind = if *content == 0 { RunKind::Hole } else { RunKind::Data };
        match runs.last_mut() {
            Some(last) if last.kind == kind && last.blocks < longest => last.blocks += 1,
            _ => runs.push(Run { position, blocks: 1, kind }),
        }
    }
    runs
}

/// Plays a stage whose answers come `lag` questions late. Answers what travels, and the most that waited.
fn play(planner: &mut Planner, destination: &mut Destination, input: Vec<Run>, lag: usize) -> Vec<Run> {
    let mut travels = Vec::new();
    let mut answers = VecDeque::new();
    let mut input = VecDeque::from(input);
    let mut is_open = true;
    loop {
        travels.extend(std::iter::from_fn(|| planner.next_run()));
        let stalls = !is_open || !planner.has_room();
        if let Some(ask) = planner.next_ask(stalls) {
            assert!(ask.entries() as u64 <= ASK_ENTRIES_MAX && ask.wanted_blocks() <= ASK_BLOCKS_MAX);
            assert!(ask.nodes.is_sorted_by(|a, b| a.position < b.position));
            assert!(ask.blocks.is_sorted_by(|a, b| a.position < b.position));
            answers.push_back(destination.answer(&ask));
        }
        assert!(planner.waiting_blocks <= KNOWN_READ_AHEAD_BLOCKS + 2 * ADDED_BLOCKS);
        assert!(planner.sampled_blocks <= planner.waiting_blocks);
        if answers.len() > lag || (stalls && !answers.is_empty()) {
            planner.answer(&answers.pop_front().unwrap()).unwrap();
        } else if !stalls {
            match input.pop_front() {
                Some(run) => {
                    if let Some(rest) = planner.add(run).unwrap() {
                        input.push_front(rest);
                    }
                }
                None => {
                    is_open = false;
                    planner.flush().unwrap();
                }
            }
        } else if planner.is_empty() {
            assert!(!planner.awaits_answer() && planner.queued.entries == 0);
            assert_eq!((planner.waiting_blocks, planner.sampled_blocks), (0, 0));
            return travels;
        }
    }
}

/// Everything that came in comes out in order, or is known; and only what the other side has is known.
fn check(image: &Image, travels: &[Run], has: &HashMap<u64, Fingerprint>) -> u64 {
    let mut end = 0;
    let mut travelling = vec![false; image.len()];
    for run in travels {
        assert!(run.position >= end && run.blocks > 0, "they ascend: {run:?} after {end}");
        end = run.end();
        for position in run.position as usize..run.end() as usize {
            assert_eq!(run.kind == RunKind::Hole, image[position] == 0, "block {position}");
            travelling[position] = true;
        }
    }
    let mut known = 0;
    for (position, content) in image.iter().enumerate().filter(|(position, _)| !travelling[*position]) {
        assert!(*content != 0, "holes travel: {position}");
        let has = |fingerprint| has.contains_key(&short(fingerprint));
        let is_known = has(of_block(*content)) || has(of_node(image, position as u64 / NODE_BLOCKS));
        assert!(is_known, "block {position} is not known there");
        known += 1;
    }
    known
}

fn random_image(rng: &mut SmallRng, blocks: usize, longest: usize) -> Image {
    let mut image = vec![0; blocks];
    let mut at = 0;
    while at < blocks {
        let end = (at + rng.random_range(1..=longest)).min(blocks);
        if rng.random_bool(0.8) {
            image[at..end].fill_with(|| rng.random_range(1..1 << 40));
        }
        at = end;
    }
    image
}

#[test]
fn what_comes_in_travels_or_is_known_whatever_the_other_side_has() {
    for seed in 0..24 {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let (blocks, longest) = (rng.random_range(1..6000), rng.random_range(1..700));
        let image = random_image(&mut rng, blocks, longest);
        // Parts of it, some at the same place and some moved.
        let mut theirs: Image = vec![0; blocks];
        for _ in 0..rng.random_range(0..20) {
            let from = rng.random_range(0..blocks);
            let length = rng.random_range(1..=(blocks - from).min(900));
            let to = if rng.random_bool(0.5) { from } else { rng.random_range(0..=blocks - length) };
            theirs[to..to + length].copy_from_slice(&image[from..from + length]);
        }
        let mut destination = Destination::with(&theirs);
        let mut planner = Planner::new(metadata(&image), blocks as u64, seed % 3 == 0);
        let first_asked = if rng.random_bool(0.3) { rng.random_range(0..blocks) } else { 0 };
        let input = runs(&image, rng.random_range(1..3000));
        let (unasked, asked) =
            input.split_at(input.iter().take_while(|r| (r.end() as usize) <= first_asked).count());
        let mut travels = play(&mut planner, &mut destination, unasked.to_vec(), 0);
        assert_eq!((joined(&travels), destination.asks), (joined(unasked), 0));
        planner.begin_asking();
        travels.extend(play(&mut planner, &mut destination, asked.to_vec(), rng.random_range(0..9)));
        let known = check(&image, &travels, &destination.has);
        assert_eq!(planner.known_bytes(), known * BLOCK_BYTES);
        // What is known is named, in order, and is just what does not travel.
        let runs: Vec<_> = planner.take_known().collect();
        assert!(runs.is_sorted_by(|a, b| a.end <= b.start) && planner.take_known().next().is_none());
        assert_eq!(runs.iter().map(|run| run.end - run.start).sum::<u64>(), known);
        let is_known = |at: u64| runs.iter().any(|run| run.contains(&at));
        assert!(travels.iter().all(|run| !is_known(run.position) && !is_known(run.end() - 1)));
    }
}

fn joined(runs: &[Run]) -> Vec<Run> {
    let mut all = VecDeque::new();
    runs.iter().for_each(|run| push(&mut all, *run));
    all.into()
}

fn played(image: &Image, destination: &mut Destination, lag: usize) -> u64 {
    let mut planner = Planner::new(metadata(image), image.len() as u64, false);
    planner.begin_asking();
    let travels = play(&mut planner, destination, runs(image, u64::MAX), lag);
    check(image, &travels, &destination.has)
}

#[test]
fn data_that_is_nowhere_known_costs_next_to_nothing() {
    let image: Image = (1..=1 << 15).collect();
    let mut destination = Destination::default();
    assert_eq!(played(&image, &mut destination, 3), 0);
    let share = destination.wire_bytes as f64 / (image.len() as u64 * BLOCK_BYTES) as f64;
    assert!(share < 0.000_2, "{} bytes, {share}", destination.wire_bytes);
    // Scattered single blocks, too.
    let image: Image = (0..1 << 15).map(|p| if p % 7 == 0 { p + 1 } else { 0 }).collect();
    let mut destination = Destination::default();
    played(&image, &mut destination, 3);
    let data_blocks = image.iter().filter(|content| **content != 0).count() as u64;
    let share = destination.wire_bytes as f64 / (data_blocks * BLOCK_BYTES) as f64;
    assert!(share < 0.000_2, "{} bytes, {share}", destination.wire_bytes);
}

#[test]
fn what_is_known_as_a_whole_is_asked_for_by_nodes() {
    let image: Image = (1..=1 << 15).collect();
    let nodes = image.len() as u64 / NODE_BLOCKS;
    let mut at_once = Destination::with(&image);
    assert_eq!(played(&image, &mut at_once, 0), image.len() as u64);
    assert!(at_once.entries < 2 * nodes, "{} entries for {nodes} nodes", at_once.entries);
    // Until the first answer comes samples are asked for as well.
    let mut destination = Destination::with(&image);
    assert_eq!(played(&image, &mut destination, 3), image.len() as u64);
    let share = destination.wire_bytes as f64 / (image.len() as u64 * BLOCK_BYTES) as f64;
    assert!(share < 0.000_1, "{share}");
}

#[test]
fn moved_by_a_block_or_changed_here_and_there_it_is_known_all_the_same() {
    let image: Image = (1..=1 << 14).collect();
    let moved: Image = std::iter::once(7).chain(image.iter().copied()).collect();
    let mut destination = Destination::with(&moved);
    let known = played(&image, &mut destination, 3);
    assert!(known as f64 > 0.999 * image.len() as f64, "{known}");

    let mut rng = SmallRng::seed_from_u64(5);
    let mut changed = image.clone();
    let mut same = image.len() as u64;
    for content in &mut changed {
        if rng.random_bool(0.05) {
            *content += 1 << 20;
            same -= 1;
        }
    }
    let mut destination = Destination::with(&image);
    let known = played(&changed, &mut destination, 3);
    assert!(known as f64 > 0.98 * same as f64, "{known} of {same}");
    let share = destination.wire_bytes as f64 / (image.len() as u64 * BLOCK_BYTES) as f64;
    assert!(share < 0.003, "{share}");
}

#[test]
fn an_answer_with_a_wrong_digest_makes_its_batch_unknown_and_the_second_ends_the_questions() {
    let image: Image = (1..=1 << 14).collect();
    let honest = played(&image, &mut Destination::with(&image), 0);
    let mut once = Destination { lies: [1].into(), ..Destination::with(&image) };
    let known = played(&image, &mut once, 0);
    assert!(known < honest && known > honest / 2, "{known}");
    let mut twice = Destination { lies: [1, 2].into(), ..Destination::with(&image) };
    let known = played(&image, &mut twice, 0);
    assert!(twice.asks == 3 && known < honest / 8, "{known} known after {} questions", twice.asks);
    let mut late = Destination { lies: [1, 2].into(), ..Destination::with(&image) };
    assert!(played(&image, &mut late, 4) > 0, "what was asked before and is answered rightly counts");
}

#[test]
fn the_first_question_is_small() {
    let image: Image = (1..=1 << 14).collect();
    let mut planner = Planner::new(metadata(&image), image.len() as u64, false);
    planner.begin_asking();
    let mut taken = 0;
    let ask = loop {
        let run = Run { position: taken, blocks: 64, kind: RunKind::Data };
        assert_eq!(planner.add(run).unwrap(), None);
        taken += 64;
        if let Some(ask) = planner.next_ask(false) {
            break ask;
        }
    };
    assert!(taken <= 2 * FIRST_ASK_BLOCKS && ask.wanted_blocks() <= FIRST_ASK_BLOCKS);
}

#[test]
fn answers_that_nobody_asked_for_are_refused() {
    let image: Image = (1..=1 << 14).collect();
    let mut planner = Planner::new(metadata(&image), image.len() as u64, false);
    let nothing = encode_answer(&Answer::default());
    assert!(matches!(planner.answer(&nothing), Err(TransferError::Protocol(_))));
    planner.begin_asking();
    planner.add(Run { position: 0, blocks: 1 << 9, kind: RunKind::Data }).unwrap();
    assert!(planner.next_ask(true).is_some());
    let other = encode_answer(&Answer { batch: 1, ..Answer::default() });
    assert!(matches!(planner.answer(&other), Err(TransferError::Protocol(_))));
}
