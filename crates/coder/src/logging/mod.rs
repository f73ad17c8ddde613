//! The log of long-running commands: sinks in the three official forms, a filter, and the level (scheduling-and-auth 6.3).

mod entry;
mod filter;
mod human;
mod json;
mod sink;
mod stackdriver;

use std::io;

use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber, span};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

use entry::{Entry, Fields};
pub(crate) use filter::Filter;
use sink::Sink;

/// The settings of the flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Path for human-readable lines; empty turns this sink off.
    pub(crate) human: String,
    /// Path for JSON lines.
    pub(crate) json: String,
    /// Path for Stackdriver JSON lines.
    pub(crate) stackdriver: String,
    /// File for human-readable lines with its number of backups, beside the others.
    pub(crate) file: Option<(std::path::PathBuf, usize)>,
    /// Regular expressions on logger name or message that let debug lines through.
    pub(crate) filter: Vec<String>,
    /// Whether all debug lines are shown.
    pub(crate) verbose: bool,
}

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No sink was given.
    #[error("no log output: give --log-human, --log-json or --log-stackdriver a path such as /dev/stderr")]
    NoSink,
    /// A file that cannot be opened.
    #[error("cannot write the log file {path}")]
    Open {
        path: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A pattern that is not a regular expression.
    #[error("invalid log filter {pattern:?}")]
    Filter {
        pattern: String,
        /// Cause.
        #[source]
        source: Box<regex::Error>,
    },
}

/// The reader of a sink.
enum Form {
    People,
    Programs(fn(&Entry<'_>) -> String),
}

/// Installs the log for the rest of the process.
pub(crate) fn install(settings: &Settings) -> Result<(), Error> {
    let forms: [(&str, Form); 3] = [
        (&settings.human, Form::People),
        (&settings.json, Form::Programs(json::render)),
        (&settings.stackdriver, Form::Programs(stackdriver::render)),
    ];
    let mut sinks = Vec::new();
    for (path, form) in forms {
        if !path.is_empty() {
            let sink = Sink::open(path).map_err(|source| Error::Open { path: path.to_owned(), source })?;
            sinks.push((sink, form));
        }
    }
    if let Some((path, backups)) = &settings.file {
        let opened = Sink::open_file(path, *backups);
        let opened = opened.map_err(|source| Error::Open { path: path.display().to_string(), source })?;
        sinks.push((opened, Form::People));
    }
    if sinks.is_empty() {
        return Err(Error::NoSink);
    }
    let filter = Filter::new(&settings.filter, settings.verbose)?;
    let log = Log { sinks, filter };
    // A second installation cannot happen: one command runs per process.
    drop(tracing_subscriber::registry().with(log).try_init());
    Ok(())
}

struct Log {
    sinks: Vec<(Sink, Form)>,
    filter: Filter,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Log {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.filter.may_show(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.filter.may_show(metadata)
    }

    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut extensions = span.extensions_mut();
            if let Some(fields) = extensions.get_mut::<Fields>() {
                values.record(fields);
            }
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flatten().collect::<Vec<_>>().into_iter().rev() {
            if let Some(outer) = span.extensions().get::<Fields>() {
                fields.pairs.extend(outer.pairs.iter().cloned());
            }
        }
        event.record(&mut fields);
        let entry = Entry::new(event.metadata(), fields);
        if !self.filter.shows(&entry) {
            return;
        }
        for (sink, form) in &self.sinks {
            match form {
                Form::Programs(render) => sink.line(&render(&entry)),
                Form::People if !self.filter.shows_to_people(&entry) => {}
                Form::People => match sink.terminal() {
                    // With --verbose everything is shown.
                    Some(is_coloured) if !self.filter.is_verbose() => {
                        sink.line(&human::render_short(&entry, is_coloured));
                    }
                    _ => sink.line(&human::render(&entry)),
                },
            }
        }
    }
}
