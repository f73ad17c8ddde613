//! Serves the provider to a `terraform` run by hand: prints the value of `TF_REATTACH_PROVIDERS` and waits for the
//! end of its input. Its own environment is the job's.

use std::io::{Read, Write};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir();
    let listening =
        coder_tfprovider::ProviderServer::new().listen(&folder, &folder, std::env::vars().collect())?;
    writeln!(std::io::stdout(), "{}", listening.reattach())?;
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    listening.stop().await;
    Ok(())
}
