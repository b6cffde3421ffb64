//! Namespaces, sites, the processes in them and what these cost; leaves nothing behind.
