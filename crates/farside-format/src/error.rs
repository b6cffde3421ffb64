//! Why bytes are not what they should be.

/// What is wrong with bytes that should have been ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FormatError {
    /// Too short or too long.
    #[error("{what} has the wrong length")]
    Length {
        /// Which structure.
        what: &'static str,
    },
    /// Not this kind of structure at all.
    #[error("no {what} here (wrong magic number)")]
    Magic {
        /// Which structure.
        what: &'static str,
    },
    /// Written by another version.
    #[error("format version {found}; this farside reads version {supported}")]
    Version {
        /// What the medium says.
        found: u32,
        /// What this code reads.
        supported: u32,
    },
    /// Rotten, torn or partly overwritten.
    #[error("{what} does not match its checksum")]
    Checksum {
        /// Which structure.
        what: &'static str,
    },
    /// A field that cannot be.
    #[error("{what} has an impossible field: {field}")]
    Field {
        /// Which structure.
        what: &'static str,
        /// Which field.
        field: &'static str,
    },
    /// A good node, but not the one the pointer meant: a lost, stale or misdirected write.
    #[error("the node here is another one than its pointer means: {field} differs")]
    NotTheExpectedNode {
        /// Which field.
        field: &'static str,
    },
}
