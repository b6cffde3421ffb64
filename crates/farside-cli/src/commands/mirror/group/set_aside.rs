//! What a command has set aside of the volumes of a group: what each is called, and the moment that they have in common. Pure.

use farside_api::Timestamp;

/// The moment that a side branch is named by, `POOL/VOL@rescue-TIME`; none of a person's snapshot, or where it has a number.
pub(super) fn moment_of(kept_as: &str) -> Option<Timestamp> {
    let (_, name) = kept_as.split_once('@')?;
    moment_of_name(name)
}

/// The same by the name alone.
pub(super) fn moment_of_name(name: &str) -> Option<Timestamp> {
    name.strip_prefix("rescue-")?.parse().ok()
}

/// A line for each that keeps something.
pub(super) fn kept<'a>(all: impl Iterator<Item = Option<&'a str>>) -> String {
    all.flatten().map(|kept| format!("what is newer stays as {kept}; it opens read-only\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moment_is_that_of_the_name() {
        let moment = moment_of("q/a@rescue-2026-11-26T12:00:00.123456Z").unwrap();
        assert_eq!(moment.to_string(), "2026-11-26T12:00:00.123456Z");
        for other in ["q/a@before", "q/a", "q/a@rescue-me", "q/a@rescue-2026-11-26T12:00:00.123456Z-2"] {
            assert_eq!(moment_of(other), None, "{other}");
        }
        assert_eq!(
            kept([Some("q/a@s"), None].into_iter()),
            "what is newer stays as q/a@s; it opens read-only\n"
        );
    }
}
