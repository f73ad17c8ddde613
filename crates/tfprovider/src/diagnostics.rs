//! Errors and warnings for the user of Terraform, with the place in the configuration.

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Attribute(&'static str),
    Index(usize),
}

/// The path from a resource or data source to one of its values; an empty path is the whole block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) steps: Vec<Step>,
    /// Elements of sets have no address, so a path ends at a set.
    in_set: bool,
}

impl Path {
    /// The path of an attribute or block of the resource or data source.
    pub(crate) fn of(name: &'static str) -> Self {
        Self::default().attribute(name)
    }

    pub(crate) fn attribute(&self, name: &'static str) -> Self {
        self.then(Step::Attribute(name))
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        self.then(Step::Index(index))
    }

    /// The path of any element of the set at this path.
    pub(crate) fn element(&self) -> Self {
        Self { steps: self.steps.clone(), in_set: true }
    }

    fn then(&self, step: Step) -> Self {
        let mut path = self.clone();
        if !path.in_set {
            path.steps.push(step);
        }
        path
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Error,
    Warning,
}

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Diagnostic {
    pub(crate) severity: Severity,
    pub(crate) summary: String,
    pub(crate) detail: String,
    pub(crate) path: Path,
}

/// All errors and warnings of one call.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    pub(crate) items: Vec<Diagnostic>,
}

impl Diagnostics {
    pub(crate) fn error(&mut self, path: Path, summary: impl Into<String>, detail: impl Into<String>) {
        self.add(Severity::Error, path, summary.into(), detail.into());
    }

    pub(crate) fn warning(&mut self, path: Path, summary: impl Into<String>, detail: impl Into<String>) {
        self.add(Severity::Warning, path, summary.into(), detail.into());
    }

    fn add(&mut self, severity: Severity, path: Path, summary: String, detail: String) {
        self.items.push(Diagnostic { severity, summary, detail, path });
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.items.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }
}
