//! Lines as they are read and as they look on the wire.

use coder_api::jobs::{LogLevel, LogSource, ProvisionerJobLog};
use coder_store::jobs::logs::Line;

/// Lines and bytes read from the database at once.
pub(super) const PAGE_LINES: usize = 1000;
pub(super) const PAGE_BYTES: i64 = 1 << 20;

/// How a line looks on the wire; instants have millisecond precision.
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
