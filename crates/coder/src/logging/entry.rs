//! One log entry before it gets a form.

use std::fmt;

use coder_domain::clock::{Clock as _, SystemClock};
use coder_wire::error_chain;
use jiff::Timestamp;
use tracing::field::{Field, Visit};
use tracing::{Level, Metadata};

/// Names and values of an event or span, in order; the message apart.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    pub(super) message: String,
    pub(super) pairs: Vec<(&'static str, String)>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: String) {
        if field.name() == "message" {
            self.message = value;
        } else if let Some(pair) = self.pairs.iter_mut().find(|(name, _)| *name == field.name()) {
            pair.1 = value;
        } else {
            self.pairs.push((field.name(), value));
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field, error_chain::describe(value));
    }
}

/// An event as every form needs it.
pub(super) struct Entry<'a> {
    pub(super) at: Timestamp,
    pub(super) level: Level,
    /// The official logger name.
    pub(super) logger: &'a str,
    pub(super) fields: Fields,
    pub(super) file: &'a str,
    pub(super) line: u32,
    pub(super) module: &'a str,
}

impl<'a> Entry<'a> {
    pub(super) fn new(metadata: &Metadata<'a>, fields: Fields) -> Self {
        Self {
            at: SystemClock.now(),
            level: *metadata.level(),
            logger: logger(metadata.target()),
            fields,
            file: metadata.file().unwrap_or_default(),
            line: metadata.line().unwrap_or_default(),
            module: metadata.module_path().unwrap_or_default(),
        }
    }
}

/// Logger names that people grep for, from the crate an event comes from. Events may also name their logger as target.
fn logger(target: &str) -> &str {
    let krate = target.split("::").next().unwrap_or(target);
    match krate {
        "coder_provisioner" | "coder_tfprovider" => "provisioner",
        "coder_server" => "coderd",
        "coder_store" => "coderd.database",
        "coder_wire" => "wire",
        "coder_api" => "client",
        _ => krate,
    }
}
