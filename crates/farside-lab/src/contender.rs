//! Contenders: the files that tell how farside or a tool does a job over a link.
