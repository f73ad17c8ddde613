//! SSH sessions: commands, terminals, environment, signals, exit codes, and clients that vanish.

use coder_wire::messages::coder::agent::v2 as messages;
use russh::{ChannelMsg, Pty, Sig};

use super::rig::{Running, Server, run};
use super::ssh_rig::{Ssh, collect, read_until};

fn with_motd(motd_path: &str) -> Server {
    Server::new(messages::Manifest { motd_path: motd_path.to_owned(), ..Default::default() })
}

/// agent 4.2: ports 1 and 22.
#[test]
fn command_runs_and_its_exit_code_arrives() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        for port in [1, 22] {
            let ssh = Ssh::connect(&user, port).await;
            let output = ssh.run("echo out; echo err >&2; exit 7").await;
            assert_eq!(
                (output.code, output.text(), output.stderr.as_slice()),
                (Some(7), "out\n", &b"err\n"[..])
            );
            assert_eq!(ssh.run("kill -TERM $$").await.code, Some(255));
            assert_eq!(ssh.run("#!/bin/sh\necho shebang").await.text(), "shebang\n");
        }
        agent.end().await;
    });
}

#[test]
fn command_that_cannot_start_says_so() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let output = Ssh::connect(&user, 1).await.run("#!/nonexistent/interpreter\n").await;
        assert_eq!(output.code, Some(229));
        assert!(String::from_utf8(output.stderr).unwrap().contains("could not be started"));
        agent.end().await;
    });
}

/// agent 4.3.
#[test]
fn environment_is_that_of_the_workspace() {
    run(async {
        let server = Server::new(messages::Manifest {
            environment_variables: [("FROM_MANIFEST".to_owned(), "$FROM_AGENT!".to_owned())].into(),
            ..Default::default()
        });
        let agent = Running::start(&server);
        let user = server.user().await;
        let ssh = Ssh::connect(&user, 1).await;
        let channel = ssh.session().await;
        for (name, value) in
            [("FROM_CLIENT", "client"), ("FROM_AGENT", "client"), ("CODER_SSH_SESSION_TYPE", "vscode")]
        {
            channel.set_env(true, name, value).await.unwrap();
        }
        channel.exec(true, "env; pwd").await.unwrap();
        let output = collect(channel).await;
        let lines: Vec<_> = output.text().lines().collect();
        let home = agent.path("home");
        let home = home.to_str().unwrap();
        let want = [
            "CODER=true",
            "CODER_WORKSPACE_NAME=dev",
            "CODER_WORKSPACE_AGENT_NAME=main",
            "CODER_WORKSPACE_OWNER_NAME=ann",
            "CODER_AGENT_TOKEN=the-token",
            "FROM_MANIFEST=agent!",
            "FROM_AGENT=agent",
            "FROM_CLIENT=client",
            "GIT_SSH_COMMAND=/opt/coder/coder gitssh --",
            "GIT_ASKPASS=/opt/coder/coder",
            "SSH_CONNECTION=0.0.0.0 0 0.0.0.0 0",
            "USER=ann",
            home,
        ];
        for wanted in want {
            assert!(lines.contains(&wanted), "{wanted} is not in {lines:?}");
        }
        assert!(!output.text().contains("CODER_SSH_SESSION_TYPE"));
        let is_vscode = |records: &super::rig::Records| {
            records
                .connection_reports
                .iter()
                .any(|report| report.r#type() == messages::connection::Type::Vscode)
        };
        server.until(is_vscode).await;
        agent.end().await;
    });
}

#[test]
fn shell_has_a_terminal_with_message_size_and_exit_code() {
    run(async {
        let server = with_motd("~/motd");
        let agent = Running::start(&server);
        std::fs::write(agent.path("home/motd"), "welcome\nto dev\n").unwrap();
        let user = server.user().await;
        let ssh = Ssh::connect(&user, 1).await;
        let mut channel = ssh.session().await;
        channel
            .request_pty(true, "xterm-test", 91, 33, 0, 0, &[(Pty::ECHO, 0), (Pty::TTY_OP_END, 0)])
            .await
            .unwrap();
        channel.request_shell(true).await.unwrap();
        let text = read_until(&mut channel, "to dev\r\n").await;
        assert!(text.contains("maintenance tonight\r\n\r\nwelcome\r\n"), "{text:?}");
        channel.data_bytes(&b"stty size; echo T=$TERM; echo tty=$SSH_TTY; echo EN''D\n"[..]).await.unwrap();
        let text = read_until(&mut channel, "END").await;
        assert!(
            text.contains("33 91") && text.contains("T=xterm-test") && text.contains("tty=/dev/pts/"),
            "{text:?}"
        );
        assert!(!text.contains("EN''D"), "the client's terminal does not echo: {text:?}");
        channel.window_change(50, 20, 0, 0).await.unwrap();
        channel.data_bytes(&b"sleep 0.3; stty size; exit 9\n"[..]).await.unwrap();
        let output = collect(channel).await;
        assert_eq!(output.code, Some(9));
        assert!(output.text().contains("20 50"), "{output:?}");
        // Commands and users who want quiet see no message.
        let channel = ssh.session().await;
        channel.request_pty(true, "xterm", 80, 24, 0, 0, &[]).await.unwrap();
        channel.exec(true, "echo only").await.unwrap();
        assert_eq!(collect(channel).await.text(), "only\r\n");
        agent.end().await;
    });
}

#[test]
fn no_output_is_lost_at_the_end() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let ssh = Ssh::connect(&user, 1).await;
        for _ in 0..5 {
            let channel = ssh.session().await;
            channel.request_pty(true, "xterm", 80, 24, 0, 0, &[]).await.unwrap();
            channel.exec(true, "yes 0123456789 | head -n 30000; echo last").await.unwrap();
            let output = collect(channel).await;
            assert_eq!(output.stdout.len(), 30_000 * 12 + 6);
        }
        let output = ssh.run("head -c 20000000 /dev/zero").await;
        assert_eq!(output.stdout.len(), 20_000_000);
        // A process in the background keeps the terminal open; the shell has ended all the same.
        let channel = ssh.session().await;
        channel.request_pty(true, "xterm", 80, 24, 0, 0, &[]).await.unwrap();
        channel.exec(true, "trap '' HUP; sleep 3 & echo done").await.unwrap();
        let output = collect(channel).await;
        assert_eq!((output.code, output.text()), (Some(0), "done\r\n"));
        agent.end().await;
    });
}

#[test]
fn input_and_its_end_reach_the_program() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let ssh = Ssh::connect(&user, 1).await;
        let channel = ssh.session().await;
        channel.exec(true, "wc -c").await.unwrap();
        let data = vec![b'x'; 5_000_000];
        channel.data(&data[..]).await.unwrap();
        channel.eof().await.unwrap();
        assert_eq!(collect(channel).await.text().trim(), "5000000");
        // The program answers after the end of its input.
        let channel = ssh.session().await;
        channel.exec(true, "cat > /dev/null; sleep 0.2; echo late").await.unwrap();
        channel.eof().await.unwrap();
        assert_eq!(collect(channel).await.text(), "late\n");
        // It does not read its input.
        let channel = ssh.session().await;
        channel.exec(true, "exec <&-; sleep 0.5; echo deaf").await.unwrap();
        channel.data(&data[..100_000]).await.unwrap();
        assert_eq!(collect(channel).await.text(), "deaf\n");
        agent.end().await;
    });
}

/// Input waits for the program, the program for its output, and the output for the connection.
#[test]
fn program_that_prints_more_than_it_reads_does_not_stall() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let ssh = Ssh::connect(&user, 1).await;
        let channel = ssh.session().await;
        channel.exec(true, "od -v -An -tx1 -w16").await.unwrap();
        let (mut reader, writer) = channel.split();
        let data = vec![0xa5; 6 << 20];
        let send = async {
            writer.data(&data[..]).await.unwrap();
            writer.eof().await.unwrap();
        };
        let receive = async {
            let mut count = 0;
            while let Some(message) = reader.wait().await {
                match message {
                    ChannelMsg::Data { data } => count += data.len(),
                    ChannelMsg::Close => break,
                    _ => {}
                }
            }
            count
        };
        let both = async { tokio::join!(send, receive) };
        let ((), count) =
            tokio::time::timeout(super::rig::LONG * 2, both).await.expect("everything is carried");
        assert_eq!(count, data.len() / 16 * 49);
        agent.end().await;
    });
}

#[test]
fn program_that_does_not_read_holds_up_only_its_own_connection() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let ssh = Ssh::connect(&user, 1).await;
        let channel = ssh.session().await;
        channel.exec(true, "sleep 2; wc -c").await.unwrap();
        let (mut reader, writer) = channel.split();
        let data = vec![0xa5; 10 << 20];
        let send = tokio::spawn(async move {
            writer.data(&data[..]).await.unwrap();
            writer.eof().await.unwrap();
            writer
        });
        assert_eq!(Ssh::connect(&user, 1).await.run("echo free").await.text(), "free\n");
        let _writer = send.await.unwrap();
        let mut text = String::new();
        while let Some(message) = reader.wait().await {
            match message {
                ChannelMsg::Data { data } => text.push_str(std::str::from_utf8(&data).unwrap()),
                ChannelMsg::Close => break,
                _ => {}
            }
        }
        assert_eq!(text.trim(), (10 << 20).to_string());
        agent.end().await;
    });
}

#[test]
fn signals_reach_the_program_and_its_children() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let ssh = Ssh::connect(&user, 1).await;
        for has_terminal in [false, true] {
            let mut channel = ssh.session().await;
            if has_terminal {
                channel.request_pty(true, "xterm", 80, 24, 0, 0, &[]).await.unwrap();
            }
            let command = "trap 'echo got; exit 5' USR1; echo ready; while true; do sleep 0.05; done";
            channel.exec(true, command).await.unwrap();
            read_until(&mut channel, "ready").await;
            channel.signal(Sig::USR1).await.unwrap();
            let output = collect(channel).await;
            assert_eq!(output.code, Some(5), "{output:?}");
            assert!(output.text().contains("got"), "{output:?}");
        }
        agent.end().await;
    });
}

#[test]
fn vanished_client_hangs_up_its_terminal() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let ssh = Ssh::connect(&user, 1).await;
        let mut channel = ssh.session().await;
        channel.request_pty(true, "xterm", 80, 24, 0, 0, &[]).await.unwrap();
        channel
            .exec(true, "trap 'echo x > hung; exit' HUP; echo ready; while true; do sleep 0.05; done")
            .await
            .unwrap();
        read_until(&mut channel, "ready").await;
        // In mid-transfer, too.
        let flood = ssh.session().await;
        flood.exec(true, "cat /dev/zero").await.unwrap();
        drop((channel, flood, ssh));
        let hung = agent.path("home/hung");
        let appeared = async {
            while !hung.exists() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(super::rig::LONG, appeared).await.expect("the terminal hangs up");
        server
            .until(|records| {
                let disconnects = records
                    .connection_reports
                    .iter()
                    .filter(|report| report.action() == messages::connection::Action::Disconnect);
                disconnects.count() == 2
            })
            .await;
        agent.end().await;
    });
}

#[test]
fn sessions_end_with_the_agent() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let ssh = Ssh::connect(&user, 1).await;
        let mut polite = ssh.session().await;
        polite
            .exec(true, "trap 'echo bye; exit 3' HUP; echo ready; while true; do sleep 0.05; done")
            .await
            .unwrap();
        let mut stubborn = ssh.session().await;
        stubborn.exec(true, "trap '' HUP; echo ready; while true; do sleep 0.05; done").await.unwrap();
        read_until(&mut polite, "ready").await;
        read_until(&mut stubborn, "ready").await;
        let ended = tokio::spawn(agent.end());
        let output = collect(polite).await;
        assert_eq!((output.code, output.text()), (Some(3), "bye\n"));
        assert_eq!(collect(stubborn).await.code, Some(255));
        ended.await.unwrap();
        let reports = server.records().connection_reports;
        assert_eq!(reports.len(), 4, "{reports:?}");
        assert!(reports.iter().any(|report| report.status_code == 3));
    });
}

#[test]
fn file_transfer_can_be_blocked() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start_with(&server, |config| config.block_file_transfer = true);
        let user = server.user().await;
        let ssh = Ssh::connect(&user, 1).await;
        for command in ["scp -t x", "/usr/bin/rsync --server .", "nc -l 5"] {
            let output = ssh.run(command).await;
            assert_eq!((output.code, output.text()), (Some(65), "\u{2}File transfer has been disabled.\n"));
        }
        let channel = ssh.session().await;
        channel.request_subsystem(true, "sftp").await.unwrap();
        let output = collect(channel).await;
        assert_eq!((output.code, output.text()), (Some(65), ""));
        assert_eq!(ssh.run("echo fine").await.text(), "fine\n");
        agent.end().await;
    });
}

#[test]
fn unsupported_requests_are_refused() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let ssh = Ssh::connect(&user, 1).await;
        let mut channel = ssh.session().await;
        channel.request_x11(true, false, "MIT-MAGIC-COOKIE-1", "00", 0).await.unwrap();
        assert!(matches!(channel.wait().await, Some(ChannelMsg::Failure)));
        channel.request_subsystem(true, "netconf").await.unwrap();
        assert!(matches!(channel.wait().await, Some(ChannelMsg::Failure)));
        channel.exec(true, "echo one").await.unwrap();
        assert!(matches!(channel.wait().await, Some(ChannelMsg::Success)));
        // One program for a channel.
        channel.exec(true, "echo two").await.unwrap();
        let output = collect(channel).await;
        assert_eq!(output.text(), "one\n");
        agent.end().await;
    });
}

#[test]
fn garbage_ends_only_its_own_connection() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let ssh = Ssh::connect(&user, 1).await;
        for port in [1, 2, 4] {
            let mut stream = user.connect(port).await.unwrap();
            let garbage: Vec<u8> = (0..100_000_u32).map(|number| (number * 7 % 251) as u8).collect();
            let _ = stream.write_all(&garbage).await;
            let mut rest = Vec::new();
            let ended = tokio::time::timeout(super::rig::LONG, stream.read_to_end(&mut rest)).await;
            assert!(ended.is_ok(), "port {port} ends the connection");
        }
        assert_eq!(ssh.run("echo alive").await.text(), "alive\n");
        agent.end().await;
    });
}
