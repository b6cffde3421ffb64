//! Whole nodes against each other, over loopback TCP and over a simulated network.

mod calls;
mod door;
mod hellos;
mod links;
mod log;
mod pairing;
mod site;
mod streams;
