//! Whole nodes against each other, over loopback TCP and over a simulated network.

mod calls;
mod site;
