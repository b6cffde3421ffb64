use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::limits::TRANSFERS_MAX;

const MINUTE: Duration = Duration::from_secs(60);

fn claim(peer: u8, mirror: u128) -> Claim {
    Claim {
        peer: PeerId([peer; 32]),
        mirror: Uuid::from_u128(mirror),
        is_first_copy: false,
        is_for_person: false,
        due: 0,
    }
}

fn copy(peer: u8, mirror: u128) -> Claim {
    Claim { is_first_copy: true, ..claim(peer, mirror) }
}

/// Lets begin who may; the mirrors, in the order in which they did.
fn begin_all(line: &mut Line, now: Duration) -> Vec<u128> {
    let mut begun = Vec::new();
    while let Some(ticket) = line.begin_next(now) {
        let of = line.under_way.iter().find(|u| u.ticket == ticket).unwrap();
        begun.push(of.claim.mirror.as_u128());
    }
    begun
}

#[test]
fn peers_take_turns_and_within_a_peer_mirrors_do() {
    let mut line = Line::new(4);
    for mirror in 0..10 {
        line.come(claim(1, mirror));
    }
    line.come(claim(2, 20));
    line.come(claim(3, 30));
    assert_eq!(begin_all(&mut line, MINUTE), [0, 20, 30, 1]);
    // A person's goes before all others, in the order of asking.
    line.come(Claim { is_for_person: true, ..claim(1, 11) });
    line.is_for_a_person(Uuid::from_u128(9));
    line.set_size(6);
    assert_eq!(begin_all(&mut line, MINUTE), [9, 11]);
    assert_eq!(line.before(Uuid::from_u128(5)).unwrap().waiting, 3, "2, 3, 4 of the same peer");
    let before = line.before(Uuid::from_u128(5)).unwrap().under_way;
    assert_eq!(before[0], (PeerId([1; 32]), 4));
    assert!(line.before(Uuid::from_u128(0)).is_none(), "it does not wait");
}

#[test]
fn first_copies_of_one_peer_give_way_to_another_after_their_minutes() {
    let mut line = Line::new(16);
    for mirror in 0..17 {
        line.come(copy(1, mirror));
    }
    assert_eq!(begin_all(&mut line, Duration::ZERO).len(), 16);
    assert!(line.ask_to_give_way(10 * MINUTE).is_empty(), "for one of its own, not so soon");
    line.come(claim(2, 20));
    assert!(line.ask_to_give_way(4 * MINUTE).is_empty());
    let asked = line.ask_to_give_way(5 * MINUTE);
    assert_eq!(asked.len(), 2, "as many as wait");
    assert!(line.ask_to_give_way(9 * MINUTE).is_empty(), "each is told once");
    line.leave(asked[0]);
    assert_eq!(begin_all(&mut line, 9 * MINUTE), [20], "the other peer's is next");
}

#[test]
fn an_update_of_the_same_peer_does_not_wait_for_first_copies_for_ever() {
    let mut line = Line::new(2);
    line.come(copy(1, 1));
    line.come(copy(1, 2));
    begin_all(&mut line, Duration::ZERO);
    line.come(claim(1, 3));
    let asked = line.ask_to_give_way(6 * MINUTE);
    assert_eq!(asked.len(), 1);
    line.leave(asked[0]);
    line.come(copy(1, 1));
    assert_eq!(begin_all(&mut line, 6 * MINUTE), [3]);
    assert!(line.ask_to_give_way(50 * MINUTE).is_empty() && !line.ask_to_give_way(61 * MINUTE).is_empty());
}

#[test]
fn a_peer_keeps_three_quarters_of_the_places_while_another_waits() {
    let mut line = Line::new(16);
    line.come(Claim { is_for_person: true, ..claim(1, 0) });
    for mirror in 1..20 {
        line.come(claim(1, mirror));
    }
    begin_all(&mut line, Duration::ZERO);
    assert!(line.ask_to_give_way(60 * MINUTE).is_empty(), "nobody else waits");
    for mirror in 20..40 {
        line.come(claim(2, mirror));
    }
    assert!(line.ask_to_give_way(4 * MINUTE).is_empty());
    let asked = line.ask_to_give_way(5 * MINUTE);
    assert_eq!(asked.len(), 4, "updates end by themselves, as a rule");
    assert!(!asked.contains(&Ticket(1)), "a person waits for it");
    asked.into_iter().for_each(|ticket| line.leave(ticket));
    assert_eq!(begin_all(&mut line, 5 * MINUTE), [20, 21, 22, 23]);
    assert!(line.ask_to_give_way(60 * MINUTE).is_empty());
}

/// Peers with first copies that never end by themselves, and others with short updates; whatever the mixture, every
/// update begins within minutes, a peer's copies hold at most 3/4 of the places once another has waited its minutes, and nobody is
/// forgotten.
#[test]
fn whatever_the_mixture_nobody_waits_for_long() {
    let first: u64 = std::env::var("FARSIDE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for seed in first..first + 30 {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let size = rng.random_range(4..=TRANSFERS_MAX);
        let mut line = Line::new(size);
        let step = Duration::from_secs(10);
        // (ticket, claim, since when it waits or runs, whether it runs)
        let mut all: Vec<(Ticket, Claim, Duration, bool)> = Vec::new();
        let mut now = Duration::ZERO;
        let updating: Vec<(u8, u128)> = (0..6).map(|n| (rng.random_range(2..5), 100 + n)).collect();
        for mirror in 0..rng.random_range(1..40) {
            let claim = copy(1, mirror);
            all.push((line.come(claim), claim, now, false));
        }
        for round in 0..1000 {
            now += step;
            if round % 6 == 0 {
                for (peer, mirror) in &updating {
                    if all.iter().all(|(_, c, _, _)| c.mirror.as_u128() != *mirror) {
                        let claim = claim(*peer, *mirror);
                        all.push((line.come(claim), claim, now, false));
                    }
                }
            }
            // Updates end within a step; copies when they are asked.
            let ended = all.iter().filter(|(_, c, _, runs)| *runs && !c.is_first_copy).map(|a| a.0);
            let asked = line.ask_to_give_way(now);
            let ended: Vec<Ticket> = ended.chain(asked.iter().copied()).collect();
            for ticket in ended {
                line.leave(ticket);
                let at = all.iter().position(|a| a.0 == ticket).unwrap();
                let (_, claim, _, _) = all.swap_remove(at);
                if claim.is_first_copy {
                    all.push((line.come(claim), claim, now, false));
                }
            }
            while let Some(ticket) = line.begin_next(now) {
                let (_, claim, since, runs) = all.iter_mut().find(|a| a.0 == ticket).unwrap();
                assert!(!*runs);
                if !claim.is_first_copy {
                    assert!(
                        now - *since <= FIRST_COPY_TURN + 2 * step,
                        "an update waited {:?}",
                        now - *since
                    );
                }
                (*since, *runs) = (now, true);
            }
            let running = all.iter().filter(|a| a.3).count();
            assert_eq!((running, all.len() - running), (line.under_way(), line.waiting()));
            assert!(running == size || line.waiting() == 0, "no place is empty while somebody waits");
        }
    }
}

#[test]
fn within_a_peer_whose_data_gets_too_old_first_goes_first() {
    let mut line = Line::new(1);
    let due = |peer, mirror, due| Claim { due, ..claim(peer, mirror) };
    for claim in [due(1, 0, 0), due(1, 10, 9_000), due(1, 11, 500), due(1, 12, -2_000), due(1, 13, 500)] {
        line.come(claim);
    }
    assert_eq!(line.before(Uuid::from_u128(13)).unwrap().waiting, 3, "0, 12 and 11 go before it");
    let mut order = Vec::new();
    while let Some(ticket) = line.begin_next(Duration::ZERO) {
        order.push(line.under_way[0].claim.mirror.as_u128());
        line.leave(ticket);
    }
    assert_eq!(order, [12, 0, 11, 13, 10]);
}

/// 256 mirrors with objectives from 2 s to an hour, on a line that has a tenth of the places they want: each that comes again and
/// again has its turn, however short the objectives of the others are.
#[test]
fn nobody_starves_behind_objectives_that_cannot_be_met() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let objectives: Vec<i64> = (0..256).map(|n| if n % 2 == 0 { 2_000 } else { 2_000 * (n + 1) }).collect();
    let (mut line, mut now) = (Line::new(4), 0_i64);
    let mut shown = vec![0_i64; objectives.len()];
    let mut longest = vec![0_i64; objectives.len()];
    let mut ends: Vec<(i64, Ticket, usize)> = Vec::new();
    let due = |mirror: usize, shown: i64, now: i64| {
        let left = (shown + objectives[mirror] - now).min(600_000);
        Claim { due: now + left, ..claim(1, mirror as u128) }
    };
    for mirror in 0..objectives.len() {
        line.come(due(mirror, 0, 0));
    }
    while now < 3 * 3_600_000 {
        while let Some(ticket) = line.begin_next(Duration::from_millis(now.unsigned_abs())) {
            let of = line.under_way.iter().find(|u| u.ticket == ticket).unwrap();
            let mirror = usize::try_from(of.claim.mirror.as_u128()).unwrap();
            longest[mirror] = longest[mirror].max(now - shown[mirror]);
            shown[mirror] = now;
            ends.push((now + random.random_range(500..1500), ticket, mirror));
        }
        ends.sort_unstable();
        let (at, ticket, mirror) = ends.remove(0);
        now = at;
        line.leave(ticket);
        line.come(due(mirror, shown[mirror], now));
    }
    // 256 transfers of a second, four at a time: a round is 64 s. Who has a short objective waits for about a round, who has a long
    // one not much more than that or the ten minutes after which anybody is due.
    let worst = longest.iter().max().unwrap();
    assert!(*worst < 600_000 + 3 * 64_000, "{worst} ms");
}

#[test]
fn how_long_one_waits_is_known_from_how_long_places_were_kept() {
    let mut line = Line::new(2);
    let second = Duration::from_secs(1);
    let tickets: Vec<Ticket> = (0..2).map(|mirror| line.come(claim(1, mirror))).collect();
    begin_all(&mut line, Duration::ZERO);
    assert_eq!(line.wait_of(Uuid::from_u128(9)), Duration::ZERO, "nobody knows yet");
    tickets.into_iter().for_each(|ticket| line.end(ticket, 4 * second));
    assert_eq!(line.wait_of(Uuid::from_u128(9)), Duration::ZERO, "there is a place");
    for mirror in 10..16 {
        line.come(claim(1, mirror));
    }
    begin_all(&mut line, 4 * second);
    // Of two under way one ends every two seconds.
    assert_eq!(line.wait_of(Uuid::from_u128(12)), 2 * second, "it is next");
    assert_eq!(line.wait_of(Uuid::from_u128(15)), 8 * second);
    assert_eq!(line.wait_of(Uuid::from_u128(9)), 10 * second, "if it came now");
}
