//! Whole nodes against each other, over loopback TCP and over a simulated network.

mod calls;
mod crowd;
mod door;
mod hellos;
mod links;
mod log;
mod pairing;
mod removed;
mod site;
mod streams;
mod throttles;
