//! An administrator's own policies, and how they change. Pure.

use farside_accel::policy::{Action, Policies, Policy, WrittenPolicy};
use farside_api::{ErrorBody, ErrorCode};

use super::settings::{AcceleratorConfig, OTHERWISE_DEFAULT};

/// Policies that may be set over the API.
const SET_MAX: usize = 256;

/// An administrator's own policies.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Book {
    /// Set over the API, in the order in which they are asked.
    pub(super) set: Vec<WrittenPolicy>,
    /// Of the file.
    pub(super) file: Vec<WrittenPolicy>,
    /// What is done where none fits, if the file says so.
    pub(super) otherwise: Option<Action>,
}

impl Book {
    pub(super) fn new(set: Vec<WrittenPolicy>, config: &AcceleratorConfig) -> Book {
        Book { set, file: config.policies.clone(), otherwise: config.otherwise }
    }

    /// In the order in which they are asked.
    pub(super) fn own(&self) -> Vec<WrittenPolicy> {
        self.set.iter().chain(&self.file).cloned().collect()
    }

    /// What is done where none fits.
    pub(super) fn otherwise(&self) -> Action {
        self.otherwise.unwrap_or(OTHERWISE_DEFAULT)
    }

    /// With another one set. One of the same application is replaced, in its place.
    pub(super) fn with(&self, policy: WrittenPolicy, is_first: bool) -> Result<Book, ErrorBody> {
        Policy::try_from(&policy)
            .map_err(|error| ErrorBody::new(ErrorCode::WrongUsage, error.to_string()))?;
        let mut set = self.set.clone();
        let at = set.iter().position(|known| known.application == policy.application);
        match at {
            Some(at) if !is_first => set[at] = policy,
            at => {
                at.map(|at| set.remove(at));
                let at = if is_first { 0 } else { set.len() };
                set.insert(at, policy);
            }
        }
        if set.len() > SET_MAX {
            return Err(ErrorBody::new(ErrorCode::Refused, format!("there are {SET_MAX} policies already")));
        }
        Ok(Book { set, ..self.clone() })
    }

    /// Without one that was set.
    pub(super) fn without(&self, application: &str) -> Result<Book, ErrorBody> {
        let mut set = self.set.clone();
        set.retain(|policy| policy.application != application);
        if set.len() < self.set.len() {
            return Ok(Book { set, ..self.clone() });
        }
        let not_found = |why: String| ErrorBody::new(ErrorCode::NotFound, why);
        if self.file.iter().any(|policy| policy.application == application) {
            return Err(not_found(format!("the policy {application} is in farside.toml"))
                .hint("change the file, then: farside accel policy reload"));
        }
        let shipped = Policies::default();
        if shipped.iter().any(|policy| policy.application == application) {
            return Err(not_found(format!("the policy {application} is shipped and cannot be removed"))
                .hint(format!(
                    "one of the same name comes before it: farside accel policy set {application} --action …"
                )));
        }
        Err(not_found(format!("no policy {application} was set")).hint("farside accel policies shows all"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(application: &str, action: Action) -> WrittenPolicy {
        let none = Vec::new;
        WrittenPolicy {
            application: application.into(),
            ports: vec!["7000".into()],
            addresses: none(),
            clients: none(),
            servers: none(),
            action,
        }
    }

    #[test]
    fn what_is_set_comes_before_the_file_and_is_replaced_in_its_place() {
        let names = |book: &Book| {
            book.own().iter().map(|policy| policy.application.clone()).collect::<Vec<_>>().join(" ")
        };
        let file = AcceleratorConfig { policies: vec![policy("filed", Action::Lz)], ..Default::default() };
        let book = Book::new(Vec::new(), &file);
        let book = book.with(policy("one", Action::Lz), false).unwrap();
        let book = book.with(policy("two", Action::Lz), false).unwrap();
        let book = book.with(policy("one", Action::Dre), false).unwrap();
        assert_eq!((names(&book).as_str(), book.set[0].action), ("one two filed", Action::Dre));
        let book = book.with(policy("two", Action::Full), true).unwrap();
        assert_eq!(names(&book), "two one filed");
        assert_eq!(names(&book.without("two").unwrap()), "one filed");
        for (application, hint) in [("filed", "reload"), ("http", "policy set http"), ("three", "policies")] {
            let error = book.without(application).unwrap_err();
            assert_eq!(error.code, ErrorCode::NotFound);
            assert!(error.hint.as_deref().unwrap().contains(hint), "{error:?}");
        }
        let wrong = WrittenPolicy { ports: vec!["81-80".into()], ..policy("one", Action::Lz) };
        assert_eq!(book.with(wrong, false).unwrap_err().code, ErrorCode::WrongUsage);
    }
}
