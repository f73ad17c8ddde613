//! The messages of the daemon protocol, of the agent and of the overlay network, generated from `proto/` by `cargo xtask codegen`.
#![expect(clippy::all, reason = "generated code")]

#[rustfmt::skip]
pub mod provisioner;
#[rustfmt::skip]
pub mod provisionerd;
pub mod provisionerext {
    #[rustfmt::skip]
    pub mod v1;
}
pub mod coder {
    pub mod agent {
        #[rustfmt::skip]
        pub mod v2;
    }
    pub mod tailnet {
        #[rustfmt::skip]
        pub mod v2;
    }
}
