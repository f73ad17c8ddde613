//! An agent as the commands that connect need it: an SSH server that runs commands, and every other port of this machine.

use std::process::Stdio;
use std::sync::Arc;

use coder_domain::ids::AgentId;
use coder_tailnet::derp::upgrade::Form;
use coder_tailnet::node::Node;
use coder_testkit::server::TestServer;
use coder_testkit::tailnet::AgentPeer;
use russh::server::{Auth, ChannelOpenHandle, Config, Handler, Msg, Session};
use russh::{Channel, ChannelId, ChannelMsg};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UdpSocket};
use tokio::process::Command;

/// The command at which the session ends without an exit code.
pub(crate) const HANG_UP: &str = "hang up";

/// See the module.
pub(crate) struct StubAgent {
    _peer: AgentPeer,
}

impl StubAgent {
    pub(crate) fn start(server: &TestServer, agent: AgentId) -> Self {
        let peer = AgentPeer::start(server, agent, Form::Derp);
        serve_ssh(&peer.node);
        forward_ports(&peer.node);
        forward_datagrams(&peer.node);
        Self { _peer: peer }
    }
}

fn serve_ssh(node: &Node) {
    let mut listener = node.listen(1).unwrap();
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).unwrap();
    let key = russh::keys::ssh_key::private::Ed25519Keypair::from_seed(&seed);
    let config = Arc::new(Config {
        keys: vec![russh::keys::PrivateKey::from(key)],
        auth_rejection_time_initial: Some(std::time::Duration::ZERO),
        ..Config::default()
    });
    tokio::spawn(async move {
        while let Some(stream) = listener.accept().await {
            let config = Arc::clone(&config);
            tokio::spawn(async move {
                if let Ok(session) = russh::server::run_stream(config, stream, Ssh::default()).await {
                    let _ = session.await;
                }
            });
        }
    });
}

/// One SSH connection.
#[derive(Default)]
struct Ssh {
    channel: Option<Channel<Msg>>,
    variables: Vec<(String, String)>,
}

impl Handler for Ssh {
    type Error = russh::Error;

    async fn auth_none(&mut self, _: &str) -> Result<Auth, russh::Error> {
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        self.channel = Some(channel);
        reply.accept().await;
        Ok(())
    }

    async fn env_request(
        &mut self,
        _: ChannelId,
        name: &str,
        value: &str,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        self.variables.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    async fn exec_request(
        &mut self,
        id: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_success(id)?;
        let channel = self.channel.take().expect("it was opened");
        if command == HANG_UP.as_bytes() {
            return channel.close().await;
        }
        let mut process = Command::new("/bin/sh");
        process.arg("-c").arg(String::from_utf8_lossy(command).into_owned());
        process.envs(self.variables.iter().cloned()).kill_on_drop(true);
        tokio::spawn(run(channel, process));
        Ok(())
    }
}

async fn run(channel: Channel<Msg>, mut process: Command) {
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = process.spawn().unwrap();
    let (mut stdin, mut stdout, mut stderr) =
        (process.stdin.take(), process.stdout.take().unwrap(), process.stderr.take().unwrap());
    let (mut reader, writer) = channel.split();
    let input = tokio::spawn(async move {
        while let Some(message) = reader.wait().await {
            match message {
                ChannelMsg::Data { data } => {
                    if let Some(stdin) = &mut stdin {
                        let _ = stdin.write_all(&data).await;
                    }
                }
                ChannelMsg::Eof => stdin = None,
                _ => {}
            }
        }
    });
    let (mut out, mut err) = (writer.make_writer(), writer.make_writer_ext(Some(1)));
    let _ = tokio::join!(tokio::io::copy(&mut stdout, &mut out), tokio::io::copy(&mut stderr, &mut err));
    let code = process.wait().await.unwrap().code().unwrap_or(255);
    let _ = writer.exit_status(u32::try_from(code).unwrap()).await;
    let _ = writer.eof().await;
    let _ = writer.close().await;
    input.abort();
}

fn forward_ports(node: &Node) {
    let mut listener = node.listen_any().unwrap();
    tokio::spawn(async move {
        while let Some(incoming) = listener.incoming().await {
            tokio::spawn(async move {
                let port = incoming.local_addr().port();
                if let Ok(mut local) = TcpStream::connect(("127.0.0.1", port)).await {
                    let mut stream = incoming.accept();
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut local).await;
                }
            });
        }
    });
}

/// Each datagram gets one answer.
fn forward_datagrams(node: &Node) {
    let mut tunnel = node.bind_udp_any().unwrap();
    tokio::spawn(async move {
        while let Some(datagram) = tunnel.recv().await {
            let local = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            local.send_to(&datagram.text, ("127.0.0.1", datagram.destination.port())).await.unwrap();
            let mut answer = [0; 2048];
            let (count, _) = local.recv_from(&mut answer).await.unwrap();
            tunnel.send(datagram.destination, datagram.source, &answer[..count]).unwrap();
        }
    });
}
