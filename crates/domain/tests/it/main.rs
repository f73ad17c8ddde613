//! Properties of the rules, each against an oracle that shares no code with what it judges.

mod enums;
mod explain;
mod keys;
mod lifecycle;
mod limits;
mod names;
mod parameters;
mod passwords;
mod published_tables;
mod queue;
mod rbac;
mod tags;
