//! An SSH client over the overlay network.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use russh::client::{self, AuthResult, Handle, Msg, Session};
use russh::keys::PublicKeyOrCertificate;
use russh::{Channel, ChannelMsg, Error};
use tokio::net::TcpStream as LocalStream;
use tokio::sync::Notify;

use super::rig::{Client, LONG};

/// What the server opened towards the client.
#[derive(Default)]
pub(crate) struct Offered {
    channels: Mutex<VecDeque<Channel<Msg>>>,
    changed: Notify,
}

impl Offered {
    fn push(&self, channel: Channel<Msg>) {
        self.channels.lock().unwrap().push_back(channel);
        self.changed.notify_one();
    }

    pub(crate) async fn next(&self) -> Channel<Msg> {
        let next = async {
            loop {
                if let Some(channel) = self.channels.lock().unwrap().pop_front() {
                    return channel;
                }
                self.changed.notified().await;
            }
        };
        tokio::time::timeout(LONG, next).await.expect("the agent opens a channel")
    }
}

pub(crate) struct Handler {
    offered: Arc<Offered>,
}

impl client::Handler for Handler {
    type Error = Error;

    async fn check_server_key(&mut self, _: &PublicKeyOrCertificate) -> Result<bool, Error> {
        Ok(true)
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        channel: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        reply: client::ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Error> {
        reply.accept().await;
        self.offered.push(channel);
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        channel: Channel<Msg>,
        _: &str,
        reply: client::ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Error> {
        reply.accept().await;
        self.offered.push(channel);
        Ok(())
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        channel: Channel<Msg>,
        reply: client::ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Error> {
        reply.accept().await;
        self.offered.push(channel);
        Ok(())
    }
}

/// A connection that is logged in.
pub(crate) struct Ssh {
    pub(crate) handle: Handle<Handler>,
    pub(crate) offered: Arc<Offered>,
}

/// What a command left.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) code: Option<u32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Output {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }
}

impl Ssh {
    pub(crate) async fn connect(user: &Client, port: u16) -> Self {
        let stream = user.connect(port).await.unwrap();
        let offered = Arc::<Offered>::default();
        let handler = Handler { offered: Arc::clone(&offered) };
        let mut handle = client::connect_stream(Arc::default(), stream, handler).await.unwrap();
        assert!(matches!(handle.authenticate_none("anybody").await.unwrap(), AuthResult::Success));
        Self { handle, offered }
    }

    pub(crate) async fn session(&self) -> Channel<Msg> {
        self.handle.channel_open_session().await.unwrap()
    }

    /// Runs a command without input.
    pub(crate) async fn run(&self, command: &str) -> Output {
        let channel = self.session().await;
        channel.exec(true, command).await.unwrap();
        collect(channel).await
    }
}

/// Reads until the channel is closed.
pub(crate) async fn collect(mut channel: Channel<Msg>) -> Output {
    let mut output = Output::default();
    let read = async {
        while let Some(message) = channel.wait().await {
            match message {
                ChannelMsg::Data { data } => output.stdout.extend_from_slice(&data),
                ChannelMsg::ExtendedData { data, ext: 1 } => output.stderr.extend_from_slice(&data),
                ChannelMsg::ExitStatus { exit_status } => output.code = Some(exit_status),
                ChannelMsg::Close => return,
                _ => {}
            }
        }
    };
    tokio::time::timeout(LONG, read).await.expect("the session ends");
    output
}

/// Reads until a text is there; what was read.
pub(crate) async fn read_until(channel: &mut Channel<Msg>, wanted: &str) -> String {
    let mut text = String::new();
    let read = async {
        while !text.contains(wanted) {
            match channel.wait().await {
                Some(ChannelMsg::Data { data } | ChannelMsg::ExtendedData { data, .. }) => {
                    text.push_str(&String::from_utf8_lossy(&data));
                }
                Some(_) => {}
                None => break,
            }
        }
    };
    let _ = tokio::time::timeout(LONG, read).await;
    assert!(text.contains(wanted), "{wanted:?} is not in {text:?}");
    text
}

/// A service that sends back what it gets.
pub(crate) async fn echo() -> u16 {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                let _ = tokio::io::AsyncWriteExt::shutdown(&mut writer).await;
            });
        }
    });
    port
}

/// Connects to a port of this machine.
pub(crate) async fn local(port: u16) -> LocalStream {
    LocalStream::connect(("127.0.0.1", port)).await.unwrap()
}
