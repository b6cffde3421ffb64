//! Data sets: what real programs write, made deterministically.
