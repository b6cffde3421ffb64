//! All experiments about links as one section of the manual: each result finds its own part by its name. Pure.

use crate::record::result::ExperimentResult;

use super::filling::{self, Section};
use super::plot::PlotError;
use super::{outages, sharing, volumes};

/// What makes a section of a result.
type Part = fn(&ExperimentResult) -> Result<Section, PlotError>;

/// Names of experiments, and what makes a section of each.
const PARTS: [(&str, Part); 9] = [
    ("link", filling::steady_section),
    ("link-matrix", filling::steady_section),
    ("link-transfers", filling::transfers_section),
    ("cuts", outages::section),
    ("interactive", sharing::section),
    ("d5-volumes", volumes::volumes_section),
    ("d5-volumes-matrix", volumes::volumes_section),
    ("d5-window", volumes::window_section),
    ("d5-frames", volumes::frames_section),
];

/// Why there is no section.
#[derive(Debug, thiserror::Error)]
pub enum LinksError {
    /// A result of something else.
    #[error("no section is made of the experiment {name}; there is one of {}", known())]
    Unknown {
        /// The experiment's name.
        name: String,
    },
    /// A picture.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

fn known() -> String {
    PARTS.map(|(name, _)| name).join(", ")
}

/// The sections of `results`, in their order.
///
/// # Errors
/// [`LinksError`].
pub fn section(results: &[ExperimentResult]) -> Result<Section, LinksError> {
    let mut all = Section::default();
    for result in results {
        let part = PARTS.iter().find(|(name, _)| *name == result.name).map(|(_, part)| part);
        let part = part.ok_or_else(|| LinksError::Unknown { name: result.name.clone() })?;
        let section = part(result)?;
        all.markdown.push_str(section.markdown.trim_end());
        all.markdown.push_str("\n\n");
        all.pictures.extend(section.pictures);
    }
    all.markdown.truncate(all.markdown.trim_end().len());
    all.markdown.push('\n');
    Ok(all)
}

#[cfg(test)]
mod tests;
