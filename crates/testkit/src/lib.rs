//! What tests and benches share: a server on loopback, a scripted daemon, faulty streams, a proxy that cuts connections,
//! chance with a seed, and the load driver. Only ever a dev-dependency, or a program of its own.

pub mod daemon;
pub mod load;
pub mod older;
pub mod proxy;
pub mod random;
pub mod server;
pub mod stream;
