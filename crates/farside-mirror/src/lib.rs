//! Relationships: states, schedule, and both sides of a transfer.
