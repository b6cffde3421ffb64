//! When a certificate ends.

use farside_platform::Timestamp;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Of a certificate in DER; none of what is no certificate. What ended before 1970 ended then.
pub(crate) fn of(certificate: &[u8]) -> Option<Timestamp> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let seconds = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
    Some(Timestamp(seconds.saturating_mul(1_000_000_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_from_the_certificate() {
        let mut parameters = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        parameters.not_after = rcgen::date_time_ymd(2030, 1, 2);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        assert_eq!(of(certificate.der()), Some(Timestamp(1_893_542_400_000_000_000)));
        assert_eq!(of(b"no certificate"), None);
    }
}
