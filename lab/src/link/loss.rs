//! Which packets get lost: the sequence that a [`Loss`] model and a seed give.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::Loss;

/// Says of each packet in turn whether it is lost.
#[derive(Clone, Debug)]
pub(super) struct Losses {
    model: Loss,
    in_burst: bool,
    random: SmallRng,
}

impl Losses {
    /// The sequence of `model` by `seed`.
    pub(super) fn new(model: Loss, seed: u64) -> Self {
        let mut losses = Self {
            model: Loss::Random { rate: 0.0 },
            in_burst: false,
            random: SmallRng::seed_from_u64(seed),
        };
        losses.change(model);
        losses
    }

    /// Goes on as `model`.
    pub(super) fn change(&mut self, model: Loss) {
        // A burst model starts in the state in which it is found in the long run, so that short runs are not too good.
        self.in_burst = match model {
            Loss::Random { .. } => false,
            Loss::Burst { rate, .. } => self.random.random::<f64>() < rate,
        };
        self.model = model;
    }

    /// Whether the next packet is lost. One draw for each packet.
    pub(super) fn next(&mut self) -> bool {
        let draw = self.random.random::<f64>();
        match self.model {
            Loss::Random { rate } => draw < rate,
            Loss::Burst { rate, mean_burst } => {
                let ends = 1.0 / mean_burst;
                // What enters a burst equals what leaves one: (1 - rate) * begins = rate * ends.
                let begins = if rate < 1.0 { rate * ends / (1.0 - rate) } else { 1.0 };
                self.in_burst = if self.in_burst { draw >= ends } else { draw < begins };
                self.in_burst
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: u32 = 400_000;

    fn bursts(model: Loss, seed: u64) -> (u32, u32) {
        let mut losses = Losses::new(model, seed);
        let (mut lost, mut runs, mut before) = (0, 0, false);
        for _ in 0..PACKETS {
            let now = losses.next();
            lost += u32::from(now);
            runs += u32::from(now && !before);
            before = now;
        }
        (lost, runs)
    }

    #[test]
    fn random_losses_are_as_many_as_said_and_stand_alone() {
        for (seed, rate) in [(1, 0.001), (2, 0.01), (3, 0.2), (4, 0.0), (5, 1.0)] {
            let (lost, runs) = bursts(Loss::Random { rate }, seed);
            let expected = f64::from(PACKETS) * rate;
            // Five standard deviations; seeds are fixed, so this never turns by chance.
            let slack = 5.0 * (expected * (1.0 - rate)).sqrt();
            assert!((f64::from(lost) - expected).abs() <= slack, "{rate}: {lost} lost");
            // A run ends with the next packet that passes: lost * (1 - rate) runs.
            let runs_expected = expected * (1.0 - rate);
            if rate < 1.0 {
                assert!((f64::from(runs) - runs_expected).abs() <= slack, "{rate}: {runs} runs");
            }
        }
    }

    #[test]
    fn bursts_have_the_loss_and_the_mean_length_that_are_set() {
        for (seed, rate, mean_burst) in [(1, 0.01, 8.0), (2, 0.001, 4.0), (3, 0.3, 2.0), (4, 0.05, 1.0)] {
            let (lost, runs) = bursts(Loss::Burst { rate, mean_burst }, seed);
            let runs_expected = f64::from(PACKETS) * rate / mean_burst;
            // Runs are about Poisson; lengths are geometric, so a sum of n of them varies by burst * sqrt(2 n) at most.
            let slack = 5.0 * runs_expected.sqrt();
            assert!((f64::from(runs) - runs_expected).abs() <= slack, "{rate}: {runs} runs");
            let lost_slack = 5.0 * mean_burst * (2.0 * runs_expected).sqrt();
            let lost_expected = f64::from(PACKETS) * rate;
            assert!((f64::from(lost) - lost_expected).abs() <= lost_slack, "{rate}: {lost} lost");
        }
    }
}
