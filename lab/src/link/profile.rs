//! Links by name, and a [`Link`] from a profile with other values in their place.

use std::time::Duration;

use super::{Event, LimitError, Link, Loss, Shape};
use thiserror::Error;

/// Largest IP packet where nothing else is said: Ethernet's.
pub const MTU_DEFAULT: u32 = 1500;

/// The default queue holds at least this many packets of the largest size, as routers for slow lines do: a queue of one
/// bandwidth-delay product of a slow or near link would be a handful of packets and TCP could not fill the line.
pub const QUEUE_PACKETS_MIN: u64 = 100;

/// A line that people rent, by name. Delay and loss are not part of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Profile {
    /// What it is called on the command line and in files.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Bits of IP packets a second from a to b.
    pub forward_bits: u64,
    /// From b to a.
    pub back_bits: u64,
}

impl Profile {
    const fn even(name: &'static str, about: &'static str, bits: u64) -> Self {
        Self { name, about, forward_bits: bits, back_bits: bits }
    }

    /// The profile of that name.
    ///
    /// # Errors
    /// [`LinkError::Profile`].
    pub fn by_name(name: &str) -> Result<&'static Self, LinkError> {
        PROFILES
            .iter()
            .find(|profile| profile.name == name)
            .ok_or_else(|| LinkError::Profile(name.to_owned()))
    }
}

/// All profiles, slowest first.
pub const PROFILES: [Profile; 8] = [
    Profile::even("frac-t1", "fractional T1, 256 kb/s", 256_000),
    Profile::even("t1", "T1, 1.544 Mb/s", 1_544_000),
    Profile {
        name: "dsl",
        about: "site b behind DSL: 6 Mb/s down (a to b), 768 kb/s up (b to a)",
        forward_bits: 6_000_000,
        back_bits: 768_000,
    },
    Profile::even("10mb", "10 Mb/s", 10_000_000),
    Profile::even("t3", "T3, 44.736 Mb/s", 44_736_000),
    Profile::even("oc3", "OC-3, 155.52 Mb/s", 155_520_000),
    Profile::even("oc12", "OC-12, 622.08 Mb/s", 622_080_000),
    Profile::even("1gb", "1 Gb/s", 1_000_000_000),
];

/// What is asked of a link: a profile's values, or explicit rates, with what is given here in their place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkTerms {
    /// Gives both rates; without it `rate` must be given.
    pub profile: Option<String>,
    /// Bits a second from a to b, and back unless `rate_back` is given or the profile says another.
    pub rate: Option<u64>,
    /// Bits a second from b to a.
    pub rate_back: Option<u64>,
    /// Delay of both directions together: half of it each direction. Absent: none.
    pub rtt: Option<Duration>,
    /// One-way delay from a to b, in place of half of `rtt`.
    pub delay_forward: Option<Duration>,
    /// One-way delay from b to a, in place of half of `rtt`.
    pub delay_back: Option<Duration>,
    /// Delay varies by up to this much more, each direction.
    pub jitter: Option<Duration>,
    /// Share of packets lost from a to b, and back unless `loss_back` is given.
    pub loss: Option<f64>,
    /// Share of packets lost from b to a.
    pub loss_back: Option<f64>,
    /// Mean number of packets lost in a row; absent: each by itself.
    pub burst: Option<f64>,
    /// Share of packets that are held back so that later ones overtake them.
    pub reorder: Option<f64>,
    /// Bytes that may wait for the line, each direction. Absent: the larger of one bandwidth-delay product and
    /// [`QUEUE_PACKETS_MIN`] packets of the largest size.
    pub queue: Option<u64>,
    /// Largest IP packet, bytes. Absent: [`MTU_DEFAULT`].
    pub mtu: Option<u32>,
    /// What changes while it runs.
    pub script: Vec<Event>,
}

impl LinkTerms {
    /// The link.
    ///
    /// # Errors
    /// [`LinkError`]: no such profile, no rate, or values outside the limits.
    pub fn build(&self, name: &str) -> Result<Link, LinkError> {
        let profile = self.profile.as_deref().map(Profile::by_name).transpose()?;
        let forward_bits = self.rate.or(profile.map(|p| p.forward_bits)).ok_or(LinkError::NoRate)?;
        let back_bits = self.rate_back.or(self.rate).or(profile.map(|p| p.back_bits)).unwrap_or(forward_bits);
        let half = self.rtt.unwrap_or_default() / 2;
        let delay_forward = self.delay_forward.unwrap_or(half);
        let delay_back = self.delay_back.unwrap_or(half);
        let rtt = delay_forward + delay_back;
        let mtu = self.mtu.unwrap_or(MTU_DEFAULT);
        let shape = |rate_bits: u64, delay: Duration, loss: f64| Shape {
            rate_bits,
            delay,
            jitter: self.jitter.unwrap_or_default(),
            loss: match self.burst {
                Some(mean_burst) => Loss::Burst { rate: loss, mean_burst },
                None => Loss::Random { rate: loss },
            },
            reorder: self.reorder.unwrap_or_default(),
            queue_bytes: self.queue.unwrap_or_else(|| queue_default(rate_bits, rtt, mtu)),
            mtu,
        };
        let loss = self.loss.unwrap_or_default();
        let link = Link {
            name: name.to_owned(),
            forward: shape(forward_bits, delay_forward, loss),
            back: shape(back_bits, delay_back, self.loss_back.unwrap_or(loss)),
            script: self.script.clone(),
        };
        link.check()?;
        Ok(link)
    }
}

/// The larger of one bandwidth-delay product and [`QUEUE_PACKETS_MIN`] packets of the largest size, bytes.
fn queue_default(rate_bits: u64, rtt: Duration, mtu: u32) -> u64 {
    let product = u128::from(rate_bits) * rtt.as_nanos() / 8 / 1_000_000_000;
    u64::try_from(product).unwrap_or(u64::MAX).max(QUEUE_PACKETS_MIN * u64::from(mtu))
}

/// Why a link cannot be made of what was asked. Nothing has been laid.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum LinkError {
    /// No profile has that name.
    #[error("there is no profile `{0}`; there are frac-t1, t1, dsl, 10mb, t3, oc3, oc12 and 1gb")]
    Profile(String),
    /// Neither profile nor rate.
    #[error("a link needs a profile or a rate")]
    NoRate,
    /// A value outside its limits.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_builds_a_link_that_is_within_the_limits() {
        for profile in PROFILES {
            let terms = LinkTerms {
                profile: Some(profile.name.to_owned()),
                rtt: Some(Duration::from_millis(300)),
                loss: Some(0.01),
                ..LinkTerms::default()
            };
            let link = terms.build("x").unwrap();
            assert_eq!(link.forward.rate_bits, profile.forward_bits);
            assert_eq!(link.back.rate_bits, profile.back_bits);
            assert_eq!(link.forward.delay, Duration::from_millis(150));
        }
    }

    #[test]
    fn the_default_queue_is_the_larger_of_the_product_and_a_hundred_packets() {
        let link = |profile: &str, rtt_ms| {
            LinkTerms {
                profile: Some(profile.to_owned()),
                rtt: Some(Duration::from_millis(rtt_ms)),
                ..LinkTerms::default()
            }
            .build("x")
            .unwrap()
        };
        assert_eq!(link("t1", 40).forward.queue_bytes, 150_000);
        assert_eq!(link("t3", 50).forward.queue_bytes, 279_600);
        assert_eq!(link("1gb", 100).back.queue_bytes, 12_500_000);
    }

    #[test]
    fn what_is_given_takes_the_profiles_place() {
        let link = LinkTerms {
            profile: Some("dsl".to_owned()),
            rate_back: Some(1_000_000),
            rtt: Some(Duration::from_millis(40)),
            delay_back: Some(Duration::from_millis(5)),
            loss: Some(0.01),
            loss_back: Some(0.0),
            burst: Some(4.0),
            queue: Some(64_000),
            mtu: Some(9000),
            ..LinkTerms::default()
        }
        .build("mine")
        .unwrap();
        assert_eq!(link.name, "mine");
        assert_eq!((link.forward.rate_bits, link.back.rate_bits), (6_000_000, 1_000_000));
        assert_eq!(link.forward.delay, Duration::from_millis(20));
        assert_eq!(link.back.delay, Duration::from_millis(5));
        assert_eq!(link.forward.loss, Loss::Burst { rate: 0.01, mean_burst: 4.0 });
        assert_eq!(link.back.loss, Loss::Burst { rate: 0.0, mean_burst: 4.0 });
        assert_eq!((link.back.queue_bytes, link.back.mtu), (64_000, 9000));
        // One rate given holds for both directions.
        let even = LinkTerms { rate: Some(5_000_000), ..LinkTerms::default() }.build("x").unwrap();
        assert_eq!(even.back.rate_bits, 5_000_000);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(LinkTerms::default().build("x"), Err(LinkError::NoRate));
        let named = LinkTerms { profile: Some("t4".to_owned()), ..LinkTerms::default() };
        assert_eq!(named.build("x"), Err(LinkError::Profile("t4".to_owned())));
        let lossy = LinkTerms { rate: Some(1_000_000), loss: Some(1.5), ..LinkTerms::default() };
        assert!(matches!(lossy.build("x"), Err(LinkError::Limit(_))));
    }
}
