//! `/support`: what `farside support-bundle` asks beside the other listings.

use axum::Json;
use axum::extract::State;
use farside_api::{
    ApiConfiguration, BudgetConfiguration, Configuration, NbdConfiguration, ReplicaConfiguration, Support,
    Versions, WireConfiguration,
};
use farside_format::FORMAT_VERSION;
use farside_link::{Congestion, HostTcp};
use farside_peer::hello::VERSIONS;
use farside_transfer::Effort;
use farside_transfer::protocol::{PROTOCOL_VERSION, PROTOCOL_VERSION_OLDEST};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::handler::{Answer, Routes, Shared};
use crate::convert;
use crate::options::{Config, Listen, LogFormat, NbdTls};
use crate::state::SCHEMA;

pub(super) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(support))
}

/// Configuration, versions and log for whoever helps.
#[utoipa::path(get, path = "/support", responses((status = 200, body = Support)))]
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
            daemon: site.keeper.as_ref().filter(|keeper| keeper.others() > 0).map(|keeper| keeper.name()),
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
        api: Some(ApiConfiguration {
            listen: listen(&config.api.listen),
            names: config.api.names.clone(),
            own_certificate: config.api.own.is_some(),
            delay_seconds: config.api.delay.map(|delay| delay.as_secs_f64()),
        }),
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
        database: Some(config.database.to_string()),
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
        daemon: None,
    }
}
