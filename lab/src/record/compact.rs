//! How records are made short lines of JSON: six digits are enough, and what is zero is not written. Pure.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

/// `value` with six significant digits.
pub(crate) fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

pub(crate) fn is_zero(value: &u64) -> bool {
    *value == 0
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

pub(crate) fn float<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(rounded(*value))
}

pub(crate) fn maybe_float<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(rounded).serialize(serializer)
}

pub(crate) fn floats<S: Serializer>(all: &BTreeMap<String, f64>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(all.iter().map(|(name, value)| (name, rounded(*value))))
}

/// Whole numbers as one string with blanks between them.
pub(crate) mod words {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(numbers: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
        let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
        serializer.serialize_str(&words.join(" "))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
        let words = String::deserialize(deserializer)?;
        words.split_ascii_whitespace().map(|word| word.parse().map_err(de::Error::custom)).collect()
    }
}
