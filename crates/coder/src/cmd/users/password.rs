//! Sets the password of a user: `coder users reset-password`.

use coder_api::paths;
use coder_api::users::UpdatePasswordRequest;
use coder_domain::secret::Secret;

use crate::context::Context;
use crate::remote;
use crate::terminal::prompt;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// User name, id, or `me`.
    user: String,
}

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    const HINT: &str = "pass the answers on standard input, one a line";
    let client = remote::connect(ctx)?;
    let user = remote::user(&client, &args.user).await?;
    let own = client.user(paths::ME).await?.id == user.id;
    let old_password =
        if own { prompt::hidden(&ctx.printer, "Old password:", HINT)? } else { Secret::new("") };
    let password = prompt::new_password(&ctx.printer, "New password:", HINT)?;
    let request = UpdatePasswordRequest { old_password, password };
    client.update_password(&user.id.to_string(), &request).await?;
    ctx.printer.note(&format!("The password of {} is changed.", user.username));
    Ok(())
}
