//! Bytes between daemon and server: WebSocket, yamux, DRPC, and the generated messages.

pub mod messages;
