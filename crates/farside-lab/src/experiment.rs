//! Experiments: files, plan, runs, records.
