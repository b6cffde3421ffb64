//! `farside alarm`.

use farside_api::{Alarm, AlarmTest, ErrorBody, ErrorCode};

use super::context::{Context, Failed};
use crate::arguments::alarm::Alarm as Verb;
use crate::output::{Column, or_dash, table};
use crate::quantities::time;

pub(super) async fn run(context: Context, verb: Verb) -> Result<(), Failed> {
    match verb {
        Verb::List { all } => {
            let query: &[(&str, &str)] = if all { &[("all", "true")] } else { &[] };
            let alarms: Vec<Alarm> = context.client.get_with(&["alarms"], query).await?;
            context.show(&alarms, |alarms| listing(alarms, all));
        }
        Verb::Ack { id } => {
            let alarm: Alarm = context.client.post(&["alarms", &id, "ack"], &()).await?;
            context.show(&alarm, |alarm| {
                format!("alarm {} ({} {}) is acknowledged\n", alarm.id, alarm.kind, alarm.subject)
            });
        }
        Verb::Test => {
            let ways: Vec<AlarmTest> = context.client.post(&["alarms", "test"], &()).await?;
            context.show(&ways, |ways| tried(ways));
            let failed: Vec<&str> = ways.iter().filter(|way| !way.ok).map(|way| way.way.as_str()).collect();
            if !failed.is_empty() {
                let message = format!("the test alarm did not arrive by {}", failed.join(" and "));
                let error = ErrorBody::new(ErrorCode::Failed, message);
                return Err(Failed { error, is_printed: true, exit_code: None });
            }
        }
    }
    Ok(())
}

fn tried(ways: &[AlarmTest]) -> String {
    let row = |way: &AlarmTest| {
        vec![way.way.clone(), or_dash(way.target.clone(), |target| target), way.result.clone()]
    };
    let columns = [Column::Left("way"), Column::Left("target"), Column::Left("result")];
    table(&columns, ways.iter().map(row).collect(), "no way")
}

fn listing(alarms: &[Alarm], all: bool) -> String {
    let row = |alarm: &Alarm| {
        let mut row = vec![
            alarm.id.clone(),
            alarm.severity.name().to_owned(),
            alarm.kind.clone(),
            alarm.subject.clone(),
            time(alarm.raised_at),
        ];
        if all {
            row.push(alarm.cleared_at.map_or_else(|| String::from("-"), time));
        }
        row.push(String::from(if alarm.acknowledged { "yes" } else { "no" }));
        row.push(format!("{}. What to do: {}", alarm.message, alarm.hint));
        row
    };
    let mut columns = vec![
        Column::Right("id"),
        Column::Left("severity"),
        Column::Left("kind"),
        Column::Left("subject"),
        Column::Left("raised"),
    ];
    if all {
        columns.push(Column::Left("cleared"));
    }
    columns.extend([Column::Left("acknowledged"), Column::Left("what")]);
    table(&columns, alarms.iter().map(row).collect(), "no alarms")
}

#[cfg(test)]
mod tests {
    use farside_api::AlarmSeverity;

    use super::*;

    #[test]
    fn a_listing_says_what_to_do() {
        let alarm = Alarm {
            id: "3".into(),
            kind: "pool-full".into(),
            subject: "tank".into(),
            severity: AlarmSeverity::Critical,
            raised_at: "2026-11-21T20:00:00Z".parse().unwrap(),
            cleared_at: None,
            acknowledged: false,
            message: "pool tank: nothing is left".into(),
            hint: "farside pool grow tank".into(),
        };
        let text = listing(std::slice::from_ref(&alarm), false);
        assert!(text.contains("What to do: farside pool grow tank") && !text.contains("CLEARED"), "{text}");
        assert!(listing(&[alarm], true).contains("CLEARED"));
        assert_eq!(listing(&[], false), "no alarms\n");
    }
}
