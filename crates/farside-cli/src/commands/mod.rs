//! What each verb does: one request or a few, and how the answer is shown.

mod accelerator;
mod access;
mod alarm;
mod check;
mod codes;
mod context;
mod dedup;
mod generate;
mod host;
mod mirror;
mod overview;
mod peer;
mod pool;
mod present;
mod quarantine;
mod scrub;
mod site;
mod snapshot;
mod support;
mod volume;

use farside_api::{Configuration, ErrorBody, Site, Support};
use serde::Serialize;

use crate::arguments::{Arguments, Config, Noun};
use crate::client::Client;
use crate::output::{self, or_dash};
use crate::quantities::{duration, size};
use context::Context;
pub use context::Failed;

/// Runs one command.
pub async fn run(arguments: Arguments) -> Result<(), Failed> {
    let json = arguments.connection.json;
    let context = || {
        Ok::<_, ErrorBody>(Context {
            client: Client::new(arguments.connection.way(), arguments.connection.site.clone())?,
            json,
        })
    };
    match arguments.noun {
        Noun::Pool(verb) => pool::run(context()?, verb).await?,
        Noun::Volume(verb) => volume::run(context()?, verb).await?,
        Noun::Snapshot(verb) => snapshot::run(context()?, verb).await?,
        Noun::Clone { snapshot, new, even_if_damaged } => {
            snapshot::clone(&context()?, &snapshot, &new, even_if_damaged).await?;
        }
        Noun::Host(verb) => host::run(context()?, verb).await?,
        Noun::Peer(verb) => peer::run(context()?, verb).await?,
        Noun::Site(verb) => site::run(context()?, verb).await?,
        Noun::Mirror(verb) => mirror::run(context()?, verb).await?,
        Noun::Alarm(verb) => alarm::run(context()?, verb).await?,
        Noun::Token(verb) => access::token(context()?, verb).await?,
        Noun::Account(verb) => access::account(context()?, verb).await?,
        Noun::Delayed(verb) => access::delayed(context()?, verb).await?,
        Noun::Audit(wanted) => access::audit(context()?, wanted).await?,
        Noun::Accel(verb) => accelerator::run(context()?, verb).await?,
        Noun::Status => overview::status(context()?).await?,
        Noun::Top { every } => overview::top(context()?, every).await?,
        Noun::Config(Config::Show) => config_show(context()?).await?,
        Noun::SupportBundle { output } => {
            support::run(context()?, output, &arguments.connection.data_dir_path()).await?;
        }
        Noun::Completions { shell } => generate::completions(shell),
        Noun::Man { to } => generate::man(to.as_deref())?,
    }
    Ok(())
}

async fn config_show(context: Context) -> Result<(), ErrorBody> {
    let site: Site = context.client.get(&["site"]).await?;
    let support: Support = context.client.get(&["support"]).await?;
    let shown = Shown { site, configuration: support.configuration };
    context.show(&shown, |Shown { site, configuration }| {
        let mut rows = vec![
            ("name", site.name.clone()),
            ("id", site.id.clone()),
            ("version", site.version.clone()),
            ("data directory", site.data_dir.clone()),
            ("peers", site.peer_address.clone().unwrap_or_else(|| String::from("off"))),
            ("http", site.http_address.clone().unwrap_or_else(|| String::from("off"))),
            ("api", site.api_address.clone().unwrap_or_else(|| String::from("off"))),
            ("api certificate", site.api_fingerprint.clone().unwrap_or_else(|| String::from("none"))),
            ("nbd", site.nbd_address.clone().unwrap_or_else(|| String::from("off"))),
            ("nbd socket", site.nbd_socket.clone()),
            ("log", configuration.log.clone()),
            ("log format", configuration.log_format.clone()),
        ];
        if let Some(api) = &configuration.api {
            let waits =
                api.delay_seconds.map(|seconds| format!("wait {}, and can be stopped", duration(seconds)));
            rows.push(("deletions over HTTPS", waits.unwrap_or_else(|| String::from("run at once"))));
        }
        if let Some(daemon) = &configuration.daemon {
            rows.insert(
                1,
                (
                    "daemon",
                    format!("{daemon}, which leads: this is its configuration, and each daemon has its own"),
                ),
            );
        }
        if let Some(wire) = &configuration.wire {
            rows.extend([
                ("effort", wire.effort.clone()),
                ("encoder memory", size(wire.encoder_memory_bytes)),
                ("similarity memory", format!("{} for each TiB", size(wire.similarity_bytes_per_tib))),
            ]);
        }
        if let Some(budgets) = &configuration.budgets {
            let pinned = budgets.pinned_bytes.map_or(String::from("what the reserve leaves"), size);
            let age = match budgets.pin_age_days {
                0 => String::from("any"),
                days => format!("{days} days"),
            };
            rows.extend([
                ("snapshots of a peer", format!("{} a minute", budgets.snapshots_per_minute)),
                ("calls of a peer", format!("{} a minute", budgets.calls_per_minute)),
                ("transfers of a peer", format!("{} at once", budgets.transfers)),
                ("mirrors of a peer", budgets.mirrors.to_string()),
                ("pins of a peer", budgets.pins.to_string()),
                ("pinned for a peer", pinned),
                ("age of pins", age),
                ("reserve for hosts", format!("{} %", budgets.reserve_percent)),
            ]);
        }
        if let Some(replicas) = &configuration.replicas {
            let rescues = match replicas.rescues {
                0 => String::from("all"),
                most => format!("the newest {most} and the first of each of as many days"),
            };
            rows.extend([
                ("left free by replicas", format!("{} %", replicas.reserve_percent)),
                ("snapshots of a replica", replicas.snapshots.to_string()),
                ("rescues of a volume", rescues),
            ]);
        }
        if let Some(accelerator) = &configuration.accelerator {
            let interfaces = match &accelerator.wan {
                Some(wan) => format!("{} to {wan}", accelerator.lan.join(", ")),
                None => String::from("none"),
            };
            rows.extend([
                ("accelerator's interfaces", interfaces),
                ("accelerator's address", accelerator.listen.clone()),
                ("accelerator's own policies", accelerator.policies.to_string()),
            ]);
        }
        if let Some(alarms) = &configuration.alarms {
            let webhook = alarms.webhook.clone().unwrap_or_else(|| String::from("none"));
            let signed = if alarms.webhook_signed { " (signed)" } else { "" };
            rows.extend([
                ("alarms posted to", format!("{webhook}{signed}")),
                ("alarms run", alarms.command.clone().unwrap_or_else(|| String::from("nothing"))),
                ("a peer is gone after", duration(alarms.peer_gone_after_seconds as f64)),
                (
                    "a daemon is gone after",
                    or_dash(alarms.daemon_gone_after_seconds, |seconds| duration(seconds as f64)),
                ),
                ("a transfer stands after", duration(alarms.no_progress_after_seconds as f64)),
                ("transfers fail after", alarms.failing_transfers.to_string()),
                ("alarms clear after", duration(alarms.clear_after_seconds as f64)),
            ]);
        }
        output::details(&rows)
    });
    Ok(())
}

/// What `config show` shows: the site's addresses, and all that the daemon was configured with.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    site: Site,
    configuration: Configuration,
}
