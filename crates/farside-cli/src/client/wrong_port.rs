//! What an answer that is no answer of the API says of who gave it. Pure.

use rustls::{AlertDescription, Error};

/// What is where, for whoever has typed the wrong one.
pub(super) const PORTS: &str = "the API over HTTPS is on the port of --api-listen, 7443 as a rule (farside config show at the site itself has \
                                it). 7440 is for peers, 7441 for metrics without TLS, 7442 for accelerators, 10809 for NBD";

/// What was met instead, as far as TLS tells; none if it may well be the API.
pub(super) fn found(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let mut errors = std::iter::successors(Some(error), |error| error.source());
    errors.find_map(|error| met(tls_error(error)?))
}

/// The error of TLS that this one is, or that it carries: an error of I/O does not name what it was made of as its source, and may be made
/// of another one.
fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    match error.downcast_ref::<std::io::Error>() {
        Some(io) => tls_error(io.get_ref()?),
        None => error.downcast_ref::<Error>(),
    }
}

fn met(error: &Error) -> Option<&'static str> {
    match error {
        Error::InvalidMessage(_) => Some("it does not speak TLS"),
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            Some("it speaks TLS, but not HTTPS, as farside does with peers and accelerators")
        }
        Error::AlertReceived(AlertDescription::ProtocolVersion) | Error::PeerIncompatible(_) => {
            Some("it does not speak TLS 1.3")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rustls::InvalidMessage;

    use super::*;

    #[test]
    fn who_answers_at_a_wrong_port_is_told_by_what_it_says() {
        let carried = |error: Error| std::io::Error::new(std::io::ErrorKind::InvalidData, error);
        let plain = carried(Error::InvalidMessage(InvalidMessage::InvalidContentType));
        assert_eq!(found(&plain), Some("it does not speak TLS"));
        // As a library hands it on.
        let again = std::io::Error::other(carried(Error::InvalidMessage(InvalidMessage::InvalidContentType)));
        assert_eq!(found(&again), Some("it does not speak TLS"));
        let peers = carried(Error::AlertReceived(AlertDescription::NoApplicationProtocol));
        assert!(found(&peers).unwrap().contains("peers"));
        // A certificate that is not believed is the API's, or somebody in between.
        assert_eq!(found(&carried(Error::General("another certificate".into()))), None);
        assert_eq!(found(&std::io::Error::from(std::io::ErrorKind::ConnectionRefused)), None);
    }
}
