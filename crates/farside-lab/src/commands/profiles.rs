//! `farside-lab profiles`: the links known by name.

use std::process::ExitCode;

use comfy_table::{CellAlignment, Table, presets};
use farside_lab::link::PROFILES;
use serde_json::json;

use crate::cli::ProfilesArguments;
use crate::commands::Outcome;

pub(crate) fn run(arguments: &ProfilesArguments) -> Outcome {
    if arguments.json {
        let profiles: Vec<_> = PROFILES
            .iter()
            .map(|profile| {
                json!({
                    "name": profile.name,
                    "about": profile.about,
                    "forward_bits": profile.forward_bits,
                    "back_bits": profile.back_bits,
                })
            })
            .collect();
        println!("{}", serde_json::Value::from(profiles));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["profile", "a to b", "b to a", "what it is"]);
    for profile in PROFILES {
        table.add_row([
            profile.name,
            &megabits(profile.forward_bits),
            &megabits(profile.back_bits),
            profile.about,
        ]);
    }
    for column in [1, 2] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
    println!(
        "\nA profile gives the rates alone. Delay, loss and the rest are set by flags of `farside-lab wan` and by experiments."
    );
    Ok(ExitCode::SUCCESS)
}

/// `44.736 Mb/s`.
pub(crate) fn megabits(bits: u64) -> String {
    // The profiles' rates are far below 2^52.
    format!("{} Mb/s", bits as f64 / 1e6)
}
