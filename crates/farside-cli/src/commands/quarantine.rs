//! How damage is shown: what cannot be read, what still works, and what heals it.

use farside_api::QuarantinedRange;

use crate::quantities::size;

/// Lines shown at most; `--json` has all.
const LINES_MAX: usize = 20;

/// How much cannot be read, all versions together.
pub(super) fn bytes(ranges: &[QuarantinedRange]) -> String {
    size(ranges.iter().map(|range| range.length_bytes).sum())
}

/// A line for each range, and what to do; empty if nothing is quarantined.
pub(super) fn lines(pool: &str, ranges: Option<&[QuarantinedRange]>) -> String {
    let ranges = ranges.unwrap_or_default();
    if ranges.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\nmetadata of these ranges is damaged; they cannot be read, and everything else works:\n",
    );
    for range in ranges.iter().take(LINES_MAX) {
        let snapshot = range.snapshot.as_ref().map_or_else(String::new, |name| format!("@{name}"));
        text += &format!(
            "  {pool}/{}{snapshot}  {} from byte {}\n",
            range.volume,
            size(range.length_bytes),
            range.offset_bytes
        );
    }
    if ranges.len() > LINES_MAX {
        text += &format!("  and {} more; --json has all\n", ranges.len() - LINES_MAX);
    }
    text + "a write of a whole block of 4 KiB makes it readable again. A replica is compared as a whole and made whole by the \
            next update; an original gets the old content back by a rollback to a sound snapshot, or from its replica.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(volume: &str, snapshot: Option<&str>, offset_bytes: u64) -> QuarantinedRange {
        let snapshot = snapshot.map(str::to_owned);
        QuarantinedRange { volume: volume.into(), snapshot, offset_bytes, length_bytes: 512 << 10 }
    }

    #[test]
    fn every_range_has_a_line_up_to_a_bound() {
        assert_eq!(lines("p", None), "");
        assert_eq!(lines("p", Some(&[])), "");
        let text = lines("p", Some(&[range("v", None, 1 << 20), range("v", Some("s"), 0)]));
        assert!(text.contains("  p/v  512.0 KiB from byte 1048576\n"), "{text}");
        assert!(text.contains("  p/v@s  512.0 KiB from byte 0\n"), "{text}");
        let many: Vec<_> = (0..25).map(|n| range("v", None, n << 20)).collect();
        assert!(lines("p", Some(&many)).contains("and 5 more"));
        assert_eq!(bytes(&many), size(25 * (512 << 10)));
    }
}
