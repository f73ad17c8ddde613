//! Rules without I/O: what is desired, given what was observed.

pub mod conditions;
pub mod demand;
pub mod keys;
pub mod scaling;
pub mod schedule;
pub mod victims;
