//! `farside-lab`: emulated links, data sets, experiments.

fn main() {}
