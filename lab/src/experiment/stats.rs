//! Figures over several runs: median with spread. Pure.

use statrs::statistics::{Data, Max, Median, Min};

use crate::record::result::Spread;

/// Median, extremes and number of `values`; nothing of none. Values that are not numbers (a contender's script can
/// print `nan`) are left out.
#[must_use]
pub fn spread(values: &[f64], unit: &str) -> Option<Spread> {
    let values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    let n = u32::try_from(values.len()).unwrap_or(u32::MAX);
    let data = Data::new(values);
    (n > 0).then(|| Spread {
        median: data.median(),
        min: data.min(),
        max: data.max(),
        n,
        unit: unit.to_owned(),
    })
}

/// The middle one of `values`, or the mean of the two in the middle.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    spread(values, "").map(|spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_odd_number_is_one_of_them_and_of_an_even_number_lies_between_two() {
        let odd = spread(&[3.0, 1.0, 2.0], "s").expect("three values");
        assert_eq!((odd.median, odd.min, odd.max, odd.n, odd.unit.as_str()), (2.0, 1.0, 3.0, 3, "s"));
        let even = spread(&[4.0, 1.0, 2.0, 9.0], "").expect("four values");
        assert_eq!((even.median, even.min, even.max, even.n), (3.0, 1.0, 9.0, 4));
        let single = spread(&[7.5], "ms").expect("one value");
        assert_eq!((single.median, single.min, single.max, single.n), (7.5, 7.5, 7.5, 1));
    }

    #[test]
    fn nothing_has_no_median_and_what_is_no_number_counts_as_nothing() {
        assert_eq!(spread(&[], "s"), None);
        assert_eq!(spread(&[f64::NAN, f64::INFINITY], "s"), None);
        assert_eq!(spread(&[f64::NAN, 2.0], "s").map(|spread| (spread.median, spread.n)), Some((2.0, 1)));
    }
}
