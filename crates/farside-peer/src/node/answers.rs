//! What a hello is answered.

use std::io;

use farside_link::limits::CLOSE_TIMEOUT;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::inner::Inner;
use crate::hello::{Answer, HELLO_BYTES, Hello, Verdict, common_version, is_sayable};
use crate::limits::HANDSHAKE_TIMEOUT;
use crate::tls::Secured;

impl Inner {
    /// Refuses after the hello.
    pub(super) async fn refuse(&self, io: Secured, verdict: Verdict) {
        self.refuse_saying(io, verdict, "").await;
    }

    /// The same with what an answer of this verdict says besides.
    pub(super) async fn refuse_saying(&self, mut io: Secured, verdict: Verdict, says: &str) {
        let versions = &self.dialler.versions;
        let answer = Answer {
            versions: (*versions.start(), *versions.end()),
            verdict,
            version: 0,
            instance: self.dialler.instance,
            says: if is_sayable(verdict, says) { says.to_owned() } else { String::new() },
        };
        let part = async {
            io.write_all(&answer.encode()).await?;
            io.shutdown().await?;
            // Closing with unread bytes resets the connection, which may overtake the answer: wait for the other side to close.
            tokio::io::copy(&mut (&mut io).take(HELLO_BYTES as u64), &mut tokio::io::sink()).await
        };
        // Whether it arrived is the peer's own matter.
        let _ = timeout(CLOSE_TIMEOUT, part).await;
    }

    /// Says welcome; the version both speak.
    pub(super) async fn welcome(&self, io: &mut Secured, hello: &Hello) -> io::Result<u16> {
        let versions = &self.dialler.versions;
        let version = common_version(versions, hello.versions)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no common version"))?;
        let answer = Answer {
            versions: (*versions.start(), *versions.end()),
            verdict: Verdict::Welcome,
            version,
            instance: self.dialler.instance,
            says: self.dialler.site_name.clone(),
        };
        let part = async {
            io.write_all(&answer.encode()).await?;
            io.flush().await
        };
        timeout(HANDSHAKE_TIMEOUT, part).await??;
        Ok(version)
    }
}
