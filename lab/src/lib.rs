//! The laboratory: every claim about links and bytes is measured here, and nothing here is part of the daemon.
//!
//! An *experiment* (a file) names links, data sets and contenders. The laboratory enters namespaces of its own
//! ([`testbed`]), lays sites and the emulated wide-area links between them ([`link`], [`emulator`]), makes the data that
//! real programs write ([`data`]), lets each *contender* ([`contender`]: farside or a tool that people use today) do the
//! same job, and writes down what went over the link, how long it took and what it cost ([`experiment`]). From these
//! records come lines of JSON and a report with tables and plots ([`report`]).
//!
//! | room | its one job | knows |
//! | --- | --- | --- |
//! | [`experiment`] | files, plan, runs, records, estimate, resumption | all below |
//! | [`report`] | results → tables and plots; pure | `record`, `link`, the statistics of `experiment` |
//! | [`contender`] | the files that tell how a tool does the job | - |
//! | [`data`] | data sets: deterministic generators of what real programs write | - |
//! | [`testbed`] | namespaces, sites, processes, what they cost; cleaning up | `emulator`, `link`, `contender`'s signs of readiness |
//! | [`emulator`] | moves packets between two TUN devices as the link says | `link` |
//! | [`link`] | what a link is and what it does to each packet; pure | - |
//! | [`record`] | what is written down of a run; pure | `link` |

pub mod contender;
pub mod data;
pub mod emulator;
pub mod experiment;
pub mod link;
pub mod record;
pub mod report;
pub mod testbed;
pub mod text;
