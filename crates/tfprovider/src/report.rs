//! Errors and warnings for the person who runs Terraform, with the place in the configuration they are about.

/// One step from a block towards a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Attribute(&'static str),
    Index(usize),
}

/// The way from a resource or data source to one of its values; empty means all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) steps: Vec<Step>,
    /// Elements of sets have no address, so nothing below a set can be pointed at.
    in_set: bool,
}

impl Path {
    /// The path of an attribute or block of the outermost block.
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

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Error,
    Warning,
}

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) summary: String,
    pub(crate) detail: String,
    pub(crate) path: Path,
}

/// Everything found during one call.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn error(&mut self, path: Path, summary: impl Into<String>, detail: impl Into<String>) {
        self.add(Severity::Error, path, summary.into(), detail.into());
    }

    pub(crate) fn warning(&mut self, path: Path, summary: impl Into<String>, detail: impl Into<String>) {
        self.add(Severity::Warning, path, summary.into(), detail.into());
    }

    fn add(&mut self, severity: Severity, path: Path, summary: String, detail: String) {
        self.findings.push(Finding { severity, summary, detail, path });
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }
}
