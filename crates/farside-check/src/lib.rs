//! Verifies a pool offline, from the format alone.
