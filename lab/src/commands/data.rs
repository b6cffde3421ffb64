//! `farside-lab data`: lists the data sets, or makes one and tells what it is.

use std::error::Error;
use std::process::ExitCode;

use bytesize::ByteSize;
use comfy_table::{CellAlignment, Table, presets};
use farside_lab::data::{self, DataError, Order, Prepared};
use farside_lab::testbed;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::cli::{DataArguments, Place};
use crate::commands::Outcome;

pub(crate) fn run(place: &Place, arguments: &DataArguments) -> Outcome {
    let Some(set) = &arguments.set else { return list(arguments.json) };
    // A name that is wrong needs no root to be told so.
    let order = Order {
        set: data::set(set)?.name.to_owned(),
        size_bytes: arguments.size.map(|size| size.as_u64()),
        seed: arguments.seed,
    };
    let test_bed = testbed::enter(&place.work())?;
    let prepared = prepare(&order, place, &test_bed)?;
    if arguments.json {
        println!("{}", serde_json::to_string(&prepared.manifest)?);
    } else {
        println!("{}\n\n{}", prepared.dir.display(), table(&prepared));
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes it, with a line of progress where somebody looks on.
fn prepare(order: &Order, place: &Place, test_bed: &testbed::TestBed) -> Result<Prepared, Box<dyn Error>> {
    // Hundredths of a percent.
    let bar = ProgressBar::new(10_000);
    bar.set_style(ProgressStyle::with_template("{spinner} {msg} {wide_bar} {percent} %")?);
    let mut shown = String::new();
    let prepared = data::prepare(order, &place.data(), test_bed, &mut |progress| {
        if shown != progress.step {
            progress.step.clone_into(&mut shown);
            bar.set_message(shown.clone());
        }
        bar.set_position((progress.share.unwrap_or_default() * 10_000.0) as u64);
    });
    bar.finish_and_clear();
    prepared.map_err(|error| match error {
        // Told apart by `main`: an interrupt is no failure.
        DataError::TestBed(error) => error.into(),
        error => error.into(),
    })
}

fn list(as_json: bool) -> Outcome {
    if as_json {
        let sets: Vec<_> = data::sets()
            .iter()
            .map(|set| {
                json!({
                    "name": set.name,
                    "about": set.about,
                    "default_bytes": set.default_bytes,
                    "minimum_bytes": set.minimum_bytes,
                    "volumes": set.volumes,
                    "generations": set.generations,
                    "has_tree": set.has_tree,
                })
            })
            .collect();
        println!("{}", serde_json::Value::from(sets));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["set", "size", "volumes", "generations", "what it is"]);
    for set in data::sets() {
        table.add_row([
            set.name,
            &ByteSize(set.default_bytes).to_string(),
            &set.volumes.to_string(),
            &set.generations.join(" "),
            set.about,
        ]);
    }
    right(&mut table, &[1, 2]);
    println!("{table}");
    Ok(ExitCode::SUCCESS)
}

/// A line per generation and volume.
fn table(prepared: &Prepared) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "image",
        "size",
        "not zero",
        "zstd -3",
        "blocks changed",
        "of these from zero",
        "their zstd -3",
    ]);
    for generation in &prepared.manifest.generations {
        for volume in &generation.volumes {
            let mut row = vec![
                format!("{}/{}", generation.name, volume.file),
                ByteSize(volume.size_bytes).to_string(),
                ByteSize(volume.data_bytes).to_string(),
                ByteSize(volume.zstd3_bytes).to_string(),
            ];
            if let Some(changed) = &volume.changed {
                let share =
                    100.0 * (changed.blocks * data::BLOCK_BYTES) as f64 / volume.size_bytes.max(1) as f64;
                row.push(format!("{} ({share:.1} %)", changed.blocks));
                row.push(changed.blocks_from_zero.to_string());
                row.push(ByteSize(changed.zstd3_bytes).to_string());
            }
            table.add_row(row);
        }
    }
    right(&mut table, &[1, 2, 3, 4, 5, 6]);
    table
}

fn right(table: &mut Table, columns: &[usize]) {
    for column in columns {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}
