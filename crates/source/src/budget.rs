//! How much work one evaluation may do, and why it stops. Sources are somebody else's: without a bound, a few lines of
//! nested `for` would occupy the server for ever.

use std::cell::Cell;
use std::rc::Rc;

/// Work of one evaluation. One unit is about a byte written or compared, an expression costs [`NODE`].
const WORK: u64 = 32 << 20;
/// What each expression and each element costs.
pub(crate) const NODE: usize = 64;
/// How deep expressions may call for each other, locals included.
const DEPTH: u32 = 200;

/// Why an evaluation ended without a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stop {
    /// The value will be known only when Terraform runs.
    Unknown(Rc<str>),
    /// The expression is wrong, for Terraform too.
    Failed(String),
    /// What the expression asks for is not done here, though Terraform may do it. `try` and `can` do not hide this: they
    /// would give another value than Terraform.
    Unavailable(String),
    /// The bounds of [`Budget`] were met.
    Exhausted,
}

pub(crate) type Result<T> = std::result::Result<T, Stop>;

/// An error in an expression.
pub(crate) fn failed<T>(text: impl Into<String>) -> Result<T> {
    Err(Stop::Failed(text.into()))
}

/// Something that is left to Terraform.
pub(crate) fn unavailable<T>(text: impl Into<String>) -> Result<T> {
    Err(Stop::Unavailable(text.into()))
}

/// What is left of the work and the depth.
#[derive(Debug)]
pub(crate) struct Budget {
    work: Cell<u64>,
    depth: Cell<u32>,
}

impl Budget {
    pub(crate) const fn new() -> Self {
        Self { work: Cell::new(WORK), depth: Cell::new(DEPTH) }
    }

    /// Takes from the work before it is done.
    pub(crate) fn spend(&self, cost: usize) -> Result<()> {
        let left = self.work.get().checked_sub(cost as u64);
        self.work.set(left.unwrap_or(0));
        left.map(drop).ok_or(Stop::Exhausted)
    }

    /// Runs something one level deeper.
    pub(crate) fn deeper<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let left = self.depth.get().checked_sub(1).ok_or(Stop::Exhausted)?;
        self.depth.set(left);
        let result = run();
        self.depth.set(left + 1);
        result
    }
}
