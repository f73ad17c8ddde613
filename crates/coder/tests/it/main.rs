//! The real binary, driven as people and scripts drive it.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod apart;
mod bundle;
mod cancel_race;
mod commands;
mod convert;
mod crowd;
mod daemon;
mod disk;
mod examples;
mod faults;
mod flow;
mod help;
mod https;
mod key_ends;
mod killed;
mod lost;
mod official;
mod outage;
mod people;
mod program;
mod provider;
mod quickstart;
mod reference;
mod restarts;
mod rig;
mod serials;
mod session;
mod signals;
mod stack;
mod storm;
mod talk;
mod templates;
mod terminal;
mod versions;
mod waiting;
