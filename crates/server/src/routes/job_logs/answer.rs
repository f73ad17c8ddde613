//! What all three endpoints do once the job is found.

use std::collections::VecDeque;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use coder_api::jobs::ProvisionerJobLog;
use coder_domain::ids::JobId;
use coder_store::jobs;
use coder_store::{Result as StoreResult, Store};
use futures_util::stream;
use http::header::{self, HeaderValue};

use crate::context::App;
use crate::http::params::Query;
use crate::http::upgrade;
use crate::http::{Caller, Json, Result};
use crate::network::reading::Reading;

use super::follow;
use super::lines::{PAGE_LINES, view};

/// Bytes of one page of the array form. One page is in memory while the peer reads.
const ARRAY_PAGE_BYTES: i64 = 256 << 10;

/// The query parameters.
pub(super) struct LogQuery {
    after: i64,
    follow: bool,
}

impl LogQuery {
    pub(super) fn read(query: &Query) -> Result<Self> {
        Ok(Self { after: query.read("after")?.unwrap_or(0), follow: query.get("follow").is_some() })
    }
}

/// Answers with the lines of a job that the caller may see.
pub(super) async fn answer(
    app: App,
    caller: &Caller,
    job: JobId,
    query: LogQuery,
    path: &'static str,
    mut request: Request,
) -> Result<Response> {
    if query.follow {
        let user = caller.user.id;
        let reading = Reading::begin(&app, caller).await?;
        let upgrade = match upgrade::check(&mut request) {
            Ok(upgrade) => upgrade,
            Err(refused) => return Ok(refused.into_response()),
        };
        let (response, connection) = upgrade.accept();
        let counted = app.metrics.socket(path);
        app.clone().lifecycle.spawn("log follower", async move {
            let _counted = counted;
            match connection.await {
                Ok(connection) => follow::follow(&app, (user, reading), job, query.after, connection).await,
                Err(error) => tracing::debug!(%error, "the follower disconnected before the log was sent"),
            }
        });
        return Ok(response);
    }
    let first = page(&app.store, job, query.after).await?;
    let Some(last) = first.last() else { return Ok(Json::<_>(first).into_response()) };
    let second = page(&app.store, job, last.id).await?;
    if second.is_empty() {
        return Ok(Json::<_>(first).into_response());
    }
    let kind = HeaderValue::from_static("application/json; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], array(app.store.clone(), job, [first, second])).into_response())
}

async fn page(store: &Store, job: JobId, after: i64) -> StoreResult<Vec<ProvisionerJobLog>> {
    let page = jobs::logs::list(&mut store.reader().await?, job, after, PAGE_LINES, ARRAY_PAGE_BYTES).await?;
    Ok(page.into_iter().map(view).collect())
}

/// A log as a JSON array, read page by page as the peer reads, because logs may be long.
fn array(store: Store, job: JobId, first: [Vec<ProvisionerJobLog>; 2]) -> Body {
    let begun = Array { store, job, ready: first.into(), after: None, is_begun: false, is_ended: false };
    Body::from_stream(stream::unfold(begun, |mut array| async move {
        let text = array.next().await.transpose()?;
        Some((text, array))
    }))
}

struct Array {
    store: Store,
    job: JobId,
    /// Pages that were read already.
    ready: VecDeque<Vec<ProvisionerJobLog>>,
    /// The last line that was sent.
    after: Option<i64>,
    is_begun: bool,
    is_ended: bool,
}

impl Array {
    /// The next piece of text; `None` after the end.
    async fn next(&mut self) -> StoreResult<Option<Bytes>> {
        if self.is_ended {
            return Ok(None);
        }
        let lines = match (self.ready.pop_front(), self.after) {
            (Some(page), _) => page,
            (None, Some(after)) => page(&self.store, self.job, after).await?,
            (None, None) => Vec::new(),
        };
        let mut text = Vec::new();
        for line in &lines {
            text.push(if self.is_begun { b',' } else { b'[' });
            self.is_begun = true;
            self.after = Some(line.id);
            serde_json::to_writer(&mut text, line).expect("a line contains only texts and numbers");
        }
        if lines.is_empty() {
            self.is_ended = true;
            text.extend_from_slice(if self.is_begun { b"]\n" } else { b"[]\n" });
        }
        Ok(Some(text.into()))
    }
}
