//! Tables and plots of results. Pure: text out, no file is read or written here.
//!
//! [`pivot`] arranges a result's figures as tables; [`page`] writes them as Markdown with plots and for a terminal;
//! [`codec`] does the same for measurements of the codec alone; [`plot`] draws.

pub mod codec;
pub mod page;
pub mod pivot;
pub mod plot;

/// A page and the plots that it shows, by file name.
#[derive(Debug, Default)]
pub struct Report {
    /// Markdown.
    pub markdown: String,
    /// Names and contents of SVG files.
    pub plots: Vec<(String, String)>,
}

impl Report {
    /// Adds a plot and the Markdown that shows it.
    pub(crate) fn show(&mut self, name: String, title: &str, svg: String) {
        self.markdown.push_str(&format!("![{}]({name})\n\n", crate::text::markdown(title)));
        self.plots.push((name, svg));
    }
}
