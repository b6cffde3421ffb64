//! Chooses the [`Effort`] for the next frame: the fewest bytes that the link leaves time for. Pure: what it knows it was told
//! of frames that were sent.
//!
//! A transfer is a pipeline: read, search, encode (several at a time), send in order. Its speed in bytes of the volume is
//! what its slowest stage allows:
//!
//! ```text
//!   goodput(effort) = min( 1 / search seconds per byte(effort),
//!                          encoders / encode seconds per byte(effort),
//!                          link bytes per second / ratio(effort) )
//! ```
//!
//! More effort raises the last limit and lowers the others. Bytes have a price of their own (a link is shared, or paid for),
//! so an effort is worth its time if it saves bytes in the same proportion: the best is the one with the least *time x bytes*,
//! among those that are not slower than *raw*. A database's update over a T3 may take three times as long to send a quarter
//! of the bytes; a first copy is not slowed to half for a tenth of them.
//! All the level control does is to keep the unknowns of that line honest:
//!
//! * *Seconds per byte* and *ratio* of an effort come from its latest frames. One that was not used lately is
//!   *sampled*, two frames at a time, and only if its encoders could keep up at all; a sample that changes nothing makes
//!   the next one wait twice as long. Frames differ by more than two efforts do: what few of them show of more effort counts
//!   only beside what is usual.
//! * A short transfer has no time for samples. As soon as the link is full the next effort is taken on trust, if encoders have
//!   a quarter more than it should need; where they have half as much again, they always try.
//! * *The link's rate* shows only while the link is full: when the sender spends 85 % of its time or more in writes that
//!   block. A link that is not full was never seen (then it is faster than what was sent, and once the transfer is long
//!   enough for that to matter the level control goes down a step at a time), or was seen full before. That is believed until more
//!   goes through than it should carry, and looked at again now and then with one step less effort.
//! * Connections that measure what arrives of them show what the link carries *at least* ([`LevelControl::link_delivers`]), from the
//!   bursts in which frames leave, long before it is full. If *raw* at that rate would be faster than what goes through, effort
//!   goes down at once: nothing needs to be tried for it. On a link that has shown more than an OC-3 *fast* is tried
//!   at once. It never says that a link is slow, and once the link is
//!   full at less than was shown, the rest of the stream does without.
//! * The search goes one frame at a time, so what it takes is known before anything was encoded or sent. Where connections have shown
//!   that *raw* would be half as fast again as the search alone, *fast*, which hardly searches, is chosen at once
//!   ([`LevelControl::searched`]): an update's database at 1 Gb/s was searched for at 45 MB/s.
//! * Where neither the link nor the encoders are busy, something else is slow (reads): nothing is changed.
//! * Of the first transfer over a link nothing is known but its round trip. A dozen frames are encoded before the first that was
//!   sent shows anything; a link between towns is likely slow, so they are *thorough* there ([`LevelControl::over`]), until a quarter of a
//!   megabyte has passed without filling it.
//!
//! What keeps it calm: nothing is concluded from fewer than four frames of an effort; small gains wait until an effort has
//! had its time, and that time doubles when the level control comes back to an effort that it has just left.
//!
//! What keeps it from harm: no step up without idle cores for it, none beyond what the site's memory budget allows, and
//! what is slower than *raw* by two per cent is left.

use std::time::Duration;

use crate::effort::Effort;

/// Efforts there are.
const EFFORTS: usize = Effort::ALL.len();
/// Frames of an effort before anything is concluded.
const FRAMES_MIN: u32 = 4;
/// Unless they took so long: a link that takes seconds for a frame is slow, whatever the next frame says.
const WINDOW_MIN: Duration = Duration::from_secs(1);
/// Share of its time that the sender spends in writes when the link is full. Less is no proof: a frame that is larger than
/// the socket's buffer waits in its write for itself alone.
const FULL: f64 = 0.85;
/// Share of its time that a stage works when it is the one that is slow.
const BUSY: f64 = 0.6;
/// Frames that come faster than all encoders could make them had waited in the queue; how fast such a burst goes into the
/// socket's buffer says nothing.
const BURST: f64 = 1.2;
/// A change of the link's rate that is one.
const LINK_CHANGE: f64 = 1.25;
/// Bytes that must have passed before a link that was never full is called fast enough for *raw*: less than that may still
/// lie in the socket's buffer, which Linux lets grow to 4 MiB unless told otherwise.
const BUFFERED_MAX: f64 = 4_194_304.0;
/// The same for a step down to any other effort: what such a buffer takes of a connection that is new. Also before what is taken on
/// trust of a link between towns is given up.
const BUFFERED_FIRST: f64 = 262_144.0;
/// Bytes beyond what the link should have carried that prove it faster: the buffer was full when its rate was taken, and
/// what drained since is accounted for.
const OUTGROWN: f64 = 262_144.0;
/// By how much raw may be faster.
const SLOWER_THAN_RAW: f64 = 1.02;
/// Bytes of the volume that a transfer carries before it goes down on a link that was never full. With fewer it is over in
/// two seconds or so at any effort, and what goes through says nothing: it fits the buffers on the way.
const UNSEEN_MIN: f64 = 268_435_456.0;
/// The same before it tries *raw*: on a link that proves to be slow that costs some ten megabytes, which were measured as
/// three times a whole first copy of a database. *Fast* carries 1 Gb/s and more meanwhile.
const UNSEEN_RAW_MIN: f64 = 1_073_741_824.0;
/// Rate that connections must have measured for *fast* to be tried before that, bytes per second: more than an OC-3. What a try
/// costs there is sent in milliseconds.
const SHOWN_FAST: f64 = 20e6;
/// Gain that is worth a step down on a link that was never full.
const GAIN_DOWN: f64 = 1.02;
/// The same on a link whose rate is known. The ratio counts twice, and frames differ.
const GAIN_DOWN_WHEN_KNOWN: f64 = 1.15;
/// Gain that is worth a step up.
const GAIN_UP: f64 = 1.1;
/// Gain that is worth a step before the effort has had its time.
const GAIN_AT_ONCE: f64 = 1.5;
/// Frames that were searched for before anything is concluded from that: of the first not all is in memory.
const SEARCHED_MIN: u32 = 2;
/// Frames that are an effort's time, at first and at most.
const DWELL: (u64, u64) = (16, 512);
/// Frames for which an effort counts as just left.
const JUST_LEFT: u64 = 256;
/// Frames after which what an effort measured is too old to go by.
const FRESH: u64 = 512;
/// Frames of a sample.
const SAMPLE: u32 = 2;
/// Frames until an effort is sampled again, at first and at most.
const SAMPLE_EVERY: (u64, u64) = (32, 2048);
/// Frames at least until the link's rate is looked at again with less effort.
const LOOK_EVERY: u64 = 64;
/// Frames that a look is taken to last: those to judge by, those under way, and a socket's buffer.
const LOOK_FRAMES: f64 = 16.0;
/// Share of the time, and of the bytes, that looks may cost.
const LOOK_COST: f64 = 0.01;
/// The same for the first look after the link has stopped being full: most likely it has become faster.
const FIRST_LOOK_COST: f64 = 0.05;
/// Bytes out per byte in of what no effort makes smaller. Its encoders look ample because they give up at once; a step up would
/// be paid for by what comes after it.
const INCOMPRESSIBLE: f64 = 0.97;
/// Encoders that could do so many times what is needed make a step up safe without a sample.
const AMPLE: f64 = 4.0;
/// The same for the next effort while the link is full: what one step costs more is much the same for all data, and a short
/// transfer is over before two samples have gone through the pipeline.
const AMPLE_FOR_NEXT: f64 = 1.25;
/// Encoders that could do so many times what a full link takes of them may as well try the next effort: what few frames have
/// shown of it is mostly that they differ.
const AMPLE_WHEN_FULL: f64 = 1.5;
/// Gain that is worth it then.
const GAIN_UP_WHEN_AMPLE: f64 = 1.03;
/// A round trip that makes a link one between towns: the first frames over it are *thorough*. If it is fast after all they cost two
/// cores 50 ms more; on a T1 a first copy of a database was 3 % larger with a dozen frames at *standard*.
const BETWEEN_TOWNS: Duration = Duration::from_millis(5);
/// What a frame weighs against the next, for what is measured of an effort: 32 frames, more or less.
const EFFORT_MEMORY: f64 = 31.0 / 32.0;
/// The same for the window: eight frames.
const WINDOW_MEMORY: f64 = 7.0 / 8.0;
/// Frames that a window weighs in all.
const WINDOW_FRAMES: u32 = 8;

/// Seconds of an encoder per byte, relative to *standard*, until they are measured (3000, 550, 200, 80 and 17 MB/s).
const TYPICAL_COST: [f64; EFFORTS] = [0.07, 0.36, 1.0, 2.5, 12.0];
/// The same of the search, which *raw* does without and *fast* nearly.
const TYPICAL_SEARCH: [f64; EFFORTS] = [0.01, 0.2, 1.0, 1.0, 1.0];
/// Bytes out per byte in until they are measured; only how they compare matters. *Thorough* makes 4 to 12 per cent less than
/// *standard* of a first copy, *strong* 1 to 5 less than that.
const TYPICAL_RATIO: [f64; EFFORTS] = [1.0, 0.45, 0.35, 0.325, 0.313];
/// Bytes that what is usual weighs against what was measured, from *standard* up: eight frames. Frames differ by more than two
/// such efforts do, so two of them say little. How much larger *fast* is depends on the data, up to twenty times.
const USUAL_BYTES: f64 = 8_388_608.0;

/// A frame that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// What it was encoded with.
    pub effort: Effort,
    /// Bytes of the blocks it carries, decoded; 0 for one of holes alone.
    pub in_bytes: u64,
    /// Bytes of the frame.
    pub out_bytes: u64,
    /// Time the search had it, reads for the search and of the prefix included; one frame at a time.
    pub searching: Duration,
    /// Time an encoder had it.
    pub encoding: Duration,
    /// Time for which the sender waited for it, having nothing to send.
    pub waited: Duration,
    /// Time that writing it took.
    pub writing: Duration,
}

/// What the site has for encoding.
#[derive(Clone, Copy, Debug)]
pub struct EncoderResources {
    /// Frames that may be encoded at the same time.
    pub encoders: u32,
    /// Cores that nobody uses.
    pub idle_cores: f64,
    /// The most that the memory budget allows.
    pub ceiling: Effort,
}

/// What is known of an effort: sums that fade.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    in_bytes: f64,
    out_bytes: f64,
    /// Of the search.
    searching: f64,
    /// Of the encoders.
    encoding: f64,
    /// Number of its latest frame.
    at: u64,
}

/// What the search has done with the present effort, for frames that may not have been sent yet.
#[derive(Clone, Copy, Debug, Default)]
struct Searched {
    frames: u32,
    in_bytes: f64,
    seconds: f64,
}

/// The link while it is full: sums that fade, from the end of one write that waited to the end of the next. A socket takes
/// several small frames at once and none for a while then; all of them are what the link has carried in between.
#[derive(Clone, Copy, Debug, Default)]
struct Filled {
    frames: u32,
    out_bytes: f64,
    seconds: f64,
    /// Since the latest write that waited; none before the first.
    since: Option<Since>,
}

/// Frames since the latest write that waited.
#[derive(Clone, Copy, Debug, Default)]
struct Since {
    out_bytes: f64,
    waited: f64,
    seconds: f64,
}

/// What the sender did of late, with the present effort: sums that fade.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    frames: u32,
    in_bytes: f64,
    waited: f64,
    writing: f64,
    filled: Filled,
}

impl Window {
    fn seconds(&self) -> f64 {
        self.waited + self.writing
    }
}

/// A question that is asked ever more rarely while the answer stays the same.
#[derive(Clone, Copy, Debug)]
struct Now {
    at: u64,
    every: u64,
}

impl Now {
    fn again(&mut self, now: u64, most: u64) {
        self.at = now + self.every;
        self.every = (2 * self.every).min(most);
    }
}

/// Chooses the effort of one transfer's frames.
#[derive(Clone, Debug)]
pub struct LevelControl {
    is_pinned: bool,
    /// What frames are encoded with, but for samples.
    effort: Effort,
    /// Samples that are still to be encoded.
    sampling: Option<(Effort, u32)>,
    measured: [Measured; EFFORTS],
    window: Window,
    searched: Searched,
    /// Frames sent.
    frames: u64,
    /// Rate of the link when it was full, bytes per second.
    link: Option<f64>,
    /// What the link carries at least by what its connections have measured, bytes per second.
    shown: Option<f64>,
    /// The link was full at less than was shown: that is not heeded in this stream.
    is_misled: bool,
    /// Bytes that have passed since the link was last full, beyond what it would have carried; less than none if it could
    /// have carried more.
    passed: f64,
    /// Time in which the link could have carried something.
    seconds: f64,
    /// Bytes sent.
    out_bytes: f64,
    /// Bytes of the volume that this stream has carried; more once the link has become faster.
    stream_bytes: f64,
    /// Number of the frame at which the effort was chosen.
    chosen_at: u64,
    dwell: u64,
    /// The effort was chosen to see what the link does.
    is_looking: bool,
    /// When each effort was left.
    left_at: [Option<u64>; EFFORTS],
    sample: [Now; EFFORTS],
    /// When the link was last looked at, or full: number of the frame, time, bytes sent.
    looked_at: (u64, f64, f64),
    /// The link was full with the present effort, and since then it was not looked at.
    was_full: bool,
}

impl Default for LevelControl {
    fn default() -> Self {
        LevelControl::new()
    }
}

impl LevelControl {
    /// Begins with *standard*.
    pub fn new() -> LevelControl {
        LevelControl {
            is_pinned: false,
            effort: Effort::Standard,
            sampling: None,
            measured: [Measured::default(); EFFORTS],
            window: Window::default(),
            searched: Searched::default(),
            frames: 0,
            link: None,
            shown: None,
            is_misled: false,
            passed: 0.0,
            seconds: 0.0,
            out_bytes: 0.0,
            stream_bytes: 0.0,
            chosen_at: 0,
            dwell: DWELL.0,
            is_looking: false,
            left_at: [None; EFFORTS],
            sample: [Now { at: 0, every: SAMPLE_EVERY.0 }; EFFORTS],
            looked_at: (0, 0.0, 0.0),
            was_full: false,
        }
    }

    /// For a link of which nothing is known but its round trip without queues; zero: not even that.
    pub fn over(round_trip: Duration) -> LevelControl {
        let effort = if round_trip >= BETWEEN_TOWNS { Effort::Thorough } else { Effort::Standard };
        LevelControl { effort, ..LevelControl::new() }
    }

    /// Stays at `effort`, whatever is measured, but for what memory does not allow.
    pub fn pinned(effort: Effort) -> LevelControl {
        LevelControl { is_pinned: true, effort, ..LevelControl::new() }
    }

    /// The effort that is in force now; samples do not count.
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// For the frame that is encoded next. Asked once for each.
    pub fn next_effort(&mut self, resources: &EncoderResources) -> Effort {
        let effort = match self.sampling {
            Some((effort, left)) => {
                self.sampling = (left > 1).then_some((effort, left - 1));
                effort
            }
            None => self.effort,
        };
        effort.min(resources.ceiling)
    }

    /// For the next stream over the same link: begins with what was learnt of that, and with *standard* or more. What was
    /// learnt of efforts was of other data: for a first copy *fast* is nearly as good, for the update after it three to
    /// twenty times larger. And what has passed before proves nothing of the link any more: the buffer has drained since, and
    /// takes as much again at once.
    #[must_use]
    pub fn again(&self) -> LevelControl {
        let effort = if self.is_pinned { self.effort } else { self.effort.max(Effort::Standard) };
        LevelControl {
            is_pinned: self.is_pinned,
            effort,
            link: self.link,
            shown: self.shown,
            passed: self.passed.min(0.0),
            was_full: self.was_full,
            ..LevelControl::new()
        }
    }

    /// What the connections of the stream have measured to arrive, bytes per second: the link carries at least that. Told
    /// before [`sent`](Self::sent), as often as there is something to tell; never where nobody measures.
    pub fn link_delivers(&mut self, bytes_per_second: u64) {
        if !self.is_misled && bytes_per_second > 0 {
            let rate = bytes_per_second as f64;
            self.shown = Some(self.shown.map_or(rate, |shown| shown.max(rate)));
        }
    }

    /// The search had a frame of `in_bytes` for `searching`; encoders have it next. *Fast* it must not be slower than, if connections
    /// have shown what the link carries and it was never seen full.
    pub fn searched(&mut self, effort: Effort, in_bytes: u64, searching: Duration) {
        let (None, Some(shown), false) = (self.link, self.shown, self.is_pinned) else { return };
        let is_shown_fast = self.is_shown_fast();
        // A sample, or a frame that memory allowed less for, says nothing of the present effort.
        if effort != self.effort || effort < Effort::Standard || in_bytes == 0 {
            return;
        }
        let searched = &mut self.searched;
        searched.frames = searched.frames.saturating_add(1);
        searched.in_bytes += in_bytes as f64;
        searched.seconds += searching.as_secs_f64();
        if searched.frames >= SEARCHED_MIN
            && is_shown_fast
            && searched.seconds * shown >= GAIN_AT_ONCE * searched.in_bytes
        {
            self.choose(Effort::Fast);
        }
    }

    /// Learns from a frame that was sent. Frames are told in the order of the stream.
    pub fn sent(&mut self, frame: &Sent, resources: &EncoderResources) {
        self.frames += 1;
        let seconds = frame.waited.as_secs_f64() + frame.writing.as_secs_f64();
        self.seconds += seconds;
        self.out_bytes += frame.out_bytes as f64;
        self.stream_bytes += frame.in_bytes as f64;
        let carried = self.link.map_or(0.0, |link| LINK_CHANGE * link * seconds);
        // What the link could have carried and did not have is room in the buffer now.
        self.passed = (self.passed + frame.out_bytes as f64 - carried).max(-BUFFERED_MAX);
        if self.is_pinned || frame.in_bytes == 0 {
            return;
        }
        self.measured[frame.effort as usize].add(frame, self.frames);
        // A frame that was encoded before the effort changed, or a sample, says nothing of the present one.
        if frame.effort == self.effort.min(resources.ceiling) {
            self.window.add(frame);
            self.decide(resources);
        }
    }

    fn decide(&mut self, resources: &EncoderResources) {
        let window = self.window;
        let seconds = window.seconds();
        if (window.frames < FRAMES_MIN && seconds < WINDOW_MIN.as_secs_f64()) || seconds <= 0.0 {
            return;
        }
        let current = self.effort.min(resources.ceiling);
        let goodput = window.in_bytes / seconds;
        let (searching, encoding) = (self.search_cost(current, current), self.cost(current, current));
        let (cores, encoders) = (goodput * encoding, f64::from(resources.encoders.max(1)));
        if cores > BURST * encoders || goodput * searching > BURST {
            return;
        }
        let encoders = (cores + resources.idle_cores.max(0.0)).clamp(1.0, encoders);
        let is_full = window.writing / seconds >= FULL && window.filled.is_enough();
        self.heed_link(is_full, window.filled.out_bytes / window.filled.seconds);
        if !is_full && cores < BUSY * encoders && goodput * searching < BUSY {
            return;
        }
        // It was taken on trust that the link is slow, or it has become faster.
        if !is_full && self.link.is_none() && current > Effort::Standard && self.passed >= BUFFERED_FIRST {
            self.choose(Effort::Standard);
            return;
        }
        let capacity =
            |effort| (encoders / self.cost(effort, current)).min(1.0 / self.search_cost(effort, current));
        // A link that was never full counts as what it has shown where that is enough for raw to be faster, and as endless otherwise.
        let shown = self.shown.filter(|shown| shown.min(capacity(Effort::Raw)) > SLOWER_THAN_RAW * goodput);
        let is_shown = self.link.is_none() && !is_full && shown.is_some();
        let link = if is_shown { shown } else { self.link };
        let promise = |effort: Effort, ratio: f64| {
            capacity(effort).min(link.map_or(f64::INFINITY, |link| link / ratio))
        };

        // Bytes count where the link is known; where it is not, only whether something faster goes through as well.
        let is_known = link.is_some();
        let worth = |speed: f64, ratio: f64| if is_known { speed / ratio } else { speed };
        let raw = promise(Effort::Raw, 1.0);
        let is_slower_than_raw = |speed: f64| is_known && raw > SLOWER_THAN_RAW * speed;
        let must_leave = is_slower_than_raw(goodput);
        // What a transfer begins with was not chosen.
        let is_first = self.left_at.iter().all(Option::is_none);
        let has_had_its_time = self.frames - self.chosen_at >= self.dwell
            || (is_first && (is_full || must_leave || self.is_shown_fast()))
            || (must_leave && raw >= GAIN_AT_ONCE * goodput);
        let own = self.ratio(current, current);
        let mut best: Option<(Effort, f64)> = None;
        let mut unknown: Option<Effort> = None;
        for candidate in Effort::ALL {
            if candidate == current || candidate > resources.ceiling {
                continue;
            }
            if !self.may_try(candidate, current, is_full, must_leave) {
                continue;
            }
            let is_up = candidate > current;
            let ratio = self.ratio(candidate, current);
            let speed = promise(candidate, ratio);
            if candidate != Effort::Raw && is_slower_than_raw(speed) {
                continue;
            }
            // A few large frames at a full link are no reason to take more time for the next: by its usual ones it may be faster.
            let usually = if is_up && is_full { promise(current, own).max(goodput) } else { goodput };
            let now = worth(usually, own);
            let ample = capacity(candidate) / usually;
            let hoped = self.hoped_ratio(candidate, current);
            let hope = worth(promise(candidate, hoped), hoped) / now;
            let gain = if is_full && ample >= AMPLE_WHEN_FULL { hope } else { worth(speed, ratio) / now };
            let is_next = is_full && cheaper(candidate) == Some(current);
            let needed = match (has_had_its_time, is_up) {
                (false, _) => GAIN_AT_ONCE,
                (true, _) if must_leave => 0.0,
                (true, true) if is_full && ample >= AMPLE_WHEN_FULL => GAIN_UP_WHEN_AMPLE,
                (true, true) => GAIN_UP,
                (true, false) if is_known => GAIN_DOWN_WHEN_KNOWN,
                (true, false) => GAIN_DOWN,
            };
            // What is slower than raw is left for what is likely faster: if it is not, raw is next.
            let is_fresh =
                is_shown || self.is_fresh(candidate) || ample >= if is_next { AMPLE_FOR_NEXT } else { AMPLE };
            if is_fresh && gain >= needed && best.is_none_or(|(_, most)| gain > most) {
                best = Some((candidate, gain));
            }
            if !is_fresh && hope >= GAIN_UP && self.sample[candidate as usize].at <= self.frames {
                unknown = Some(candidate);
            }
        }
        if let Some((effort, _)) = best {
            self.choose(effort);
        } else if let (Some(effort), None) = (unknown, self.sampling) {
            self.sampling = Some((effort, SAMPLE));
            self.sample[effort as usize].again(self.frames, SAMPLE_EVERY.1);
        } else if let (false, true, Some(_), Some(cheaper)) =
            (is_full, has_had_its_time, self.link, cheaper(current))
        {
            let ratio = self.ratio(cheaper, current);
            let slower = 1.0 / promise(cheaper, ratio) - 1.0 / goodput;
            let larger = ratio - self.ratio(current, current);
            let looked = LOOK_FRAMES * window.in_bytes / f64::from(window.frames.min(WINDOW_FRAMES));
            let (frame, time, bytes) = self.looked_at;
            let share = if self.was_full { FIRST_LOOK_COST } else { LOOK_COST };
            let is_paid = (self.seconds - time) * share >= looked * slower
                && (self.out_bytes - bytes) * share >= looked * larger;
            if self.frames - frame >= LOOK_EVERY && self.stream_bytes >= UNSEEN_MIN && is_paid {
                self.looked_at = (self.frames, self.seconds, self.out_bytes);
                self.choose(cheaper);
                self.is_looking = true;
                self.dwell = 0;
            }
        }
    }

    /// What a window says of the link.
    fn heed_link(&mut self, is_full: bool, rate: f64) {
        if is_full {
            let is_as_before = |link: f64| rate <= LINK_CHANGE * link && link <= LINK_CHANGE * rate;
            if !self.link.is_some_and(is_as_before) {
                self.sample = [Now { at: 0, every: SAMPLE_EVERY.0 }; EFFORTS];
            }
            self.link = Some(rate);
            self.is_misled |= self.shown.is_some_and(|shown| shown > LINK_CHANGE * rate);
            self.shown = self.shown.filter(|_| !self.is_misled);
            self.passed = 0.0;
            self.was_full = true;
            self.looked_at = (self.frames, self.seconds, self.out_bytes);
        } else if self.link.is_some_and(|link| {
            self.passed > OUTGROWN || self.shown.is_some_and(|shown| shown > LINK_CHANGE * link)
        }) {
            self.link = None;
            self.passed = 0.0;
            // It has just proved itself faster than it was: no need to wait until that matters.
            self.stream_bytes = self.stream_bytes.max(UNSEEN_RAW_MIN);
        }
    }

    /// Upwards wherever the link's rate is known. Downwards only in a transfer that is long enough for it to matter, or off what
    /// is slower than *raw*: to try costs bytes, up to twenty times as many for a frame of moved files. On a link of unknown
    /// rate step by step, each when the link has proved it.
    fn may_try(&self, candidate: Effort, current: Effort, is_full: bool, must_leave: bool) -> bool {
        if candidate > current {
            return is_full || self.link.is_some();
        }
        if must_leave {
            return true;
        }
        // It would have to make fewer bytes. More effort seldom makes more of them, and what frames show of it is mostly that
        // they differ.
        if is_full {
            return false;
        }
        let is_shown_fast = self.is_shown_fast();
        if self.stream_bytes < UNSEEN_MIN && !(is_shown_fast && candidate != Effort::Raw) {
            return false;
        }
        if self.link.is_some() {
            return true;
        }
        let (passed, carried) = match candidate {
            Effort::Raw => (BUFFERED_MAX, UNSEEN_RAW_MIN),
            // What was measured has arrived, it lies in no buffer.
            _ if is_shown_fast => (0.0, 0.0),
            _ => (BUFFERED_FIRST, UNSEEN_MIN),
        };
        let is_proved = self.passed >= passed && self.stream_bytes >= carried;
        cheaper(current) == Some(candidate) && is_proved
    }

    /// Whether connections have measured what makes *fast* worth a try.
    fn is_shown_fast(&self) -> bool {
        self.shown.is_some_and(|shown| shown >= SHOWN_FAST)
    }

    fn is_fresh(&self, effort: Effort) -> bool {
        let measured = &self.measured[effort as usize];
        // That raw stays what it is need not be tried.
        effort == Effort::Raw || (measured.in_bytes > 0.0 && self.frames - measured.at <= FRESH)
    }

    /// Seconds of an encoder per byte.
    fn cost(&self, effort: Effort, current: Effort) -> f64 {
        self.seconds_per_byte(effort, current, &TYPICAL_COST, |measured| measured.encoding)
    }

    /// Seconds of the search per byte.
    fn search_cost(&self, effort: Effort, current: Effort) -> f64 {
        self.seconds_per_byte(effort, current, &TYPICAL_SEARCH, |measured| measured.searching)
    }

    fn seconds_per_byte(
        &self,
        effort: Effort,
        current: Effort,
        typical: &[f64; EFFORTS],
        seconds: impl Fn(&Measured) -> f64,
    ) -> f64 {
        let of = |effort: Effort| {
            let measured = &self.measured[effort as usize];
            (measured.in_bytes > 0.0).then(|| (seconds(measured) / measured.in_bytes).max(f64::MIN_POSITIVE))
        };
        let relative = typical[effort as usize] / typical[current as usize];
        of(effort).or_else(|| Some(of(current)? * relative)).unwrap_or(f64::MIN_POSITIVE)
    }

    /// Bytes out per byte in.
    fn ratio(&self, effort: Effort, current: Effort) -> f64 {
        let measured = &self.measured[effort as usize];
        match effort {
            Effort::Raw => 1.0,
            _ if measured.in_bytes > 0.0 => {
                let usual = if effort.min(current) >= Effort::Standard { USUAL_BYTES } else { 0.0 };
                let out_bytes = measured.out_bytes + usual * self.typical_ratio(effort, current);
                (out_bytes / (measured.in_bytes + usual)).max(f64::MIN_POSITIVE)
            }
            _ => self.typical_ratio(effort, current),
        }
    }

    /// The same for an effort of which nothing is known but how it usually compares with the present one.
    fn typical_ratio(&self, effort: Effort, current: Effort) -> f64 {
        let relative = TYPICAL_RATIO[effort as usize] / TYPICAL_RATIO[current as usize];
        let measured = &self.measured[current as usize];
        let now = match current {
            Effort::Raw => 1.0,
            _ => measured.out_bytes / measured.in_bytes.max(1.0),
        };
        let is_hopeless = current != Effort::Raw && effort > current && now >= INCOMPRESSIBLE;
        (if is_hopeless { now } else { now * relative }).max(f64::MIN_POSITIVE)
    }

    /// The better of what an effort was once and what it usually is.
    fn hoped_ratio(&self, effort: Effort, current: Effort) -> f64 {
        self.ratio(effort, current).min(self.typical_ratio(effort, current))
    }

    fn choose(&mut self, effort: Effort) {
        let is_back = self.left_at[effort as usize].is_some_and(|at| self.frames - at <= JUST_LEFT);
        self.dwell = if is_back && !self.is_looking { (2 * self.dwell).min(DWELL.1) } else { DWELL.0 };
        self.is_looking = false;
        self.was_full = false;
        self.left_at[self.effort as usize] = Some(self.frames);
        self.chosen_at = self.frames;
        self.effort = effort;
        self.sampling = None;
        self.window = Window::default();
        self.searched = Searched::default();
    }
}

impl Measured {
    fn add(&mut self, frame: &Sent, number: u64) {
        // What it was long ago is not mixed with what it is.
        let memory = if number - self.at > FRESH { 0.0 } else { EFFORT_MEMORY };
        self.in_bytes = memory * self.in_bytes + frame.in_bytes as f64;
        self.out_bytes = memory * self.out_bytes + frame.out_bytes as f64;
        self.searching = memory * self.searching + frame.searching.as_secs_f64();
        self.encoding = memory * self.encoding + frame.encoding.as_secs_f64();
        self.at = number;
    }
}

impl Window {
    fn add(&mut self, frame: &Sent) {
        let (waited, writing) = (frame.waited.as_secs_f64(), frame.writing.as_secs_f64());
        self.frames = self.frames.saturating_add(1);
        self.in_bytes = WINDOW_MEMORY * self.in_bytes + frame.in_bytes as f64;
        self.waited = WINDOW_MEMORY * self.waited + waited;
        self.writing = WINDOW_MEMORY * self.writing + writing;
        self.filled.add(frame.out_bytes as f64, waited, writing);
    }
}

impl Filled {
    fn add(&mut self, out_bytes: f64, waited: f64, writing: f64) {
        let is_blocked = writing >= FULL * (waited + writing);
        // Of the first that waits a part went into what was left of the buffer.
        let Some(mut since) = self.since else {
            self.since = is_blocked.then(Since::default);
            return;
        };
        since.out_bytes += out_bytes;
        since.waited += waited;
        since.seconds += waited + writing;
        self.since = Some(since);
        if !is_blocked {
            return;
        }
        self.since = Some(Since::default());
        // Otherwise the buffer has run dry meanwhile.
        if since.waited <= (1.0 - FULL) * since.seconds {
            self.frames = self.frames.saturating_add(1);
            self.out_bytes = WINDOW_MEMORY * self.out_bytes + since.out_bytes;
            self.seconds = WINDOW_MEMORY * self.seconds + since.seconds;
        }
    }

    fn is_enough(&self) -> bool {
        self.seconds > 0.0 && (self.frames + 1 >= FRAMES_MIN || self.seconds >= WINDOW_MIN.as_secs_f64())
    }
}

fn cheaper(effort: Effort) -> Option<Effort> {
    (effort as usize).checked_sub(1).map(|index| Effort::ALL[index])
}
