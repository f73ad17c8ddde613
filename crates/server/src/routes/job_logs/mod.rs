//! Log lines of jobs, as a list or followed live. The endpoints differ only in how the job is found.

mod build;
mod dry_run;
mod follow;
mod version;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use coder_api::jobs::{LogLevel, LogSource, ProvisionerJobLog};
use coder_domain::ids::JobId;
use coder_store::job_logs::{self, Line};

pub use build::build;
pub use dry_run::dry_run;
pub use version::version;

use crate::context::App;
use crate::http::params::Query;
use crate::http::{Error, Json, Result};
use crate::provisioning::upgrade;

/// Lines and bytes read from the database at once.
const PAGE_LINES: usize = 1000;
const PAGE_BYTES: i64 = 1 << 20;
/// Largest answer in array form; the rest is had with `after`.
const ARRAY_BYTES: usize = 64 << 20;

/// How a line looks on the wire; instants have millisecond precision.
fn view(line: Line) -> ProvisionerJobLog {
    let Line { id, line } = line;
    ProvisionerJobLog {
        id,
        created_at: line.created_at,
        log_source: LogSource::from(line.source.as_str()),
        log_level: LogLevel::from(line.level.as_str()),
        stage: line.stage,
        output: line.output,
    }
}

/// What a request wants; read before anything is loaded.
struct Wanted {
    after: i64,
    follow: bool,
}

impl Wanted {
    fn read(query: &Query) -> Result<Self> {
        Ok(Self { after: query.read("after")?.unwrap_or(0), follow: query.get("follow").is_some() })
    }
}

/// Answers with the lines of a job that the caller may see.
async fn answer(
    app: App,
    job: JobId,
    wanted: Wanted,
    path: &'static str,
    mut request: Request,
) -> Result<Response> {
    if wanted.follow {
        let upgrade = match upgrade::check(&mut request) {
            Ok(upgrade) => upgrade,
            Err(refused) => return Ok(refused.into_response()),
        };
        let (response, connection) = upgrade.accept();
        let counted = app.metrics.socket(path);
        app.clone().lifecycle.spawn("log follower", async move {
            let _counted = counted;
            match connection.await {
                Ok(connection) => follow::follow(&app, job, wanted.after, connection).await,
                Err(error) => tracing::debug!(%error, "the connection was gone before the log was followed"),
            }
        });
        return Ok(response);
    }
    let mut tx = app.store.reader().await?;
    let (mut lines, mut after, mut bytes) = (Vec::new(), wanted.after, 0);
    loop {
        let page = job_logs::list(&mut tx, job, after, PAGE_LINES, PAGE_BYTES).await?;
        let Some(last) = page.last() else { break };
        after = last.id;
        bytes += page.iter().map(|line| line.line.output.len()).sum::<usize>();
        lines.extend(page.into_iter().map(view));
        if bytes > ARRAY_BYTES {
            return Err(Error::bad_request(
                "The log is too long for one answer, follow it or ask for a part with after.",
            )
            .detail(format!("The first {ARRAY_BYTES} bytes end at line {after}.")));
        }
    }
    Ok(Json::<_>(lines).into_response())
}
