//! The server's tests: the real router in process, a manual clock, both engines.
#![expect(clippy::unwrap_used, reason = "tests")]

mod agents;
mod audit;
mod audit_routes;
mod builds;
mod dashboards;
mod error_texts;
mod external_auth;
mod files;
mod foreign_ids;
mod harness;
mod limits;
mod listeners;
mod memory;
mod nul_characters;
mod organizations;
mod pages;
mod provisioning;
mod races;
mod refusals;
mod statuses;
mod takeover;
mod templates;
mod token_lifetimes;
mod tokens;
mod unauthorized;
mod users;
mod versions;
mod work_places;
mod workspace_tags;
mod workspaces;
