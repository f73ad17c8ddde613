//! Properties of the rules, each against an oracle that shares no code with what it judges.

mod explain;
mod guide;
mod life;
mod queue;
mod rbac;
mod tags;
