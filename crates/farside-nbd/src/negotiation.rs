//! The handshake, as far as a client and its chosen export.
//!
//! Bytes are given their meaning in [`crate::protocol::option`]; here is the order of things: options one after
//! the other, each read whole, answered, and forgotten but for what it agreed.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use zerocopy::IntoBytes;

use crate::call_pool::CallPool;
use crate::conversation::{ConnectionError, read_or_end};
use crate::error::{ErrorKind, NbdError};
use crate::export::{Export, ExportDescription, ExportSource};
use crate::limits::{OPTION_BYTES_MAX, OPTIONS_MAX};
use crate::protocol::option::{
    ClientOption, InfoWanted, OptionAnswer, OptionRefusal, export_name_answer, parse_option,
    parse_option_header,
};
use crate::protocol::request::TransmissionParameters;
use crate::protocol::{Greeting, handshake_flag};

/// What client and server agreed on.
pub(crate) struct Agreed {
    pub(crate) export: Arc<dyn Export>,
    pub(crate) name: String,
    pub(crate) parameters: TransmissionParameters,
}

/// A connection's slot among those that are allowed. Calls into the source hold it too: a handshake that times
/// out in one must not make room for a next client, or calls would pile up behind a source that hangs.
pub(crate) type Slot = Arc<OwnedSemaphorePermit>;

/// The handshake with one client.
pub(crate) struct Negotiation<'a, R, W> {
    reader: &'a mut R,
    writer: &'a mut W,
    source: &'a Arc<dyn ExportSource>,
    calls: &'a CallPool,
    slot: &'a Slot,
    no_zeroes: bool,
    structured_replies: bool,
    /// The export for which `base:allocation` was chosen.
    base_allocation_for: Option<String>,
}

impl<'a, R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Negotiation<'a, R, W> {
    pub(crate) fn new(
        reader: &'a mut R,
        writer: &'a mut W,
        source: &'a Arc<dyn ExportSource>,
        calls: &'a CallPool,
        slot: &'a Slot,
    ) -> Self {
        Negotiation {
            reader,
            writer,
            source,
            calls,
            slot,
            no_zeroes: false,
            structured_replies: false,
            base_allocation_for: None,
        }
    }

    /// Negotiates. `None`: the client left without opening anything.
    pub(crate) async fn run(mut self) -> Result<Option<Agreed>, ConnectionError> {
        self.send(Greeting::fixed_newstyle().as_bytes()).await?;
        let Some(flags) = self.read("the client's flags").await? else { return Ok(None) };
        self.accept_flags(u32::from_be_bytes(flags))?;
        for _ in 0..OPTIONS_MAX {
            let Some(header) = self.read("the header of an option").await? else { return Ok(None) };
            let (code, length) = parse_option_header(&header)?;
            if length > OPTION_BYTES_MAX {
                return Err(ConnectionError::OptionTooLong { code, length, limit: OPTION_BYTES_MAX });
            }
            let mut data = vec![0; length as usize];
            let broke = ConnectionError::broke("the data of an option");
            self.reader.read_exact(&mut data).await.map_err(broke)?;
            let answer = OptionAnswer::to(code);
            let option = match parse_option(code, &data) {
                Ok(option) => option,
                Err(error) => {
                    self.send(&answer.refuse(OptionRefusal::Invalid, &error.message)).await?;
                    continue;
                }
            };
            match option {
                ClientOption::ExportName(name) => return self.export_name(name).await.map(Some),
                ClientOption::Abort => {
                    // The client need not wait for this answer, and often does not.
                    let _ = self.send(&answer.ack()).await;
                    return Ok(None);
                }
                ClientOption::List => self.list(answer).await?,
                ClientOption::Info { go, name, wants } => {
                    if let Some(agreed) = self.info(answer, go, name, wants).await? {
                        return Ok(Some(agreed));
                    }
                }
                ClientOption::StructuredReply => {
                    self.structured_replies = true;
                    self.send(&answer.ack()).await?;
                }
                ClientOption::MetaContext { set, name, base_allocation } => {
                    self.meta_context(answer, set, name, base_allocation).await?;
                }
                ClientOption::Unsupported => {
                    let text = format!("this server does not support option {code}");
                    self.send(&answer.refuse(OptionRefusal::Unsupported, &text)).await?;
                }
            }
        }
        Err(ConnectionError::TooManyOptions { limit: OPTIONS_MAX })
    }

    fn accept_flags(&mut self, flags: u32) -> Result<(), ConnectionError> {
        let known = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        if flags & !known != 0 {
            return Err(ConnectionError::ClientFlags { flags });
        }
        self.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
        Ok(())
    }

    async fn export_name(mut self, name: &str) -> Result<Agreed, ConnectionError> {
        let (export, description) = self
            .open(name)
            .await
            .map_err(|reason| ConnectionError::ExportRefused { name: name.to_owned(), reason })?;
        let answer = export_name_answer(&description, self.structured_replies, self.no_zeroes);
        self.send(&answer).await?;
        Ok(self.agree(export, &description, name))
    }

    async fn list(&mut self, mut answer: OptionAnswer) -> Result<(), ConnectionError> {
        let (source, slot) = (Arc::clone(self.source), Arc::clone(self.slot));
        let listings = self.calls.run(move || {
            let _slot = slot;
            source.list()
        });
        let bytes = match listings.await {
            Ok(listings) => {
                listings.iter().for_each(|listing| answer.listing(listing));
                answer.ack()
            }
            Err(panicked) => answer.refuse(OptionRefusal::Policy, &panicked.to_string()),
        };
        self.send(&bytes).await
    }

    async fn info(
        &mut self,
        mut answer: OptionAnswer,
        go: bool,
        name: &str,
        wants: InfoWanted,
    ) -> Result<Option<Agreed>, ConnectionError> {
        let found = if go {
            self.open(name).await.map(|(export, description)| (Some(export), description))
        } else {
            let source = Arc::clone(self.source);
            self.ask(name, move |name| source.describe(name)).await.map(|description| (None, description))
        };
        match found {
            Ok((export, description)) => {
                answer.info(name, &description, self.structured_replies, wants);
                self.send(&answer.ack()).await?;
                Ok(export.map(|export| self.agree(export, &description, name)))
            }
            Err(error) => {
                tracing::info!(export = name, %error, "NBD export not given");
                self.send(&answer.refuse(error.kind.into(), &error.message)).await?;
                Ok(None)
            }
        }
    }

    async fn meta_context(
        &mut self,
        mut answer: OptionAnswer,
        set: bool,
        name: &str,
        base_allocation: bool,
    ) -> Result<(), ConnectionError> {
        if set {
            // A new choice replaces the last one, also when it fails.
            self.base_allocation_for = None;
        }
        if !self.structured_replies {
            let text = "metadata contexts need structured replies, which were not negotiated";
            return self.send(&answer.refuse(OptionRefusal::Invalid, text)).await;
        }
        let source = Arc::clone(self.source);
        if let Err(error) = self.ask(name, move |name| source.describe(name)).await {
            return self.send(&answer.refuse(error.kind.into(), &error.message)).await;
        }
        if base_allocation {
            answer.base_allocation(set);
            if set {
                self.base_allocation_for = Some(name.to_owned());
            }
        }
        self.send(&answer.ack()).await
    }

    async fn open(&self, name: &str) -> Result<(Arc<dyn Export>, ExportDescription), NbdError> {
        let source = Arc::clone(self.source);
        self.ask(name, move |name| {
            let export = source.open(name)?;
            let description = export.description();
            Ok((export, description))
        })
        .await
    }

    /// Asks the source about `name`, off the runtime.
    async fn ask<T: Send + 'static>(
        &self,
        name: &str,
        question: impl FnOnce(&str) -> Result<T, NbdError> + Send + 'static,
    ) -> Result<T, NbdError> {
        let (name, slot) = (name.to_owned(), Arc::clone(self.slot));
        let answer = self.calls.run(move || {
            let _slot = slot;
            question(&name)
        });
        answer.await.unwrap_or_else(|panicked| Err(NbdError::new(ErrorKind::Io, panicked)))
    }

    fn agree(&self, export: Arc<dyn Export>, description: &ExportDescription, name: &str) -> Agreed {
        let parameters = TransmissionParameters {
            size_bytes: description.size_bytes,
            read_only: description.read_only,
            structured_replies: self.structured_replies,
            base_allocation: self.base_allocation_for.as_deref() == Some(name),
        };
        Agreed { export, name: name.to_owned(), parameters }
    }

    async fn read<const BYTES: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<Option<[u8; BYTES]>, ConnectionError> {
        read_or_end(self.reader).await.map_err(ConnectionError::broke(what))
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        let broke = ConnectionError::broke("an answer of the handshake");
        self.writer.write_all(bytes).await.map_err(&broke)?;
        self.writer.flush().await.map_err(&broke)
    }
}
