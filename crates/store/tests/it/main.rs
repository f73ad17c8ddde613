//! The engine suite: every test is written once and runs on SQLite and on Postgres.
#![expect(clippy::unwrap_used, reason = "tests")]

mod accounts;
mod check;
mod claim;
mod corrupt;
mod crash;
mod daemons;
mod fair;
mod fixture;
mod job_machine;
mod jobs;
mod journals;
mod keys;
mod logs;
mod migrations;
mod notifications;
mod outage;
mod queue;
mod reap;
mod sealed;
mod secrets;
mod statements;
mod templates;
mod together;
mod transactions;
mod workspaces;
