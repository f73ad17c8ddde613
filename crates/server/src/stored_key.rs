//! Random keys that the servers of a deployment share. Each is made at the first start and stored encrypted.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coder_domain::secret::Secret;
use coder_store::{Error, Store, server_secrets};

/// The key with this name.
///
/// # Errors
/// When the database fails, or the key cannot be decrypted.
pub(crate) async fn stored_key<const LENGTH: usize>(
    store: &Store,
    name: &str,
) -> Result<[u8; LENGTH], Error> {
    let known = server_secrets::find(&mut store.reader().await?, name).await?;
    let secret = match known {
        Some(secret) => secret,
        None => {
            let mut bytes = [0; LENGTH];
            getrandom::fill(&mut bytes)
                .expect("the kernel's random source answers on every system we run on");
            let made = Secret::new(BASE64_STANDARD.encode(bytes));
            server_secrets::find_or_insert(&mut store.single().await?, name, &made).await?
        }
    };
    let bytes = BASE64_STANDARD.decode(secret.expose()).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| Error::Corrupt {
        table: "server_secrets",
        column: "value",
        id: name.to_owned(),
        detail: format!("the key is not {LENGTH} bytes in base64"),
    })
}
