//! The bounds of one evaluation, and its errors. Without a bound, a few lines of nested `for` in an untrusted source would
//! occupy the server for ever.

use std::cell::Cell;
use std::rc::Rc;

/// Work of one evaluation. One unit is about one byte written or compared; an expression costs [`NODE_COST`].
const MAX_WORK: u64 = 32 << 20;
/// Cost of each expression and each element.
pub(crate) const NODE_COST: usize = 64;
/// Deepest nesting of expressions, references to locals included.
const MAX_DEPTH: u32 = 200;

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EvalError {
    /// The value will be known only when Terraform runs.
    Unknown(Rc<str>),
    /// The expression is wrong, for Terraform too.
    Failed(String),
    /// The expression needs something that only Terraform does. `try` and `can` do not catch this error, because their
    /// value would differ from Terraform's.
    Unavailable(String),
    /// The bounds of [`Budget`] are exceeded.
    Exhausted,
}

pub(crate) type Result<T> = std::result::Result<T, EvalError>;

/// Fails as an error in an expression.
pub(crate) fn failed<T>(text: impl Into<String>) -> Result<T> {
    Err(EvalError::Failed(text.into()))
}

/// Fails as something that is left to Terraform.
pub(crate) fn unavailable<T>(text: impl Into<String>) -> Result<T> {
    Err(EvalError::Unavailable(text.into()))
}

/// The remaining work and depth.
#[derive(Debug)]
pub(crate) struct Budget {
    work: Cell<u64>,
    depth: Cell<u32>,
}

impl Budget {
    pub(crate) const fn new() -> Self {
        Self { work: Cell::new(MAX_WORK), depth: Cell::new(MAX_DEPTH) }
    }

    /// Spends work before it is done.
    pub(crate) fn spend(&self, cost: usize) -> Result<()> {
        let left = self.work.get().checked_sub(cost as u64);
        self.work.set(left.unwrap_or(0));
        left.map(drop).ok_or(EvalError::Exhausted)
    }

    /// The work that is done.
    #[cfg(test)]
    pub(crate) const fn spent(&self) -> u64 {
        MAX_WORK - self.work.get()
    }

    /// Runs something one level deeper.
    pub(crate) fn deeper<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let left = self.depth.get().checked_sub(1).ok_or(EvalError::Exhausted)?;
        self.depth.set(left);
        let result = run();
        self.depth.set(left + 1);
        result
    }
}
