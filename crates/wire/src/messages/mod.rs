//! The messages of the daemon protocol, generated from `proto/` by `cargo xtask codegen`.
#![expect(missing_docs, clippy::all, reason = "generated code")]

#[rustfmt::skip]
pub mod provisioner;
#[rustfmt::skip]
pub mod provisionerd;
pub mod provisionerext {
    #[rustfmt::skip]
    pub mod v1;
}
