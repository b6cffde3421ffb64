//! `farside-lab wan`: lays an emulated link, runs a command at one end of it, and tells what the link did.

use std::env;
use std::process::ExitCode;

use comfy_table::{CellAlignment, Table, presets};
use farside_lab::emulator::LinkCounters;
use farside_lab::link::{Link, LinkTerms};
use farside_lab::record::DirectionCounters;
use farside_lab::testbed::{self, Hosts, Laid, TestBed, TestBedError};

use crate::cli::{Place, WanArguments};
use crate::commands::Outcome;

pub(crate) fn run(place: &Place, arguments: &WanArguments) -> Outcome {
    let links = links(arguments)?;
    let test_bed = testbed::enter(&place.work())?;
    let hosts = Hosts {
        congestion: arguments.congestion.clone(),
        tcp_rmem_max_bytes: arguments.tcp_rmem_max,
        tcp_wmem_max_bytes: arguments.tcp_wmem_max,
    };
    let laid = test_bed.lay(&links, &hosts, arguments.hosts, arguments.seed)?;
    let status = if arguments.command.is_empty() {
        tell_entrances(&test_bed, &laid)?;
        test_bed.wait_for_interrupt()?;
        0
    } else {
        attend(&laid, arguments)?
    };
    let counters = laid.counters()?;
    if arguments.json {
        println!("{}", serde_json::to_string(&counters)?);
    } else {
        eprintln!("{}", table(&counters));
    }
    Ok(ExitCode::from(status))
}

/// Equal links, one per path.
fn links(arguments: &WanArguments) -> Result<Vec<Link>, farside_lab::link::LinkError> {
    let terms = LinkTerms {
        // A rate alone is a link, too.
        profile: arguments.profile.clone().or_else(|| arguments.rate.is_none().then(|| "t3".to_owned())),
        rate: arguments.rate,
        rate_back: arguments.rate_back,
        rtt: arguments.rtt,
        jitter: arguments.jitter,
        loss: arguments.loss,
        loss_back: arguments.loss_back,
        burst: arguments.burst,
        reorder: arguments.reorder,
        queue: arguments.queue,
        mtu: arguments.mtu,
        ..LinkTerms::default()
    };
    (0..arguments.paths).map(|path| terms.build(&format!("path {path}"))).collect()
}

/// Runs the command; returns its status as a shell would tell it.
fn attend(laid: &Laid, arguments: &WanArguments) -> Result<u8, Box<dyn std::error::Error>> {
    let site = laid.site(arguments.at.as_deref().unwrap_or("a"))?;
    let mut variables = laid.address_variables();
    variables.push(("SITE".into(), site.name().to_owned()));
    for other in laid.sites().values() {
        let name = other.name().to_uppercase();
        variables.push((format!("{name}_NETNS"), other.netns().display().to_string()));
    }
    let status = site.foreground(&arguments.command, &variables, &env::current_dir()?)?;
    Ok(testbed::shell_status(status))
}

/// How to get into the sites while the link stays.
fn tell_entrances(test_bed: &TestBed, laid: &Laid) -> Result<(), TestBedError> {
    let pid = test_bed.pid_outside()?;
    eprintln!("The link is up until Ctrl-C. Into a site, as root, from another terminal:");
    for site in laid.sites().values() {
        let addresses: Vec<String> = site.addresses().iter().map(ToString::to_string).collect();
        eprintln!(
            "  {:<6} {:<15} nsenter -t {pid} -m -p nsenter --net={} bash",
            site.name(),
            addresses.join(" "),
            site.netns().display()
        );
    }
    Ok(())
}

/// What each direction did, as a table.
fn table(links: &[LinkCounters]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "direction",
        "packets",
        "bytes",
        "came out",
        "lost",
        "queue full",
        "down",
        "too large",
        "overtaken",
        "device drops",
        "late: median",
        "99 %",
        "most",
    ]);
    for (path, link) in links.iter().enumerate() {
        for (direction, counters) in [("a to b", &link.forward), ("b to a", &link.back)] {
            let direction =
                if links.len() > 1 { format!("path {path}, {direction}") } else { direction.to_owned() };
            table.add_row(row(direction, counters));
        }
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(direction: String, counters: &DirectionCounters) -> Vec<String> {
    let mut row = vec![direction];
    let numbers = [
        counters.packets_in,
        counters.bytes_in,
        counters.packets_out,
        counters.lost,
        counters.dropped_queue,
        counters.dropped_down,
        counters.dropped_size,
        counters.reordered,
        counters.device_drops,
    ];
    row.extend(numbers.map(|number| number.to_string()));
    let lateness = &counters.lateness;
    row.extend([lateness.p50_us, lateness.p99_us, lateness.max_us].map(|late| format!("{late:.0} µs")));
    row
}
