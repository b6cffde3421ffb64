//! Bundles over simulated links, on tokio's paused clock.

mod ends;
mod site;
