//! What a link is: its two directions, and what happens to it while it runs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One of a link's two directions.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From site a to site b.
    Forward,
    /// From site b to site a.
    Back,
}

/// How one direction of a link treats packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Bits of IP packets a second.
    pub rate_bits: u64,
    /// One-way delay, after the packet has left the queue.
    pub delay: Duration,
    /// Delay varies by up to this much more, without packets overtaking each other.
    pub jitter: Duration,
    /// Which packets get lost.
    pub loss: Loss,
    /// Share of packets that are overtaken by later ones, 0 to 1.
    pub reorder: f64,
    /// What may wait for the line; a packet that finds the queue full is dropped.
    pub queue_bytes: u64,
    /// Largest IP packet, bytes.
    pub mtu: u32,
}

/// A model of loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Loss {
    /// Each packet by itself.
    Random {
        /// 0 to 1.
        rate: f64,
    },
    /// Two states, one that loses nothing and one that loses all (Gilbert).
    Burst {
        /// Loss in the long run, 0 to 1.
        rate: f64,
        /// Mean number of packets lost in a row, at least 1.
        mean_burst: f64,
    },
}

/// A link: both directions, and what happens to it while it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// As the profile or the experiment calls it.
    pub name: String,
    /// From a to b.
    pub forward: Shape,
    /// From b to a.
    pub back: Shape,
    /// What changes, by time since the link came up, in order.
    pub script: Vec<Event>,
}

/// A scripted change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Since the link came up.
    pub at: Duration,
    /// Which direction; both if absent.
    pub direction: Option<Direction>,
    /// Which of several parallel links, counted from 0; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<u32>,
    /// What happens.
    pub change: Change,
}

/// What may change while a link runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Change {
    /// The line's rate.
    Rate {
        /// Bits a second.
        rate_bits: u64,
    },
    /// The one-way delay.
    Delay {
        /// New delay.
        delay: Duration,
    },
    /// The loss model.
    Loss {
        /// New model.
        loss: Loss,
    },
    /// Nothing gets through from now on.
    Down,
    /// Packets pass again.
    Up,
}
