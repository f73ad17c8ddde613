//! Bytes between daemon and server: WebSocket, yamux, DRPC, and the generated messages. `docs/wire.md` explains the stack.
//!
//! Every layer is written against [`bytes::ByteStream`] and works over sockets as over memory. Whatever a peer sends is
//! bounded before it is kept, and its mistakes become errors, not panics. Decoders that fuzzers call on plain byte strings:
//! [`ws::frame::Decoder::decode`], [`ws::handshake::parse`], [`mux::frame::parse`], [`drpc::frame::parse`],
//! [`drpc::Status::decode`], `Message::decode` of every message, [`file::Receiver::take`], and the methods of
//! [`extension::StateTransfer`].

pub mod agent;
pub mod budget;
pub mod bytes;
pub mod daemon;
pub mod drpc;
pub mod elements;
pub mod error_chain;
pub mod extension;
pub mod file;
pub mod messages;
pub mod mux;
pub mod transfer;
pub mod ws;
