//! HTTP below the routes: listeners, TLS, limits, errors, and what handlers read from requests and answer with.

pub mod access_url;
pub mod activity;
pub mod body;
pub mod caller;
pub mod connection;
pub mod connection_limit;
pub mod error;
pub mod io_timeouts;
pub mod limits;
pub mod listen;
pub mod open_count;
pub mod origin;
pub mod params;
pub mod peer;
pub mod search;
pub mod text_socket;
pub mod tls;
pub mod upgrade;
pub mod warnings;
pub mod watch;
pub mod websocket_limit;

pub use access_url::AccessUrl;
pub use body::{Json, NoContent};
pub use caller::Caller;
pub use error::{Error, Result};
pub use warnings::WithWarnings;
