//! The engine suite: every test is written once and runs on SQLite and on Postgres.
#![expect(clippy::unwrap_used, reason = "tests")]

mod account_records;
mod accounts;
mod agent_records;
mod agents;
mod build_records;
mod check;
mod claim;
mod corrupt_rows;
mod crash;
mod daemon_connections;
mod daemons;
mod deployment;
mod encryption;
mod fair_order;
mod fixture;
mod job_lifecycle;
mod job_records;
mod jobs;
mod journals;
mod keys;
mod logs;
mod migrations;
mod notifications;
mod pipelined_statements;
mod postgres_restart;
mod queue;
mod reap;
mod schedules;
mod secret_columns;
mod statements;
mod template_records;
mod templates;
mod transactions;
mod workspaces;
