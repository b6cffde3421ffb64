//! Contenders: farside and the tools that people use today, each told in a file how it does the same job.
//!
//! A file, `lab/contenders/NAME.toml`, holds shell scripts by *phase* and *site*. This room reads and checks the files
//! ([`Contender::load`], [`load_all`]), says what every script finds in its environment ([`Environment`]), when a
//! service is ready ([`Ready`]), and what is installed of what a contender needs ([`inspect()`]). It runs no script of a
//! phase; experiments do.
//!
//! Order of a run:
//!
//! 1. `serve`: the services are started, at every site, and stay until the run ends; the run goes on once each is ready.
//! 2. `prepare`: in [`Site::START_ORDER`], each to its end. The first generation is `NEW` already.
//! 3. For each generation, `change` (a's own copy becomes the new generation; from the second on), then the counted
//!    phase (`initial` for the first, `update` for later ones; a generation whose phase the contender does not do goes
//!    without), then `figures`, then `verify`. A probe of the link does `measure` and `figures` instead.
//!
//! The scripts of one counted phase run at the same time, started in [`Site::START_ORDER`]; when the first is started, its
//! signs of readiness ([`Steps::ready`]) are waited for. The phase is done when all are done, and each with status 0.

mod blocks;
mod environment;
mod file;
mod inspect;
mod parts;
mod ready;

pub use blocks::{Copied, CopyError, copy_changed, write_rbd_diff};
pub use environment::Environment;
pub use file::{ContenderError, load_all};
pub use inspect::{Inspection, Installed, inspect};
pub use parts::{Carries, Contender, FigureScript, Phase, Program, Service, Site, Steps};
pub use ready::Ready;
