//! Policies: those of `farside.toml`, and those set over the API, which come first. A change holds for new connections, at once;
//! those that are open keep theirs.

use farside_accel::policy::WrittenPolicy;
use farside_api::{AcceleratorPolicy, ErrorBody, ErrorCode, SetAcceleratorPolicy};

use super::book::Book;
use super::documents;
use super::handle::{Accelerator, Memory, text, wrong};
use crate::failure::Failure;

impl Accelerator {
    /// The policies, in the order in which they are asked.
    pub(crate) fn policies(&self) -> Vec<AcceleratorPolicy> {
        documents::policies(&self.book.lock())
    }

    /// Sets a policy, now and after every restart.
    pub(crate) async fn set_policy(
        &self,
        asked: SetAcceleratorPolicy,
    ) -> Result<AcceleratorPolicy, ErrorBody> {
        let SetAcceleratorPolicy { application, ports, addresses, clients, servers, action, first } = asked;
        let action = documents::action(action);
        let policy = WrittenPolicy { application, ports, addresses, clients, servers, action };
        let application = policy.application.clone();
        let mut memory = self.memory.lock().await;
        let book = self.book.lock().with(policy, first)?;
        self.turn_to(&mut memory, book).await?;
        tracing::info!(application, action = action.name(), "a policy was set; it holds for new connections");
        let all = self.policies();
        let set = all.into_iter().find(|policy| policy.application == application);
        set.ok_or_else(|| ErrorBody::new(ErrorCode::Failed, "the policy was set and is not there"))
    }

    /// Takes one that was set back.
    pub(crate) async fn remove_policy(&self, application: &str) -> Result<Vec<AcceleratorPolicy>, ErrorBody> {
        let mut memory = self.memory.lock().await;
        let book = self.book.lock().without(application)?;
        self.turn_to(&mut memory, book).await?;
        tracing::info!(application, "a policy was removed");
        Ok(self.policies())
    }

    /// Reads the file's policies again. What else it says of the accelerator holds from the daemon's next start on.
    pub(crate) async fn reload_policies(&self) -> Result<Vec<AcceleratorPolicy>, ErrorBody> {
        let mut memory = self.memory.lock().await;
        let config = (self.reread)().map_err(|why| {
            wrong(why)
                .hint("nothing was changed; correct the file and say it again: farside accel policy reload")
        })?;
        let set = self.book.lock().set.clone();
        self.turn_to(&mut memory, Book::new(set, &config)).await?;
        tracing::info!(policies = config.policies.len(), "the policies of farside.toml were read again");
        Ok(self.policies())
    }

    /// Remembers them first: what is not remembered does not hold.
    async fn turn_to(&self, _memory: &mut Memory, book: Book) -> Result<(), ErrorBody> {
        if book.set != self.book.lock().set {
            let set = text(&book.set)?;
            self.state.set_accelerator_policies(&set).await.map_err(Failure::into_error_body)?;
        }
        let (own, otherwise) = (book.own(), book.otherwise());
        *self.book.lock() = book;
        self.desired.send_if_modified(|desired| match desired {
            Some(desired) => {
                (desired.policies, desired.otherwise) = (own, otherwise);
                true
            }
            None => false,
        });
        Ok(())
    }
}
