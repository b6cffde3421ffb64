//! What a command has set aside of the volumes of a group: what each is called, and the moment that they have in common. Pure.

use farside_api::{Mirror, Timestamp};

/// The moment that a side branch is named by, `POOL/VOL@rescue-TIME`; none of a person's snapshot, or where it has a number.
pub(super) fn moment_of(kept_as: &str) -> Option<Timestamp> {
    let (_, name) = kept_as.split_once('@')?;
    moment_of_name(name)
}

/// The same by the name alone.
pub(super) fn moment_of_name(name: &str) -> Option<Timestamp> {
    name.strip_prefix("rescue-")?.parse().ok()
}

/// As hosts left a volume that follows again, of those that were in use with others: they went on with these after `began`. None if it was
/// not, or if nothing is left of it.
pub(super) fn left_as(of: &Mirror, began: Timestamp) -> Option<&str> {
    let in_use = of.was_in_use.as_ref().filter(|in_use| in_use.until > began)?;
    in_use.left_as.as_deref()
}

/// The moment by which what is left of a group is to be set aside, where some of it were resynced before, in the same use by hosts: all of it
/// has one name then. `began`: when hosts had gone on with what is left.
pub(super) fn moment_of_others<'a>(
    others: impl Iterator<Item = &'a Mirror>,
    began: Option<Timestamp>,
) -> Option<Timestamp> {
    let began = began?;
    others.filter_map(|other| moment_of_name(left_as(other, began)?)).max()
}

/// A line for each that keeps something.
pub(super) fn kept<'a>(all: impl Iterator<Item = Option<&'a str>>) -> String {
    all.flatten().map(|kept| format!("what is newer stays as {kept}; it opens read-only\n")).collect()
}

/// The name by which all of them keep what they showed, if that is one name in all: `POOL/VOL@rescue-TIME` of each.
pub(super) fn one_name<'a>(mut kept_as: impl Iterator<Item = Option<&'a str>>) -> Option<&'a str> {
    let named = |kept_as: Option<&'a str>| Some(kept_as?.split_once('@')?.1);
    let first = named(kept_as.next()?).filter(|name| moment_of_name(name).is_some())?;
    kept_as.all(|kept_as| named(kept_as) == Some(first)).then_some(first)
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
        let rescue = |volume: &str| format!("{volume}@rescue-2026-11-26T12:00:00.123456Z");
        let (a, b) = (rescue("q/a"), rescue("q/b"));
        let name = "rescue-2026-11-26T12:00:00.123456Z";
        assert_eq!(one_name([Some(&*a), Some(&*b)].into_iter()), Some(name));
        assert_eq!(one_name([Some(&*a), None].into_iter()), None);
        assert_eq!(one_name([Some(&*a), Some("q/b@before")].into_iter()), None);
        assert_eq!(one_name([Some("q/a@before"), Some("q/b@before")].into_iter()), None, "a person's");
        assert_eq!(
            kept([Some("q/a@s"), None].into_iter()),
            "what is newer stays as q/a@s; it opens read-only\n"
        );
    }
}
