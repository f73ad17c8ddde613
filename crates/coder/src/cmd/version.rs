//! Shows the version of this program: `coder version`.

use serde::Serialize;

use crate::terminal::output::Printer;
use crate::versions;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text", value_name = "FORMAT")]
    output: VersionFormat,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum VersionFormat {
    Text,
    Json,
}

/// The official field names, and the version of this program.
#[derive(Serialize)]
struct Version {
    version: String,
    product: &'static str,
    external_url: &'static str,
    slim: bool,
    agpl: bool,
    boring_crypto: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let printer = Printer::detect(false);
    let version = Version {
        version: versions::compatible(),
        product: versions::PRODUCT,
        external_url: "",
        slim: cfg!(not(feature = "server")),
        agpl: false,
        boring_crypto: false,
    };
    match args.output {
        VersionFormat::Json => printer.json(&version)?,
        VersionFormat::Text => {
            printer.data(&format!("coder {}", versions::line()));
            printer.data(if cfg!(feature = "server") {
                "Full build, supports the server subcommand."
            } else {
                "Slim build, does not support the server subcommand."
            });
        }
    }
    Ok(())
}
