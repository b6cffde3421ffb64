//! What joiner and inviter say to each other after the hello. Pure but for the stream.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use aws_lc_rs::hmac;
use bytes::{Bytes, BytesMut};
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsStream;

use super::code::PairingCode;
use super::invites::{InviteId, invite_id, proving_key};
use crate::error::Refusal;
use crate::error::SessionError;
use crate::id::PeerId;
use crate::limits::{PAIRING_MESSAGE_MAX, REFUSAL_TEXT_MAX};
use crate::tls::Secured;
use farside_link::limits::ADDRESS_MAX;
use farside_link::printable;
use farside_link::split_address;

/// Where a site can be dialled, as it says itself.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Reachable {
    /// `HOST:PORT` that the administrator set, or empty.
    #[prost(string, tag = "1")]
    pub(crate) advertised: String,
    /// The port it listens on; 0: it does not.
    #[prost(uint32, tag = "2")]
    pub(crate) port: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(bytes = "bytes", tag = "1")]
    invitation: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    proof: Bytes,
    #[prost(message, optional, tag = "3")]
    reachable: Option<Reachable>,
}

#[derive(Clone, PartialEq, Message)]
struct Reply {
    #[prost(oneof = "Outcome", tags = "1, 2")]
    outcome: Option<Outcome>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Outcome {
    #[prost(message, tag = "1")]
    Accepted(Accepted),
    #[prost(message, tag = "2")]
    Refused(Refused),
}

#[derive(Clone, PartialEq, Message)]
struct Accepted {
    #[prost(bytes = "bytes", tag = "1")]
    proof: Bytes,
    #[prost(message, optional, tag = "2")]
    reachable: Option<Reachable>,
}

#[derive(Clone, PartialEq, Message)]
struct Refused {
    #[prost(string, tag = "1")]
    code: String,
    #[prost(string, tag = "2")]
    message: String,
}

impl Reachable {
    /// Checked at the edge: an address is short and has a host and a port.
    pub(crate) fn checked(self) -> Result<Self, SessionError> {
        let malformed = || SessionError::Protocol("a malformed address in the pairing".to_owned());
        let bad_text = self.advertised.chars().any(|c| c.is_control() || c.is_whitespace());
        let bad_address = !self.advertised.is_empty() && split_address(&self.advertised).is_none();
        if self.advertised.len() > ADDRESS_MAX || bad_text || bad_address || self.port > u32::from(u16::MAX) {
            return Err(malformed());
        }
        Ok(self)
    }
}

/// What both proofs are made over: whose, in which TLS connection, between which keys.
struct Transcript {
    exporter: [u8; 32],
    joiner: PeerId,
    inviter: PeerId,
}

impl Transcript {
    fn new(io: &Secured, joiner: PeerId, inviter: PeerId) -> Result<Self, SessionError> {
        let label = b"EXPORTER-farside-pairing-1";
        let exporter = match io {
            TlsStream::Client(stream) => stream.get_ref().1.export_keying_material([0; 32], label, None),
            TlsStream::Server(stream) => stream.get_ref().1.export_keying_material([0; 32], label, None),
        };
        let exporter = exporter.map_err(|e| SessionError::Local(format!("TLS gives no exporter: {e}")))?;
        Ok(Transcript { exporter, joiner, inviter })
    }

    fn of(&self, prover: &[u8; 7]) -> Vec<u8> {
        [&prover[..], &self.exporter, &self.joiner.0, &self.inviter.0].concat()
    }

    fn of_guest(&self) -> Vec<u8> {
        self.of(b"guest  ")
    }

    fn of_inviter(&self) -> Vec<u8> {
        self.of(b"inviter")
    }
}

/// The joiner's part. Returns where the inviter can be reached, once it has proved that it knows the token.
pub(crate) async fn ask(
    io: &mut Secured,
    code: &PairingCode,
    us: PeerId,
    reachable: Reachable,
) -> Result<Reachable, SessionError> {
    let transcript = Transcript::new(io, us, code.inviter())?;
    let key = proving_key(code.token());
    let request = Request {
        invitation: Bytes::copy_from_slice(&invite_id(code.token())),
        proof: Bytes::copy_from_slice(hmac::sign(&key, &transcript.of_guest()).as_ref()),
        reachable: Some(reachable),
    };
    write(io, &request).await?;
    match read::<Reply>(io).await?.outcome {
        Some(Outcome::Accepted(accepted)) => {
            hmac::verify(&key, &transcript.of_inviter(), &accepted.proof).map_err(|_| {
                SessionError::NotAuthenticated(
                    "the inviter did not prove that it knows the token; it was not pinned".to_owned(),
                )
            })?;
            accepted.reachable.unwrap_or_default().checked()
        }
        Some(Outcome::Refused(Refused { code, message })) => Err(SessionError::Refused(Refusal {
            code: printable(&code, 64),
            message: printable(&message, REFUSAL_TEXT_MAX),
        })),
        None => Err(SessionError::Protocol("an empty answer to the pairing".to_owned())),
    }
}

/// A joiner's request, read but not yet believed.
pub(crate) struct Asked {
    pub(crate) invitation: InviteId,
    pub(crate) proof: Bytes,
    /// What `proof` must be made over.
    pub(crate) proved: Vec<u8>,
    pub(crate) reachable: Reachable,
    transcript: Transcript,
}

/// The inviter's part, first half.
pub(crate) async fn listen(io: &mut Secured, joiner: PeerId, us: PeerId) -> Result<Asked, SessionError> {
    let transcript = Transcript::new(io, joiner, us)?;
    let request: Request = read(io).await?;
    let invitation = request
        .invitation
        .as_ref()
        .try_into()
        .map_err(|_| SessionError::Protocol("a malformed invitation in the pairing".to_owned()))?;
    let reachable = request.reachable.unwrap_or_default().checked()?;
    Ok(Asked { invitation, proof: request.proof, proved: transcript.of_guest(), reachable, transcript })
}

/// The inviter's part, second half: `key` is that of the invitation just spent.
pub(crate) async fn accept(
    io: &mut Secured,
    asked: &Asked,
    key: &hmac::Key,
    reachable: Reachable,
) -> Result<(), SessionError> {
    let proof = hmac::sign(key, &asked.transcript.of_inviter());
    let proof = Bytes::copy_from_slice(proof.as_ref());
    let outcome = Outcome::Accepted(Accepted { proof, reachable: Some(reachable) });
    write(io, &Reply { outcome: Some(outcome) }).await
}

/// Or the other second half.
pub(crate) async fn refuse(io: &mut Secured, refusal: &Refusal) -> Result<(), SessionError> {
    // Half of what a message may have: code and envelope need little.
    let message = printable(&refusal.message, PAIRING_MESSAGE_MAX / 2);
    let refused = Refused { code: printable(&refusal.code, 64), message };
    write(io, &Reply { outcome: Some(Outcome::Refused(refused)) }).await
}

fn lost(error: io::Error) -> SessionError {
    SessionError::Lost(format!("the connection ended during the pairing: {error}"))
}

async fn write(io: &mut (impl AsyncWrite + Unpin), message: &impl Message) -> Result<(), SessionError> {
    let body = message.encode_to_vec();
    assert!(body.len() <= PAIRING_MESSAGE_MAX, "addresses and texts are bounded");
    let mut bytes = BytesMut::with_capacity(4 + body.len());
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&body);
    io.write_all(&bytes).await.map_err(lost)?;
    io.flush().await.map_err(lost)
}

async fn read<M: Message + Default>(io: &mut (impl AsyncRead + Unpin)) -> Result<M, SessionError> {
    let length = io.read_u32_le().await.map_err(lost)? as usize;
    if length > PAIRING_MESSAGE_MAX {
        return Err(SessionError::Protocol(format!(
            "a pairing message of {length} bytes; the limit is {PAIRING_MESSAGE_MAX}"
        )));
    }
    let mut bytes = vec![0; length];
    io.read_exact(&mut bytes).await.map_err(lost)?;
    M::decode(&bytes[..]).map_err(|e| SessionError::Protocol(format!("malformed pairing message: {e}")))
}

/// A message of each kind and a code, as they travel: where fuzzers start.
#[cfg(test)]
pub(crate) fn samples() -> [(&'static str, Vec<u8>); 4] {
    let reachable = Some(Reachable { advertised: "vault.example:7440".to_owned(), port: 7440 });
    let request = Request {
        invitation: Bytes::from_static(&[0x11; 16]),
        proof: Bytes::from_static(&[0x22; 32]),
        reachable: reachable.clone(),
    };
    let accepted = Outcome::Accepted(Accepted { proof: Bytes::from_static(&[0x33; 32]), reachable });
    let refused = Outcome::Refused(Refused { code: "used".to_owned(), message: "used already".to_owned() });
    let travels = |message: Vec<u8>| [&(message.len() as u32).to_le_bytes()[..], &message].concat();
    let reply = |outcome| travels(Reply { outcome: Some(outcome) }.encode_to_vec());
    let code = PairingCode::new(PeerId([0xab; 32]), zeroize::Zeroizing::new([7; 16]));
    [
        ("request", travels(request.encode_to_vec())),
        ("accepted", reply(accepted)),
        ("refused", reply(refused)),
        ("code", code.to_string().into_bytes()),
    ]
}

/// Feeds arbitrary bytes to what reads a joiner's request, an inviter's reply and a pairing code. What is taken for true must
/// keep to its limits, and survive being written.
///
/// # Panics
/// If it does not: that is what a fuzzer looks for.
pub fn fuzz_pairing(data: &[u8]) {
    let at_once = |bytes: &[u8]| {
        let (mut for_request, mut for_reply) = (bytes, bytes);
        let (request, reply) = (pin!(read::<Request>(&mut for_request)), pin!(read::<Reply>(&mut for_reply)));
        let mut cx = Context::from_waker(Waker::noop());
        match (request.poll(&mut cx), reply.poll(&mut cx)) {
            (Poll::Ready(request), Poll::Ready(reply)) => (request.ok(), reply.ok()),
            _ => panic!("bytes in memory are always there"),
        }
    };
    let (request, reply) = at_once(data);
    if let Some(request) = request {
        let again = Request::decode(&request.encode_to_vec()[..]).expect("own encoding");
        assert_eq!(again, request);
        if let Ok(reachable) = request.reachable.unwrap_or_default().checked() {
            assert!(reachable.advertised.len() <= ADDRESS_MAX && reachable.port <= u32::from(u16::MAX));
        }
    }
    if let Some(reply) = reply {
        assert_eq!(Reply::decode(&reply.encode_to_vec()[..]).expect("own encoding"), reply);
    }
    if let Ok(code) = String::from_utf8_lossy(data).parse::<PairingCode>() {
        assert!(code.to_string().parse::<PairingCode>().is_ok_and(|again| again == code));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;
    use crate::tls;
    use farside_link::{Connection, Counted};
    use zeroize::Zeroizing;

    /// A joiner's and an inviter's end of one TLS connection.
    async fn connected(joiner: &Identity, inviter: &Identity) -> (Secured, Secured) {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let connector = tls::connector(joiner, inviter.id()).unwrap();
        let acceptor = tls::acceptor(inviter).unwrap();
        let (near, far) = tokio::join!(
            tls::secure_dialled(&connector, Counted::new(Connection::unknown(Box::new(near))), "there"),
            tls::secure_accepted(&acceptor, Counted::new(Connection::unknown(Box::new(far)))),
        );
        let (far, key) = far.unwrap();
        assert_eq!(key, joiner.id());
        (near.unwrap(), far)
    }

    fn sites() -> (Identity, Identity, PairingCode) {
        let (joiner, inviter) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let code = PairingCode::new(inviter.id(), Zeroizing::new([5; 16]));
        (joiner, inviter, code)
    }

    #[tokio::test]
    async fn both_prove_the_token() {
        let (joiner, inviter, code) = sites();
        let (mut near, mut far) = connected(&joiner, &inviter).await;
        let reachable = Reachable { advertised: String::new(), port: 7440 };
        let host = async {
            let asked = listen(&mut far, joiner.id(), inviter.id()).await.unwrap();
            let key = proving_key(code.token());
            hmac::verify(&key, &asked.proved, &asked.proof).unwrap();
            accept(&mut far, &asked, &key, Reachable { advertised: "b:1".to_owned(), port: 1 })
                .await
                .unwrap();
            asked.reachable
        };
        let (answer, received) = tokio::join!(ask(&mut near, &code, joiner.id(), reachable.clone()), host);
        assert_eq!(answer.unwrap().advertised, "b:1");
        assert_eq!(received, reachable);
    }

    #[tokio::test]
    async fn an_inviter_that_does_not_know_the_token_is_not_believed() {
        let (joiner, inviter, code) = sites();
        let (mut near, mut far) = connected(&joiner, &inviter).await;
        let host = async {
            let asked = listen(&mut far, joiner.id(), inviter.id()).await.unwrap();
            accept(&mut far, &asked, &proving_key(&[6; 16]), Reachable::default()).await.unwrap();
        };
        let (answer, ()) = tokio::join!(ask(&mut near, &code, joiner.id(), Reachable::default()), host);
        let error = answer.unwrap_err();
        assert!(matches!(error, SessionError::NotAuthenticated(_)), "{error}");
    }

    #[tokio::test]
    async fn a_proof_is_good_in_its_own_connection_only() {
        let (joiner, inviter, code) = sites();
        let mut received = Vec::new();
        for _ in 0..2 {
            let (mut near, mut far) = connected(&joiner, &inviter).await;
            let asking = ask(&mut near, &code, joiner.id(), Reachable::default());
            let host = async {
                let asked = listen(&mut far, joiner.id(), inviter.id()).await.unwrap();
                refuse(&mut far, &Refusal { code: "later".to_owned(), message: "x".repeat(5000) })
                    .await
                    .unwrap();
                asked
            };
            let (answer, asked) = tokio::join!(asking, host);
            assert!(
                matches!(answer, Err(SessionError::Refused(r)) if r.code == "later" && r.message.len() < 600)
            );
            received.push(asked);
        }
        let key = proving_key(code.token());
        assert!(hmac::verify(&key, &received[0].proved, &received[0].proof).is_ok());
        assert!(hmac::verify(&key, &received[1].proved, &received[0].proof).is_err(), "replayed");
        // Nor does one side's proof serve as the other's.
        assert!(
            hmac::verify(&key, &received[0].transcript.of_inviter(), &received[0].proof).is_err(),
            "reflected"
        );
    }

    #[tokio::test]
    async fn messages_from_unknown_peers_are_bounded() {
        let length = (PAIRING_MESSAGE_MAX as u32 + 1).to_le_bytes();
        assert!(matches!(read::<Request>(&mut &length[..]).await, Err(SessionError::Protocol(_))));
        for advertised in ["no port", "a\n:1", &format!("{}:1", "x".repeat(300))] {
            let reachable = Reachable { advertised: advertised.to_owned(), port: 1 };
            assert!(reachable.checked().is_err(), "{advertised}");
        }
        assert!(Reachable { advertised: String::new(), port: 70_000 }.checked().is_err());
    }
}
