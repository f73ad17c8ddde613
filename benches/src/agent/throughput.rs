//! Megabits a second through the relay, over SSH and over a forwarded port, beside OpenSSH and plain loopback.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result};

use super::Ssh;
use super::openssh::Sshd;
use super::quickstart::Quickstart;
use crate::Setup;
use crate::process::Running;
use crate::report::{Row, median};

/// Bytes of one transfer; so many that its beginning does not matter.
const TRANSFER_BYTES: u64 = 400_000_000;
/// The figures are medians of so many transfers.
const RUN_COUNT: usize = 3;

/// One SSH stream and one forwarded port, both ways.
pub(crate) fn throughput(setup: &Setup) -> Result<Vec<Row>> {
    let quickstart = Quickstart::start(setup)?;
    let own = quickstart.ssh_config()?;
    let (down, up) = (megabits(|| download(&own))?, megabits(|| upload(&own))?);
    let mut rows = vec![
        Row::at_least("one SSH stream out of a workspace", down, 400.0, "Mbit/s"),
        Row::at_least("one SSH stream into a workspace", up, 400.0, "Mbit/s"),
    ];
    if let Some(sshd) = Sshd::start()? {
        let ssh = sshd.client()?;
        rows.push(Row::seen(
            "the same with OpenSSH's server on loopback, out",
            megabits(|| download(&ssh))?,
            "Mbit/s",
        ));
        rows.push(Row::seen("the same, in", megabits(|| upload(&ssh))?, "Mbit/s"));
    }
    let page = source()?;
    let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut command =
        quickstart.command(&["port-forward", "hello", "--tcp", &format!("127.0.0.1:{free}:{page}")]);
    let mut forward = Running(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?);
    let notes = BufReader::new(forward.0.stderr.take().context("the forward's notes are a pipe")?);
    notes
        .lines()
        .map_while(Result::ok)
        .find(|line| line.contains("Ready!"))
        .context("the port is not forwarded")?;
    rows.extend([
        Row::at_least("one forwarded port, out of a workspace", megabits(|| fetch(free))?, 600.0, "Mbit/s"),
        Row::at_least("one forwarded port, into a workspace", megabits(|| send(free))?, 600.0, "Mbit/s"),
        Row::seen("plain loopback, out", megabits(|| fetch(page))?, "Mbit/s"),
        Row::seen("plain loopback, in", megabits(|| send(page))?, "Mbit/s"),
    ]);
    Ok(rows)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn megabits(transfer: impl Fn() -> Result<()>) -> Result<f64> {
    let mut rates = Vec::new();
    for _ in 0..RUN_COUNT {
        let begin = Instant::now();
        transfer()?;
        rates.push(TRANSFER_BYTES as f64 * 8.0 / 1e6 / begin.elapsed().as_secs_f64());
    }
    Ok(median(&mut rates))
}

fn download(ssh: &Ssh) -> Result<()> {
    ssh.run(&format!("head -c {TRANSFER_BYTES} /dev/zero"))
}

fn upload(ssh: &Ssh) -> Result<()> {
    let mut zeros = std::process::Command::new("head");
    zeros.args(["-c", &TRANSFER_BYTES.to_string(), "/dev/zero"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut zeros = Running(zeros.spawn()?);
    let pipe = zeros.0.stdout.take().context("the zeros are a pipe")?;
    // The answer proves that all has arrived.
    ssh.run_with(&format!("test $(wc -c) = {TRANSFER_BYTES}"), |command| {
        command.stdin(pipe);
    })
}

/// A program of the workspace: sends as many bytes as it is asked for, or takes them. The first byte says which.
fn source() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    Ok(port)
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let mut wish = [0];
    stream.read_exact(&mut wish)?;
    if wish == *b"o" {
        std::io::copy(&mut std::io::repeat(0).take(TRANSFER_BYTES), &mut stream)?;
    } else {
        std::io::copy(&mut (&stream).take(TRANSFER_BYTES), &mut std::io::sink())?;
        stream.write_all(b"!")?;
    }
    Ok(())
}

fn fetch(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"o")?;
    let count = std::io::copy(&mut stream.take(TRANSFER_BYTES), &mut std::io::sink())?;
    anyhow::ensure!(count == TRANSFER_BYTES, "{count} of {TRANSFER_BYTES} bytes have arrived");
    Ok(())
}

fn send(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"i")?;
    std::io::copy(&mut std::io::repeat(0).take(TRANSFER_BYTES), &mut stream)?;
    stream.read_exact(&mut [0]).context("the workspace did not confirm the transfer")
}
