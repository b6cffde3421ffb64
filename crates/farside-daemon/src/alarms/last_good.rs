//! The last good point of a replica: found and held when its updates look like encryption.

use std::time::Duration;

use farside_engine::VolumeName;
use farside_mirror::MirrorStatus;
use farside_platform::Timestamp;
use farside_store::SnapshotStatus;

use super::signature::{Since, Suspicion};
use crate::failure::Failure;
use crate::site::Site;

/// How long the pool is waited for: a device that does not answer must not keep other alarms from being told.
const HELD_WITHIN: Duration = Duration::from_secs(30);

/// The newest snapshot on the main line that was published before what is suspected, and whose data is from before it, by the
/// source's clock, which is so much ahead of this one. Pure.
fn before<'a>(
    snapshots: &'a [SnapshotStatus],
    since: &Since,
    source_ahead_seconds: f64,
) -> Option<&'a SnapshotStatus> {
    let first = snapshots.iter().find(|snapshot| Some(&snapshot.name) == since.snapshot.as_ref());
    let first = first.map_or(u64::MAX, |snapshot| snapshot.sequence);
    // One that travelled with the first of them was taken later than the update before it ended.
    let good_until = since.good_until.0 as f64 + source_ahead_seconds * 1e9;
    let is_good = |snapshot: &&SnapshotStatus| {
        snapshot.on_main_line && snapshot.sequence < first && snapshot.created_at.0 as f64 <= good_until
    };
    snapshots.iter().filter(is_good).max_by_key(|snapshot| snapshot.sequence)
}

/// Holds the last good point of a mirror's replica, and says all that is to be said of the suspicion.
pub(super) async fn hold(site: &Site, status: &MirrorStatus, suspicion: &Suspicion) -> String {
    let volume = status.relationship.destination.clone();
    let figures = figures(&volume, suspicion);
    let (since, ahead) = (suspicion.since.clone(), site.mirrors.source_ahead_seconds(status));
    let pool = match site.pools.get(&volume.pool) {
        Ok(pool) => pool,
        Err(error) => {
            return format!("{figures}. The last good point could not be looked for: {}", error.message);
        }
    };
    let of = volume.clone();
    let held = site.blocking.run(move || {
        let snapshots = pool.snapshots(&of.volume).map_err(Failure::into_error_body)?;
        let Some(good) = before(&snapshots, &since, ahead) else { return Ok(None) };
        if !good.held {
            pool.hold_snapshot(&of.volume, good.uuid, true).map_err(Failure::into_error_body)?;
        }
        Ok::<_, farside_api::ErrorBody>(Some((good.name.clone(), good.created_at)))
    });
    let Ok(held) = tokio::time::timeout(HELD_WITHIN, held).await else {
        return format!(
            "{figures}. The last good point is not held yet: pool {} does not answer",
            volume.pool
        );
    };
    match held {
        Ok(Some((name, at))) => format!("{figures}. {}", held_text(&volume, &name, at)),
        Ok(None) => format!("{figures}. {}", nothing_text(&volume)),
        Err(error) => format!("{figures}. The last good point could not be held: {}", error.message),
    }
}

fn held_text(volume: &VolumeName, name: &str, at: Timestamp) -> String {
    format!(
        "The last point here from before it is {volume}@{name} of {at}. It is held now: nothing deletes it until farside snapshot \
         unhold {volume}@{name}"
    )
}

fn nothing_text(volume: &VolumeName) -> String {
    format!(
        "No snapshot of {volume} from before it is here: without retention a replica keeps the newest point and the snapshots that \
         persons made at the source. Look for one at the source (farside snapshot list), and hold it there. For the next time: farside \
         mirror set {volume} --keep hourly=24,daily=7"
    )
}

fn figures(volume: &VolumeName, suspicion: &Suspicion) -> String {
    let Suspicion { updates, bytes, rate, usual_rate, saving, usual_saving, .. } = suspicion;
    // What did not get smaller may have got larger.
    let percent = |part: f64| (part * 100.0).round() as u64;
    let mebibytes = |bytes: f64| bytes / f64::from(1 << 20);
    format!(
        "the source of {volume} looks as if it is being encrypted: {updates} {} changed {:.0} MiB, at {:.1} MiB/s where {:.2} are \
         usual, and {} % of that did not have to travel where {} % are usual",
        if *updates == 1 { "update" } else { "updates in a row" },
        mebibytes(*bytes as f64),
        mebibytes(*rate),
        mebibytes(*usual_rate),
        percent(*saving),
        percent(*usual_saving),
    )
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn snapshot(name: &str, sequence: u64, second: u64) -> SnapshotStatus {
        SnapshotStatus {
            name: name.into(),
            uuid: Uuid::from_u128(u128::from(sequence)),
            created_at: Timestamp(second * 1_000_000_000),
            size_bytes: 4096,
            relationship: None,
            held: false,
            pinned_by: Vec::new(),
            on_main_line: true,
            sequence,
        }
    }

    fn since(snapshot: &str) -> Since {
        Since { snapshot: Some(snapshot.into()), good_until: Timestamp(100_000_000_000) }
    }

    #[test]
    fn the_newest_before_the_first_update_that_is_suspected() {
        let all = vec![
            snapshot("monday", 1, 50),
            snapshot("tuesday", 2, 90),
            // A person's, that travelled with the first suspected update: nobody knows what is in it.
            snapshot("late", 3, 105),
            snapshot("first", 4, 110),
            snapshot("second", 5, 120),
        ];
        let name = |snapshots: &[SnapshotStatus], since: &Since, ahead: f64| {
            before(snapshots, since, ahead).map(|snapshot| snapshot.name.clone())
        };
        assert_eq!(name(&all, &since("first"), 0.0).as_deref(), Some("tuesday"));
        // By a clock that is ahead all moments are later.
        assert_eq!(name(&all, &since("first"), 5.0).as_deref(), Some("late"));
        assert_eq!(name(&all, &since("first"), -20.0).as_deref(), Some("monday"));
        // What it brought is gone, since the next one has come.
        assert_eq!(name(&all, &since("gone"), 0.0).as_deref(), Some("tuesday"));
        assert_eq!(name(&all[3..], &since("first"), 0.0), None);
        let side = vec![SnapshotStatus { on_main_line: false, ..snapshot("rescue", 1, 50) }];
        assert_eq!(name(&side, &since("first"), 0.0), None);
    }

    #[test]
    fn it_is_said_what_was_seen() {
        let suspicion = Suspicion {
            since: since("first"),
            updates: 2,
            bytes: 3 << 30,
            rate: 50.0 * 1_048_576.0,
            usual_rate: 262_144.0,
            saving: -0.001,
            usual_saving: 0.61,
        };
        let volume: VolumeName = "q/v".parse().unwrap();
        let text = figures(&volume, &suspicion);
        assert!(
            text.contains("2 updates in a row changed 3072 MiB, at 50.0 MiB/s where 0.25 are usual"),
            "{text}"
        );
        assert!(text.contains("and 0 % of that") && text.contains("where 61 %"), "{text}");
        assert!(held_text(&volume, "daily", Timestamp(0)).contains("farside snapshot unhold q/v@daily"));
        assert!(nothing_text(&volume).contains("at the source"));
    }
}
