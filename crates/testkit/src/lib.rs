//! Helpers of tests and benches: waiting for a condition, the replay of a corpus, and with the feature `server` a server on
//! loopback, a scripted daemon, faulty streams, a proxy that disconnects, random numbers with a seed, the load driver, and with the feature
//! `kubernetes` a cluster, and with `podman` containers.
//! It is only a dev-dependency, or a program of its own.

pub mod corpus;
#[cfg(feature = "server")]
pub mod daemon;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
#[cfg(feature = "server")]
pub mod load;
#[cfg(feature = "server")]
pub mod older;
#[cfg(feature = "podman")]
pub mod podman;
#[cfg(feature = "server")]
pub mod proxy;
#[cfg(feature = "server")]
pub mod random;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod stream;
#[cfg(feature = "server")]
pub mod tailnet;
pub mod wait;
