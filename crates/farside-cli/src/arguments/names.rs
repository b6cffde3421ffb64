//! Names on the command line: `POOL/VOL`, `POOL/VOL@SNAP`, `PEER:POOL/VOL`.
//!
//! Only the structure is read here, so that each part finds its place in a request; the daemon decides what may be
//! a name.

use std::fmt;
use std::str::FromStr;

/// `POOL/VOL`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeName {
    /// The pool.
    pub pool: String,
    /// The volume in it.
    pub volume: String,
}

impl FromStr for VolumeName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((pool, volume)) if is_part(pool) && is_part(volume) => {
                Ok(VolumeName { pool: pool.into(), volume: volume.into() })
            }
            _ => Err(String::from("use POOL/VOL, for example p/db")),
        }
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.volume)
    }
}

/// `POOL/VOL@SNAP`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotName {
    /// The volume.
    pub volume: VolumeName,
    /// The snapshot of it.
    pub snapshot: String,
}

impl FromStr for SnapshotName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('@') {
            Some((volume, snapshot)) if is_part(snapshot) => {
                Ok(SnapshotName { volume: volume.parse()?, snapshot: snapshot.into() })
            }
            // The whole name, as it is listed, where the part after @ would do.
            Some((volume, snapshot))
                if snapshot.split_once('@').is_some_and(|(again, _)| again == volume) =>
            {
                snapshot.parse()
            }
            _ => Err(String::from("use POOL/VOL@SNAP, for example p/db@monday")),
        }
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.volume, self.snapshot)
    }
}

/// `PEER:POOL/VOL`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerVolumeName {
    /// The peer, as it is called here.
    pub peer: String,
    /// Its volume.
    pub volume: VolumeName,
}

impl FromStr for PeerVolumeName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some((peer, volume)) if is_part(peer) => {
                Ok(PeerVolumeName { peer: peer.into(), volume: volume.parse()? })
            }
            _ => Err(String::from(
                "use PEER:POOL/VOL, for example siteA:p/db; a mirror is made at the site that gets the copy, of a volume at the other",
            )),
        }
    }
}

impl fmt::Display for PeerVolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.peer, self.volume)
    }
}

/// A plain name: of a pool or peer, or a new name.
pub fn parse_label(text: &str) -> Result<String, String> {
    if is_part(text) {
        Ok(text.to_owned())
    } else {
        Err(String::from("use a plain name, without / @ or blanks"))
    }
}

/// A snapshot of the volume that is named too: `SNAP`, or `POOL/VOL@SNAP` as `snapshot list` prints it.
pub fn parse_at(text: &str) -> Result<At, String> {
    let (volume, snapshot) = match text.split_once('@') {
        Some((volume, snapshot)) => (Some(volume.parse()?), snapshot),
        None => (None, text),
    };
    if is_part(snapshot) {
        Ok(At { volume, snapshot: snapshot.to_owned() })
    } else {
        Err(String::from("use the name of a snapshot, or POOL/VOL@SNAP as farside snapshot list prints it"))
    }
}

/// What [`parse_at`] reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct At {
    volume: Option<VolumeName>,
    snapshot: String,
}

impl At {
    /// The snapshot's name, whatever volume of a group it is of.
    pub fn name(&self) -> &str {
        &self.snapshot
    }

    /// The snapshot's name, which must be one of this volume.
    pub fn of(self, volume: &VolumeName) -> Result<String, String> {
        match self.volume {
            Some(other) if other != *volume => Err(format!(
                "--at names a snapshot of {other}, and the volume is {volume}: use one of its own"
            )),
            _ => Ok(self.snapshot),
        }
    }
}

/// Whether a daemon takes `text` as the name of a pool, peer, volume or snapshot: for what it is asked much later. (`is_label` of
/// `farside-engine`, which this program does without.)
pub(crate) fn is_label(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && !text.starts_with(['-', '.'])
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:+-".contains(&b))
}

/// Whether `text` can stand as one segment of a URL's path and mean itself.
fn is_part(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('.')
        && !text.contains(['/', '@'])
        && !text.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_of_the_daemon() {
        let long = ["x".repeat(128), "x".repeat(129)];
        let ascii: Vec<String> = (0..128).map(|byte: u8| format!("a{}", char::from(byte))).collect();
        let begin = (0..128).map(|byte: u8| String::from(char::from(byte)));
        for text in
            ["", "\u{e9}", "a\u{df}"].map(String::from).into_iter().chain(long).chain(ascii).chain(begin)
        {
            assert_eq!(is_label(&text), farside_engine::is_label(&text), "{text:?}");
        }
    }

    #[test]
    fn structure() {
        assert_eq!("p/v".parse::<VolumeName>().unwrap().to_string(), "p/v");
        assert_eq!("p/v@s:1+x".parse::<SnapshotName>().unwrap().to_string(), "p/v@s:1+x");
        assert_eq!("a:p/v".parse::<PeerVolumeName>().unwrap().to_string(), "a:p/v");
        for text in ["", "p", "p/", "/v", "p/v/w", "p/v@s", "p/..", "../v", "p /v"] {
            assert!(text.parse::<VolumeName>().is_err(), "{text}");
        }
        for text in ["p/v", "p@s", "p/v@", "p/v@a@b", "@s"] {
            assert!(text.parse::<SnapshotName>().is_err(), "{text}");
        }
        for text in ["p/v", ":p/v", "a:p", "a:"] {
            assert!(text.parse::<PeerVolumeName>().is_err(), "{text}");
        }
        // As it is listed, too.
        let volume = "p/v".parse().unwrap();
        for text in ["s", "p/v@s"] {
            assert_eq!(parse_at(text).unwrap().of(&volume).unwrap(), "s");
        }
        assert!(parse_at("p/w@s").unwrap().of(&volume).unwrap_err().contains("p/w"));
        assert!(parse_at("p/v").is_err() && parse_at("p/v@").is_err());
        assert_eq!("p/v@p/v@s".parse::<SnapshotName>().unwrap().to_string(), "p/v@s");
        assert!(parse_label("p").is_ok());
        assert!(parse_label("p/v").is_err());
    }
}
