//! The handshake, as far as a client and its chosen export.
//!
//! Bytes are given their meaning in [`crate::protocol::option`]; here is the order of things: options one after
//! the other, each read whole, answered, and forgotten but for what it agreed.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use zerocopy::IntoBytes;

use crate::call_pool::CallPool;
use crate::client::{Client, Slot};
use crate::context::{Context, id_at};
use crate::conversation::{ConnectionError, read_or_end};
use crate::error::{ErrorKind, NbdError};
use crate::export::{Export, ExportDescription, ExportSource};
use crate::limits::{CONTEXTS_LISTED_MAX, CONTEXTS_MAX, NOT_GIVEN_LOGGED_MAX, OPTION_BYTES_MAX, OPTIONS_MAX};
use crate::protocol::option::{
    BASE_ALLOCATION, ClientOption, InfoWanted, OptionAnswer, OptionRefusal, export_name_answer,
    mean_base_allocation, parse_option, parse_option_header,
};
use crate::protocol::request::TransmissionParameters;
use crate::protocol::{Greeting, handshake_flag};

/// What client and server agreed on.
pub(crate) struct Agreed {
    pub(crate) export: Arc<dyn Export>,
    pub(crate) name: String,
    pub(crate) parameters: TransmissionParameters,
    pub(crate) contexts: Vec<Context>,
}

/// An export as it was opened.
struct Opened {
    export: Arc<dyn Export>,
    description: ExportDescription,
    contexts: Vec<Context>,
}

/// Where a conversation begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Opening {
    /// The server has said nothing yet.
    Greeting,
    /// TLS has begun; greeting and client flags came before it and stay good, nothing else does.
    UnderTls { flags: ClientFlags },
}

/// What a client said about the handshake as a whole.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ClientFlags {
    no_zeroes: bool,
}

impl ClientFlags {
    pub(crate) fn from_wire(bytes: [u8; 4]) -> Result<ClientFlags, ConnectionError> {
        let flags = u32::from_be_bytes(bytes);
        let known = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        if flags & !known != 0 {
            return Err(ConnectionError::ClientFlags { flags });
        }
        Ok(ClientFlags { no_zeroes: flags & u32::from(handshake_flag::NO_ZEROES) != 0 })
    }
}

/// The handshake with one client.
pub(crate) struct Negotiation<'a, R, W> {
    reader: &'a mut R,
    writer: &'a mut W,
    source: &'a Arc<dyn ExportSource>,
    /// What the log calls the client.
    client: &'a str,
    calls: &'a CallPool,
    slot: &'a Slot,
    flags: ClientFlags,
    /// STARTTLS has been.
    under_tls: bool,
    structured_replies: bool,
    /// How often an export was not given.
    not_given: u32,
    /// The metadata contexts that were chosen, and for which export.
    chosen: Option<(String, Vec<String>)>,
}

impl<'a, R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Negotiation<'a, R, W> {
    pub(crate) fn new(
        reader: &'a mut R,
        writer: &'a mut W,
        client: &'a Client<'_>,
        calls: &'a CallPool,
    ) -> Self {
        let Client { peer, source, slot, .. } = client;
        Negotiation {
            reader,
            writer,
            source,
            client: peer,
            calls,
            slot,
            flags: ClientFlags::default(),
            under_tls: false,
            structured_replies: false,
            not_given: 0,
            chosen: None,
        }
    }

    /// Negotiates. `None`: the client left without opening anything.
    pub(crate) async fn run(mut self, opening: Opening) -> Result<Option<Agreed>, ConnectionError> {
        match opening {
            Opening::Greeting => {
                self.send(Greeting::fixed_newstyle().as_bytes()).await?;
                let Some(flags) = self.read("the client's flags").await? else { return Ok(None) };
                self.flags = ClientFlags::from_wire(flags)?;
            }
            Opening::UnderTls { flags } => (self.flags, self.under_tls) = (flags, true),
        }
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
                ClientOption::MetaContext { set, name, queries } => {
                    self.meta_context(answer, set, name, &queries).await?;
                }
                ClientOption::StartTls if self.under_tls => {
                    self.send(&answer.refuse(OptionRefusal::Invalid, "this is under TLS already")).await?;
                }
                ClientOption::StartTls => {
                    let text = "no TLS here: this way to the server is not open to the network";
                    self.send(&answer.refuse(OptionRefusal::Unsupported, text)).await?;
                }
                ClientOption::Unsupported => {
                    let text = format!("this server does not support option {code}");
                    self.send(&answer.refuse(OptionRefusal::Unsupported, &text)).await?;
                }
            }
        }
        Err(ConnectionError::TooManyOptions { limit: OPTIONS_MAX })
    }

    async fn export_name(mut self, name: &str) -> Result<Agreed, ConnectionError> {
        let opened = self
            .open(name)
            .await
            .map_err(|reason| ConnectionError::ExportRefused { name: name.to_owned(), reason })?;
        let answer = export_name_answer(&opened.description, self.structured_replies, self.flags.no_zeroes);
        self.send(&answer).await?;
        Ok(self.agree(opened, name))
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
            self.open(name).await.map(|opened| (opened.description.clone(), Some(opened)))
        } else {
            let source = Arc::clone(self.source);
            self.ask(name, move |name| source.describe(name)).await.map(|description| (description, None))
        };
        match found {
            Ok((description, opened)) => {
                answer.info(name, &description, self.structured_replies, wants);
                self.send(&answer.ack()).await?;
                Ok(opened.map(|opened| self.agree(opened, name)))
            }
            Err(error) => {
                self.not_given += 1;
                if self.not_given <= NOT_GIVEN_LOGGED_MAX {
                    tracing::info!(export = name, %error, "NBD export not given");
                }
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
        queries: &[&str],
    ) -> Result<(), ConnectionError> {
        if set {
            // A new choice replaces the last one, also when it fails.
            self.chosen = None;
        }
        if !self.structured_replies {
            let text = "metadata contexts need structured replies, which were not negotiated";
            return self.send(&answer.refuse(OptionRefusal::Invalid, text)).await;
        }
        let source = Arc::clone(self.source);
        let queries: Vec<String> = queries.iter().map(|query| (*query).to_owned()).collect();
        let found = self.ask(name, move |name| {
            source.describe(name)?;
            let base = mean_base_allocation(&queries, set).then(|| BASE_ALLOCATION.to_owned());
            let mut found: Vec<String> = base.into_iter().collect();
            for context in source.contexts(name, &queries, set)? {
                if found.len() <= CONTEXTS_LISTED_MAX && !found.contains(&context) {
                    found.push(context);
                }
            }
            Ok(found)
        });
        let mut found = match found.await {
            Ok(found) => found,
            Err(error) => return self.send(&answer.refuse(error.kind.into(), &error.message)).await,
        };
        if set && found.len() > CONTEXTS_MAX {
            let text = format!("{} metadata contexts at once; at most {CONTEXTS_MAX}", found.len());
            return self.send(&answer.refuse(OptionRefusal::TooBig, &text)).await;
        }
        found.truncate(CONTEXTS_LISTED_MAX);
        for (index, context) in found.iter().enumerate() {
            answer.context(if set { id_at(index) } else { 0 }, context);
        }
        if set {
            self.chosen = Some((name.to_owned(), found));
        }
        self.send(&answer.ack()).await
    }

    async fn open(&self, name: &str) -> Result<Opened, NbdError> {
        let (source, client) = (Arc::clone(self.source), self.client.to_owned());
        let chosen = self.chosen.as_ref().filter(|(of, _)| of == name);
        let chosen = chosen.map(|(_, contexts)| contexts.clone()).unwrap_or_default();
        self.ask(name, move |name| {
            let export = source.open_for(name, &client)?;
            let description = export.description();
            let contexts = Context::open_all(&*export, &chosen)?;
            Ok(Opened { export, description, contexts })
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

    fn agree(&self, opened: Opened, name: &str) -> Agreed {
        let Opened { export, description, contexts } = opened;
        let parameters = TransmissionParameters {
            size_bytes: description.size_bytes,
            read_only: description.read_only,
            structured_replies: self.structured_replies,
            contexts: !contexts.is_empty(),
        };
        Agreed { export, name: name.to_owned(), parameters, contexts }
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
