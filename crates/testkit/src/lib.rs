//! What tests and benches share: waiting for what comes, the replay of a corpus, and with the feature `server` a server on
//! loopback, a scripted daemon, faulty streams, a proxy that cuts connections, chance with a seed, and the load driver. Only
//! ever a dev-dependency, or a program of its own.

pub mod corpus;
#[cfg(feature = "server")]
pub mod daemon;
#[cfg(feature = "server")]
pub mod load;
#[cfg(feature = "server")]
pub mod older;
#[cfg(feature = "server")]
pub mod proxy;
#[cfg(feature = "server")]
pub mod random;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod stream;
pub mod wait;
