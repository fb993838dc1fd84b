//! API tokens: `bzl_`, 256 random bits, and a checksum that tells a mistyped token from a revoked one without a look-up.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};
use crate::identity::{Role, Scopes};
use crate::secret;

const PREFIX: &str = "bzl_";
const CHECKSUM: usize = 6;

/// A new token, shown once.
pub fn mint() -> Result<SecretString> {
    let bits = secret::random::<32>().map_err(|e| Error::internal("making a token", e))?;
    let body = URL_SAFE_NO_PAD.encode(bits);
    Ok(SecretString::from(format!(
        "{PREFIX}{body}{}",
        checksum(&body)
    )))
}

/// What the database stores and looks up; nothing if this is no token of ours.
pub fn hash(token: &SecretString) -> Option<[u8; 32]> {
    let text = token.expose_secret();
    let rest = text.strip_prefix(PREFIX)?;
    let at = rest
        .len()
        .checked_sub(CHECKSUM)
        .filter(|at| rest.is_char_boundary(*at))?;
    let (body, sum) = rest.split_at(at);
    let right = URL_SAFE_NO_PAD
        .decode(body)
        .is_ok_and(|bits| bits.len() == 32)
        && checksum(body) == sum;
    right.then(|| secret::digest(text.as_bytes()))
}

fn checksum(body: &str) -> String {
    hex::encode(Sha256::digest(body.as_bytes()))[..CHECKSUM].to_owned()
}

/// Scopes from their words; an unknown word is refused.
pub fn parse_scopes(words: &[String]) -> Result<Scopes> {
    let mut scopes = Scopes::default();
    for word in words {
        match word.as_str() {
            "read" => scopes.read = true,
            "write" => scopes.write = true,
            "approvals" => scopes.approvals = true,
            "admin" => scopes.admin = true,
            _ => {
                return Err(Error::invalid(
                    "scopes",
                    "scope",
                    "Scopes are read, write, approvals and admin.",
                ));
            }
        }
    }
    if scopes == Scopes::default() {
        return Err(Error::invalid(
            "scopes",
            "scope",
            "Give at least one scope.",
        ));
    }
    Ok(scopes)
}

/// The words of scopes.
pub fn scope_words(scopes: Scopes) -> Vec<String> {
    let all = [
        (scopes.read, "read"),
        (scopes.write, "write"),
        (scopes.approvals, "approvals"),
        (scopes.admin, "admin"),
    ];
    all.into_iter()
        .filter(|(on, _)| *on)
        .map(|(_, word)| word.to_owned())
        .collect()
}

/// All scopes that a role can use.
pub fn scopes_of(role: Role) -> Scopes {
    match role {
        Role::Viewer => Scopes {
            read: true,
            ..Scopes::default()
        },
        Role::Operator => Scopes {
            read: true,
            write: true,
            approvals: true,
            admin: false,
        },
        Role::Owner => Scopes::ALL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_recognised_and_a_mistyped_one_is_not() {
        let token = mint().unwrap();
        assert!(hash(&token).is_some());
        let text = token.expose_secret().to_owned();
        for wrong in [
            text.replacen("bzl_", "bzl-", 1),
            text[..text.len() - 1].to_owned(),
            format!("{text}0"),
            String::new(),
            "bzl_ééé".into(),
        ] {
            assert!(
                hash(&SecretString::from(wrong.clone())).is_none(),
                "{wrong}"
            );
        }
        assert_ne!(mint().unwrap().expose_secret(), text);
    }
}
