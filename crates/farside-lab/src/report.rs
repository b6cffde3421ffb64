//! Records to tables, JSON and a page with plots. Pure.
