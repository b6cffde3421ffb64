//! `farside snapshot`.

use farside_api::split::group_of;
use farside_api::{
    CloneSnapshot, CreateSnapshots, Difference, DifferenceKind, ErrorBody, ErrorCode, HoldSnapshot, MadeBy,
    Mirror, MirrorState, Rename, Role, Rollback, SetSnapshotSchedule, Snapshot, SnapshotSchedule, TakenBy,
    Volume,
};
use reqwest::Method;

use super::context::Context;
use super::mirror::group;
use super::mirror::side_branches::{gone_since, side_branches};
use crate::arguments::names::{SnapshotName, VolumeName};
use crate::arguments::snapshot::Snapshot as Verb;
use crate::confirm::{DestructiveRequest, Impact, carry_out, carry_out_if_lost};
use crate::output::{Column, or_dash, table};
use crate::quantities::{size, time};

pub(super) async fn run(context: Context, verb: Verb) -> Result<(), ErrorBody> {
    match verb {
        Verb::Create { names } => {
            let request = CreateSnapshots { snapshots: names.iter().map(ToString::to_string).collect() };
            let made: Vec<Snapshot> = context.client.post(&["snapshots"], &request).await?;
            let mirrors = match context.json {
                true => Vec::new(),
                // It is done; where it travels to is only advice.
                false => {
                    context.client.get_with(&["mirrors"], &[("role", "source")]).await.unwrap_or_default()
                }
            };
            context.show(&made, |made| {
                let line = |s: &Snapshot| {
                    format!("snapshot {}@{} created\n{}", s.volume, s.name, travels(s, &mirrors))
                };
                made.iter().map(line).collect()
            });
        }
        Verb::List { volume } => {
            let snapshots: Vec<Snapshot> = match volume {
                Some(name) => context.client.get(&["volumes", &name.pool, &name.volume, "snapshots"]).await?,
                None => context.client.get(&["snapshots"]).await?,
            };
            context.show(&snapshots, |snapshots| listing(snapshots));
        }
        Verb::Rename { name, new } => {
            let snapshot: Snapshot =
                context.client.post(&path_to(&name, "rename"), &Rename { name: new }).await?;
            context.show(&snapshot, |s| {
                format!("snapshot {name} is now {}@{}\n{}", s.volume, s.name, goes_all_the_same(s))
            });
        }
        Verb::Delete { name, destructive } => {
            let request = DestructiveRequest {
                method: Method::DELETE,
                path: &path_to(&name, "")[..5],
                body: None::<&()>,
                impact: Impact::Data,
            };
            if let Some(snapshot) =
                carry_out::<Snapshot>(&context.client, request, destructive, context.json).await?
            {
                context.show(&snapshot, |s| format!("snapshot {}@{} deleted\n", s.volume, s.name));
            }
        }
        Verb::Hold { name } => hold(&context, &name, true).await?,
        Verb::Unhold { name } => hold(&context, &name, false).await?,
        Verb::Rollback { group: Some(group), at, destructive, .. } => {
            let at = at.unwrap_or_default();
            group::rollback::roll_back(&context, &group, &at, destructive).await?;
        }
        Verb::Rollback { name: None, .. } => {}
        Verb::Rollback { name: Some(name), destructive, .. } => {
            let path = path_to(&name, "rollback");
            let before = side_branches(&context, &name.volume).await;
            // What it sets aside may push an old one out.
            let impact = if before.is_empty() { Impact::Service } else { Impact::AsPlanned };
            let request = DestructiveRequest { method: Method::POST, path: &path, body: None::<&()>, impact };
            if let Some(done) =
                carry_out::<Rollback>(&context.client, request, destructive, context.json).await?
            {
                let left = left_of_group(&context, &name).await;
                let more = gone_since(&context, &name.volume, &before).await + &left;
                context.aside(&more);
                context.show(&done, |done| rolled_back(done) + &more);
            }
        }
        Verb::Diff { from, to } => diff(&context, &from, &to).await?,
        Verb::Schedule { volumes, .. } if volumes.is_empty() => {
            let all: Vec<SnapshotSchedule> = context.client.get(&["snapshot-schedules"]).await?;
            context.show(&all, |all| schedules(all));
        }
        Verb::Schedule { volumes, off: true, .. } => {
            let volume = &volumes[0];
            let path = ["volumes", &volume.pool, &volume.volume, "snapshot-schedule"];
            let ended: SnapshotSchedule =
                context.client.request(Method::DELETE, &path, &[], None::<&()>).await?;
            context.show(&ended, |s| {
                let points = s.points.unwrap_or_default();
                let all: Vec<&str> = [&s.volume].into_iter().chain(&s.others).map(String::as_str).collect();
                let have = if all.len() == 1 { "has" } else { "have" };
                format!(
                    "{} {have} no timetable of snapshots any more; {points} that it took stay\n",
                    all.join(" and ")
                )
            });
        }
        Verb::Schedule { volumes, every, timetable, keep, hook, off: false, destructive } => {
            let (volume, others) = (&volumes[0], &volumes[1..]);
            let path = ["volumes", &volume.pool, &volume.volume, "snapshot-schedule"];
            let request = SetSnapshotSchedule {
                every_seconds: every.map(|every| every.as_secs_f64()),
                schedule: timetable.schedule,
                time_zone: timetable.time_zone,
                retention: keep,
                others: (!others.is_empty()).then(|| others.iter().map(ToString::to_string).collect()),
                hook: hook.map(|hook| if hook == "none" { String::new() } else { hook }),
            };
            let shown: Option<SnapshotSchedule> = match &request {
                nothing if *nothing == SetSnapshotSchedule::default() => {
                    Some(context.client.get(&path).await?)
                }
                SetSnapshotSchedule { retention: None, .. } if !destructive.plan => {
                    Some(context.client.post(&path, &request).await?)
                }
                // A smaller retention lets points go.
                _ => {
                    let asked = DestructiveRequest {
                        method: Method::POST,
                        path: &path,
                        body: Some(&request),
                        impact: Impact::Data,
                    };
                    carry_out_if_lost(&context.client, asked, destructive, context.json).await?
                }
            };
            let Some(shown) = shown else { return Ok(()) };
            context.show(&shown, |s| schedules(std::slice::from_ref(s)));
            if !context.json && request.retention.as_deref().is_some_and(|keep| keep != "none") {
                travel_on(&context, volume).await;
            }
            let of: Result<Volume, _> = context.client.get(&["volumes", &volume.pool, &volume.volume]).await;
            if !context.json && of.is_ok_and(|of| of.replica) {
                eprintln!(
                    "note: {volume} is a replica, and no snapshots are taken of it while it is one. Which points of its mirror stay: \
                     farside mirror set {volume} --keep …"
                );
            }
        }
    }
    Ok(())
}

/// A timetable rotates at its own site alone: whoever keeps two here is not to find thousands at the far side.
async fn travel_on(context: &Context, volume: &VolumeName) {
    let name = volume.to_string();
    let mirrors = context.client.get_with::<Vec<Mirror>>(&["mirrors"], &[("volume", &name)]).await;
    let mirrors = mirrors.unwrap_or_default();
    let replicas: Vec<&str> = mirrors
        .iter()
        .filter(|m| m.role == Role::Source && m.overtaken.is_none())
        .map(|m| m.destination.as_str())
        .collect();
    if replicas.is_empty() {
        return;
    }
    eprintln!(
        "note: each of these snapshots travels to {}, and stays there, whatever is kept here, unless the mirror has a retention of its own: \
         at that site, farside mirror set POOL/VOL --keep last=10,hourly=24,daily=7",
        replicas.join(" and ")
    );
}

/// `farside clone`.
pub(super) async fn clone(
    context: &Context,
    of: &SnapshotName,
    new: &VolumeName,
    even_if_damaged: bool,
) -> Result<(), ErrorBody> {
    let request = CloneSnapshot { name: new.to_string(), even_if_damaged };
    let volume: Volume = context.client.post(&path_to(of, "clone"), &request).await?;
    context.show(&volume, |v| format!("volume {} begins as {of}; hosts may write to it\n", v.name));
    Ok(())
}

/// Where a new snapshot of a source travels to, and what becomes of it there: what a replica keeps is decided at its site.
fn travels(made: &Snapshot, mirrors: &[Mirror]) -> String {
    let follows =
        |m: &&Mirror| m.role == Role::Source && m.name == made.volume && m.state != MirrorState::BrokenOff;
    let line = |mirror: &Mirror| {
        let (site, replica) =
            mirror.destination.split_once(':').unwrap_or(("the other site", &mirror.destination));
        if let (Some(_), Some(why)) = (mirror.stopped, &mirror.why) {
            return format!("it does not travel to {}: {why}\n", mirror.destination);
        }
        format!(
            "it travels to {} with the next update, and stays there as long as the rule of that mirror (--keep) keeps it, or for good where it has \
             none. To keep it longer, at {site}, once it is there: farside snapshot hold {replica}@{} (where --keep has last=1, or no last, \
             there is no time for that: farside mirror set {replica} --keep last=2, and what else the rule has, first)\n",
            mirror.destination, made.name
        )
    };
    mirrors.iter().filter(follows).map(line).collect()
}

/// A new name keeps nothing from going that goes by itself.
fn goes_all_the_same(snapshot: &Snapshot) -> String {
    let by = match (snapshot.made_by, snapshot.taken_by) {
        _ if snapshot.held => return String::new(),
        (MadeBy::Mirror | MadeBy::Common, _) => "it is a mirror's, which lets it go all the same",
        (MadeBy::Person, _) if !snapshot.rotates => return String::new(),
        _ => "it still rotates",
    };
    format!("{by}: farside snapshot hold {}@{} keeps it\n", snapshot.volume, snapshot.name)
}

/// That the others of a group stay where they are, a line. It is for advice: what cannot be asked is nothing.
async fn left_of_group(context: &Context, back: &SnapshotName) -> String {
    let all: Vec<Mirror> = context.client.get(&["mirrors"]).await.unwrap_or_default();
    let volume = back.volume.to_string();
    others_of_group(&all, &volume, &back.snapshot).unwrap_or_default()
}

fn others_of_group(all: &[Mirror], volume: &str, snapshot: &str) -> Option<String> {
    let mut replicas = all.iter().filter(|m| m.role == Role::Destination);
    let of = group_of(replicas.clone().find(|m| m.name == volume)?)?;
    let (group, ..) = of;
    replicas.any(|m| m.name != volume && group_of(m) == Some(of)).then(|| {
        format!(
            "the other volumes of group {group} are where they were: unless they show that moment too, the group shows no moment in common \
             now; farside snapshot rollback --group {group} --at {snapshot} takes all of them to it, if all have it\n"
        )
    })
}

fn rolled_back(done: &Rollback) -> String {
    let kept = match &done.kept_as {
        Some(kept) => format!("its content until now is {kept}"),
        None => String::from("nothing was written to it that no snapshot holds"),
    };
    format!("{} is as {}@{} is; {kept}\n", done.volume, done.volume, done.snapshot)
}

async fn hold(context: &Context, name: &SnapshotName, held: bool) -> Result<(), ErrorBody> {
    let snapshot: Snapshot = context.client.post(&path_to(name, "hold"), &HoldSnapshot { held }).await?;
    context.show(&snapshot, |s| {
        let (volume, name) = (&s.volume, &s.name);
        if s.held {
            format!("snapshot {volume}@{name} is held at this site: nothing deletes it until farside snapshot unhold\n")
        } else {
            let then = if s.rotates { "retention may let it go, and it may be deleted" } else { "it may be deleted" };
            format!("snapshot {volume}@{name} is not held at this site any more: {then}\n")
        }
    });
    Ok(())
}

async fn diff(context: &Context, from: &SnapshotName, to: &SnapshotName) -> Result<(), ErrorBody> {
    if from.volume != to.volume {
        return Err(ErrorBody::new(
            ErrorCode::WrongUsage,
            format!("{from} and {to} are of different volumes; compare two snapshots of the same volume"),
        ));
    }
    let path = ["volumes", &from.volume.pool, &from.volume.volume, "difference"];
    let query = [("from", from.snapshot.as_str()), ("to", to.snapshot.as_str())];
    let extents: Vec<Difference> = context.client.get_with(&path, &query).await?;
    context.show(&extents, |extents| {
        let columns = [Column::Right("offset"), Column::Right("length"), Column::Left("kind")];
        let rows = extents.iter().map(|e| {
            let kind = if e.kind == DifferenceKind::Data { "data" } else { "hole" };
            vec![e.offset.to_string(), e.length.to_string(), kind.into()]
        });
        table(&columns, rows.collect(), "no difference")
    });
    Ok(())
}

fn path_to<'a>(name: &'a SnapshotName, verb: &'a str) -> [&'a str; 6] {
    ["volumes", &name.volume.pool, &name.volume.volume, "snapshots", &name.snapshot, verb]
}

fn schedules(all: &[SnapshotSchedule]) -> String {
    let columns = [
        Column::Left("volume"),
        Column::Left("schedule"),
        Column::Left("keeps"),
        Column::Left("hook"),
        Column::Right("points"),
        Column::Left("last"),
        Column::Left("why"),
    ];
    let rows = all.iter().map(|s| {
        vec![
            [std::slice::from_ref(&s.volume), &s.others].concat().join(" "),
            s.schedule.clone(),
            s.retention.clone(),
            or_dash(s.hook.clone(), |hook| hook),
            or_dash(s.points, |points| points.to_string()),
            or_dash(s.last_snapshot.clone(), |name| name),
            s.why.clone().unwrap_or_default(),
        ]
    });
    let none = "no timetables of snapshots; set one with farside snapshot schedule POOL/VOL --every 1h --keep hourly=24";
    table(&columns, rows.collect(), none)
}

fn listing(snapshots: &[Snapshot]) -> String {
    let columns = [
        Column::Left("name"),
        Column::Left("created"),
        Column::Left("made by"),
        Column::Left("rotates"),
        Column::Right("referenced"),
        Column::Right("unique"),
        Column::Left("held"),
        Column::Left("branch"),
        Column::Left("content root"),
    ];
    let rows = snapshots.iter().map(|snapshot| {
        vec![
            format!("{}@{}", snapshot.volume, snapshot.name),
            time(snapshot.created_at),
            match (snapshot.made_by, snapshot.taken_by) {
                (MadeBy::Person, Some(TakenBy::Timetable)) => "timetable",
                (MadeBy::Person, Some(TakenBy::Rescue)) => "rescue",
                (MadeBy::Person, Some(TakenBy::Mirror)) => "ended mirror",
                (MadeBy::Person, None) => "person",
                (MadeBy::Mirror, _) => "mirror",
                (MadeBy::Common, _) => "common",
                (MadeBy::Kept, _) => "kept",
            }
            .into(),
            if snapshot.rotates { "yes" } else { "no" }.into(),
            or_dash(snapshot.referenced_bytes, size),
            or_dash(snapshot.unique_bytes, size),
            if snapshot.held { "yes" } else { "no" }.into(),
            if snapshot.on_main_line { "main" } else { "side" }.into(),
            or_dash(snapshot.content_root.clone(), |root| root),
        ]
    });
    table(&columns, rows.collect(), "no snapshots; make one with farside snapshot create")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot(name: &str, changes: serde_json::Value) -> Snapshot {
        let mut document = json!({
            "name": name, "volume": "p/v", "uuid": uuid::Uuid::nil(), "content_root": null, "created_at": "2027-01-15T08:00:00Z",
            "held": false, "made_by": "person", "rotates": false, "referenced_bytes": null, "unique_bytes": null,
        });
        for (field, value) in changes.as_object().expect("an object") {
            document[field] = value.clone();
        }
        serde_json::from_value(document).expect("a snapshot")
    }

    #[test]
    fn a_new_name_keeps_nothing_that_goes_by_itself() {
        let said = |changes| goes_all_the_same(&snapshot("mine", changes));
        assert_eq!(said(json!({})), "");
        assert!(
            said(json!({ "rotates": true }))
                .contains("still rotates: farside snapshot hold p/v@mine keeps it")
        );
        assert!(said(json!({ "made_by": "mirror" })).contains("farside snapshot hold p/v@mine"));
        assert_eq!(said(json!({ "rotates": true, "held": true })), "");
    }

    #[test]
    fn a_list_says_what_no_person_has_made() {
        let all = [
            snapshot("monday", json!({})),
            snapshot("auto-2027-01-15T08:00:00Z", json!({ "taken_by": "timetable" })),
            snapshot("rescue-2027-01-15T08:00:00Z", json!({ "taken_by": "rescue" })),
            snapshot("base-2027-01-15T08:00:00Z", json!({ "taken_by": "mirror" })),
        ];
        let text = listing(&all);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert!(lines.len() >= all.len(), "{text}");
        for (line, word) in lines.iter().zip([" person ", " timetable ", " rescue ", " ended mirror "]) {
            assert!(line.contains(word), "{text}");
        }
    }
}
