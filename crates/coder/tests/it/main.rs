//! The real binary, driven as people and scripts drive it.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod bundle;
mod apart;
mod commands;
mod convert;
mod daemon;
mod disk;
mod examples;
mod faults;
mod flow;
mod help;
mod https;
mod killed;
mod outage;
mod people;
mod program;
mod provider;
mod quickstart;
mod reference;
mod serials;
mod session;
mod stack;
mod templates;
mod terminal;
mod waiting;
