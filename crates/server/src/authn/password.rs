//! Password hashes in the format of the reference, computed on blocking threads, a few at a time.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use coder_domain::secret::Secret;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

const SCHEME: &str = "pbkdf2-sha256";
/// Rounds, salt and hash length (scheduling-and-auth PWD-1).
const ROUNDS: u32 = 65_535;
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 64;
/// A stored hash with more rounds is invalid: it would block a thread for long.
const MAX_ROUNDS: u32 = 10_000_000;

/// Hashes and compares passwords. The semaphore bounds processor time spent on people who are not signed in.
#[derive(Clone, Debug)]
pub struct Hasher {
    slots: Arc<Semaphore>,
}

/// The password was not hashed.
#[derive(Debug, thiserror::Error)]
#[error("cannot hash the password: the server is stopping")]
pub struct Stopping;

impl Hasher {
    /// At most `concurrency` computations at once.
    #[must_use]
    pub fn new(concurrency: usize) -> Self {
        Self { slots: Arc::new(Semaphore::new(concurrency.max(1))) }
    }

    /// Hashes a password with a fresh salt.
    pub async fn hash(&self, password: Secret) -> Result<Secret, Stopping> {
        self.run(move || {
            let mut salt = [0; SALT_BYTES];
            super::token::random(&mut salt);
            hash_with(&password, &salt, ROUNDS)
        })
        .await
    }

    /// Compares a password with a stored hash. Without a stored hash it does the same work and returns false (PWD-3).
    pub async fn verify(&self, password: Secret, stored: Option<Secret>) -> Result<bool, Stopping> {
        self.run(move || match stored.as_ref().and_then(|stored| parse(stored.expose())) {
            Some((rounds, salt, hash)) => {
                let mut computed = vec![0; hash.len()];
                pbkdf2::pbkdf2_hmac::<Sha256>(password.expose().as_bytes(), &salt, rounds, &mut computed);
                computed.ct_eq(&hash).into()
            }
            None => {
                hash_with(&password, &[0; SALT_BYTES], ROUNDS);
                false
            }
        })
        .await
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Stopping> {
        let _slot = self.slots.acquire().await.map_err(|_| Stopping)?;
        tokio::task::spawn_blocking(work).await.map_err(|_| Stopping)
    }
}

fn hash_with(password: &Secret, salt: &[u8], rounds: u32) -> Secret {
    let mut hash = [0; HASH_BYTES];
    pbkdf2::pbkdf2_hmac::<Sha256>(password.expose().as_bytes(), salt, rounds, &mut hash);
    Secret::new(format!(
        "${SCHEME}${rounds}${}${}",
        STANDARD_NO_PAD.encode(salt),
        STANDARD_NO_PAD.encode(hash)
    ))
}

fn parse(stored: &str) -> Option<(u32, Vec<u8>, Vec<u8>)> {
    let mut parts = stored.strip_prefix('$')?.split('$');
    let (scheme, rounds, salt, hash) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if scheme != SCHEME || parts.next().is_some() {
        return None;
    }
    let rounds = rounds.parse().ok().filter(|rounds| (1..=MAX_ROUNDS).contains(rounds))?;
    let hash = STANDARD_NO_PAD.decode(hash).ok().filter(|hash| !hash.is_empty())?;
    Some((rounds, STANDARD_NO_PAD.decode(salt).ok()?, hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pwd_1_format_and_comparison() {
        let hasher = Hasher::new(1);
        let stored = hasher.hash(Secret::new("SomeSecurePassword!")).await.unwrap();
        let parts: Vec<_> = stored.expose().split('$').collect();
        assert_eq!(&parts[..3], ["", "pbkdf2-sha256", "65535"]);
        assert_eq!((parts[3].len(), parts[4].len()), (22, 86));
        assert!(hasher.verify(Secret::new("SomeSecurePassword!"), Some(stored.clone())).await.unwrap());
        assert!(!hasher.verify(Secret::new("SomeSecurePassword?"), Some(stored)).await.unwrap());
    }

    #[tokio::test]
    async fn no_hash_and_a_broken_hash_never_match() {
        let hasher = Hasher::new(1);
        for stored in [
            None,
            Some(""),
            Some("$pbkdf2-sha256$1$AAAA$"),
            Some("$other$1$AAAA$AAAA"),
            Some("$pbkdf2-sha256$0$AA$AA"),
        ] {
            let stored = stored.map(Secret::new);
            assert!(!hasher.verify(Secret::new(""), stored).await.unwrap());
        }
    }

    #[test]
    fn a_known_vector() {
        // PBKDF2-HMAC-SHA256 of "password" and "salt" with one round begins with 120fb6cf.
        let stored = hash_with(&Secret::new("password"), b"salt", 1);
        let (_, _, hash) = parse(stored.expose()).unwrap();
        assert_eq!(hash[..4], [0x12, 0x0f, 0xb6, 0xcf]);
    }
}
