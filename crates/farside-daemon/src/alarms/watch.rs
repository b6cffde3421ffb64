//! The task that looks at the site.

use std::time::Duration;

use super::conditions::Conditions;
use super::history::Histories;
use super::observe;
use crate::site::Site;

/// How often the site is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Looks at the site for as long as it lives.
pub(crate) async fn keep_looking(site: &Site) {
    let mut ended = site.alarms.transfers_ended();
    let mut histories = Histories::default();
    let mut conditions = Conditions::default();
    let mut was_full = false;
    loop {
        let seen = observe::look(site, &mut histories, &mut ended).await;
        let is_full = site.alarms.judge(&seen, &mut conditions).await;
        if is_full && !was_full {
            tracing::error!(
                "as many alarms are raised as there may be; no further ones are until some are over"
            );
        }
        was_full = is_full;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
