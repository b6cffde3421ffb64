//! Short forms of an experiment file: links by their properties ([`GridEntry`]), contenders with settings
//! ([`VariantEntry`]), and how much of the data goes over a link ([`Portion`]). Reading a file writes them out, so that
//! the rest of the laboratory knows links and contenders only.

// circle: experiment/file.rs, because a matrix is part of an experiment, and what it stands for are links of that experiment

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use super::{Experiment, LinkEntry, Wrong};
use crate::link::{Link, units};

/// A portion by time is what the line carries in so many round trips, in which a connection finds its rate, and the time.
const PORTION_ROUND_TRIPS: u32 = 20;

/// Portions are whole multiples of this: a volume's size must be one of 4 KiB, and transfers read 64 KiB at least.
const PORTION_UNIT: u64 = 64 << 10;

/// Combinations of one short form; more would be a mistake in a list.
const COMBINATIONS_MAX: usize = 1000;

/// How much of the data goes over a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Portion {
    /// So many bytes: `150MiB`.
    Bytes(u64),
    /// What the line carries in 20 round trips and this time: `5s`.
    Time(Duration),
}

impl Portion {
    /// Bytes, whole multiples of 64 KiB.
    #[must_use]
    pub fn bytes(self, link: &Link) -> u64 {
        let bytes = match self {
            Self::Bytes(bytes) => bytes,
            Self::Time(time) => {
                let rtt = link.forward.delay + link.back.delay;
                let span = rtt * PORTION_ROUND_TRIPS + time;
                (link.forward.rate_bits as f64 / 8.0 * span.as_secs_f64()) as u64
            }
        };
        bytes.next_multiple_of(PORTION_UNIT)
    }
}

impl<'de> Deserialize<'de> for Portion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = String::deserialize(deserializer)?;
        if let Ok(time) = units::parse_time(&words) {
            return Ok(Self::Time(time));
        }
        units::parse_bytes(&words).map(Self::Bytes).map_err(|_| {
            serde::de::Error::custom(format!(
                "`{words}` is neither a size nor a time; write `150MiB` or `5s`"
            ))
        })
    }
}

/// Links of every combination of its lists, named by them: `t3-50ms-0.1%`, with `-9000` where MTUs are listed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridEntry {
    /// Profiles by name.
    pub profiles: Vec<String>,
    /// Round-trip times: `50ms`, `0`.
    pub rtt: Vec<String>,
    /// Shares of packets lost each direction: `0.1%`, `0`.
    pub loss: Vec<String>,
    /// Largest packets.
    #[serde(default)]
    pub mtu: Vec<u32>,
    /// As a link's.
    #[serde(default)]
    pub portion: Option<Portion>,
    /// As a link's.
    #[serde(default)]
    pub repetitions: Option<u32>,
    /// As a link's.
    #[serde(default)]
    pub parallel: Option<u32>,
    /// As a link's.
    #[serde(default)]
    pub contenders: Option<Vec<String>>,
}

/// Contenders of every combination of its settings' values; scripts find each setting in their environment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantEntry {
    /// The contender's file.
    pub of: String,
    /// Name of each combination: `{SETTING}` stands for the setting's value.
    pub name: String,
    /// By name, one value or a list of them.
    pub settings: BTreeMap<String, Values>,
}

/// Values of a setting.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Values {
    /// One.
    One(Value),
    /// Each in turn.
    List(Vec<Value>),
}

/// A setting's value: words or a whole number.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Words.
    Words(String),
    /// A number.
    Number(u64),
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(words) => formatter.write_str(words),
            Self::Number(number) => write!(formatter, "{number}"),
        }
    }
}

/// A contender under another name and with settings.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Variant {
    /// Its own name.
    pub name: String,
    /// The contender's.
    pub of: String,
    /// What its scripts find in their environment.
    pub settings: BTreeMap<String, String>,
}

impl VariantEntry {
    /// Every combination, the first setting's values outermost.
    ///
    /// # Errors
    /// [`Wrong`]: a setting without values or with a name that no variable has, or too many combinations.
    pub fn variants(&self) -> Result<Vec<Variant>, Wrong> {
        let place = format!("[[variant]] \"{}\"", self.name);
        let mut all =
            vec![Variant { name: self.name.clone(), of: self.of.clone(), settings: BTreeMap::new() }];
        for (key, values) in &self.settings {
            if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_') {
                let what = format!("{key:?} is no name of a setting");
                return Err(Wrong::new(place, what, "write capital letters and _"));
            }
            let values = match values {
                Values::One(value) => std::slice::from_ref(value),
                Values::List(values) => values.as_slice(),
            };
            let combine = |variant: &Variant| {
                let variant = variant.clone();
                values.iter().map(move |value| {
                    let value = value.to_string();
                    let mut variant = variant.clone();
                    variant.name = variant.name.replace(&format!("{{{key}}}"), &value);
                    variant.settings.insert(key.clone(), value);
                    variant
                })
            };
            all = all.iter().flat_map(combine).collect();
            if all.is_empty() || all.len() > COMBINATIONS_MAX {
                let what = format!("{key} makes {} combinations", all.len());
                return Err(Wrong::new(place, what, format!("1 to {COMBINATIONS_MAX} can be run")));
            }
        }
        Ok(all)
    }
}

impl GridEntry {
    fn links(&self) -> Result<Vec<LinkEntry>, Wrong> {
        let mtus: Vec<Option<u32>> =
            if self.mtu.is_empty() { vec![None] } else { self.mtu.iter().copied().map(Some).collect() };
        let count = self.profiles.len() * self.rtt.len() * self.loss.len() * mtus.len();
        if count == 0 || count > COMBINATIONS_MAX {
            let what = format!("it makes {count} links");
            return Err(Wrong::new("[[grid]]", what, format!("1 to {COMBINATIONS_MAX} can be laid")));
        }
        let wrong = |error: units::UnitError| Wrong::new("[[grid]]", error.to_string(), "change its lists");
        let mut links = Vec::with_capacity(count);
        for profile in &self.profiles {
            for rtt_words in &self.rtt {
                let rtt = units::parse_time(rtt_words).map_err(wrong)?;
                for loss_words in &self.loss {
                    let loss = units::parse_share(loss_words).map_err(wrong)?;
                    for mtu in &mtus {
                        let packets = mtu.map(|mtu| format!("-{mtu}")).unwrap_or_default();
                        links.push(LinkEntry {
                            name: format!("{profile}-{rtt_words}-{loss_words}{packets}"),
                            profile: Some(profile.clone()),
                            rtt: Some(rtt),
                            loss: Some(loss),
                            mtu: *mtu,
                            portion: self.portion,
                            repetitions: self.repetitions,
                            parallel: self.parallel,
                            contenders: self.contenders.clone(),
                            ..LinkEntry::default()
                        });
                    }
                }
            }
        }
        Ok(links)
    }
}

impl Experiment {
    /// Writes grids and variants out as links and contenders.
    pub(super) fn expand(&mut self) -> Result<(), Wrong> {
        for grid in &self.grids {
            self.links.extend(grid.links()?);
        }
        let variants = self.written_variants()?;
        self.contenders.extend(variants.into_iter().map(|variant| variant.name));
        Ok(())
    }

    /// All variants, in order.
    ///
    /// # Errors
    /// [`Wrong`]: one that cannot be. [`Experiment::parse`] has refused such a file already.
    pub fn written_variants(&self) -> Result<Vec<Variant>, Wrong> {
        let all: Result<Vec<Vec<Variant>>, Wrong> =
            self.variants.iter().map(VariantEntry::variants).collect();
        Ok(all?.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const FILE: &str = r#"
title = "t"
contenders = ["rsync"]
[[variant]]
of = "tcp"
name = "tcp-{CONGESTION}-{STREAMS}"
settings = { STREAMS = [1, 8], CONGESTION = ["cubic", "bbr"], PLAIN = "x" }
[[link]]
name = "own"
rate = "1Mbit"
portion = "150KiB"
[[grid]]
profiles = ["t1", "t3"]
rtt = ["0", "100ms"]
loss = ["0", "0.1%"]
mtu = [1500, 9000]
portion = "3s"
parallel = 4
"#;

    fn parse(text: &str) -> Result<Experiment, String> {
        Experiment::parse(Path::new("x.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn grids_and_variants_are_written_out() {
        let experiment = parse(FILE).expect("an experiment");
        let names: Vec<&str> = experiment.links.iter().map(|link| link.name.as_str()).collect();
        assert_eq!(names.len(), 1 + 2 * 2 * 2 * 2);
        assert_eq!(names[..3], ["own", "t1-0-0-1500", "t1-0-0-9000"]);
        assert_eq!(names[16], "t3-100ms-0.1%-9000");
        let links = experiment.build_links().expect("links");
        assert_eq!((links[16].forward.mtu, links[16].forward.rate_bits), (9000, 44_736_000));
        assert_eq!(experiment.links[16].parallel, Some(4));
        assert_eq!(
            experiment.contenders,
            ["rsync", "tcp-cubic-1", "tcp-cubic-8", "tcp-bbr-1", "tcp-bbr-8"],
            "settings by name, the first outermost"
        );
        let variants = experiment.written_variants().expect("variants");
        let setting = |name: &str| variants[3].settings.get(name).map(String::as_str);
        assert_eq!(
            (setting("CONGESTION"), setting("STREAMS"), setting("PLAIN")),
            (Some("bbr"), Some("8"), Some("x"))
        );
    }

    #[test]
    fn a_portion_is_a_size_or_what_the_line_carries_in_20_round_trips_and_a_time() {
        let experiment = parse(FILE).expect("an experiment");
        let links = experiment.build_links().expect("links");
        let portions = experiment.portions(&links);
        assert_eq!(portions[0], Some(192 << 10), "150 KiB, up to the next 64 KiB");
        // 5 s at 44.736 Mb/s are 27 960 000 bytes.
        assert_eq!(portions[16], Some(27_983_872));
        assert_eq!(portions[1], Some(589_824), "3 s at 1.544 Mb/s");
    }

    #[test]
    fn what_makes_no_combination_or_cannot_be_named_is_refused() {
        let wrong = |from: &str, to: &str| parse(&FILE.replace(from, to)).expect_err(to);
        assert!(wrong("rtt = [\"0\", \"100ms\"]", "rtt = []").contains("0 links"));
        assert!(wrong("STREAMS = [1, 8]", "STREAMS = []").contains("0 combinations"));
        assert!(wrong("STREAMS = [1, 8]", "streams = [1, 8]").contains("capital letters"));
        // Without the setting in the name, combinations have the same one.
        assert!(wrong("tcp-{CONGESTION}-{STREAMS}", "tcp-{STREAMS}").contains("stands there twice"));
        assert!(wrong("\"100ms\"", "\"100 monkeys\"").contains("[[grid]]"));
        assert!(wrong("portion = \"3s\"", "portion = \"much\"").contains("neither a size nor a time"));
    }
}
