//! Wires the rooms together: HTTP API, state database, metrics.
