//! The site's daemons, as they are listed, drained and removed: by whichever of them is asked.

use farside_api::{DaemonState, DaemonStatus, ErrorBody, ErrorCode};
use farside_platform::Timestamp;

use crate::convert;
use crate::failure::Failure;
use crate::state::{DaemonRow, Desk, Unchanged};

/// All of them. `work` is how many mirrors and transfers the one that leads has, where that is known.
pub(crate) async fn list(desk: &mut Desk, work: Option<(u64, u64)>) -> Result<Vec<DaemonStatus>, ErrorBody> {
    let rows = desk.daemons().await.map_err(Failure::into_error_body)?;
    Ok(rows.into_iter().map(|row| document(row, work)).collect())
}

fn document(row: DaemonRow, work: Option<(u64, u64)>) -> DaemonStatus {
    let (mirrors, transfers) = work.filter(|_| row.leads).unwrap_or_default();
    DaemonStatus {
        name: row.name,
        address: row.api_address,
        state: match (row.is_alive, row.is_draining) {
            (false, _) => DaemonState::Gone,
            (true, true) => DaemonState::Draining,
            (true, false) => DaemonState::Active,
        },
        leads: row.leads,
        mirrors,
        transfers,
        last_seen_at: row.seen_at.map(|at| convert::time(Timestamp(u64::try_from(at).unwrap_or(0)))),
        version: row.version,
    }
}

/// Has a daemon hand its work over, or be one that may lead again.
pub(crate) async fn set_draining(desk: &mut Desk, name: &str, is_draining: bool) -> Result<(), ErrorBody> {
    let done = desk.set_draining(name, is_draining).await.map_err(Failure::into_error_body)?;
    done.map_err(|why| refusal(name, why))?;
    tracing::info!(daemon = name, is_draining, "a daemon of this site is drained, or not any more");
    Ok(())
}

/// Takes a daemon off the list.
pub(crate) async fn remove(desk: &mut Desk, name: &str) -> Result<(), ErrorBody> {
    let done = desk.remove(name).await.map_err(Failure::into_error_body)?;
    done.map_err(|why| refusal(name, why))?;
    tracing::warn!(daemon = name, "a daemon was removed from this site");
    Ok(())
}

fn refusal(name: &str, why: Unchanged) -> ErrorBody {
    match why {
        Unchanged::NoSuchDaemon => {
            ErrorBody::new(ErrorCode::NotFound, format!("no daemon of this site is called {name}"))
                .hint("farside site status shows them")
        }
        Unchanged::Lives => ErrorBody::new(
            ErrorCode::Refused,
            format!("the daemon {name} lives and may have the site's work. Nothing was changed"),
        )
        .hint(format!("first: farside site drain {name}; it is drained as soon as another one leads")),
        Unchanged::LastOne => ErrorBody::new(
            ErrorCode::Refused,
            format!(
                "no other daemon of this site lives that could take the work of {name}. Nothing was changed"
            ),
        )
        .hint("start another one, or undrain one that lives: farside site undrain NAME"),
    }
}
