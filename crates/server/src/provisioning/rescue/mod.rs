//! Jobs that the server ends itself: canceled ones whose daemon is away, and those of lost connections.

pub mod cancel;
mod deadlines;
pub mod end_job;
pub mod lost;
