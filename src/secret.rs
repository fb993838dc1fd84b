//! Secrets: made from the system's random source, sealed at rest, hashed for look-up, kept out of every text.
//!
//! - A home's secrets are sealed with its data key (XChaCha20-Poly1305); the data key is wrapped by the instance key.
//!   The associated data names the home and the purpose, so a sealed value is worthless in another row.
//! - Bearer secrets (tokens, links) are stored as SHA-256 only: 256 random bits need no slow hash.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use rand::TryRng as _;
use secrecy::{ExposeSecret as _, SecretBox, SecretString};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::ids::HomeId;

const NONCE: usize = 24;
const KEY: usize = 32;

/// A key could not be read, or a sealed value was not made with it.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("the system's random source failed")]
    Random,
    #[error("the master key must be 32 bytes, written as 64 hexadecimal digits")]
    MasterKey,
    #[error("a sealed value cannot be opened with this instance's key")]
    Sealed,
}

/// Random bytes for keys and tokens.
pub fn random<const N: usize>() -> Result<[u8; N], SecretError> {
    let mut bytes = [0; N];
    rand::rngs::SysRng
        .try_fill_bytes(&mut bytes)
        .map_err(|_| SecretError::Random)?;
    Ok(bytes)
}

/// SHA-256 of a bearer secret: what the database stores and looks up.
pub fn digest(secret: &[u8]) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// The instance key: wraps the data keys of homes, and nothing else.
pub struct MasterKey(SecretBox<[u8; KEY]>);

impl MasterKey {
    /// A new key and its text for the key file.
    pub fn generate() -> Result<(Self, SecretString), SecretError> {
        let bytes = random::<KEY>()?;
        Ok((
            Self(SecretBox::new(Box::new(bytes))),
            SecretString::from(hex::encode(bytes)),
        ))
    }

    /// Reads the text of a key file.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let mut bytes = [0; KEY];
        hex::decode_to_slice(text.trim(), &mut bytes).map_err(|_| SecretError::MasterKey)?;
        Ok(Self(SecretBox::new(Box::new(bytes))))
    }

    /// The key's text, for the redactor: it must never appear in output.
    pub fn text(&self) -> SecretString {
        SecretString::from(hex::encode(self.0.expose_secret()))
    }

    /// A fresh data key for `home`, wrapped for storage.
    pub fn new_home_key(&self, home: HomeId) -> Result<Vec<u8>, SecretError> {
        let key = Zeroizing::new(random::<KEY>()?);
        seal(
            self.0.expose_secret(),
            &context(home, "data-key"),
            key.as_slice(),
        )
    }

    /// Opens the data key of `home`.
    pub fn home_key(&self, home: HomeId, wrapped: &[u8]) -> Result<HomeKey, SecretError> {
        let bytes = open(self.0.expose_secret(), &context(home, "data-key"), wrapped)?;
        let key: [u8; KEY] = bytes
            .as_slice()
            .try_into()
            .map_err(|_| SecretError::Sealed)?;
        Ok(HomeKey {
            home,
            key: SecretBox::new(Box::new(key)),
        })
    }

    /// A keyed hash, for what must be compared across homes without being readable (addresses, bot tokens).
    pub fn blind(&self, purpose: &str, value: &[u8]) -> [u8; 32] {
        use hmac::Mac as _;
        let mut mac = <hmac::Hmac<Sha256> as hmac::KeyInit>::new_from_slice(self.0.expose_secret())
            .expect("HMAC takes a key of any length");
        mac.update(purpose.as_bytes());
        mac.update(&[0]);
        mac.update(value);
        mac.finalize().into_bytes().into()
    }
}

/// The data key of one home.
pub struct HomeKey {
    home: HomeId,
    key: SecretBox<[u8; KEY]>,
}

impl HomeKey {
    /// Seals a secret for one `purpose`, for example `provider:openai`.
    pub fn seal(&self, purpose: &str, secret: &SecretString) -> Result<Vec<u8>, SecretError> {
        let context = context(self.home, purpose);
        seal(
            self.key.expose_secret(),
            &context,
            secret.expose_secret().as_bytes(),
        )
    }

    /// Opens what `seal` made for the same purpose.
    pub fn open(&self, purpose: &str, sealed: &[u8]) -> Result<SecretString, SecretError> {
        let bytes = open(
            self.key.expose_secret(),
            &context(self.home, purpose),
            sealed,
        )?;
        let text = std::str::from_utf8(&bytes).map_err(|_| SecretError::Sealed)?;
        Ok(SecretString::from(text))
    }
}

fn context(home: HomeId, purpose: &str) -> Vec<u8> {
    [
        b"bazilion\0",
        home.uuid().as_bytes().as_slice(),
        purpose.as_bytes(),
    ]
    .concat()
}

fn seal(key: &[u8; KEY], context: &[u8], plain: &[u8]) -> Result<Vec<u8>, SecretError> {
    let nonce = random::<NONCE>()?;
    let sealed = XChaCha20Poly1305::new(key.into())
        .encrypt(
            XNonce::from_slice(&nonce),
            Payload {
                msg: plain,
                aad: context,
            },
        )
        .map_err(|_| SecretError::Sealed)?;
    Ok([nonce.as_slice(), &sealed].concat())
}

fn open(key: &[u8; KEY], context: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let (nonce, sealed) = sealed.split_at_checked(NONCE).ok_or(SecretError::Sealed)?;
    XChaCha20Poly1305::new(key.into())
        .decrypt(
            XNonce::from_slice(nonce),
            Payload {
                msg: sealed,
                aad: context,
            },
        )
        .map(Zeroizing::new)
        .map_err(|_| SecretError::Sealed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_secret_opens_only_in_its_home_and_for_its_purpose() {
        let (master, _) = MasterKey::generate().unwrap();
        let (home, other) = (HomeId::new(), HomeId::new());
        let key = master
            .home_key(home, &master.new_home_key(home).unwrap())
            .unwrap();
        let sealed = key
            .seal("provider:a", &SecretString::from("sk-123"))
            .unwrap();

        assert_eq!(
            key.open("provider:a", &sealed).unwrap().expose_secret(),
            "sk-123"
        );
        assert!(key.open("provider:b", &sealed).is_err());
        assert!(key.open("provider:a", &sealed[..10]).is_err());
        assert!(
            master
                .home_key(other, &master.new_home_key(home).unwrap())
                .is_err()
        );
    }

    #[test]
    fn the_master_key_survives_its_own_text() {
        let (master, text) = MasterKey::generate().unwrap();
        let again = MasterKey::parse(&format!("{}\n", text.expose_secret())).unwrap();
        assert_eq!(master.blind("x", b"y"), again.blind("x", b"y"));
        assert!(MasterKey::parse("short").is_err());
    }
}
