//! `farside-lab contenders`: what there is to compare with, and whether its programs are installed.

use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table, presets};
use farside_lab::contender::{Contender, Inspection, Installed, inspect, load_all};
use serde_json::json;

use crate::cli::ContendersArguments;
use crate::commands::{Outcome, run};

pub(crate) fn run(arguments: &ContendersArguments) -> Outcome {
    let farside_bin = run::farside_bin()?;
    let found: Vec<(Contender, Inspection)> = load_all(&arguments.dir)?
        .into_iter()
        .map(|contender| {
            let inspection = inspect(&contender, &farside_bin);
            (contender, inspection)
        })
        .collect();
    if arguments.json {
        let all: Vec<_> =
            found.iter().map(|(contender, inspection)| as_json(contender, inspection)).collect();
        println!("{}", serde_json::Value::from(all));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(run::columns())
        .set_header(["contender", "carries", "phases", "packages", "versions", "state"]);
    for (contender, inspection) in &found {
        table.add_row([
            contender.name.clone(),
            words(contender.carries.iter().map(|kind| kind.as_str())),
            words(contender.phases.keys().map(|phase| phase.as_str())),
            words(contender.packages.iter().map(String::as_str)),
            inspection.programs.iter().map(version).collect::<Vec<_>>().join(", "),
            state(inspection),
        ]);
    }
    println!("{}", table.trim_fmt());
    let other = |(_, inspection): &(Contender, Inspection)| inspection.programs.iter().any(is_other);
    if found.iter().any(other) {
        println!(
            "\n* is not the version that published figures are made with, which stands after it. It is used all the \
             same, and stands in the records."
        );
    }
    if found.iter().any(|(_, inspection)| !inspection.is_ready()) {
        println!(
            "\nscripts/install-lab-tools installs what is missing. FARSIDE_BIN says where farside and farsided are."
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn words<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(" ")
}

fn is_other(installed: &Installed) -> bool {
    installed.version.is_some() && !installed.is_pinned()
}

/// `rsync 3.5.0`, or `rsync 3.4.1* (3.5.0)` where another one is pinned.
fn version(installed: &Installed) -> String {
    let Installed { program, pinned, version } = installed;
    match (version, pinned) {
        (Some(version), Some(pinned)) if is_other(installed) => format!("{program} {version}* ({pinned})"),
        (Some(version), _) => format!("{program} {version}"),
        (None, Some(pinned)) => format!("{program} - ({pinned})"),
        (None, None) => format!("{program} -"),
    }
}

fn state(inspection: &Inspection) -> String {
    if inspection.is_ready() {
        "ready".to_owned()
    } else {
        format!("missing: {}", words(inspection.missing()))
    }
}

fn as_json(contender: &Contender, inspection: &Inspection) -> serde_json::Value {
    json!({
        "name": contender.name,
        "about": contender.about,
        "role": contender.role,
        "carries": contender.carries,
        "phases": contender.phases.keys().collect::<Vec<_>>(),
        "packages": contender.packages,
        "programs": inspection.programs,
        "ready": inspection.is_ready(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed(version: Option<&str>, pinned: Option<&str>) -> Installed {
        Installed {
            program: "rsync".to_owned(),
            pinned: pinned.map(str::to_owned),
            version: version.map(str::to_owned),
        }
    }

    #[test]
    fn another_version_than_the_pinned_one_is_marked_and_a_missing_one_is_named() {
        assert_eq!(version(&installed(Some("3.5.0"), Some("3.5.0"))), "rsync 3.5.0");
        assert_eq!(version(&installed(Some("3.4.1"), Some("3.5.0"))), "rsync 3.4.1* (3.5.0)");
        assert_eq!(version(&installed(Some("0.1.0"), None)), "rsync 0.1.0");
        assert_eq!(version(&installed(None, Some("3.5.0"))), "rsync - (3.5.0)");
        let one_of = |version| Inspection { programs: vec![installed(version, Some("3.5.0"))] };
        assert_eq!(state(&one_of(Some("3.4.1"))), "ready");
        assert_eq!(state(&one_of(None)), "missing: rsync");
    }
}
