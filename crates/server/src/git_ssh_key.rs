//! The SSH key pair that a user's workspaces use for Git. It is generated at first use.

use coder_domain::Timestamp;
use coder_domain::ids::UserId;
use coder_domain::secret::Secret;
use coder_store::users::{self, GitSshKey};
use coder_store::{Error, Store};
use ring::signature::{Ed25519KeyPair, KeyPair};
use ssh_key::private::{Ed25519Keypair, Ed25519PrivateKey, KeypairData};
use ssh_key::public::Ed25519PublicKey;
use ssh_key::{LineEnding, PrivateKey};

/// The key pair of a user. Concurrent callers get the same one.
pub async fn of(store: &Store, user: UserId, now: Timestamp) -> Result<GitSshKey, Error> {
    if let Some(key) = users::find_git_ssh_key(&mut store.reader().await?, user).await? {
        return Ok(key);
    }
    let made = make(user, now);
    users::insert_git_ssh_key(&mut store.single().await?, &made).await?;
    let kept = users::find_git_ssh_key(&mut store.reader().await?, user).await?;
    Ok(kept.unwrap_or(made))
}

/// A new key pair for a user; it is not stored yet.
#[must_use]
pub fn make(user: UserId, now: Timestamp) -> GitSshKey {
    let (public_key, private_key) = generate();
    GitSshKey { user_id: user, public_key, private_key, created_at: now, updated_at: now }
}

/// A line of authorized_keys and an OpenSSH private key, Ed25519.
fn generate() -> (String, Secret) {
    let mut seed = [0_u8; 32];
    getrandom::fill(&mut seed).expect("the kernel's random source answers on every system we run on");
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("a seed has 32 bytes");
    let public = pair.public_key().as_ref().try_into().expect("a public key has 32 bytes");
    let pair =
        Ed25519Keypair { public: Ed25519PublicKey(public), private: Ed25519PrivateKey::from_bytes(&seed) };
    let key =
        PrivateKey::new(KeypairData::Ed25519(pair), "").expect("no passphrase, and a comment that is text");
    let public = key.public_key().to_openssh().expect("memory is all that writing takes");
    let private = key.to_openssh(LineEnding::LF).expect("memory is all that writing takes");
    (public, Secret::new(private.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_pair_is_what_openssh_reads() {
        let (public, private) = generate();
        let read = PrivateKey::from_openssh(private.expose()).unwrap();
        assert_eq!(read.public_key().to_openssh().unwrap(), public);
        assert!(public.starts_with("ssh-ed25519 AAAA"), "{public}");
        assert!(private.expose().starts_with("-----BEGIN OPENSSH PRIVATE KEY-----\n"));
        assert_ne!(generate().0, public);
    }
}
