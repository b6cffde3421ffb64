//! Three sites, and everything that can be done to them in a few steps: breaks, deletions, resyncs, role changes, releases,
//! rights taken back, pools that close and come back, databases that are lost, and words that do not arrive. After each the
//! sites are left alone until nothing more is said. Then two sites that hosts may write to are both marked, unless a person at
//! the site that is not has decided so.
//!
//! The decisions are the product's ([`hear`], [`release`], [`is_refused`], [`is_fenced`]); what surrounds them is told here
//! anew, as small as it gets.

use std::collections::HashSet;

use super::{Heard, Left, PoolSays, Request, Said, hear, is_fenced, is_refused, release};

const SITES: usize = 3;
/// Steps from the beginning; `FARSIDE_MODEL_DEPTH` says otherwise. Six take ten times as long, and have found no more.
const DEPTH: usize = 5;

/// A mirror as its destination knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum AtDestination {
    #[default]
    Nothing,
    Follows,
    Broken,
    /// Broken off by a role change.
    Dormant,
}

/// What the source of a mirror has been told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Mark {
    ended: bool,
    beyond: bool,
    fenced: bool,
}

/// The mirror of one site's volume at another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Mirror {
    at_destination: AtDestination,
    /// The source has answered what it was told of the newest break.
    told: bool,
    /// Whether it has is forgotten.
    is_told_lost: bool,
    /// It was deleted, and the source is to be told this.
    ending: Option<Said>,
    /// At the source: in the database.
    is_known: bool,
    /// At the source: in the pool.
    is_kept: bool,
    mark: Option<Mark>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct World {
    /// By destination and source.
    mirrors: [[Mirror; SITES]; SITES],
    is_pool_open: [bool; SITES],
    /// The right of others to this site's volume carries a fence.
    policy: [bool; SITES],
    /// Holds a volume of this origin.
    holds: [bool; SITES],
    /// A person here has broken off or released it, or has taken over from where one has: who is asked there knows.
    knows: [bool; SITES],
    /// What it was made from last.
    origin: [Option<usize>; SITES],
    /// Databases that may yet be lost.
    losses: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Break(usize, usize),
    Delete(usize, usize),
    Resync(usize, usize),
    /// The former source follows.
    Follow(usize, usize),
    Swap(usize, usize),
    Create(usize, usize),
    Release(usize, usize),
    Deny(usize),
    ClosePool(usize),
    OpenPool(usize),
    LoseDatabase(usize),
    Tell(usize, usize),
}

impl World {
    fn of(replicas: &[(usize, usize)]) -> World {
        let mut world = World {
            mirrors: Default::default(),
            is_pool_open: [true; SITES],
            policy: [true; SITES],
            holds: [true, false, false],
            knows: [false; SITES],
            origin: [None; SITES],
            losses: 1,
        };
        for &(destination, source) in replicas {
            world.begin(destination, source);
        }
        world
    }

    fn begin(&mut self, destination: usize, source: usize) {
        self.mirrors[destination][source] = Mirror {
            at_destination: AtDestination::Follows,
            is_known: true,
            is_kept: true,
            ..Mirror::default()
        };
        self.holds[destination] = self.holds[source];
        self.origin[destination] = Some(source);
        self.knows[destination] = false;
    }

    /// What a volume follows.
    fn follows(&self, site: usize) -> Option<usize> {
        (0..SITES).find(|&source| self.mirrors[site][source].at_destination == AtDestination::Follows)
    }

    /// The record that a volume has: of one mirror at most.
    fn record(&self, site: usize) -> Option<usize> {
        (0..SITES).find(|&source| self.mirrors[site][source].at_destination != AtDestination::Nothing)
    }

    /// What a volume follows, and what that follows.
    fn chain(&self, site: usize) -> Vec<usize> {
        let mut chain = Vec::new();
        let mut at = site;
        while let Some(next) = self.follows(at).filter(|next| !chain.contains(next)) {
            chain.push(next);
            at = next;
        }
        chain
    }

    /// A copy goes its own way, and whatever was made from it.
    fn leave(&mut self, site: usize) {
        for x in 0..SITES {
            self.holds[x] &= x != site && !self.comes_from(x, site);
        }
    }

    /// Whether a volume was made from another's, by whatever way.
    fn comes_from(&self, site: usize, origin: usize) -> bool {
        let (mut at, mut hops) = (site, 0);
        while let Some(next) = self.origin[at].filter(|_| hops < SITES) {
            (at, hops) = (next, hops + 1);
            if at == origin {
                return true;
            }
        }
        false
    }

    /// Whether hosts went on without a site, besides at the one that it follows.
    fn is_overtaken(&self, site: usize) -> bool {
        let follows = self.follows(site);
        (0..SITES).any(|d| self.mirrors[d][site].mark.is_some() && Some(d) != follows)
    }

    fn is_host_writing(&self, site: usize) -> bool {
        let fenced = |mark: Mark| is_fenced(mark.fenced, self.policy[site]);
        let is_fenced = (0..SITES).any(|d| self.mirrors[d][site].mark.is_some_and(fenced));
        self.holds[site] && self.is_pool_open[site] && self.follows(site).is_none() && !is_fenced
    }

    /// Whether whoever looks at the site sees that hosts may be writing elsewhere, or has said that he knows.
    fn is_marked(&self, site: usize) -> bool {
        self.knows[site] || (0..SITES).any(|other| self.mirrors[other][site].mark.is_some())
    }

    /// What the destination has to say of a mirror, if anything.
    fn said(&self, destination: usize, source: usize) -> Option<Said> {
        let mirror = &self.mirrors[destination][source];
        if mirror.ending.is_some() {
            return mirror.ending;
        }
        match mirror.at_destination {
            AtDestination::Broken | AtDestination::Dormant => Some(Said::BrokenOff),
            AtDestination::Follows if self.is_overtaken(destination) => Some(Said::Beyond),
            AtDestination::Follows => Some(Said::Withdrawn),
            AtDestination::Nothing => None,
        }
    }

    fn tell(&mut self, destination: usize, source: usize) {
        let Some(said) = self.said(destination, source) else { return };
        let follows = self.follows(source) == Some(destination);
        let is_open = self.is_pool_open[source];
        let policy = self.policy[source];
        let back = self.mirrors[source][destination].at_destination;
        let was_its_replica = matches!(back, AtDestination::Broken | AtDestination::Dormant);
        let mirror = &mut self.mirrors[destination][source];
        // Not broken off when it was deleted: it only lets go.
        if mirror.ending == Some(Said::Withdrawn) {
            mirror.ending = None;
            mirror.is_kept = false;
            match release(mirror.mark.is_some()) {
                Left::Nothing => mirror.is_known = false,
                Left::Mark => mirror.mark = mirror.mark.map(|mark| Mark { ended: true, ..mark }),
            }
            return;
        }
        let pool = if is_open {
            PoolSays::Present { is_kept: mirror.is_kept, follows, is_taken_over: false }
        } else {
            PoolSays::Absent
        };
        let is_in_doubt = was_its_replica && mirror.is_told_lost && said != Said::Beyond;
        let is_news = !mirror.told && !is_in_doubt;
        match hear(said, mirror.is_known, is_news, pool) {
            // To be said again.
            Heard::NotHere => return,
            Heard::NothingKept | Heard::TakenOver | Heard::Follows => {}
            Heard::Clear => mirror.mark = mirror.mark.filter(|mark| !mark.beyond),
            Heard::Note => {
                let was_fenced = mirror.mark.is_some_and(|mark| mark.fenced);
                mirror.is_known = true;
                mirror.mark = Some(Mark {
                    ended: said == Said::Ended,
                    beyond: said == Said::Beyond,
                    fenced: is_fenced(was_fenced, policy),
                });
            }
        }
        mirror.ending = None;
        mirror.told = said != Said::Withdrawn;
    }

    /// The world after a step; none if it cannot be taken, or is refused.
    fn after(&self, step: Step) -> Option<World> {
        let mut world = *self;
        match step {
            Step::Break(d, s) => {
                let mirror = &mut world.mirrors[d][s];
                let is_open = self.is_pool_open[d];
                (mirror.at_destination == AtDestination::Follows && is_open).then_some(())?;
                mirror.at_destination = AtDestination::Broken;
                (mirror.told, mirror.is_told_lost) = (false, false);
                world.knows[d] = true;
            }
            Step::Delete(d, s) => {
                let is_open = self.is_pool_open[d];
                let mirror = &mut world.mirrors[d][s];
                (mirror.ending.is_none() && is_open).then_some(())?;
                match mirror.at_destination {
                    AtDestination::Nothing => return None,
                    // A copy that goes its own way, and whoever was made from it.
                    AtDestination::Follows => {
                        mirror.ending = Some(Said::Withdrawn);
                        world.leave(d);
                    }
                    AtDestination::Broken | AtDestination::Dormant => mirror.ending = Some(Said::Ended),
                }
                world.mirrors[d][s].at_destination = AtDestination::Nothing;
            }
            Step::Resync(d, s) => {
                let mirror = &mut world.mirrors[d][s];
                let is_broken =
                    matches!(mirror.at_destination, AtDestination::Broken | AtDestination::Dormant);
                let is_there = self.is_pool_open[d] && self.is_pool_open[s];
                (is_broken && is_there && self.holds[s] && !self.chain(s).contains(&d)).then_some(())?;
                *mirror = Mirror::default();
                world.begin(d, s);
                // Who was overtaken by this one is so no more; what others said stays.
                world.mirrors[s][d].mark = None;
            }
            Step::Follow(d, s) => {
                let is_there = self.is_pool_open[d] && self.is_pool_open[s] && self.holds[d] && self.holds[s];
                let is_free = self.record(d).is_none_or(|source| source == s) && self.follows(d).is_none();
                let has_base = self.mirrors[s][d].is_kept;
                (is_there && is_free && has_base && !self.chain(s).contains(&d)).then_some(())?;
                world.mirrors[s][d] = Mirror {
                    at_destination: self.mirrors[s][d].at_destination,
                    told: true,
                    ..Mirror::default()
                };
                world.begin(d, s);
            }
            Step::Swap(d, s) => {
                let mirror = self.mirrors[d][s];
                let is_there = self.is_pool_open[d] && self.is_pool_open[s] && mirror.is_known;
                let is_free = self.record(s).is_none_or(|other| other == d) && self.follows(s).is_none();
                let follows = mirror.at_destination == AtDestination::Follows;
                (is_there && is_free && follows).then_some(())?;
                let is_overtaken = self.is_overtaken(s) || self.is_overtaken(d);
                (!is_refused(Request::RoleChange, is_overtaken)).then_some(())?;
                world.mirrors[d][s] =
                    Mirror { at_destination: AtDestination::Dormant, told: true, ..Mirror::default() };
                let knows = self.knows[s];
                world.begin(s, d);
                world.knows[d] = knows;
            }
            Step::Create(d, s) => {
                let is_there = self.is_pool_open[d] && self.is_pool_open[s] && self.holds[s];
                (is_there && !self.holds[d] && self.record(d).is_none()).then_some(())?;
                (!is_refused(Request::FirstCopy, self.is_overtaken(s))).then_some(())?;
                (self.mirrors[d][s].ending.is_none() && !self.mirrors[d][s].is_known).then_some(())?;
                world.begin(d, s);
            }
            Step::Release(d, s) => {
                // Nobody can tell any more whether it was released unknown, and a site that has broken off from the other
                // since must not be fenced for what that has forgotten.
                let back = self.mirrors[s][d].at_destination;
                let was_its_replica = matches!(back, AtDestination::Broken | AtDestination::Dormant);
                let is_untold = self.mirrors[d][s].is_told_lost && self.mirrors[d][s].mark.is_none();
                (!(was_its_replica && is_untold)).then_some(())?;
                let mirror = &mut world.mirrors[d][s];
                mirror.is_known.then_some(())?;
                let is_known = mirror.mark.is_some();
                let is_decided = mirror.mark.is_some_and(|mark| !mark.beyond);
                (mirror.is_known, mirror.is_kept, mirror.mark) = (false, false, None);
                world.knows[s] |= is_known;
                // A person who knows has said that they are two.
                if is_decided {
                    world.leave(d);
                }
            }
            Step::Deny(s) => {
                self.policy[s].then_some(())?;
                // What is fenced by now is noted.
                for row in &mut world.mirrors {
                    row[s].mark = row[s].mark.map(|mark| Mark { fenced: true, ..mark });
                }
                world.policy[s] = false;
            }
            Step::ClosePool(x) => {
                self.is_pool_open[x].then_some(())?;
                world.is_pool_open[x] = false;
            }
            Step::OpenPool(x) => {
                (!self.is_pool_open[x]).then_some(())?;
                world.is_pool_open[x] = true;
            }
            Step::LoseDatabase(x) => {
                // What nobody else remembers is lost with it: a mirror that was deleted at its destination, or that was
                // released at its source before it heard of the break.
                let is_only_memory = (0..SITES).any(|y| {
                    let (own, of_source) = (&self.mirrors[x][y], &self.mirrors[y][x]);
                    let is_untold = own.at_destination == AtDestination::Broken && !own.told;
                    let is_forgotten = !own.is_known && !own.is_kept;
                    own.ending.is_some()
                        || (is_untold && is_forgotten)
                        || of_source.mark.is_some_and(|mark| mark.ended || !of_source.is_kept)
                });
                (self.losses > 0 && !is_only_memory).then_some(())?;
                world.losses -= 1;
                world.policy[x] = false;
                for row in &mut world.mirrors {
                    (row[x].is_known, row[x].mark) = (false, None);
                }
                for own in &mut world.mirrors[x] {
                    (own.is_told_lost, own.told) = (own.told || own.is_told_lost, false);
                    // The break itself is in the pool.
                    own.is_told_lost |= own.at_destination != AtDestination::Nothing;
                }
            }
            Step::Tell(d, s) => world.tell(d, s),
        }
        (world != *self).then_some(world)
    }

    fn steps() -> Vec<Step> {
        let mut steps = Vec::new();
        for x in 0..SITES {
            steps.extend([Step::Deny(x), Step::ClosePool(x), Step::OpenPool(x), Step::LoseDatabase(x)]);
            for y in (0..SITES).filter(|&y| y != x) {
                steps.extend([Step::Break(x, y), Step::Delete(x, y), Step::Resync(x, y), Step::Follow(x, y)]);
                steps.extend([Step::Swap(x, y), Step::Create(x, y), Step::Release(x, y), Step::Tell(x, y)]);
            }
        }
        steps
    }

    /// As it is when every pool has come back and everything has been said.
    fn settled(mut self) -> World {
        self.is_pool_open = [true; SITES];
        loop {
            let before = self;
            for (d, s) in (0..SITES).flat_map(|d| (0..SITES).map(move |s| (d, s))) {
                self.tell(d, s);
            }
            if self == before {
                return self;
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        let writing: Vec<usize> = (0..SITES).filter(|&site| self.is_host_writing(site)).collect();
        if writing.len() > 1
            && let Some(unknown) = writing.iter().find(|&&site| !self.is_marked(site))
        {
            return Err(format!("hosts write at {writing:?}, and nobody at {unknown} can know"));
        }
        if (0..SITES).any(|site| self.chain(site).contains(&site)) {
            return Err(String::from("a ring: there is no original"));
        }
        Ok(())
    }
}

/// All worlds that so many steps lead to.
fn search(replicas: &[(usize, usize)]) -> usize {
    let steps = World::steps();
    let begun = World::of(replicas);
    // What came before each, for whoever reads a failure.
    let mut seen = HashSet::from([begun]);
    let mut edge = vec![(begun, Vec::new())];
    let asked = std::env::var("FARSIDE_MODEL_DEPTH").ok().and_then(|depth| depth.parse().ok());
    for _ in 0..asked.unwrap_or(DEPTH) {
        let mut next = Vec::new();
        for (world, path) in &edge {
            for &step in &steps {
                let Some(after) = world.after(step) else { continue };
                if !seen.insert(after) {
                    continue;
                }
                let path: Vec<Step> = path.iter().copied().chain([step]).collect();
                let settled = after.settled();
                if let Err(error) = settled.check() {
                    panic!("{error}, after {path:?}: {settled:#?}");
                }
                next.push((after, path));
            }
        }
        edge = next;
    }
    seen.len()
}

#[test]
fn no_two_originals_are_unknown_with_two_replicas_of_one_volume() {
    let worlds = search(&[(1, 0), (2, 0)]);
    assert!(worlds > 1000, "{worlds} worlds");
    println!("{worlds} worlds");
}

#[test]
fn no_two_originals_are_unknown_in_a_cascade() {
    let worlds = search(&[(1, 0), (2, 1)]);
    assert!(worlds > 1000, "{worlds} worlds");
    println!("{worlds} worlds");
}
