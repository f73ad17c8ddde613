//! `coder reset-password`: works on the database and needs no password. Servers may run meanwhile.

use coder_domain::clock::{Clock as _, SystemClock};
use coder_server::recovery;

use crate::cmd::server::{Database, database};
use crate::context::Context;
use crate::terminal::prompt;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// User name or e-mail address.
    user: String,
    #[command(flatten)]
    database: Database,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let store = database::open_existing(&args.database).await?;
    let changed = async {
        // Before the question, so that no answer is lost.
        recovery::check_user(&store, &args.user).await?;
        let instead = "pass the new password on standard input";
        let password = prompt::new_password(&ctx.printer, "New password:", instead)?;
        anyhow::Ok(recovery::reset_password(&store, &args.user, password, SystemClock.now()).await?)
    };
    let changed = changed.await;
    store.close().await;
    let user = changed?;
    ctx.printer
        .note(&format!("The password of {} is changed; all sessions and tokens have ended.", user.username));
    Ok(())
}
