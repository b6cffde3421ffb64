//! Tables and pages with plots of an experiment's result. Pure: text out, no file is read or written here.
//!
//! [`view`] finds in the result what is to be compared and how farside stands, [`goodput`] what probes got of a line;
//! [`sheet`] (with [`describe`]) puts it into words; [`table`] writes these as Markdown and for a terminal, [`mod@page`] as one
//! HTML file with the plots of [`plot`]. All foreign text goes through [`text`].

pub mod breakeven;
pub mod describe;
pub mod filling;
#[cfg(test)]
mod fixture;
pub mod flow;
pub mod goodput;
pub mod links;
pub mod model;
pub mod outages;
pub mod page;
pub mod plot;
pub mod sharing;
pub mod sheet;
pub mod table;
pub mod text;
pub mod view;
pub mod volumes;

pub use page::page;
pub use table::{markdown, terminal};
