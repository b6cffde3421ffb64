//! Moves IP packets between two TUN devices as a link says.
