//! `coder users reset-password`

use anyhow::bail;
use coder_api::paths;
use coder_api::users::UpdatePasswordRequest;
use coder_domain::secret::Secret;

use crate::context::Context;
use crate::{prompt, remote};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// User name, id, or `me`.
    user: String,
}

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    const INSTEAD: &str = "pass the answers on standard input, one a line";
    let client = remote::connect(ctx)?;
    let user = client.user(&args.user).await?;
    let own = client.user(paths::ME).await?.id == user.id;
    let old_password =
        if own { prompt::hidden(&ctx.printer, "Old password:", INSTEAD)? } else { Secret::new("") };
    let password = prompt::hidden(&ctx.printer, "New password:", INSTEAD)?;
    if prompt::is_interactive() && prompt::hidden(&ctx.printer, "The same again:", INSTEAD)? != password {
        bail!("the passwords differ, so nothing is changed");
    }
    let request = UpdatePasswordRequest { old_password, password };
    client.update_password(&user.id.to_string(), &request).await?;
    ctx.printer.note(&format!("The password of {} is changed.", user.username));
    Ok(())
}
