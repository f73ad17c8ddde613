//! What surrounds the handlers: the route table, authentication, errors, limits, listeners and TLS.

pub mod access_url;
pub mod activity;
pub mod body;
pub mod caller;
pub mod connection;
pub mod connection_limit;
pub mod csrf;
pub mod error;
pub mod layers;
pub mod limits;
pub mod listen;
pub mod params;
pub mod peer;
pub mod router;
pub mod search;
pub mod stall;
pub mod table;
pub mod tls;
pub mod warnings;

pub use access_url::AccessUrl;
pub use body::{Json, NoContent};
pub use caller::Caller;
pub use error::{Error, Result};
pub use warnings::Warned;
