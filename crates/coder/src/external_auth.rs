//! Waits until the external authentication that a template needs is done.

use std::time::{Duration, Instant};

use anyhow::bail;
use coder_api::client::Client;
use coder_api::versions::TemplateVersionExternalAuth;
use coder_domain::ids::TemplateVersionId;

use crate::context::Context;

/// How long people have to sign in there.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Servers do not notify clients of it.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Prints where to sign in for each account that is needed, and waits for it.
pub(crate) async fn connect(
    ctx: &Context,
    client: &Client,
    version: TemplateVersionId,
) -> anyhow::Result<()> {
    let since = Instant::now();
    let mut announced = String::new();
    loop {
        let accounts = client.external_auth(version).await?;
        let Some(account) = missing(&accounts)? else { return Ok(()) };
        if announced != account.id {
            ctx.printer.note(&format!(
                "The template needs your {} account. Connect it at:\n\n    {}\n",
                account.display_name, account.authenticate_url
            ));
            announced.clone_from(&account.id);
        }
        if since.elapsed() >= SIGN_IN_TIMEOUT {
            bail!(
                "your {} account was not connected: connect it at {} and try again",
                account.display_name,
                account.authenticate_url
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The first account that is needed and not connected.
fn missing(accounts: &[TemplateVersionExternalAuth]) -> anyhow::Result<Option<&TemplateVersionExternalAuth>> {
    match accounts.iter().find(|account| !account.authenticated && !account.optional) {
        Some(account) if account.authenticate_url.is_empty() => bail!(
            "the template needs your {} account, which cannot be connected on this server: the template has to do without it",
            account.display_name
        ),
        found => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_that_cannot_be_connected_is_not_waited_for() {
        let account = |address: &str, authenticated, optional| TemplateVersionExternalAuth {
            id: "github".to_owned(),
            display_name: "GitHub".to_owned(),
            authenticate_url: address.to_owned(),
            authenticated,
            optional,
            ..TemplateVersionExternalAuth::default()
        };
        let url = "https://x/auth";
        assert!(missing(&[account("", false, true), account(url, true, false)]).unwrap().is_none());
        assert_eq!(missing(&[account(url, false, false)]).unwrap().unwrap().authenticate_url, url);
        let nowhere = missing(&[account("", false, false)]).unwrap_err().to_string();
        assert!(nowhere.contains("your GitHub account") && !nowhere.contains(" at "), "{nowhere}");
    }
}
