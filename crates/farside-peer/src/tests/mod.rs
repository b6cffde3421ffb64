//! Whole nodes against each other, over loopback TCP and over a simulated network.

mod admission;
mod calls;
mod connection_flood;
mod elsewhere;
mod ends;
mod hellos;
mod links;
mod log;
mod old_version;
mod pairing;
mod paths;
mod removed;
mod site;
mod speed;
mod streams;
mod throttles;
mod two_sites;
mod version_2;
