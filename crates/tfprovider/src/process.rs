//! The provider as a plugin process that one terraform command starts, calls and ends (terraform 3.9).

use std::path::PathBuf;

use rustix::process::{Pid, getppid, set_parent_process_death_signal};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::environment::Environment;
use crate::mtls::{self, MutualTls};
use crate::serve::{self, Lifetime, ProviderListener, ProviderServer};

/// Terraform sets this variable in the plugin processes that it starts.
const COOKIE: (&str, &str) =
    ("TF_PLUGIN_MAGIC_COOKIE", "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2");

/// The plugin protocol version of this crate's messages.
const PROTOCOL: &str = "5";

/// Why the process cannot be a plugin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Started by hand.
    #[error(
        "this program is a plugin that terraform starts by itself: run terraform in a folder whose configuration \
         requires coder/coder"
    )]
    ByHand,
    /// Started by a program with other protocol versions.
    #[error(
        "terraform speaks the plugin protocols {offered:?}, this provider speaks {PROTOCOL}: use terraform 1.1 or newer"
    )]
    Protocol {
        /// The versions of the program.
        offered: String,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] mtls::Error),
    /// The socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] serve::Error),
    /// The signal handlers cannot be installed.
    #[error("the signal handlers cannot be installed")]
    Signals(#[source] std::io::Error),
}

/// A running plugin.
///
/// It ends when terraform requests it, when terraform ends, or with a SIGTERM. An interrupt does not end it: a terminal
/// sends it to every process of the command, and terraform needs the plugin to finish its work.
pub struct PluginProcess {
    handshake: String,
    listening: ProviderListener,
    parent: ParentProcess,
    terminate: Signal,
    /// Never awaited; while it exists, an interrupt has no effect.
    _interrupt: Signal,
}

impl PluginProcess {
    /// Opens the socket that the variables of this process describe, and answers calls with the same variables.
    ///
    /// Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// When the process was not started by terraform, or cannot serve it.
    pub fn start(environment: Environment) -> Result<Self, StartError> {
        if environment.get(COOKIE.0) != COOKIE.1 {
            return Err(StartError::ByHand);
        }
        let offered = environment.get_or("PLUGIN_PROTOCOL_VERSIONS", PROTOCOL);
        if !offered.split(',').any(|version| version.trim() == PROTOCOL) {
            return Err(StartError::Protocol { offered: offered.to_owned() });
        }
        let parent = ParentProcess::watch().map_err(StartError::Signals)?;
        let open = |kind| signal(kind).map_err(StartError::Signals);
        let (terminate, interrupt) = (open(SignalKind::terminate())?, open(SignalKind::interrupt())?);
        // Without a certificate, TLS is turned off in Terraform (TF_DISABLE_PLUGIN_TLS).
        let tls = match environment.get("PLUGIN_CLIENT_CERT") {
            "" => None,
            certificate => Some(MutualTls::new(certificate)?),
        };
        let folder = match environment.get("PLUGIN_UNIX_SOCKET_DIR") {
            "" => std::env::temp_dir(),
            folder => PathBuf::from(folder),
        };
        let acceptor = tls.as_ref().map(|tls| tls.acceptor.clone());
        let listening =
            ProviderServer::new().open(&folder, None, environment, acceptor, Lifetime::Command)?;
        let certificate = tls.map(|tls| tls.certificate).unwrap_or_default();
        let handshake = format!("1|{PROTOCOL}|unix|{}|grpc|{certificate}", listening.socket().display());
        Ok(Self { handshake, listening, parent, terminate, _interrupt: interrupt })
    }

    /// The line that terraform waits for on standard output.
    pub fn handshake(&self) -> &str {
        &self.handshake
    }

    /// Waits for the end.
    pub async fn ended(mut self) {
        let end = self.listening.end().clone();
        let requested = async {
            tokio::select! {
                () = self.parent.ended() => {}
                _ = self.terminate.recv() => {}
            }
            end.cancel();
            std::future::pending().await
        };
        tokio::select! {
            () = self.listening.ended() => {}
            () = requested => {}
        }
    }
}

/// The process that started this one. A killed terraform does not request the end of its plugins.
struct ParentProcess {
    process: Option<Pid>,
    /// Arrives when a thread of the parent ends, its last one included.
    thread_ended: Signal,
}

impl ParentProcess {
    fn watch() -> std::io::Result<Self> {
        let kind = SignalKind::user_defined1();
        let parent = Self { process: getppid(), thread_ended: signal(kind)? };
        set_parent_process_death_signal(Some(rustix::process::Signal::USR1))?;
        Ok(parent)
    }

    async fn ended(&mut self) {
        while getppid() == self.process {
            self.thread_ended.recv().await;
        }
    }
}
