//! What a mirror's history says of its updates, in the figures that are compared.

use std::time::SystemTime;

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::Value;

use crate::support::Site;

/// One update that was published.
#[derive(Clone, Debug)]
pub(crate) struct Update {
    /// Seconds since the Unix epoch.
    pub(crate) started: f64,
    pub(crate) ended: f64,
    /// Bytes that changed since the update before.
    pub(crate) changed: u64,
    /// Changed bytes over the time since the update before began.
    pub(crate) rate: f64,
    /// The part of what changed that did not have to travel; none of an update that is too small to say.
    pub(crate) saving: Option<f64>,
    /// Bytes that travelled as they are and look encrypted or packed already.
    pub(crate) noise: u64,
    /// From its beginning until it was published.
    pub(crate) took: f64,
}

/// An update of fewer bytes says nothing of its saving.
const SAVING_LEAST: u64 = 256 << 10;

pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// A moment of a document, in seconds since the Unix epoch.
pub(crate) fn moment(text: &Value) -> f64 {
    let at: jiff::Timestamp = text.as_str().unwrap().parse().unwrap();
    at.as_nanosecond() as f64 / 1e9
}

/// The updates of a mirror that its history still has, oldest first.
pub(crate) fn updates(site: &Site, volume: &str) -> Vec<Update> {
    let history = site.json(&format!("mirror history {volume}"));
    let mut ended: Vec<&Value> =
        history.as_array().unwrap().iter().filter(|record| record["result"] == "ok").collect();
    ended.reverse();
    let one = |pair: &[&Value]| {
        let (before, record) = (pair[0], pair[1]);
        let number = |key: &str| record[key].as_u64().unwrap();
        let changed = number("changed_bytes") + number("resumed_bytes");
        let (whole, travelled) = match record["levels"].as_object() {
            Some(levels) => {
                let sum = |key: &str| levels.values().map(|level| level[key].as_u64().unwrap()).sum::<u64>();
                // What was not compressed because the line was faster counts half, as the daemon has it.
                let noise = record["noise_bytes"].as_u64();
                let plain = noise.map_or(0, |noise| levels["raw"]["in_bytes"].as_u64().unwrap() - noise);
                (sum("in_bytes"), sum("out_bytes") - plain / 2)
            }
            None => (changed, number("wire_bytes_received")),
        };
        let (started, ended) = (moment(&record["started_at"]), moment(&record["ended_at"]));
        Update {
            started,
            ended,
            changed,
            rate: changed as f64 / (started - moment(&before["started_at"])).max(1.0),
            saving: (whole >= SAVING_LEAST).then(|| 1.0 - travelled as f64 / whole as f64),
            noise: record["noise_bytes"].as_u64().unwrap_or(0),
            took: ended - started,
        }
    };
    ended.windows(2).map(one).collect()
}

/// Of any number of values; 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value that this part of all does not exceed; 0 of none.
pub(crate) fn quantile(values: &[f64], part: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * part).round() as usize).copied().unwrap_or(0.0)
}

/// So many bytes that compress as text does, each time others.
pub(crate) fn text(random: &mut StdRng, bytes: usize) -> Vec<u8> {
    let words = ["volume", "snapshot", "mirror", "replica", "peer", "frame", "source", "site"];
    let mut text = Vec::with_capacity(bytes + 32);
    while text.len() < bytes {
        text.extend_from_slice(words[random.random_range(0..words.len())].as_bytes());
        text.extend_from_slice(format!(" {:x} ", random.random::<u32>()).as_bytes());
    }
    text.truncate(bytes);
    text
}
