//! Bundles over simulated links, on tokio's paused clock; the pure cores against a plain queue; hostile peers.

mod ends;
mod hostile;
mod lanes;
mod limits;
mod model;
mod segments;
mod site;
