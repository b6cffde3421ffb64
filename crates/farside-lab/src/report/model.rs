//! How long copies of several volumes take over a link, by calculation: what measured cells validate, and what stands for lines that
//! this machine cannot carry. Pure.
//!
//! A transfer goes at the least of three rates: what the line carries of payload, what its windows allow (window ÷ round
//! trip, for each transfer at once), and what the processors of the two sites manage. Around it each transfer needs some
//! round trips and some time. The last three (processors, round trips, time) are fitted to the measured cells.

use crate::experiment::stats::median;

/// Headers of IP and TCP with time stamps, and TLS records of 16 KiB: what of a packet is no payload.
const HEADER_BYTES: f64 = 52.0;
const TLS_SHARE: f64 = 22.0 / 16384.0;

/// Added to each round trip: both hosts take some time to answer.
const HOST_SECONDS: f64 = 0.5e-3;

/// Candidates of the fit: seconds and round trips around each transfer. Finer steps move no result by as much as runs differ.
const SECONDS: std::ops::Range<u32> = 0..40;
const SECONDS_STEP: f64 = 0.025;
const ROUND_TRIPS: std::ops::Range<u32> = 0..40;

/// Candidates of the processors' rate: from 50 Mb/s on, each 5 % more.
const RATES: i32 = 90;
const RATE_LEAST: f64 = 50e6;
const RATE_STEP: f64 = 1.05;

/// What is to be carried, and over what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// Bits a second of IP packets.
    pub rate_bits: f64,
    /// Round trip of the idle line, seconds.
    pub rtt_seconds: f64,
    /// Share of packets lost.
    pub loss: f64,
    /// Largest packet, bytes.
    pub mtu: f64,
    /// Volumes.
    pub volumes: u32,
    /// Of them at once.
    pub at_once: u32,
    /// Window of each, bytes; infinite where it grows by itself.
    pub window: f64,
    /// Payload of all, bytes.
    pub bytes: f64,
}

/// What measured cells say of the machine and of a transfer's surroundings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Payload that the processors of both sites manage, bits a second.
    pub processors_bits: f64,
    /// Round trips around each transfer.
    pub round_trips: f64,
    /// Seconds around each transfer.
    pub seconds: f64,
}

impl Job {
    /// Payload that the line carries, bits a second.
    fn line_bits(&self) -> f64 {
        self.rate_bits * (1.0 - self.loss) * (1.0 - HEADER_BYTES / self.mtu) * (1.0 - TLS_SHARE)
    }

    /// Payload that the windows allow, bits a second.
    fn window_bits(&self) -> f64 {
        f64::from(self.at_once.min(self.volumes)) * self.window * 8.0 / (self.rtt_seconds + HOST_SECONDS)
    }
}

impl Model {
    /// Seconds until all copies are there.
    #[must_use]
    pub fn seconds(&self, job: &Job) -> f64 {
        let bits = job.line_bits().min(job.window_bits()).min(self.processors_bits);
        let turns = f64::from(job.volumes.div_ceil(job.at_once.max(1)));
        job.bytes * 8.0 / bits + turns * (self.seconds + self.round_trips * job.rtt_seconds)
    }

    /// The model that is nearest to measured seconds: by the sum of the distances' ratios, so that short and long cells
    /// count alike. Nothing where nothing was measured.
    #[must_use]
    pub fn fit(measured: &[(Job, f64)]) -> Option<Self> {
        if measured.is_empty() {
            return None;
        }
        let mut best: Option<(f64, Self)> = None;
        for step in 0..RATES {
            let processors_bits = RATE_LEAST * RATE_STEP.powi(step);
            for seconds in SECONDS {
                for round_trips in ROUND_TRIPS {
                    let model = Self {
                        processors_bits,
                        round_trips: f64::from(round_trips),
                        seconds: f64::from(seconds) * SECONDS_STEP,
                    };
                    let distance: f64 =
                        measured.iter().map(|(job, seconds)| (model.seconds(job) / seconds).ln().abs()).sum();
                    if best.is_none_or(|(least, _)| distance < least) {
                        best = Some((distance, model));
                    }
                }
            }
        }
        best.map(|(_, model)| model)
    }

    /// How far it is from what was measured: median and largest distance, as shares.
    #[must_use]
    pub fn errors(&self, measured: &[(Job, f64)]) -> (f64, f64) {
        let errors: Vec<f64> =
            measured.iter().map(|(job, seconds)| (self.seconds(job) / seconds - 1.0).abs()).collect();
        (median(&errors).unwrap_or(0.0), errors.iter().copied().fold(0.0, f64::max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(rate_bits: f64, rtt_ms: f64, at_once: u32, window: f64) -> Job {
        Job {
            rate_bits,
            rtt_seconds: rtt_ms / 1e3,
            loss: 0.0,
            mtu: 1500.0,
            volumes: 6,
            at_once,
            window,
            bytes: 60e6,
        }
    }

    #[test]
    fn the_least_of_line_window_and_processors_decides() {
        let model = Model { processors_bits: 400e6, round_trips: 10.0, seconds: 0.2 };
        // 60 MB at 96.4 % of 10 Mb/s.
        let line = model.seconds(&job(10e6, 0.0, 6, f64::INFINITY));
        assert!((line - (60e6 * 8.0 / 9.64e6 + 0.2)).abs() < 0.1, "{line}");
        // Three at once with 72 KiB in 100.5 ms: 17.6 Mb/s; two turns of ten round trips and 0.2 s.
        let window = model.seconds(&job(1e9, 100.0, 3, 73_728.0));
        assert!((window - (60e6 * 8.0 / 17.607e6 + 2.0 * 1.2)).abs() < 0.05, "{window}");
        let processors = model.seconds(&job(10e9, 0.0, 6, f64::INFINITY));
        assert!((processors - (60e6 * 8.0 / 400e6 + 0.2)).abs() < 1e-6, "{processors}");
    }

    #[test]
    fn a_fit_finds_what_the_figures_were_made_of() {
        let truth =
            Model { processors_bits: RATE_LEAST * RATE_STEP.powi(40), round_trips: 7.0, seconds: 0.3 };
        let jobs = [
            job(1e9, 0.0, 6, f64::INFINITY),
            job(1e9, 100.0, 1, f64::INFINITY),
            job(155e6, 20.0, 3, 73_728.0),
            job(44e6, 50.0, 6, f64::INFINITY),
        ];
        let measured: Vec<(Job, f64)> = jobs.iter().map(|job| (*job, truth.seconds(job))).collect();
        let found = Model::fit(&measured).expect("a model");
        let (middle, most) = found.errors(&measured);
        assert!(middle < 0.01 && most < 0.03, "{found:?} is off by {most}");
        assert_eq!(Model::fit(&[]), None);
    }
}
