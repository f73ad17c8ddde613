//! `coder logs`: the log of a build, as plain lines on standard output.

use coder_api::client::JobLogTarget;
use coder_api::jobs::ProvisionerJobLog;

use crate::context::Context;
use crate::job::follow;
use crate::remote;
use crate::terminal::output::{Printer, Style, strip_control};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Workspace, as name or owner/name.
    workspace: String,
    /// Number of the build; 0 is the last one, -1 the one before.
    #[arg(short = 'n', long, default_value_t = 0, allow_negative_numbers = true, value_name = "NUMBER")]
    build_number: i64,
    /// Wait for new lines until the build has ended.
    #[arg(short, long)]
    follow: bool,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let workspace = remote::workspace(&client, &args.workspace).await?;
    let build = if args.build_number == 0 {
        workspace.latest_build.clone()
    } else {
        let last = workspace.latest_build.build_number;
        let number = if args.build_number < 0 { last + args.build_number } else { args.build_number };
        remote::build(&client, &workspace, number).await?
    };
    let mut shown = Lines { printer: ctx.printer, stage: String::new() };
    if !args.follow && !follow::has_ended(build.job.status) {
        let lines = client.job_logs(JobLogTarget::Build(build.id), 0).await?;
        lines.iter().for_each(|line| shown.print(line));
        ctx.printer.note("The build is still under way; wait for more with --follow.");
        return Ok(());
    }
    let mut log = client.follow_job_logs(JobLogTarget::Build(build.id), 0);
    while let Some(line) = log.next().await? {
        shown.print(&line);
    }
    Ok(())
}

/// Prints lines, with a heading wherever the stage changes.
struct Lines {
    printer: Printer,
    stage: String,
}

impl Lines {
    fn print(&mut self, line: &ProvisionerJobLog) {
        let at = line.created_at.strftime("%Y-%m-%d %H:%M:%S%.3f").to_string();
        let at = self.printer.paint(Style::Faint, &at);
        if !line.stage.is_empty() && line.stage != self.stage {
            self.stage.clone_from(&line.stage);
            self.printer.data(&format!("{at} [{}] === {}", line.log_level, strip_control(&line.stage)));
        }
        if !line.output.is_empty() {
            self.printer.data(&format!("{at} [{}] {}", line.log_level, strip_control(&line.output)));
        }
    }
}
