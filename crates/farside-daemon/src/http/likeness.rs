//! Whether what is there is what was asked for: requests that may be made twice (`if_absent`). What a request does not name is not
//! compared.

use farside_api::{CreatePool, CreateVolume, ErrorBody, ErrorCode, Mirror, Pool, PoolState, Volume};
use farside_mirror::{MirrorOptions, Relationship, Retention, Schedule};
use farside_peer::PeerId;

use crate::convert;

/// What a request says of one property, and what that is.
type Compared = (&'static str, String, String);

/// An error that names all that differs.
fn differing(what: &str, hint: String, compared: Vec<Compared>) -> Result<(), ErrorBody> {
    let differ = |(name, wanted, found): Compared| {
        (wanted != found).then(|| format!("{name} is {found}, and not {wanted}"))
    };
    let differences: Vec<_> = compared.into_iter().filter_map(differ).collect();
    if differences.is_empty() {
        return Ok(());
    }
    let message = format!("{what} is there and differs: {}. Nothing was changed", differences.join("; "));
    Err(ErrorBody::new(ErrorCode::Exists, message).hint(hint))
}

fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "none".into(), |bytes| format!("{bytes} bytes"))
}

/// A pool that is there, and one that was asked for.
pub(super) fn pool(there: &Pool, wanted: &CreatePool) -> Result<(), ErrorBody> {
    if there.state != PoolState::Open {
        let why = there.error.clone().unwrap_or_else(|| "farside pool status says why".into());
        let message = format!("pool {} is known, and does not serve: {why}. Nothing was changed", there.name);
        let error = ErrorBody::new(ErrorCode::Exists, message);
        return Err(match &there.advice {
            Some(advice) => error.hint(advice.clone()),
            None => error,
        });
    }
    let mut compared = vec![("its path", wanted.path.clone(), there.path.clone())];
    if let (Some(size), Some(_)) = (wanted.size_bytes, there.size_bytes) {
        compared.push(("its size", bytes(Some(size)), bytes(there.size_bytes)));
    }
    let hint = format!(
        "farside pool grow {0} --size … makes it larger; choose another name for another pool. farside pool status {0} shows it",
        there.name
    );
    differing(&format!("pool {}", there.name), hint, compared)
}

/// A volume that is there, and one that was asked for.
pub(super) fn volume(there: &Volume, wanted: &CreateVolume) -> Result<(), ErrorBody> {
    let mut compared = vec![("its size", bytes(Some(wanted.size_bytes)), bytes(Some(there.size_bytes)))];
    let said = |bytes: u64| (bytes > 0).then_some(bytes);
    if let Some(quota) = wanted.limits.quota_bytes {
        compared.push(("its quota", bytes(said(quota)), bytes(there.quota_bytes)));
    }
    if let Some(reserve) = wanted.limits.reserve_bytes {
        compared.push(("what is reserved for it", bytes(said(reserve)), bytes(there.reserve_bytes)));
    }
    if let Some(autogrow) = wanted.limits.autogrow {
        let to = there.autogrow.map(|autogrow| autogrow.to_bytes);
        compared.push(("how far it grows", bytes(said(autogrow.to_bytes)), bytes(to)));
    }
    let name = &there.name;
    let hint = format!("farside volume set {name} and farside volume resize {name} change what is there");
    differing(&format!("volume {name}"), hint, compared)
}

/// What a request says of a mirror.
#[derive(Debug)]
pub(super) struct WantedMirror<'a> {
    pub(super) peer: PeerId,
    pub(super) source: String,
    pub(super) schedule: Option<&'a Schedule>,
    pub(super) retention: Option<&'a Retention>,
    pub(super) group: Option<&'a str>,
    pub(super) options: Option<&'a MirrorOptions>,
    /// Whether the source's site may mirror the replica back, if it shall not.
    pub(super) unwanted_reverse: Option<bool>,
    /// It shall, and this site has no record of that right.
    pub(super) lacks_reverse: bool,
}

/// A mirror that is there, and one that was asked for. `name_of` says what a peer is called.
pub(super) fn mirror(
    there: &Relationship,
    wanted: &WantedMirror<'_>,
    name_of: impl Fn(PeerId) -> String,
) -> Result<(), ErrorBody> {
    let source = |peer, source: &str| format!("{}:{source}", name_of(peer));
    let mut compared = vec![(
        "its source",
        source(wanted.peer, &wanted.source),
        source(there.peer, &there.source.to_string()),
    )];
    if let Some(schedule) = wanted.schedule {
        compared.push(("its schedule", schedule.to_string(), there.schedule.to_string()));
    }
    if let Some(retention) = wanted.retention {
        compared.push(("what it keeps", retention.to_string(), there.retention.to_string()));
    }
    if let Some(group) = wanted.group {
        let of = |group: &str| if group.is_empty() { "none".to_owned() } else { group.to_owned() };
        compared.push(("its group", of(group), of(there.group.as_deref().unwrap_or_default())));
    }
    if let Some(options) = wanted.options {
        let (wanted, there) = (convert::link(options), convert::link(&there.options));
        let all = |text: &str| if text.is_empty() { "none of its own".to_owned() } else { text.to_owned() };
        let window = |bytes: Option<u64>| bytes.map_or_else(|| "auto".to_owned(), |b| format!("{b} bytes"));
        let priority = |is_low: bool| if is_low { "low" } else { "normal" }.to_owned();
        compared.extend([
            ("its throttle", wanted.throttle, there.throttle),
            ("its window", window(wanted.window_bytes), window(there.window_bytes)),
            ("its priority", priority(wanted.low_priority), priority(there.low_priority)),
            ("its paths", all(&wanted.paths.join(" ")), all(&there.paths.join(" "))),
        ]);
    }
    let name = &there.destination;
    let mut hint = format!("farside mirror set {name} changes all but the source");
    if wanted.lacks_reverse {
        hint += &format!(
            "; then this again, since that gives {} back the right of the way back, which is missing too",
            name_of(there.peer)
        );
    }
    if let Some(is_given) = wanted.unwanted_reverse {
        let said = |is_given: bool| if is_given { "given" } else { "withheld" }.to_owned();
        compared.push(("the right of its source's site to the way back", said(false), said(is_given)));
        hint +=
            &format!(" and the way back, which farside peer deny {} {name} takes away", name_of(there.peer));
    }
    differing(&format!("the mirror of {name}"), hint, compared)
}

/// A mirror that is there and does not follow, as whoever asks for one wants it to.
/// `besides`: what of it is set otherwise, if anything.
pub(super) fn broken_off(there: &Mirror, is_original: bool, besides: Option<ErrorBody>) -> ErrorBody {
    let Mirror { name, source, .. } = there;
    let (is, hint) = match is_original {
        true => (
            format!("{name} is the original of {source}, which follows it; the way back is kept here"),
            format!(
                "farside mirror swap at the site of {source} changes the roles; farside mirror status shows them"
            ),
        ),
        false if there.current_snapshot.is_none() => (
            format!(
                "it was broken off before a copy of {source} had arrived whole, and hosts may write to {name}"
            ),
            format!(
                "to begin again: farside mirror delete {name} (the volume stays as it is), then this again; farside mirror status {name} \
                 says how it stands"
            ),
        ),
        false => (
            format!("it is broken off from {source}, and hosts may write to {name}"),
            format!(
                "farside mirror resync {name} makes it follow again, from what both hold; farside mirror delete {name} ends the mirror \
                 (the volume stays as it is); farside mirror status {name} says how it stands"
            ),
        ),
    };
    let said = format!("the mirror of {name} is there and differs: ");
    let besides = besides.map(|error| (error.message.replacen(&said, "", 1), error.hint.unwrap_or_default()));
    let (message, hint) = match besides {
        Some((besides, set)) => (format!("{said}{is}; {besides}"), format!("{hint}. Besides, {set}")),
        None => (format!("{said}{is}. Nothing was changed"), hint),
    };
    ErrorBody::new(ErrorCode::Exists, message).hint(hint)
}

#[cfg(test)]
mod tests {
    use farside_engine::VolumeName;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_is_not_named_is_not_compared_and_all_that_differs_is_said() {
        let (ours, theirs): (VolumeName, VolumeName) = ("q/v".parse().unwrap(), "p/v".parse().unwrap());
        let schedule = "every 10s".parse::<Schedule>().unwrap();
        let there = Relationship::new(Uuid::nil(), PeerId([1; 32]), theirs, ours, schedule);
        let wanted = || WantedMirror {
            peer: PeerId([1; 32]),
            source: "p/v".into(),
            schedule: None,
            retention: None,
            group: None,
            options: None,
            unwanted_reverse: None,
            lacks_reverse: false,
        };
        let name_of = |peer: PeerId| format!("site{}", peer.0[0]);
        mirror(&there, &wanted(), name_of).unwrap();
        mirror(&there, &WantedMirror { unwanted_reverse: Some(false), ..wanted() }, name_of).unwrap();
        let given = WantedMirror { unwanted_reverse: Some(true), ..wanted() };
        let refused = mirror(&there, &given, name_of).unwrap_err();
        assert!(refused.message.contains("way back is given, and not withheld"), "{}", refused.message);
        assert!(refused.hint.is_some_and(|hint| hint.contains("farside peer deny site1 q/v")));
        let schedule = "every 77s".parse().unwrap();
        let lacking = WantedMirror { lacks_reverse: true, schedule: Some(&schedule), ..wanted() };
        let refused = mirror(&there, &lacking, name_of).unwrap_err();
        assert!(refused.hint.is_some_and(|hint| hint.contains("gives site1 back the right of the way back")));
        let options = MirrorOptions {
            throttle: "4MB/s".parse().unwrap(),
            priority: farside_link::Priority::Low,
            ..MirrorOptions::default()
        };
        let slow = WantedMirror { options: Some(&options), ..wanted() };
        let said = mirror(&there, &slow, name_of).unwrap_err().message;
        assert!(said.contains("its throttle is unlimited, and not 4MB/s"), "{said}");
        assert!(said.contains("its priority is normal, and not low"), "{said}");
        assert!(!said.contains("window") && !said.contains("paths"), "{said}");
        let other = WantedMirror { peer: PeerId([2; 32]), group: Some("shop"), ..wanted() };
        let refused = mirror(&there, &other, name_of).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Exists);
        assert!(
            refused
                .message
                .contains("its source is site1:p/v, and not site2:p/v; its group is none, and not shop"),
            "{}",
            refused.message
        );
    }
}
