//! What is done for which connection. Pure.
//!
//! A **policy** is an application's name, what its connections look like, and an action. The first that fits a connection
//! is its policy; both ends of a pair look, and what both allow is done. What a connection shows of itself later may be
//! less: it is *applied* with a reason.

mod action;
mod application;
mod defaults;
mod rule;
mod written;

pub use action::{Action, Demotion};
pub use application::Policy;
pub use defaults::default_policies;
pub use rule::{Ends, PolicyError, Ports, Rule};
pub use written::{WrittenPolicy, WrittenPolicyError};

/// A site's policies, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies {
    own: Vec<Policy>,
    shipped: Vec<Policy>,
    /// What is done where no policy fits.
    otherwise: Action,
}

/// What a connection is called where no policy fits.
pub const OTHER: &str = "other";

impl Policies {
    /// An administrator's own, before those that are shipped.
    pub fn new(own: Vec<Policy>, otherwise: Action) -> Policies {
        Policies { own, shipped: default_policies(), otherwise }
    }

    /// In the order in which they are asked.
    pub fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.own.iter().chain(&self.shipped)
    }

    /// What is done where none fits.
    pub fn otherwise(&self) -> Action {
        self.otherwise
    }

    /// The first that fits: application and action.
    pub fn of(&self, ends: &Ends) -> (&str, Action) {
        let fits = |policy: &&Policy| policy.rules.iter().any(|rule| rule.fits(ends));
        self.iter().find(fits).map_or((OTHER, self.otherwise), |policy| (&policy.application, policy.action))
    }
}

impl Policies {
    /// The same for a connection of which a box itself is one end. Whoever administers it may be at the other, and would lose the box
    /// with the accelerator: of what is shipped, SSH is left alone.
    pub fn of_box(&self, ends: &Ends) -> (&str, Action) {
        let is_own = self.own.iter().any(|policy| policy.rules.iter().any(|rule| rule.fits(ends)));
        match self.of(ends) {
            (application @ "ssh", _) if !is_own => (application, Action::PassThrough),
            found => found,
        }
    }
}

impl Default for Policies {
    /// Those that are shipped; *full* for everything else.
    fn default() -> Policies {
        Policies::new(Vec::new(), Action::Full)
    }
}
