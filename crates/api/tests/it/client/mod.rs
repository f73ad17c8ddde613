//! The client against small servers on this machine.

mod calls;
mod dial;
mod errors;
mod files;
mod logs;
mod server;

use std::path::PathBuf;
use std::time::Duration;

use coder_api::client::{Client, Options, Proxies, Timeouts};
use coder_domain::secret::Secret;

const TOKEN: &str = "abcdefghij-ABCDEFGHIJKLMNOPQRSTUV";

/// Options that do not look at this machine's environment and do not wait long.
fn options() -> Options {
    let timeouts = Timeouts {
        connect: Duration::from_secs(5),
        request: Duration::from_secs(5),
        transfer: Duration::from_secs(5),
        handshake: Duration::from_secs(5),
        log_silence: Duration::from_secs(5),
        log_reconnect: Duration::from_secs(5),
    };
    Options { proxies: Proxies::none(), timeouts, ..Options::default() }
}

fn proxy(variable: &'static str, address: String) -> Proxies {
    Proxies::from_lookup(move |name| (name == variable).then(|| address.clone()))
}

fn client(url: &str) -> Client {
    Client::new(url, Some(Secret::new(TOKEN)), options()).unwrap()
}

fn trusting(ca_file: PathBuf) -> Options {
    Options { ca_files: vec![ca_file], ..options() }
}
