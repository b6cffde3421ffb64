//! Whole nodes against each other, over loopback TCP and over a simulated network.

mod calls;
mod crowd;
mod door;
mod hellos;
mod links;
mod log;
mod old_version;
mod pairing;
mod paths;
mod removed;
mod site;
mod streams;
mod throttles;
mod version_2;
