//! Links, ways and data sets in words. Pure.

use crate::link::{Link, Loss, Shape, Way};
use crate::record::result::DataFacts;

use super::text::{MEGABYTE, count, exact, number, one_line};

/// A way in words.
#[must_use]
pub fn way(way: Way) -> &'static str {
    match way {
        Way::Forward => "a→b",
        Way::Back => "b→a",
    }
}

/// `1.544 Mb/s`, `256 kb/s`.
#[must_use]
pub fn rate(bits: u64) -> String {
    let (value, unit) = match bits {
        0..1_000_000 => (bits as f64 / 1e3, "kb/s"),
        1_000_000..1_000_000_000 => (bits as f64 / 1e6, "Mb/s"),
        _ => (bits as f64 / 1e9, "Gb/s"),
    };
    format!("{} {unit}", exact(value))
}

/// A link in words: `44.736 Mb/s, RTT 50 ms, loss 0.1 % each way`.
#[must_use]
pub fn link(link: &Link) -> String {
    let (forward, back) = (&link.forward, &link.back);
    let both = |of: &dyn Fn(&Shape) -> String| {
        let (one, other) = (of(forward), of(back));
        if one == other { one } else { format!("{one} a→b, {other} b→a") }
    };
    let rtt = forward.delay + back.delay;
    let mut words =
        vec![both(&|shape| rate(shape.rate_bits)), format!("RTT {} ms", exact(rtt.as_secs_f64() * 1e3))];
    let loss = |shape: &Shape| match shape.loss {
        Loss::Random { rate } if rate > 0.0 => format!("loss {} %", exact(rate * 100.0)),
        Loss::Burst { rate, mean_burst } if rate > 0.0 => {
            format!("loss {} % in bursts of {}", exact(rate * 100.0), exact(mean_burst))
        }
        Loss::Random { .. } | Loss::Burst { .. } => "no loss".to_owned(),
    };
    let losses = both(&loss);
    words.push(if losses.starts_with("loss") && !losses.contains('→') {
        losses + " each way"
    } else {
        losses
    });
    if forward.jitter + back.jitter > std::time::Duration::ZERO {
        words.push(both(&|shape| format!("jitter {} ms", exact(shape.jitter.as_secs_f64() * 1e3))));
    }
    if forward.reorder + back.reorder > 0.0 {
        words.push(both(&|shape| format!("{} % reordered", exact(shape.reorder * 100.0))));
    }
    if !link.script.is_empty() {
        words.push("changes while it runs".to_owned());
    }
    words.join(", ")
}

/// A data set in words: `volume image of 168 MB, of which 128 MB are not zero; A→B: 10407 of 40960 4 KiB blocks change`.
#[must_use]
pub fn data(facts: &DataFacts) -> String {
    let mb = |bytes: u64| number(bytes as f64 / MEGABYTE);
    let kind = if facts.kind == "tree" { "a tree of files" } else { "images of volumes" };
    let mut words = vec![format!("set {}, {kind}, seed {}", one_line(&facts.set), facts.seed)];
    for generation in &facts.generations {
        let volumes =
            if generation.volumes == 1 { String::new() } else { format!("{} volumes, ", generation.volumes) };
        let mut text = format!(
            "{}: {volumes}{} MB, {} MB without holes, {} MB under zstd -3",
            one_line(&generation.name),
            mb(generation.size_bytes),
            mb(generation.data_bytes),
            mb(generation.zstd_bytes),
        );
        if let Some(changed) = generation.changed_blocks {
            let blocks = (generation.size_bytes / 4096).max(1);
            let percent = number(changed as f64 * 100.0 / blocks as f64);
            text.push_str(&format!(", {} blocks of 4 KiB changed ({percent} %)", count(changed as f64)));
        }
        words.push(text);
    }
    words.join("; ")
}
