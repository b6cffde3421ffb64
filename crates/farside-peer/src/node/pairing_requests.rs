//! Invitations made and accepted; see the head of `pairing`.

use std::sync::Arc;
use std::time::Duration;

use farside_link::limits::{ADDRESS_MAX, CLOSE_TIMEOUT};
use farside_link::{LinkOptions, split_address, with_port};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::inner::Inner;
use super::status::ISOLATED;
use super::unauthenticated::origin_of;
use crate::error::{Refusal, SessionError};
use crate::hello::{Hello, Role, Verdict, check_name};
use crate::id::PeerId;
use crate::limits::PAIRING_TIMEOUT;
use crate::pairing::{Invite, PairingCode, Reachable, invite_id, protocol, short_name};
use crate::registry::PeerRecord;
use crate::tls::{self, Secured};

impl Inner {
    pub(super) fn invite(&self, valid: Duration) -> Result<Invite, SessionError> {
        if self.listen_address.is_none() {
            return Err(SessionError::Local(
                "this site does not listen for peers, so nobody could come; invite from the other site"
                    .to_owned(),
            ));
        }
        let now = self.clock.monotonic();
        let code = self.invites.lock().open(self.identity.id(), valid, now, &*self.random)?;
        let id = short_name(&invite_id(code.token()));
        Ok(Invite { code, id, expires_at: self.clock.now().plus(valid) })
    }

    pub(super) async fn join(
        self: &Arc<Self>,
        address: &str,
        code: &PairingCode,
        local_name: Option<&str>,
    ) -> Result<PeerRecord, SessionError> {
        if self.isolated {
            return Err(SessionError::Local(ISOLATED.to_owned()));
        }
        if code.inviter() == self.identity.id() {
            return Err(SessionError::Local(
                "this is an invitation of this very site; join with it at the other one".to_owned(),
            ));
        }
        if address.len() > ADDRESS_MAX || split_address(address).is_none() {
            return Err(SessionError::Local(format!("{address} is not an address of the form HOST:PORT")));
        }
        if let Some(name) = local_name {
            check_name(name).map_err(SessionError::Local)?;
        }
        let own_key = tls::wrong_key(code.inviter(), self.identity.id());
        let (mut io, welcome) = match self
            .dialler
            .dial(address, code.inviter(), Role::Pairing, [0; 16], &[])
            .await
        {
            Err(SessionError::NotAuthenticated(why)) if why.contains(&own_key) => {
                return Err(SessionError::Local(format!(
                    "{address} is this very site; give the address of the site that made the code, which has not been used"
                )));
            }
            dialled => dialled?,
        };
        let asked = protocol::ask(&mut io, code, self.identity.id(), self.reachable.clone());
        timeout(PAIRING_TIMEOUT, asked).await.map_err(|_| {
            SessionError::Lost(format!("no answer to the pairing within {} s", PAIRING_TIMEOUT.as_secs()))
        })??;
        let record = PeerRecord {
            id: code.inviter(),
            name: local_name.map_or(welcome.says, str::to_owned),
            // Where we have just found it; what it says of itself may be of use to others only.
            address: Some(address.to_owned()),
            link: LinkOptions::default(),
            added_at: self.clock.now(),
        };
        let record = self.pin(record).await?;
        tracing::info!(peer = %record.name, id = %record.id, address, "paired: accepted the invitation of a peer");
        self.dial_peer_now(record.id);
        let _ = timeout(CLOSE_TIMEOUT, io.shutdown()).await;
        Ok(record)
    }

    /// Somebody comes to be paired.
    pub(super) async fn receive_pairing_request(
        self: &Arc<Self>,
        mut io: Secured,
        joiner: PeerId,
        hello: &Hello,
        from: &str,
    ) {
        if !self.invites.lock().any_remembered(self.clock.monotonic()) {
            self.unauthenticated.log(from, Some(joiner), "it wants to be paired, but nobody is invited");
            return self.refuse(io, Verdict::NoInvitation).await;
        }
        let paired = async {
            self.welcome(&mut io, hello).await.map_err(|e| SessionError::Lost(e.to_string()))?;
            let asked = protocol::listen(&mut io, joiner, self.identity.id()).await?;
            match self.judge_pairing_request(&asked, joiner, hello, from).await {
                Ok((record, key)) => {
                    protocol::accept(&mut io, &asked, &key, self.reachable.clone()).await?;
                    Ok(record)
                }
                Err(refusal) => {
                    protocol::refuse(&mut io, &refusal).await?;
                    Err(SessionError::Refused(refusal))
                }
            }
        };
        match timeout(PAIRING_TIMEOUT, paired).await {
            Ok(Ok(record)) => {
                let address = record.address.as_deref();
                tracing::info!(peer = %record.name, id = %record.id, address, from, "paired: a joiner accepted an invitation");
            }
            Ok(Err(SessionError::Refused(refusal))) => {
                self.unauthenticated.log(from, Some(joiner), &format!("pairing failed: {refusal}"));
            }
            Ok(Err(e)) => self.unauthenticated.log(from, Some(joiner), &format!("pairing failed: {e}")),
            Err(_) => self.unauthenticated.log(from, Some(joiner), "pairing took too long"),
        }
        let _ = timeout(CLOSE_TIMEOUT, io.shutdown()).await;
    }

    async fn judge_pairing_request(
        self: &Arc<Self>,
        asked: &protocol::Asked,
        joiner: PeerId,
        hello: &Hello,
        from: &str,
    ) -> Result<(PeerRecord, aws_lc_rs::hmac::Key), Refusal> {
        let now = self.clock.monotonic();
        let origin = origin_of(from);
        self.failures.lock().admit(&origin, now)?;
        let spent = self.invites.lock().spend(&asked.invitation, &asked.proved, &asked.proof, now);
        let key = spent.inspect_err(|_| self.failures.lock().note(&origin, now))?;
        self.failures.lock().forgive(&origin);
        let record = PeerRecord {
            id: joiner,
            name: hello.site_name.clone(),
            address: address_of(&asked.reachable, from),
            link: LinkOptions::default(),
            added_at: self.clock.now(),
        };
        let record = self.pin(record).await.map_err(|e| {
            tracing::error!(from, key = %joiner, "a joiner proved its invitation but could not be pinned: {e}");
            let message =
                "the inviting site could not store the pairing (its log has the reason). Ask for a new invitation";
            Refusal { code: "failed".to_owned(), message: message.to_owned() }
        })?;
        Ok((record, key))
    }
}

/// What the joiner advertises, else the host it comes from with the port it listens on.
fn address_of(reachable: &Reachable, from: &str) -> Option<String> {
    if !reachable.advertised.is_empty() {
        return Some(reachable.advertised.clone());
    }
    match u16::try_from(reachable.port) {
        Ok(0) | Err(_) => None,
        Ok(port) => with_port(from, port),
    }
}
