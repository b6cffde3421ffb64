//! Reads places, nodes and data of the device, counts, and keeps the findings.

use std::collections::HashMap;
use std::rc::Rc;

use farside_format::{BLOCK_BYTES, Node, NodeExpectation, node, pointer::TWIN_DISTANCE};
use farside_platform::{BlockBuffer, BlockDevice};
use uuid::Uuid;

use crate::options::{CheckOptions, Progress};
use crate::report::{Finding, Location, Report, Severity, What};

/// Nodes kept in memory (about 6 KiB each, 24 MiB): enough for the ancestors of the subtree being walked.
const CACHED_NODES_MAX: usize = 4096;
/// Bytes between two calls of the progress callback.
const PROGRESS_BYTES: u64 = 4 << 20;

const REPAIR_HINT: &str =
    "the other copy is good: nothing is lost; a scrub of the opened pool rewrites this one";
const NODE_HINT: &str =
    "blocks below this node cannot be read; restore the volume from a mirror or an older snapshot";

pub(crate) struct Reader<'a> {
    device: &'a dyn BlockDevice,
    pub(crate) options: &'a CheckOptions,
    pool: Uuid,
    has_older_point: bool,
    bytes_read: u64,
    bytes_in_use: u64,
    progressed: u64,
    stage: &'static str,
    cache: HashMap<u64, Rc<Node>>,
    findings: Vec<Finding>,
    dropped: u64,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(device: &'a dyn BlockDevice, options: &'a CheckOptions) -> Self {
        Reader {
            device,
            options,
            pool: Uuid::nil(),
            has_older_point: false,
            bytes_read: 0,
            bytes_in_use: 0,
            progressed: 0,
            stage: "superblocks",
            cache: HashMap::new(),
            findings: Vec::new(),
            dropped: 0,
        }
    }

    /// The superblocks are known: which pool this is, and whether both of its slots hold a point of their own.
    pub(crate) fn begin(&mut self, pool: Uuid, has_older_point: bool) {
        (self.pool, self.has_older_point) = (pool, has_older_point);
    }

    pub(crate) fn has_older_point(&self) -> bool {
        self.has_older_point
    }

    pub(crate) fn pool(&self) -> Uuid {
        self.pool
    }

    pub(crate) fn device_name(&self) -> String {
        self.device.name()
    }

    pub(crate) fn device_blocks(&self) -> u64 {
        self.device.bytes() / BLOCK_BYTES as u64
    }

    pub(crate) fn stage(&mut self, stage: &'static str) {
        self.stage = stage;
        self.report_progress();
    }

    pub(crate) fn set_bytes_in_use(&mut self, bytes: u64) {
        self.bytes_in_use = bytes;
    }

    fn report_progress(&mut self) {
        self.progressed = self.bytes_read;
        if let Some(callback) = &self.options.progress {
            callback(Progress {
                stage: self.stage,
                bytes_read: self.bytes_read,
                bytes_in_use: self.bytes_in_use,
            });
        }
    }

    /// Notes a finding. The same thing seen again from the other point, or along another way, is kept once.
    pub(crate) fn find(
        &mut self,
        severity: Severity,
        what: What,
        location: Location,
        expected: impl Into<String>,
        found: impl Into<String>,
        hint: &'static str,
    ) {
        let finding =
            Finding { severity, what, location, expected: expected.into(), found: found.into(), hint };
        if self.findings.iter().any(|other| is_same(other, &finding)) {
            return;
        }
        if self.findings.len() < self.options.findings_max {
            self.findings.push(finding);
            return;
        }
        self.dropped += 1;
        // What is worse, or says more than that something known is lost, stays.
        let least = self.findings.iter().rposition(|kept| rank(kept) < rank(&finding));
        if let Some(least) = least {
            self.findings.remove(least);
            self.findings.push(finding);
        }
    }

    pub(crate) fn error(
        &mut self,
        what: What,
        location: Location,
        expected: impl Into<String>,
        found: impl Into<String>,
        hint: &'static str,
    ) {
        self.find(Severity::Error, what, location, expected, found, hint);
    }

    /// Errors so far.
    pub(crate) fn errors(&self) -> u64 {
        self.dropped + self.findings.iter().filter(|f| f.severity == Severity::Error).count() as u64
    }

    /// Reads consecutive places. A medium that refuses is told as text: for a check it is damage like any other.
    pub(crate) fn read(&mut self, place: u64, buffer: &mut BlockBuffer) -> Result<(), String> {
        let blocks = buffer.blocks() as u64;
        if place.checked_add(blocks).is_none_or(|end| end > self.device_blocks()) {
            return Err("it lies past the end of the device".into());
        }
        self.device.read_at(place * BLOCK_BYTES as u64, buffer).map_err(|e| e.to_string())?;
        self.bytes_read += blocks * BLOCK_BYTES as u64;
        if self.bytes_read - self.progressed >= PROGRESS_BYTES {
            self.report_progress();
        }
        Ok(())
    }

    /// The node that `expected` leads to, with both copies checked and findings noted at `location`; none if no copy
    /// is good.
    pub(crate) fn check_node(&mut self, expected: &NodeExpectation, location: Location) -> Option<Rc<Node>> {
        let place = expected.pointer.place.0;
        let mut first = BlockBuffer::zeroed(1);
        let read = self.read(place, &mut first);
        let decoded = read.and_then(|()| Node::decode_expected(&first, expected).map_err(|e| e.to_string()));
        if node::copies(expected.level) == 1 {
            return match decoded {
                Ok(node) => Some(self.keep(node)),
                Err(why) => {
                    self.error(What::Node, location, describe(expected), why, NODE_HINT);
                    None
                }
            };
        }
        let mut second = BlockBuffer::zeroed(1);
        let read_second = self.read(place + TWIN_DISTANCE, &mut second);
        let decoded_second =
            read_second.and_then(|()| Node::decode_expected(&second, expected).map_err(|e| e.to_string()));
        let at_second = Location { place: Some(place + TWIN_DISTANCE), ..location.clone() };
        match (decoded, decoded_second) {
            (Ok(node), Ok(_)) => {
                if first[..] != second[..] {
                    self.error(
                        What::NodeSecondCopy,
                        at_second,
                        "two equal copies",
                        "they differ",
                        REPAIR_HINT,
                    );
                }
                Some(self.keep(node))
            }
            (Ok(node), Err(why)) => {
                self.error(What::NodeSecondCopy, at_second, describe(expected), why, REPAIR_HINT);
                Some(self.keep(node))
            }
            (Err(why), Ok(node)) => {
                self.error(What::Node, location, describe(expected), why, REPAIR_HINT);
                Some(self.keep(node))
            }
            (Err(why), Err(why_second)) => {
                self.error(What::NodeSecondCopy, at_second, describe(expected), why_second, NODE_HINT);
                self.error(What::Node, location, describe(expected), why, NODE_HINT);
                None
            }
        }
    }

    /// The node that `expected` leads to, from memory if it is there; none if no copy is good. Notes nothing: for
    /// nodes that are checked elsewhere.
    pub(crate) fn load_node(&mut self, expected: &NodeExpectation) -> Option<Rc<Node>> {
        let place = expected.pointer.place.0;
        if let Some(node) = self.cache.get(&place) {
            let same = node.level == expected.level
                && node.kind == expected.kind
                && node.family == expected.family
                && node.position == expected.position
                && node.birth == expected.pointer.birth;
            if same && node.fingerprint() == expected.pointer.fingerprint {
                return Some(node.clone());
            }
        }
        let mut block = BlockBuffer::zeroed(1);
        for copy in 0..node::copies(expected.level) {
            if self.read(place + copy * TWIN_DISTANCE, &mut block).is_ok()
                && let Ok(node) = Node::decode_expected(&block, expected)
            {
                return Some(self.keep(node));
            }
        }
        None
    }

    fn keep(&mut self, node: Node) -> Rc<Node> {
        if self.cache.len() >= CACHED_NODES_MAX {
            // All at once: the walk comes back to few of them, and refills what it needs in a few reads.
            self.cache.clear();
        }
        let node = Rc::new(node);
        self.cache.insert(node.place.0, node.clone());
        node
    }

    pub(crate) fn finish(mut self, report: &mut Report) {
        self.report_progress();
        report.findings = self.findings;
        report.findings_dropped = self.dropped;
        report.bytes_read = self.bytes_read;
    }
}

/// Which findings make room for which others.
fn rank(finding: &Finding) -> u8 {
    match (finding.severity, finding.what) {
        (Severity::Warning, _) => 0,
        (Severity::Error, What::Quarantined) => 1,
        (Severity::Error, _) => 2,
    }
}

/// Whether both are the same thing, seen from either point or along two ways.
fn is_same(a: &Finding, b: &Finding) -> bool {
    if a.what != b.what || a.found != b.found {
        return false;
    }
    let (at, other) = (&a.location, &b.location);
    // A node or block at a place is one thing, whichever version led there; a block with several owners is one for each of
    // them.
    let by_place = matches!(a.what, What::Node | What::NodeSecondCopy | What::DataBlock)
        && at.place == other.place
        && at.level == other.level
        && (a.what != What::DataBlock || (at.volume == other.volume && at.position == other.position));
    by_place || (at.is_same_but_for_the_point(other) && a.expected == b.expected)
}

fn describe(expected: &NodeExpectation) -> String {
    format!(
        "the node of level {} at position {}, birth {}, fingerprint {}",
        expected.level, expected.position, expected.pointer.birth.0, expected.pointer.fingerprint
    )
}
