//! `farsided --check`: whether the daemon would start with this configuration, as far as that is seen without starting it.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use crate::api_certificate;
use crate::error::DaemonError;
use crate::hosts;
use crate::logging;
use crate::options::{Config, Listen, NbdTls, Options};
use crate::run::check_loopback;

/// Whether the daemon would start with this configuration, as far as that is seen without starting it: nothing is made or opened.
/// Answers what it would warn of.
///
/// # Errors
/// What is wrong with it, with the line where that is known.
pub fn check(options: Options) -> Result<Vec<String>, DaemonError> {
    if options.config.is_none() && !options.data_dir.exists() {
        return Err(DaemonError::Config(format!(
            "the data directory {0} does not exist, so there is no configuration in it to check. Nothing was made. farsided makes it when \
             it starts, with the defaults; another file is checked with --config FILE",
            options.data_dir.display()
        )));
    }
    let config = Config::resolve(options)?;
    logging::filter_of(&config.log)?;
    if let Some(file) = &config.database_password_file {
        std::fs::File::open(file)
            .map_err(|error| DaemonError::Config(format!("cannot read {}: {error}", file.display())))?;
    }
    api_certificate::Source::of(&config.api, &config.data_dir).check().map_err(DaemonError::Config)?;
    hosts::check(&config.nbd).map_err(DaemonError::Config)?;
    if let (Listen::At(address), NbdTls::Off) = (&config.nbd.listen, config.nbd.tls) {
        check_loopback(address, addresses_of(address))?;
    }
    check_apart(&config)?;
    let of_hooks = config.hooks.iter().flat_map(|(name, hook)| hook.doubts(name));
    Ok(logging::doubt_of(&config.log).into_iter().chain(config.alarms.doubts()).chain(of_hooks).collect())
}

fn addresses_of(address: &str) -> Vec<SocketAddr> {
    address.to_socket_addrs().map(Iterator::collect).unwrap_or_default()
}

/// Two doors at one address: the second one could not be opened. Whether another process has it is not looked at: a daemon may
/// run meanwhile.
fn check_apart(config: &Config) -> Result<(), DaemonError> {
    let doors = [
        ("peer_listen", &config.peer_listen),
        ("http", &config.http),
        ("[api] listen", &config.api.listen),
        ("[nbd] listen", &config.nbd.listen),
    ];
    let doors: Vec<(&str, &String, Vec<SocketAddr>)> = doors
        .into_iter()
        .filter_map(|(key, listen)| match listen {
            Listen::At(address) => Some((key, address, addresses_of(address))),
            Listen::Off => None,
        })
        .collect();
    for (index, (key, address, found)) in doors.iter().enumerate() {
        for (other_key, other_address, others) in &doors[..index] {
            if found.iter().any(|here| others.iter().any(|there| are_one(here, there))) {
                return Err(DaemonError::Config(format!(
                    "{other_key} = {other_address:?} and {key} = {address:?} are one address, at which only one of them can listen; give \
                     one another port"
                )));
            }
        }
    }
    Ok(())
}

/// Whether only one of two can listen. Port 0 takes a free one.
fn are_one(a: &SocketAddr, b: &SocketAddr) -> bool {
    let is_all = |ip: IpAddr, other: IpAddr| ip.is_unspecified() && (ip.is_ipv6() || other.is_ipv4());
    a.port() != 0
        && a.port() == b.port()
        && (a.ip() == b.ip() || is_all(a.ip(), b.ip()) || is_all(b.ip(), a.ip()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn checked(directory: &Path, text: &str) -> Result<Vec<String>, String> {
        std::fs::write(directory.join("farside.toml"), text).unwrap();
        let options = Options { data_dir: directory.into(), ..Options::default() };
        check(options).map_err(|error| error.to_string())
    }

    #[test]
    fn what_the_start_refuses_is_not_right() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let made = rcgen::generate_simple_self_signed(vec!["a.example".into()]).unwrap();
            std::fs::write(directory.path().join(format!("{name}.crt")), made.cert.pem()).unwrap();
            std::fs::write(directory.path().join(format!("{name}.key")), made.signing_key.serialize_pem())
                .unwrap();
        };
        make("a");
        make("b");
        let files = |certificate: &str, key: &str| {
            let path = |name: &str| directory.path().join(name).display().to_string();
            format!("certificate = \"{}\"\nkey = \"{}\"\n", path(certificate), path(key))
        };
        let wrong = [
            ("log = \"warning\"".to_owned(), "neither a level"),
            ("log = \"farside_mirror=loud\"".into(), "is no log filter"),
            (format!("[api]\n{}", files("a.crt", "b.key")), "does not fit"),
            (format!("[api]\n{}", files("a.crt", "absent")), "absent"),
            ("[api]\nnames = [\"bad name!\"]".into(), "no host name"),
            ("[nbd]\nnames = [\"bad name!\"]".into(), "no host name"),
            (format!("[nbd]\n{}client_ca = \"/absent\"\n", files("a.crt", "b.key")), "does not fit"),
            (
                "http = \"127.0.0.1:7440\"".into(),
                "peer_listen = \"0.0.0.0:7440\" and http = \"127.0.0.1:7440\"",
            ),
            ("[api]\nlisten = \"[::]:9\"\n[nbd]\nlisten = \"127.0.0.1:9\"".into(), "[nbd] listen"),
        ];
        for (text, said) in wrong {
            let error = checked(directory.path(), &text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        let right = [
            format!(
                "[api]\nnames = [\"a.example\", \"::1\"]\n[nbd]\n{}client_ca = \"{}\"\n",
                files("a.crt", "a.key"),
                directory.path().join("b.crt").display()
            ),
            format!("[api]\n{}", files("a.crt", "a.key")),
            "http = \"127.0.0.1:0\"\npeer_listen = \"127.0.0.1:0\"".into(),
            "http = \"127.0.0.2:7440\"\npeer_listen = \"127.0.0.1:7440\"".into(),
            "http = \"off\"\npeer_listen = \"off\"".into(),
        ];
        for text in right {
            assert_eq!(checked(directory.path(), &text), Ok(vec![]), "{text}");
        }
    }

    #[test]
    fn what_would_not_work_later_is_warned_of() {
        let directory = tempfile::tempdir().unwrap();
        let text = "log = \"error\"\n[hooks.db]\nfreeze = [\"/nowhere/freeze\"]\nthaw = [\"/bin/sh\"]\n";
        let warnings = checked(directory.path(), text).unwrap();
        assert!(warnings.len() == 2 && warnings[0].starts_with("log = \"error\""), "{warnings:?}");
        assert!(
            warnings[1].contains("[hooks.db]") && warnings[1].contains("freeze /nowhere/freeze"),
            "{warnings:?}"
        );
    }
}
