//! Tables, JSON and pages with plots of an experiment's result. Pure: text out, no file is read or written here.

pub mod plot;
pub mod text;
