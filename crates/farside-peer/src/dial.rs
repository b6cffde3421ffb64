//! One connection made: dialled, under TLS, past the hello. All within [`DIAL_TIMEOUT`] and [`HANDSHAKE_TIMEOUT`].

use std::ops::RangeInclusive;
use std::sync::Arc;

use farside_link::limits::DIAL_TIMEOUT;
use farside_link::{Connection, Counted, PathSpec, SocketOptions, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::error::{SITES_WITH_ONE_KEY, SessionError};
use crate::hello::{
    Answer, HELLO_BYTES, Hello, HelloError, Role, Service, Verdict, parse_answer, versions_differ,
};
use crate::id::PeerId;
use crate::identity::Identity;
use crate::limits::{ELSEWHERE_WITHIN, HANDSHAKE_TIMEOUT, OTHER_SITE_WAITS};
use crate::tls::{self, Secured};

/// What every dial of a node needs.
#[derive(Clone)]
pub(crate) struct Dialler {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) identity: Identity,
    pub(crate) versions: RangeInclusive<u16>,
    pub(crate) instance: [u8; 16],
    pub(crate) site_name: String,
    pub(crate) service: Service,
}

impl Dialler {
    /// Dials `expected` at `address` and says hello, followed by `more`. Returns the welcome.
    pub(crate) async fn dial(
        &self,
        address: &str,
        expected: PeerId,
        role: Role,
        session: [u8; 16],
        more: &[u8],
    ) -> Result<(Secured, Answer), SessionError> {
        let path = PathSpec { local: None, remote: address.to_owned() };
        let connection = self.connect(&path, &SocketOptions::default()).await?;
        self.greet(connection, &path, expected, role, session, more).await
    }

    /// A connection, and nothing said over it.
    ///
    /// # Errors
    /// [`SessionError::Unreachable`].
    pub(crate) async fn connect(
        &self,
        path: &PathSpec,
        socket: &SocketOptions,
    ) -> Result<Connection, SessionError> {
        let unreachable = |reason: String| SessionError::Unreachable { address: path.remote.clone(), reason };
        timeout(DIAL_TIMEOUT, self.transport.dial(&path.remote, socket))
            .await
            .map_err(|_| unreachable(format!("no connection within {} s", DIAL_TIMEOUT.as_secs())))?
            .map_err(|e| unreachable(e.to_string()))
    }

    /// Whether `expected` is at `path`: it proves its key there, and is told nothing.
    pub(crate) async fn is_there(&self, path: &PathSpec, socket: &SocketOptions, expected: PeerId) -> bool {
        let prove = async {
            let connection = self.connect(path, socket).await?;
            let connector = tls::connector(&self.identity, expected)?;
            tls::secure_dialled(&connector, Counted::new(connection), &path.remote).await
        };
        timeout(ELSEWHERE_WITHIN, prove).await.is_ok_and(|proved| proved.is_ok())
    }

    /// TLS and hello over a connection on `path`, as [`dial`](Self::dial) says.
    #[allow(clippy::too_many_arguments, reason = "they are the fields of a hello")]
    pub(crate) async fn greet(
        &self,
        connection: Connection,
        path: &PathSpec,
        expected: PeerId,
        role: Role,
        session: [u8; 16],
        more: &[u8],
    ) -> Result<(Secured, Answer), SessionError> {
        let address = path.remote.as_str();
        let unreachable = |reason: String| SessionError::Unreachable { address: address.to_owned(), reason };
        let connector = tls::connector(&self.identity, expected)?;
        let hello = Hello {
            versions: (*self.versions.start(), *self.versions.end()),
            role,
            service: self.service,
            session,
            instance: self.instance,
            site_name: self.site_name.clone(),
        };
        let greet = async {
            let mut secured = tls::secure_dialled(&connector, Counted::new(connection), address).await?;
            let mut bytes = Vec::with_capacity(HELLO_BYTES + more.len());
            bytes.extend_from_slice(&hello.encode());
            bytes.extend_from_slice(more);
            let ended = |e: std::io::Error| unreachable(format!("the connection ended in the hello: {e}"));
            secured.write_all(&bytes).await.map_err(ended)?;
            secured.flush().await.map_err(ended)?;
            let mut answer = [0; HELLO_BYTES];
            secured.read_exact(&mut answer).await.map_err(ended)?;
            Ok((secured, self.judge(&answer, address)?))
        };
        timeout(HANDSHAKE_TIMEOUT, greet)
            .await
            .map_err(|_| unreachable(format!("no hello within {} s", HANDSHAKE_TIMEOUT.as_secs())))?
    }

    fn judge(&self, bytes: &[u8; HELLO_BYTES], address: &str) -> Result<Answer, SessionError> {
        let answer = match parse_answer(bytes, &self.versions) {
            Ok(answer) => answer,
            Err(HelloError::OtherVersions(low, high)) => {
                return Err(versions_differ(&self.versions, (low, high)));
            }
            Err(e) => return Err(SessionError::Protocol(e.to_string())),
        };
        match answer.verdict {
            Verdict::Welcome => Ok(answer),
            Verdict::Version => Err(versions_differ(&self.versions, answer.versions)),
            Verdict::UnknownKey => Err(SessionError::NotAuthenticated(format!(
                "the site at {address} does not know this site's key {}; it was never paired, was removed there, or that site has lost its state database. Pair the sites again",
                self.identity.id()
            ))),
            Verdict::Busy => Err(SessionError::Unreachable {
                address: address.to_owned(),
                reason: "the site has reached a limit of connections; it will be tried again".to_owned(),
            }),
            // Another path of the peer may lead to the right port.
            Verdict::OtherService => Err(SessionError::Unreachable {
                address: address.to_owned(),
                reason: self.service.wrong_port().to_owned(),
            }),
            Verdict::NoSuchSession => {
                Err(SessionError::Lost("the peer no longer has this session".to_owned()))
            }
            Verdict::AlreadyConnected => Err(SessionError::AlreadyConnected),
            Verdict::KeyInUse => {
                let other = if answer.says.is_empty() { "elsewhere" } else { &answer.says };
                Err(SessionError::KeyInUse(format!(
                    "another living site uses this site's key: the site at {address} goes on with the one that connects from \
                     {other}, and refuses this one. {SITES_WITH_ONE_KEY}. Once the other has been gone for {} min, this one is \
                     taken",
                    OTHER_SITE_WAITS.as_secs() / 60
                )))
            }
            Verdict::Unknown(code) => Err(SessionError::Unreachable {
                address: address.to_owned(),
                reason: format!(
                    "the site refuses for a reason that this version of farside does not know ({code}); its log has it"
                ),
            }),
            Verdict::NoInvitation => Err(SessionError::NotAuthenticated(format!(
                "nobody is invited at {address}: the invitation was used, has expired, or the daemon was restarted since. Ask for a new one"
            ))),
        }
    }
}
