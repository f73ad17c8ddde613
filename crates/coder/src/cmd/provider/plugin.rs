//! This program started by Terraform under the name of the provider.

use std::path::Path;

use coder_tfprovider::{Environment, PluginProcess};

use crate::error_report::{self, Facts};
use crate::exit::Exit;
use crate::runtime;
use crate::terminal::output::{ErrorReport, Printer};

/// The required name of a provider's file. A version may follow.
pub(crate) const NAME: &str = "terraform-provider-coder";

/// Whether the program was started under the provider's name.
pub(crate) fn is_started_as_provider() -> bool {
    let name = std::env::args_os().next();
    let name = name.as_ref().and_then(|name| Path::new(name).file_name());
    name.is_some_and(|name| name.as_encoded_bytes().starts_with(NAME.as_bytes()))
}

/// Serves one terraform command.
pub(crate) fn main() -> Exit {
    match serve() {
        Ok(()) => Exit::Success,
        Err(error) => {
            let hint =
                "`coder provider install DIR` installs the provider into a directory that terraform searches";
            let report = error_report::report(&error, &Facts::default());
            Printer::detect(false).error(&ErrorReport { hint: Some(hint.to_owned()), ..report });
            Exit::Failure
        }
    }
}

fn serve() -> anyhow::Result<()> {
    // Variables that are not text do not belong to the provider.
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let text = |part: std::ffi::OsString| part.into_string().ok();
        Some((text(name)?, text(value)?))
    });
    let environment: Environment = variables.collect();
    runtime::small()?.block_on(async {
        let plugin = PluginProcess::start(environment)?;
        Printer::detect(false).data(plugin.handshake());
        plugin.ended().await;
        Ok(())
    })
}
