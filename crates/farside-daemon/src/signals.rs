//! Signals that end the daemon, or have it look again.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::api_certificate::ApiCertificate;

/// Those that are listened for.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    pub(crate) fn listen() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the one that ends the daemon. SIGHUP is not: whoever sends it wants a configuration or a log file taken up
    /// anew, or has left a terminal, and hosts have their volumes from here. It has the certificate of the API read again.
    pub(crate) async fn wait(&mut self, certificate: Option<&ApiCertificate>) -> &'static str {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.hangup.recv() => match certificate {
                    Some(certificate) => {
                        tracing::info!(
                            "SIGHUP: the certificate of the API is read again, everything goes on. A changed farside.toml is \
                             taken up by a restart"
                        );
                        certificate.read_again();
                    }
                    None => tracing::info!(
                        "SIGHUP: nothing to reload, everything goes on. A changed farside.toml is taken up by a restart"
                    ),
                },
            }
        }
    }
}
