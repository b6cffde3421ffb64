//! Words on the command line to API calls; tables, progress, JSON.
