//! Lists users: `coder users list`.

use coder_api::users::User;

use crate::context::Context;
use crate::remote;
use crate::terminal::table;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only accounts that match, for example a part of the name or `status:active`.
    #[arg(long, default_value = "", value_name = "QUERY")]
    search: String,
    #[command(flatten)]
    table: table::TableOptions<User>,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let users = remote::connect(ctx)?.users(&args.search).await?;
    table::print(&ctx.printer, &args.table, &users, "No users match.")
}
