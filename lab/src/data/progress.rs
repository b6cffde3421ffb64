//! How far making a set is.

/// How far making is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// What is done now, as a person reads it.
    pub step: &'a str,
    /// How much of this step is done, 0 to 1, where that is known.
    pub share: Option<f64>,
}
