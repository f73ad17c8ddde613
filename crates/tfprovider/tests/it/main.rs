//! The provider as Terraform sees it, and the currency of its generated code.
#![expect(clippy::unwrap_used, reason = "tests")]

mod generated;
