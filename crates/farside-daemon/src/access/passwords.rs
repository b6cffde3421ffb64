//! Passwords: hashed by Argon2id, compared in constant time, a few at a time.

use std::sync::{Arc, LazyLock};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use farside_api::{ErrorBody, ErrorCode};
use farside_platform::{OsRandomness, Randomness};
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

/// Shortest and longest password, characters.
const LENGTH: std::ops::RangeInclusive<usize> = 12..=256;
/// Hashes at the same time. Each takes 19 MiB and some tens of milliseconds of a processor, which hosts want, too.
const HASHES_MAX: usize = 2;

/// Hashes passwords.
#[derive(Clone, Debug)]
pub(super) struct Passwords {
    places: Arc<Semaphore>,
}

/// What is compared for an account that does not exist: whoever measures the time learns nothing.
static NOBODY: LazyLock<String> = LazyLock::new(|| hash(b"nobody has this password").unwrap_or_default());

fn hash(password: &[u8]) -> Option<String> {
    let mut salt = [0; 16];
    OsRandomness.fill(&mut salt);
    let hashed: PasswordHash = Argon2::default().hash_password_with_salt(password, &salt).ok()?;
    Some(hashed.to_string())
}

fn matches(password: &[u8], hash: &str) -> bool {
    PasswordHash::new(hash).is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
}

impl Passwords {
    pub(super) fn new() -> Passwords {
        Passwords { places: Arc::new(Semaphore::new(HASHES_MAX)) }
    }

    /// What is kept of a new password.
    pub(super) async fn hash(&self, password: &str) -> Result<String, ErrorBody> {
        if !LENGTH.contains(&password.chars().count()) {
            let wrong = format!("a password has {} to {} characters", LENGTH.start(), LENGTH.end());
            return Err(ErrorBody::new(ErrorCode::WrongUsage, wrong));
        }
        let password = Zeroizing::new(password.as_bytes().to_vec());
        self.run(move || hash(&password)).await.flatten().ok_or_else(|| {
            ErrorBody::new(ErrorCode::Failed, "the password could not be hashed; nothing was changed")
        })
    }

    /// Whether this is the password of an account; takes as long if there is none.
    pub(super) async fn is_right(&self, password: &str, hash: Option<String>) -> bool {
        let password = Zeroizing::new(password.chars().take(*LENGTH.end() + 1).collect::<String>());
        let right = self.run(move || {
            let known = hash.is_some();
            matches(password.as_bytes(), hash.as_ref().unwrap_or(&NOBODY)) && known
        });
        right.await.unwrap_or(false)
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
        let work = move || {
            let _place = place;
            work()
        };
        tokio::task::spawn_blocking(work).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_right_password_is_right_and_no_other() {
        let passwords = Passwords::new();
        let kept = passwords.hash("correct horse battery").await.unwrap();
        assert!(kept.starts_with("$argon2id$") && !kept.contains("horse"), "{kept}");
        assert_ne!(
            kept,
            passwords.hash("correct horse battery").await.unwrap(),
            "each has a salt of its own"
        );
        assert!(passwords.is_right("correct horse battery", Some(kept.clone())).await);
        assert!(!passwords.is_right("correct horse batterz", Some(kept)).await);
        assert!(!passwords.is_right("nobody has this password", None).await);
        assert!(!passwords.is_right("correct horse battery", Some("nonsense".into())).await);
        for wrong in ["short", &"x".repeat(257)] {
            assert_eq!(passwords.hash(wrong).await.unwrap_err().code, ErrorCode::WrongUsage);
        }
    }
}
