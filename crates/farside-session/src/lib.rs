//! Authenticated sessions between sites: identity, pairing, TLS, control and data streams.
