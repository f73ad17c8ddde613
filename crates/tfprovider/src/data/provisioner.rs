//! `coder_provisioner`: the machine Terraform runs on.

use super::DataSource;
use crate::context::random_id;
use crate::schema::Type::Text;
use crate::schema::{Attribute, Block, Schema};
use crate::value::Value;

pub(super) fn data_source() -> DataSource {
    let block = Block::new(vec![
        Attribute::id(),
        Attribute::computed("os", Text, "Operating system, such as linux."),
        Attribute::computed("arch", Text, "Processor, such as amd64."),
    ]);
    DataSource {
        name: "coder_provisioner",
        schema: Schema { version: 1, block },
        read: |state, _, _, _| {
            state.set("id", random_id());
            state.set("os", Value::text(os(std::env::consts::OS)));
            state.set("arch", Value::text(arch(std::env::consts::ARCH)));
        },
    }
}

/// Templates expect Go's names.
fn os(name: &'static str) -> &'static str {
    if name == "macos" { "darwin" } else { name }
}

fn arch(name: &'static str) -> &'static str {
    match name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "arm" => "armv7",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        name => name,
    }
}
