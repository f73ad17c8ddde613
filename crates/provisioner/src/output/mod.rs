//! The output of programs on its way to the job's log: split into lines, with secrets masked.

pub(crate) mod line_masker;
pub(crate) mod line_splitter;
pub(crate) mod log_rows;
pub(crate) mod mask;
mod unescape;
