//! The JSON that daemon and clients exchange.
