//! Sessions that end at an unlucky moment.

use std::time::Duration;

use super::site::b_dials_a_on;
use farside_link::{LinkSettings, SimulatedNetwork};

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_as_it_is_measured_is_dialled_anew() {
    let network = SimulatedNetwork::new(
        31,
        LinkSettings { latency: Duration::from_millis(5), ..LinkSettings::default() },
    );
    let (a, b) = b_dials_a_on(&network).await;
    for _ in 0..3 {
        let link = b.link(&a).await;
        b.node.end_while_measuring(a.id());
        link.closed().await;
        b.wait_state(a.id(), |state| !state.connected).await;
        b.wait_state(a.id(), |state| state.connected).await;
        b.proves_alive(&a).await;
    }
}
