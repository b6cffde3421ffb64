//! The third stage: what a frame may refer to. Similar regions of what both sides hold, of other volumes too, found by their
//! anchors, then the base's blocks at the frame's own places. In the order of the stream, because what one frame carries the
//! next may use.

use std::sync::Arc;

use farside_wire::{Anchors, Effort, Indexes, Origin, Search, SimilarityIndex};
use tokio::sync::mpsc;

use super::frame::Frame;
use super::pace::Pace;
use super::step::{BothSides, StepSource};
use crate::error::{TransferError, piece};
use crate::source::counters::Counters;
use crate::source::cross_volume::CrossVolume;
use crate::source::similarity::VolumeIndex;

/// What the search keeps from frame to frame.
pub(crate) struct Searching {
    source: StepSource,
    counters: Arc<Counters>,
    pace: Arc<Pace>,
    search: Search,
    /// Of the volume.
    index: Option<Arc<VolumeIndex>>,
    /// What the destination holds of other volumes.
    cross_volume: CrossVolume,
    /// Of the frame at hand, where the search or the index needs them.
    anchors: Anchors,
    /// The base's bytes at a frame's own places.
    old: Vec<u8>,
}

/// Of the base, if there is one, and of other volumes.
struct AllIndexes<'a> {
    of_base: Option<&'a VolumeIndex>,
    cross_volume: &'a CrossVolume,
}

impl Indexes for AllIndexes<'_> {
    fn each(&self, look: &mut dyn FnMut(Origin, &SimilarityIndex)) {
        // One lock at a time: the volumes' own transfers hold theirs, and look into this volume's.
        if let Some(index) = self.of_base {
            index.read(|index| look(Origin::Base, index));
        }
        self.cross_volume.indexes(look);
    }
}

/// Searches for a frame at a time on a blocking thread.
pub(crate) async fn search(
    mut searching: Searching,
    mut frames: mpsc::Receiver<Frame>,
    out: mpsc::Sender<Frame>,
) -> Result<(), TransferError> {
    while let Some(mut frame) = frames.recv().await {
        (frame, searching) = piece(move || {
            searching.prepare(&mut frame);
            Ok::<_, TransferError>((frame, searching))
        })
        .await?;
        if out.send(frame).await.is_err() {
            break;
        }
    }
    Ok(())
}

impl Searching {
    pub(crate) fn new(
        source: StepSource,
        counters: Arc<Counters>,
        pace: Arc<Pace>,
        index: Option<Arc<VolumeIndex>>,
        cross_volume: CrossVolume,
    ) -> Searching {
        let (search, anchors, old) = (Search::new(), Anchors::new(), Vec::new());
        Searching { source, counters, pace, search, index, cross_volume, anchors, old }
    }

    fn prepare(&mut self, frame: &mut Frame) {
        let begins = self.pace.now();
        frame.effort = self.pace.next_effort();
        frame.withdrawn = self.cross_volume.look();
        self.search.withdraw(&frame.withdrawn);
        let refers = self.source.refers && frame.planned.plan.data_blocks > 0;
        let searches = refers && frame.effort >= Effort::Standard;
        if searches || self.index.is_some() {
            self.anchors.find(&frame.planned.plan, &frame.work.data);
        }
        if refers && frame.effort > Effort::Raw {
            if searches {
                self.add_similar(frame);
            }
            // Last, because the compressor reaches back most cheaply to what stands last.
            if self.search.wants_old(&frame.work.data) {
                self.add_same_place(frame);
            }
        }
        if let Some(index) = &self.index {
            index.enter(&frame.planned.plan, &self.anchors);
        }
        frame.searching = self.pace.now().saturating_sub(begins);
        self.pace.searched(frame.effort, frame.planned.plan.data_bytes(), frame.searching);
    }

    fn add_similar(&mut self, frame: &mut Frame) {
        let Frame { planned, work, effort, .. } = frame;
        let mut both =
            BothSides { source: &self.source, cross_volume: &self.cross_volume, counters: &self.counters };
        let (search, anchors, plan) = (&mut self.search, &self.anchors, &planned.plan);
        let of_base = self.index.as_ref().filter(|_| self.source.usable_base().is_some());
        let indexes = AllIndexes { of_base: of_base.map(|index| &**index), cross_volume: &self.cross_volume };
        let mut found = search.regions(plan, anchors, &indexes, &mut both);
        let resembles = found.len();
        if self.source.usable_base().is_none() {
            let is_strong = *effort == Effort::Strong;
            let recent = search.recent(&found, *effort);
            let alike = search.alike(plan, &found, if is_strong { 2 } else { 1 });
            found.extend(recent);
            found.extend(alike);
        }
        if let Some(why) = work.prefix.add_regions(&found, &mut both) {
            self.source.warn_of_damage(&why);
        }
        search.carried(plan, anchors);
        self.cross_volume.searched(&found[..resembles]);
    }

    fn add_same_place(&mut self, frame: &mut Frame) {
        let (source, plan) = (&self.source, &frame.planned.plan);
        let Some(base) = source.usable_base() else { return };
        self.old.resize(plan.data_bytes() as usize, 0);
        self.counters.base_read.add(self.old.len() as u64);
        let ranges: Vec<(u64, u64)> = plan.data_runs().map(|run| (run.position, run.blocks)).collect();
        let read = source.engine.read_snapshot_ranges(&source.volume, base, &ranges, &mut self.old);
        if read.is_err() {
            let mut rest = &mut self.old[..];
            for range in ranges.chunks(1) {
                let (was, after) = rest.split_at_mut(range[0].1 as usize * farside_wire::BLOCK_BYTES);
                let read = source.engine.read_snapshot_ranges(&source.volume, base, range, was);
                // A base that cannot be read here only costs bytes: zeros are left out of a prefix.
                if let Err(error) = read {
                    source.warn_of_damage(&error.to_string());
                    was.fill(0);
                }
                rest = after;
            }
        }
        if self.search.resembles_old(&frame.work.data, &self.old) {
            frame.work.prefix.add_same_place(&plan.runs, &self.old);
        }
    }
}
