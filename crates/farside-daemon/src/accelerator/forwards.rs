//! Explicit forwards: listed, made and ended. They are remembered, whether or not the accelerator is on.

use std::net::SocketAddr;

use farside_accel::control::{Command, Forward};
use farside_api::{AcceleratorForward, ErrorBody, ErrorCode};
use serde_json::Value;

use super::boxes;
use super::handle::{Accelerator, Memory, wrong};
use super::remembered::RememberedForward;
use super::settings::check_address;

/// Forwards of a site.
const FORWARDS_MAX: usize = 256;

impl Accelerator {
    /// All of them, in the order in which they were made.
    pub(crate) async fn forwards(&self) -> Result<Vec<AcceleratorForward>, ErrorBody> {
        let memory = self.memory.lock().await;
        Ok(boxes::forwards(&memory.forwards, &self.records().await?).iter().map(document).collect())
    }

    /// Makes one: it works when this returns, and after every restart.
    pub(crate) async fn forward(&self, asked: AcceleratorForward) -> Result<AcceleratorForward, ErrorBody> {
        let listen = listen_address(&asked.listen)?;
        check_address(&asked.destination).map_err(wrong)?;
        let mut memory = self.memory.lock().await;
        let records = self.records().await?;
        let peer = records.iter().find(|record| record.name == asked.peer).ok_or_else(|| {
            ErrorBody::new(ErrorCode::NotFound, format!("peer {} does not exist", asked.peer))
                .hint("farside peer list shows who is paired")
        })?;
        let new = RememberedForward::new(listen, asked.destination.clone(), peer.id);
        if memory.forwards.contains(&new) {
            return Ok(asked);
        }
        if memory.forwards.iter().any(|kept| kept.listen == listen) {
            return Err(ErrorBody::new(ErrorCode::Exists, format!("{listen} is forwarded already"))
                .hint(format!("farside accel unforward {listen} ends that")));
        }
        if memory.forwards.len() >= FORWARDS_MAX {
            return Err(ErrorBody::new(
                ErrorCode::Refused,
                format!("there are {FORWARDS_MAX} forwards already"),
            ));
        }
        let forwards = [&memory.forwards[..], &[new]].concat();
        let wanted = boxes::forwards(&forwards, &records);
        self.change(&mut memory, forwards, wanted).await?;
        tracing::info!(%listen, destination = asked.destination, peer = asked.peer, "a forward was made");
        Ok(asked)
    }

    /// Ends one. Connections that it has go on to their end.
    pub(crate) async fn unforward(&self, listen: &str) -> Result<AcceleratorForward, ErrorBody> {
        let listen = listen_address(listen)?;
        let mut memory = self.memory.lock().await;
        let records = self.records().await?;
        let (ended, kept): (Vec<_>, Vec<_>) =
            memory.forwards.iter().cloned().partition(|forward| forward.listen == listen);
        let Some(ended) = boxes::forwards(&ended, &records).first().map(document) else {
            return Err(ErrorBody::new(ErrorCode::NotFound, format!("{listen} is not forwarded"))
                .hint("farside accel forwards shows what is"));
        };
        let wanted = boxes::forwards(&kept, &records);
        self.change(&mut memory, kept, wanted).await?;
        tracing::info!(%listen, "a forward was ended");
        Ok(ended)
    }

    /// The process first, if there is one: a port that is taken is heard of before anything is remembered.
    async fn change(
        &self,
        memory: &mut Memory,
        forwards: Vec<RememberedForward>,
        wanted: Vec<Forward>,
    ) -> Result<(), ErrorBody> {
        let told = self.ask::<Value>(Command::Forwards(wanted.clone())).await;
        let kept = match told {
            Ok(_) => self.remember_forwards(&forwards).await,
            Err(error) => Err(error),
        };
        if let Err(error) = kept {
            // The others were told again with the one that does not work.
            let before = self.desired.borrow().as_ref().map(|desired| desired.forwards.clone());
            if let Some(before) = before {
                let _ = self.ask::<Value>(Command::Forwards(before)).await;
            }
            return Err(error);
        }
        memory.forwards = forwards;
        self.desired.send_if_modified(|desired| match desired {
            Some(desired) => {
                desired.forwards = wanted;
                true
            }
            None => false,
        });
        Ok(())
    }
}

fn document(forward: &Forward) -> AcceleratorForward {
    AcceleratorForward {
        listen: forward.listen.to_string(),
        destination: forward.destination.clone(),
        peer: forward.peer.clone(),
    }
}

fn listen_address(text: &str) -> Result<SocketAddr, ErrorBody> {
    text.parse()
        .ok()
        .filter(|address: &SocketAddr| address.port() > 0)
        .ok_or_else(|| wrong(format!("{text:?} is not ADDR:PORT, such as 127.0.0.1:5432")))
}
