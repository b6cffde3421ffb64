//! `/support` and `/operations`: what `farside support-bundle` asks beside the other listings.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use farside_api::{
    BudgetConfiguration, Configuration, NbdConfiguration, Operation, ReplicaConfiguration, Support, Versions,
    WireConfiguration,
};
use farside_format::FORMAT_VERSION;
use farside_link::{Congestion, HostTcp};
use farside_peer::hello::VERSIONS;
use farside_transfer::Effort;
use farside_transfer::protocol::{PROTOCOL_VERSION, PROTOCOL_VERSION_OLDEST};

use super::handler::{Answer, Shared};
use crate::convert;
use crate::options::{Config, Listen, LogFormat, NbdTls};
use crate::site::Site;
use crate::state::SCHEMA;

pub(super) fn routes() -> Router<Arc<Site>> {
    Router::new().route("/support", get(support)).route("/operations", get(operations))
}

async fn support(State(site): Shared) -> Answer<Support> {
    let (log, log_dropped) = site.log.kept.newest();
    Ok(Json(Support {
        versions: Versions {
            farside: site.document.version.clone(),
            format: FORMAT_VERSION,
            session_protocol: [*VERSIONS.start(), *VERSIONS.end()],
            mirror_protocol: [PROTOCOL_VERSION_OLDEST, PROTOCOL_VERSION],
            schema: SCHEMA,
        },
        started_at: convert::time(site.started_at),
        now: convert::time(site.clock.now()),
        configuration: Configuration {
            accelerator: Some(site.accelerator.configuration()),
            alarms: Some(site.alarms.configuration()),
            ..configuration(&site.configuration)
        },
        network_advice: HostTcp::read().advice(&Congestion::default()),
        log,
        log_dropped,
    }))
}

/// The configuration holds no secret: keys are files, tokens never outlive their invitation.
fn configuration(config: &Config) -> Configuration {
    let listen = |listen: &Listen| match listen {
        Listen::Off => String::from("off"),
        Listen::At(address) => address.clone(),
    };
    Configuration {
        name: config.name.clone(),
        data_dir: config.data_dir.display().to_string(),
        peer_listen: listen(&config.peer_listen),
        http: listen(&config.http),
        nbd: Some(NbdConfiguration {
            listen: listen(&config.nbd.listen),
            tls: config.nbd.tls == NbdTls::Required,
            names: config.nbd.names.clone(),
            own_certificates: config.nbd.own.is_some(),
        }),
        log: config.log.clone(),
        log_format: match config.log_format {
            LogFormat::Text => String::from("text"),
            LogFormat::Json => String::from("json"),
        },
        wire: Some(WireConfiguration {
            effort: config.effort.map_or("auto", Effort::name).to_owned(),
            encoder_memory_bytes: config.encoder_memory_bytes,
            similarity_bytes_per_tib: config.similarity_bytes_per_tib,
        }),
        budgets: Some(BudgetConfiguration {
            snapshots_per_minute: config.budgets.snapshots_per_minute,
            calls_per_minute: config.budgets.calls_per_minute,
            transfers: config.budgets.transfers as u64,
            mirrors: config.budgets.mirrors as u64,
            pins: config.budgets.pins as u64,
            pinned_bytes: config.budgets.pinned_bytes,
            pin_age_days: config.budgets.pin_age.map_or(0, |age| age.as_secs() / 86_400),
            reserve_percent: config.budgets.reserve_percent,
        }),
        replicas: Some(ReplicaConfiguration {
            reserve_percent: config.replicas.reserve_percent,
            snapshots: config.replicas.snapshots as u64,
            rescues: config.replicas.rescues as u64,
        }),
        accelerator: None,
        alarms: None,
    }
}

async fn operations(State(site): Shared) -> Answer<Vec<Operation>> {
    Ok(Json(site.operations.list(&site.node, &site.mirrors)))
}
