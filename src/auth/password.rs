//! Passwords: argon2id off the async threads, few at a time.
//!
//! - An unknown account costs the same work and gives the same answer as a wrong password.

use std::sync::LazyLock;

use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _, phc::PasswordHash};
use argon2::{Algorithm, Argon2, Params, Version};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Semaphore;

use crate::error::{Error, Result};
use crate::limits;

/// Passwords that people choose most; a longer list would refuse little more of what has twelve characters.
const COMMON: &[&str] = &[
    "123456789012",
    "1234567890123",
    "password1234",
    "password12345",
    "passwordpassword",
    "qwertyuiop12",
    "qwertyuiop123",
    "qwertyqwerty",
    "adminadminadmin",
    "administrator",
    "letmeinletmein",
    "iloveyouiloveyou",
    "aaaaaaaaaaaa",
    "abcdefghijkl",
    "abcd12345678",
    "changemechangeme",
    "welcome12345",
    "bazilionbazilion",
];

static HASHING: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(limits::PASSWORD_HASHES_AT_ONCE));

/// Hash of a password that nobody has, for accounts that do not exist.
static NOBODY: LazyLock<String> =
    LazyLock::new(|| hash_blocking("no such account").unwrap_or_default());

/// OWASP's parameters: 19 MiB, two passes, one lane.
fn argon() -> Argon2<'static> {
    Argon2::new(
        Algorithm::Argon2id,
        Version::V0x13,
        Params::new(19 * 1024, 2, 1, None).unwrap_or_default(),
    )
}

/// Refuses what is too short, too long or too common.
pub fn check(password: &SecretString) -> Result<()> {
    let text = password.expose_secret();
    let invalid = |message: &str| Err(Error::invalid("password", "password", message));
    if text.chars().count() < limits::PASSWORD_MIN_CHARS {
        return invalid("Use at least 12 characters.");
    }
    if text.len() > limits::PASSWORD_MAX {
        return invalid("Use at most 1,024 bytes.");
    }
    let lower = text.to_lowercase();
    let one_character = text.chars().all(|c| text.starts_with(c));
    if one_character || COMMON.contains(&lower.as_str()) {
        return invalid("This password is too common. Choose another.");
    }
    Ok(())
}

/// Hashes a checked password to a PHC string.
pub async fn hash(password: SecretString) -> Result<String> {
    off_the_runtime(move || hash_blocking(password.expose_secret())).await?
}

/// Whether the password belongs to the hash; with no hash, the same work and `false`.
pub async fn verify(password: SecretString, stored: Option<String>) -> Result<bool> {
    off_the_runtime(move || {
        let known = stored.is_some();
        let stored = stored.unwrap_or_else(|| NOBODY.clone());
        let matches = PasswordHash::new(&stored).is_ok_and(|hash| {
            argon()
                .verify_password(password.expose_secret().as_bytes(), &hash)
                .is_ok()
        });
        known && matches
    })
    .await
}

fn hash_blocking(password: &str) -> Result<String> {
    argon()
        .hash_password(password.as_bytes())
        .map(|hash| hash.to_string())
        .map_err(|e| Error::internal("hashing a password", e.to_string()))
}

async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let _permit = HASHING
        .acquire()
        .await
        .map_err(|e| Error::internal("waiting for a hash", e))?;
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| Error::internal("hashing a password", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_hash_takes_its_own_password_only_and_no_account_takes_none() {
        let right = || SecretString::from("correct horse battery");
        let stored = hash(right()).await.unwrap();
        assert!(
            stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{stored}"
        );
        assert!(verify(right(), Some(stored.clone())).await.unwrap());
        assert!(
            !verify(SecretString::from("correct horse batterx"), Some(stored))
                .await
                .unwrap()
        );
        assert!(
            !verify(SecretString::from("no such account"), None)
                .await
                .unwrap()
        );
    }

    #[test]
    fn short_and_common_passwords_are_refused() {
        for bad in ["short", "elevenchars", "aaaaaaaaaaaaaaa", "Password1234"] {
            assert!(check(&SecretString::from(bad)).is_err(), "{bad}");
        }
        assert!(check(&SecretString::from("zwölf zeichen!")).is_ok());
    }
}
