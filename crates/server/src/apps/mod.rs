//! Workspace apps in the browser: pages of a workspace under a path or on a host name of their own (docs/apps.md, agent 6).
//!
//! | file | what it does |
//! | --- | --- |
//! | `destination.rs` | tells requests for apps from requests for the server's own pages |
//! | `serve.rs` | answers a request for an app: the steps in their order |
//! | `visitor.rs` | who makes the request |
//! | `resolve.rs` | finds the app in the database |
//! | `grant.rs` | what was allowed, as a signed token that is valid for a minute |
//! | `sign_in.rs` | carries a sign-in from the server's host to the host of an app |
//! | `sealed_key.rs` | encrypts the key that it carries |
//! | `proxy.rs` | forwards the request to the agent, and the response back |
//! | `lasting.rs` | ends what outlives the minute of a token when its visitor may not open the app any more |
//! | `headers.rs` | what is removed from and added to requests and responses |
//! | `origins.rs` | which pages may call an app from a script |
//! | `transport.rs` | HTTP connections to agents |
//! | `state.rs` | what the requests share |

pub mod destination;
pub mod grant;
mod headers;
mod lasting;
mod origins;
mod proxy;
mod resolve;
mod sealed_key;
mod serve;
pub mod sign_in;
pub mod state;
mod transport;
mod visitor;

/// A request without its body: it may be shared while something is awaited.
pub type Head = http::Request<()>;

pub use lasting::may_still_open;
pub use proxy::Proxied;
pub use serve::{limit_stranger, serve};
