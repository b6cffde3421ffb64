//! Three sites, and everything that can be done to them in a few steps: breaks, deletions, resyncs, role changes, releases,
//! rights taken back, pools that close and come back, databases that are lost, and words that do not arrive. After each the
//! sites are left alone until nothing more is said. Then two sites that hosts may write to are both marked, unless a person at
//! the site that is not has decided so. And hosts may write to an original that all others follow, unless one of these was
//! deleted after it went on, which only a person can settle. And no site is overtaken by a break that it has followed, if its own
//! is later.
//!
//! The decisions are the product's ([`hear`], [`release`], [`is_refused`], [`is_fenced`], [`GoneOn::is_settled`]); what surrounds them is
//! told here anew, as small as it gets.

use std::collections::HashSet;

use super::{GoneOn, Heard, Left, PoolSays, Request, Said, Settled, hear, is_fenced, is_refused, release};

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
    follows: Sites,
    /// Its mirror is over, and another of the same volume has begun.
    is_back: bool,
    /// Which have had an update of the source since.
    updated: Sites,
}

/// Some of the sites.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Sites(u8);

impl Sites {
    fn of(sites: impl IntoIterator<Item = usize>) -> Sites {
        Sites(sites.into_iter().fold(0, |all, site| all | 1 << site))
    }

    fn all(self) -> Vec<usize> {
        (0..SITES).filter(|site| self.0 & 1 << site != 0).collect()
    }
}

/// What the source of a mirror that is over is to be told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Ending {
    said: Said,
    /// What the volume follows since; beyond it, who went on and what that follows.
    follows: Sites,
    /// It was answered, and is said over until the source knows that the volume follows it.
    is_repeated: bool,
}

impl Ending {
    fn new(said: Said, follows: Sites) -> Ending {
        Ending { said, follows, is_repeated: false }
    }
}

/// The mirror of one site's volume at another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Mirror {
    at_destination: AtDestination,
    /// The source has answered what it was told of the newest break.
    told: bool,
    /// Whether it has is forgotten.
    is_told_lost: bool,
    /// It is over, and the source is to be told this.
    ending: Option<Ending>,
    /// What the source followed, as it said last.
    beyond: Sites,
    /// What the source was told last that follows with the destination.
    has_said: Option<Sites>,
    /// The same, as the source remembers it: without those that have asked it for an update since.
    line_said: Sites,
    /// At the source: in the database.
    is_known: bool,
    /// At the source: in the pool.
    is_kept: bool,
    /// At the destination: in the pool, what it has had of the source. The source's own mirror of the destination's volume, if it was
    /// broken off, was so before that.
    has_version: bool,
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
    /// Whoever has followed another follows.
    FollowAnother(usize, usize),
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
            has_version: true,
            beyond: Sites::of(self.known_chain(source)),
            ..Mirror::default()
        };
        // What was kept for the mirror back has a successor, and what that has brought; who was overtaken by it is so no more.
        let back = &mut self.mirrors[source][destination];
        (back.is_known, back.is_kept, back.has_version, back.mark) = (false, false, false, None);
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

    /// The same, as far as the site has been told.
    fn known_chain(&self, site: usize) -> Vec<usize> {
        let Some(source) = self.follows(site) else { return Vec::new() };
        [vec![source], self.mirrors[site][source].beyond.all()].concat()
    }

    /// Whether a site that followed another would follow itself, as either of them knows it.
    fn is_ring(&self, destination: usize, source: usize) -> bool {
        self.chain(source).contains(&destination) || self.known_chain(source).contains(&destination)
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

    /// Who went on without a site, by one mirror of its.
    fn gone_on(&self, d: usize, s: usize) -> GoneOn<usize> {
        let Some(mark) = self.mirrors[d][s].mark else { return GoneOn::default() };
        GoneOn { itself: (!mark.beyond).then_some(d), follows: mark.follows.all() }
    }

    /// What follows a site, and has not gone on; `since` a mark that nobody says again, only what has shown it.
    fn line(&self, site: usize, since: Option<Mark>) -> Vec<usize> {
        let is_in_line = |d: &usize| {
            let mirror = &self.mirrors[*d][site];
            let has_shown = since.is_none_or(|mark| !mark.ended || mark.updated.all().contains(d));
            let has_gone_on = mirror.mark.is_some_and(|mark| !mark.is_back && (mark.ended || !mark.beyond));
            mirror.is_known && mirror.is_kept && !has_gone_on && has_shown
        };
        (0..SITES).filter(is_in_line).collect()
    }

    /// The same for `of`, which has gone on, and follows `nearest` since: with what that has said to follow with it.
    fn line_with(&self, site: usize, of: usize, nearest: usize) -> Vec<usize> {
        let mut line = self.line(site, None);
        line.retain(|follower| *follower != of);
        if line.contains(&nearest) {
            line.extend(self.mirrors[nearest][site].line_said.all());
        }
        line
    }

    /// Whether a mark is of no concern; `further` follow the site, besides those that it knows itself.
    fn is_settled(&self, d: usize, s: usize, further: &[usize]) -> bool {
        let mark = self.mirrors[d][s].mark;
        let line = [self.line(s, mark), further.to_vec()].concat();
        mark.is_some() && self.gone_on(d, s).settled(&self.known_chain(s), &line) != Settled::No
    }

    /// By whose mirror hosts went on without a site, besides those in one line with it.
    fn overtaker(&self, site: usize) -> Option<usize> {
        (0..SITES).find(|&d| self.mirrors[d][site].mark.is_some() && !self.is_settled(d, site, &[]))
    }

    fn is_overtaken(&self, site: usize) -> bool {
        self.overtaker(site).is_some()
    }

    /// Who stands in one line with a site has not gone on without it.
    fn settle(&mut self, site: usize, further: &[usize]) {
        for d in 0..SITES {
            if self.is_settled(d, site, further) {
                let mirror = &mut self.mirrors[d][site];
                if mirror.mark.take().is_some_and(|mark| mark.ended && !mark.is_back) {
                    (mirror.is_known, mirror.is_kept) = (false, false);
                }
            }
        }
    }

    /// `d` has an update of `s`, if it follows that.
    fn update(&mut self, d: usize, s: usize) {
        let mirror = &mut self.mirrors[d][s];
        let is_refused = mirror.mark.is_some_and(|mark| !mark.ended && !mark.beyond);
        let is_there = self.is_pool_open[d] && self.is_pool_open[s];
        if mirror.at_destination != AtDestination::Follows || is_refused || !is_there {
            return;
        }
        (mirror.is_known, mirror.is_kept) = (true, true);
        let beyond = Sites::of(self.known_chain(s));
        self.mirrors[d][s].beyond = beyond;
        for of in &mut self.mirrors {
            of[s].line_said = Sites::of(of[s].line_said.all().into_iter().filter(|site| *site != d));
            if let Some(mark) = &mut of[s].mark {
                mark.updated = Sites::of(mark.updated.all().into_iter().chain([d]));
            }
        }
        self.settle(s, &[]);
        self.settle(d, &[]);
    }

    /// A resync by `d` has come to `s`.
    fn resynced(&mut self, d: usize, s: usize, before: Mirror, left: Vec<usize>) {
        for other in (0..SITES).filter(|&other| other != d) {
            let names = self.gone_on(other, s).places().contains(&d);
            if let Some(mark) = &mut self.mirrors[other][s].mark
                && names
                && mark.ended
            {
                mark.follows = Sites::of(mark.follows.all().into_iter().chain(left.iter().copied()));
            }
        }
        let ended = before.mark.filter(|mark| mark.ended);
        // What it has followed since may go on without it.
        let follows = |mark: Mark| Sites::of(mark.follows.all().into_iter().chain(left));
        let stays = ended.map(|mark| Mark { is_back: true, follows: follows(mark), ..mark });
        self.mirrors[d][s].mark = stays.filter(|mark| mark.follows != Sites::default());
        self.settle(s, &[d]);
        self.update(d, s);
    }

    /// The mirror that a volume was in makes room for another.
    fn replaced(&mut self, d: usize, before: usize, ending: Ending) {
        let mirror = &mut self.mirrors[d][before];
        (mirror.at_destination, mirror.ending) = (AtDestination::Nothing, Some(ending));
        mirror.has_version = false;
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
    fn said(&self, destination: usize, source: usize) -> Option<Ending> {
        let mirror = &self.mirrors[destination][source];
        if mirror.ending.is_some() {
            return mirror.ending;
        }
        let nowhere = Sites::default();
        match mirror.at_destination {
            AtDestination::Broken | AtDestination::Dormant => Some(Ending::new(Said::BrokenOff, nowhere)),
            AtDestination::Follows => Some(match self.overtaker(destination) {
                Some(by) => Ending::new(Said::Beyond, Sites::of(self.gone_on(by, destination).places())),
                None => {
                    let follows = Sites::of(self.line(destination, None));
                    if mirror.has_said == Some(follows) {
                        return None;
                    }
                    Ending::new(Said::Withdrawn, follows)
                }
            }),
            AtDestination::Nothing => None,
        }
    }

    fn tell(&mut self, destination: usize, source: usize) {
        let Some(Ending { said, follows, .. }) = self.said(destination, source) else { return };
        // What it follows is looked up when it is told, and whether it is an original by now.
        let is_over = self.mirrors[destination][source].ending.is_some();
        // Said again until it follows something.
        let has_gone_on = follows != Sites::default() && is_over && self.known_chain(destination).is_empty();
        let (said, follows) = match (said, self.known_chain(destination)) {
            (Said::Ended, chain) if !chain.is_empty() && follows != Sites::default() => {
                (said, Sites::of(chain))
            }
            (Said::Ended, _) => (said, Sites::default()),
            (Said::Beyond, chain) if is_over && chain.is_empty() => (Said::Ended, Sites::default()),
            _ => (said, follows),
        };
        let said = match said {
            Said::Ended if follows.all().contains(&source) => Said::Returned { has_left: false },
            said => said,
        };
        let is_ended = self.mirrors[destination][source].mark.is_some_and(|mark| mark.ended);
        let left = match is_ended {
            true => self.gone_on(destination, source).left(&follows.all()),
            false => Vec::new(),
        };
        let (said, follows) = match said {
            Said::Returned { .. } => (Said::Returned { has_left: !left.is_empty() }, follows),
            Said::Ended if follows != Sites::default() => {
                (said, Sites::of(follows.all().into_iter().chain(left)))
            }
            said => (said, follows),
        };
        let chain = self.known_chain(source);
        let line = match (said, self.follows(destination)) {
            (Said::Beyond, _) if !is_over => self.line(source, None),
            (Said::Ended, Some(nearest)) if follows != Sites::default() => {
                self.line_with(source, destination, nearest)
            }
            _ => Vec::new(),
        };
        let is_open = self.is_pool_open[source];
        let policy = self.policy[source];
        let back = self.mirrors[source][destination].at_destination;
        let was_its_replica = matches!(back, AtDestination::Broken | AtDestination::Dormant);
        let has_followed = was_its_replica && self.mirrors[source][destination].has_version;
        let mirror = &mut self.mirrors[destination][source];
        let itself = (said != Said::Beyond).then_some(destination);
        let gone_on = GoneOn { itself, follows: follows.all() };
        // Not broken off when it ended: it only lets go.
        if is_over && said == Said::Withdrawn {
            mirror.ending = None;
            mirror.is_kept = false;
            match release(mirror.mark.is_some()) {
                Left::Nothing => mirror.is_known = false,
                Left::Mark => mirror.mark = mirror.mark.map(|mark| Mark { ended: true, ..mark }),
            }
            return;
        }
        let pool = if is_open {
            PoolSays::Present {
                is_kept: mirror.is_kept,
                follows: chain.contains(&destination),
                settled: gone_on.settled(&chain, &line),
                is_taken_over: false,
                has_followed_since: has_followed && !mirror.is_kept && !mirror.is_told_lost,
            }
        } else {
            PoolSays::Absent
        };
        let is_in_doubt = was_its_replica && mirror.is_told_lost && said != Said::Beyond;
        let is_news = !mirror.told && !is_in_doubt;
        let heard = hear(said, mirror.is_known, is_news, pool);
        match heard {
            // To be said again.
            Heard::NotHere => return,
            Heard::NothingKept | Heard::TakenOver | Heard::Follows | Heard::Back => {}
            Heard::Clear => {
                mirror.mark = mirror.mark.filter(|mark| !mark.beyond || mark.is_back);
                mirror.line_said = if said == Said::Withdrawn { follows } else { mirror.line_said };
            }
            Heard::Over => (mirror.is_known, mirror.is_kept, mirror.mark) = (false, false, None),
            Heard::Note => {
                let was_fenced = mirror.mark.is_some_and(|mark| mark.fenced);
                mirror.is_known = true;
                mirror.line_said = Sites::default();
                mirror.mark = Some(Mark {
                    ended: is_over,
                    beyond: said == Said::Beyond,
                    fenced: is_fenced(was_fenced, policy),
                    follows,
                    is_back: false,
                    updated: Sites::default(),
                });
            }
        }
        let may_come_back =
            matches!(said, Said::Ended | Said::Returned { .. }) && follows != Sites::default();
        let is_noted = matches!(heard, Heard::Note | Heard::Back);
        if !(mirror.is_known && (has_gone_on || (is_noted && may_come_back))) {
            mirror.ending = None;
        }
        mirror.ending = mirror.ending.map(|ending| Ending { is_repeated: true, ..ending });
        mirror.told = said != Said::Withdrawn;
        mirror.has_said = (said == Said::Withdrawn).then_some(follows);
        match said {
            Said::Withdrawn => {
                let further = Sites::of(follows.all().into_iter().chain([destination]));
                self.settle(source, &further.all());
            }
            Said::Returned { .. } => self.settle(source, &[destination]),
            Said::Ended => self.settle(source, &line),
            _ => {}
        }
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
                (mirror.told, mirror.is_told_lost, mirror.has_said) = (false, false, None);
                world.knows[d] = true;
            }
            Step::Delete(d, s) => {
                let is_open = self.is_pool_open[d];
                let mirror = &mut world.mirrors[d][s];
                (mirror.ending.is_none() && is_open).then_some(())?;
                let ending = |said| Some(Ending::new(said, Sites::default()));
                match mirror.at_destination {
                    AtDestination::Nothing => return None,
                    // A copy that goes its own way, and whoever was made from it.
                    AtDestination::Follows => {
                        mirror.ending = ending(Said::Withdrawn);
                        world.leave(d);
                    }
                    AtDestination::Broken | AtDestination::Dormant => mirror.ending = ending(Said::Ended),
                }
                (world.mirrors[d][s].at_destination, world.mirrors[d][s].has_version) =
                    (AtDestination::Nothing, false);
            }
            Step::Resync(d, s) => {
                let mirror = &mut world.mirrors[d][s];
                let is_broken =
                    matches!(mirror.at_destination, AtDestination::Broken | AtDestination::Dormant);
                let is_there = self.is_pool_open[d] && self.is_pool_open[s];
                (is_broken && is_there && self.holds[s] && !self.is_ring(d, s)).then_some(())?;
                let before = std::mem::take(mirror);
                world.begin(d, s);
                // Who was overtaken by this one is so no more; what others said stays.
                world.resynced(d, s, before, Vec::new());
            }
            Step::Follow(d, s) => {
                let is_there = self.is_pool_open[d] && self.is_pool_open[s] && self.holds[d] && self.holds[s];
                let is_free = self.record(d).is_none_or(|source| source == s) && self.follows(d).is_none();
                let has_base = self.mirrors[s][d].is_kept;
                (is_there && is_free && has_base && !self.is_ring(d, s)).then_some(())?;
                // It may not have heard of the break that it follows, nor that the mirror was deleted after that.
                let Mirror { at_destination, told, is_told_lost, ending, .. } = self.mirrors[s][d];
                world.mirrors[s][d] =
                    Mirror { at_destination, told, is_told_lost, ending, ..Mirror::default() };
                world.begin(d, s);
                world.resynced(d, s, self.mirrors[d][s], Vec::new());
            }
            Step::FollowAnother(d, s) => {
                let is_there = self.is_pool_open[d] && self.is_pool_open[s] && self.holds[d] && self.holds[s];
                let before = self.record(d).filter(|before| *before != s)?;
                (is_there && s != d && !self.is_ring(d, s)).then_some(())?;
                let ending = |source: usize| self.mirrors[d][source].ending;
                // What is only said over is so by the new mirror.
                (ending(before).is_none() && ending(s).is_none_or(|ending| ending.is_repeated))
                    .then_some(())?;
                // Over the session that this takes the other says first that it went on.
                let back = &self.mirrors[s][d];
                let is_untold = back.ending.is_some()
                    || (back.at_destination == AtDestination::Broken && back.mark.is_none());
                (!(self.follows(d).is_some() && is_untold)).then_some(())?;
                let overtaker = self.overtaker(d);
                world.mirrors[d][s] = Mirror::default();
                let follows = Sites::of(self.known_chain(s).into_iter().chain([s]));
                world.replaced(
                    d,
                    before,
                    match (self.follows(d), overtaker) {
                        (None, _) => Ending::new(Said::Ended, follows),
                        (Some(_), Some(by)) => {
                            Ending::new(Said::Beyond, Sites::of(self.gone_on(by, d).places()))
                        }
                        (Some(_), None) => Ending::new(Said::Withdrawn, Sites::default()),
                    },
                );
                world.begin(d, s);
                let mut left = [vec![before], self.mirrors[d][before].beyond.all()].concat();
                if left.contains(&s) {
                    left.clear();
                }
                world.resynced(d, s, self.mirrors[d][s], left);
            }
            Step::Swap(d, s) => {
                let mirror = self.mirrors[d][s];
                let is_there = self.is_pool_open[d] && self.is_pool_open[s] && mirror.is_known;
                let before = self.record(s).filter(|other| *other != d);
                let is_told = before.is_none_or(|before| self.mirrors[s][before].ending.is_none());
                let is_free = self.follows(s).is_none() && is_told;
                let follows = mirror.at_destination == AtDestination::Follows;
                (is_there && is_free && follows).then_some(())?;
                let is_overtaken = self.is_overtaken(s) || self.is_overtaken(d);
                (!is_refused(Request::RoleChange, is_overtaken)).then_some(())?;
                world.mirrors[d][s] =
                    Mirror { at_destination: AtDestination::Dormant, told: true, ..Mirror::default() };
                let knows = self.knows[s];
                if let Some(before) = before {
                    world.replaced(s, before, Ending::new(Said::Ended, Sites::of([d])));
                }
                world.begin(s, d);
                world.settle(s, &[]);
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
                // What nobody else remembers is lost with it: a mirror that makes room for another, or that was released at its
                // source before it heard of the break. Of one that was deleted after the break the pool remembers it.
                let is_only_memory = (0..SITES).any(|y| {
                    let (own, of_source) = (&self.mirrors[x][y], &self.mirrors[y][x]);
                    let is_untold = own.at_destination == AtDestination::Broken && !own.told;
                    let is_forgotten = !own.is_known && !own.is_kept;
                    let is_in_pool = own.ending.is_some_and(|ending| {
                        let is_new = !ending.is_repeated && self.record(x).is_none() && !is_forgotten;
                        ending.said == Said::Ended && ending.follows == Sites::default() && is_new
                    });
                    (own.ending.is_some() && !is_in_pool)
                        || (is_untold && is_forgotten)
                        || of_source.mark.is_some_and(|mark| mark.ended || !of_source.is_kept)
                });
                (self.losses > 0 && !is_only_memory).then_some(())?;
                world.losses -= 1;
                world.policy[x] = false;
                for row in &mut world.mirrors {
                    (row[x].is_known, row[x].mark) = (false, None);
                    // Its process ends with it: whoever has a session with the next says all again.
                    (row[x].has_said, row[x].line_said) = (None, Sites::default());
                }
                for own in &mut world.mirrors[x] {
                    if own.ending.take().is_some() {
                        own.at_destination = AtDestination::Broken;
                    }
                    (own.beyond, own.has_said) = (Sites::default(), None);
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
                steps.push(Step::FollowAnother(x, y));
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
            for (d, s) in (0..SITES).flat_map(|d| (0..SITES).map(move |s| (d, s))) {
                self.update(d, s);
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
        let roots: Vec<usize> = (0..SITES).filter(|&site| self.follows(site).is_none()).collect();
        // A copy that went its own way may be written to.
        if let [root] = roots[..]
            && writing.is_empty()
            && self.holds == [true; SITES]
        {
            let is_deleted = |mark: Mark| mark.ended && mark.follows == Sites::default();
            if !(0..SITES).any(|d| self.mirrors[d][root].mark.is_some_and(is_deleted)) {
                return Err(format!("everybody follows {root}, and hosts may not write there"));
            }
        }
        if (0..SITES).any(|site| self.chain(site).contains(&site)) {
            return Err(String::from("a ring: there is no original"));
        }
        for (d, s) in (0..SITES).flat_map(|d| (0..SITES).map(move |s| (d, s))) {
            let (mirror, back) = (&self.mirrors[d][s], &self.mirrors[s][d]);
            let is_later = matches!(back.at_destination, AtDestination::Broken | AtDestination::Dormant);
            if mirror.mark.is_some_and(|mark| !mark.beyond) && is_later && back.has_version {
                return Err(format!(
                    "{s} is overtaken by a break of {d} that it has followed, and its own is later"
                ));
            }
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
