//! Reading lines, and converting them to the API type.

use coder_api::jobs::{LogLevel, LogSource, ProvisionerJobLog};
use coder_store::jobs::logs::Line;

/// Lines read from the database at once.
pub(super) const PAGE_LINES: usize = 1000;

/// The API type of a line. Times have millisecond precision.
pub(super) fn view(line: Line) -> ProvisionerJobLog {
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
