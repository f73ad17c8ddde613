//! A server with relay and coordinator in memory, which records what an agent reports; an agent in a directory of its own; and users.

use std::io;
use std::net::SocketAddrV6;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use coder_agent::{Agent, BoxedFuture, Config, Transport, User};
use coder_api::client::Error as ClientError;
use coder_domain::clock::SystemClock;
use coder_domain::secret::Secret;
use coder_tailnet::address;
use coder_tailnet::controller::Controller;
use coder_tailnet::coordinator::Authorization;
use coder_tailnet::coordinator::hub::Hub;
use coder_tailnet::derp::map::{Node as RelayNode, ServerUrl};
use coder_tailnet::derp::relay::Config as RelayConfig;
use coder_tailnet::derp::{DerpMap, Relay};
use coder_tailnet::key::{NodePrivate, NodePublic};
use coder_tailnet::node::{self, Dialer, Node, TcpStream};
use coder_tailnet::peer::Role;
use coder_tailnet::rpc;
use coder_wire::bytes::BoxedStream;
use coder_wire::drpc::Status;
use coder_wire::drpc::server::{CallStream, Event};
use coder_wire::messages::coder::agent::v2 as messages;
use coder_wire::mux::{Config as MuxConfig, Session};
use messages::lifecycle::State;
use prost::Message;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) const AGENT: Uuid = Uuid::from_u128(0x1111_2222_3333_4444_5555_6666_7777_8888);
/// How long anything may take that does happen.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// What an agent reported.
#[derive(Debug, Clone, Default)]
pub(crate) struct Records {
    pub(crate) connections: usize,
    pub(crate) states: Vec<State>,
    pub(crate) startups: Vec<messages::Startup>,
    pub(crate) logs: Vec<(Uuid, String, i32)>,
    pub(crate) timings: Vec<messages::Timing>,
    pub(crate) metadata: Vec<(String, messages::workspace_agent_metadata::Result)>,
    pub(crate) stats: Vec<messages::Stats>,
    pub(crate) healths: Vec<messages::batch_update_app_health_request::HealthUpdate>,
    pub(crate) connection_reports: Vec<messages::Connection>,
    pub(crate) datapoints: usize,
}

impl Records {
    /// The log lines of a source.
    pub(crate) fn lines(&self, source: Uuid) -> Vec<&str> {
        self.logs.iter().filter(|(of, ..)| *of == source).map(|(_, line, _)| line.as_str()).collect()
    }
}

struct Inner {
    manifest: std::sync::Mutex<messages::Manifest>,
    relay: Relay,
    hub: Hub,
    maps: watch::Sender<DerpMap>,
    records: watch::Sender<Records>,
    refuses: AtomicBool,
    /// Bytes of log that are taken.
    log_limit: AtomicU64,
    connections: std::sync::Mutex<Vec<JoinHandle<()>>>,
}

/// See the module. Clones are the same server.
#[derive(Clone)]
pub(crate) struct Server {
    inner: Arc<Inner>,
}

fn server_url() -> ServerUrl {
    ServerUrl { host: "coder.invalid".to_owned(), port: 443, tls: true }
}

impl Server {
    /// A server whose agent has this manifest. Ids and relays are filled in.
    pub(crate) fn new(manifest: messages::Manifest) -> Self {
        let map = DerpMap::of_server(&server_url(), &[]);
        let manifest = messages::Manifest {
            agent_id: AGENT.as_bytes().to_vec(),
            workspace_id: Uuid::from_u128(7).as_bytes().to_vec(),
            derp_map: Some(map.to_message()),
            owner_username: "ann".to_owned(),
            workspace_name: "dev".to_owned(),
            agent_name: "main".to_owned(),
            ..manifest
        };
        let inner = Inner {
            manifest: std::sync::Mutex::new(manifest),
            relay: Relay::new(NodePrivate::generate(), RelayConfig::default()),
            hub: Hub::default(),
            maps: watch::Sender::new(map),
            records: watch::Sender::default(),
            refuses: AtomicBool::new(false),
            log_limit: AtomicU64::new(1 << 20),
            connections: std::sync::Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn set_log_limit(&self, bytes: u64) {
        self.inner.log_limit.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn change_manifest(&self, change: impl FnOnce(&mut messages::Manifest)) {
        change(&mut self.inner.manifest.lock().unwrap());
    }

    /// Ends all connections, and refuses new ones until [`Self::start`].
    pub(crate) fn stop(&self) {
        self.inner.refuses.store(true, Ordering::SeqCst);
        for connection in self.inner.connections.lock().unwrap().drain(..) {
            connection.abort();
        }
    }

    pub(crate) fn start(&self) {
        self.inner.refuses.store(false, Ordering::SeqCst);
    }

    pub(crate) fn records(&self) -> Records {
        self.inner.records.borrow().clone()
    }

    /// Waits until the reports of the agent fit.
    pub(crate) async fn until(&self, fits: impl Fn(&Records) -> bool) -> Records {
        let mut records = self.inner.records.subscribe();
        let found = tokio::time::timeout(LONG, records.wait_for(|records| fits(records))).await;
        match found {
            Ok(records) => records.unwrap().clone(),
            Err(_) => panic!("the agent did not report what was waited for: {:#?}", self.records()),
        }
    }

    /// The key of the relay.
    pub(crate) fn relay_key(&self) -> NodePublic {
        self.inner.relay.public_key()
    }

    /// Serves a connection to the relay.
    pub(crate) async fn serve_relay(&self, io: BoxedStream) {
        let _ = self.inner.relay.serve(io).await;
    }

    /// Serves the calls of an agent.
    pub(crate) fn serve(&self, io: BoxedStream) {
        let server = self.clone();
        let task = tokio::spawn(async move {
            server.inner.records.send_modify(|records| records.connections += 1);
            let session = Session::server(io, MuxConfig::default());
            // They end with the connection.
            let mut calls = JoinSet::new();
            while let Ok(stream) = session.accept().await {
                let server = server.clone();
                calls.spawn(async move { server.answer(CallStream::new(Box::new(stream))).await });
            }
        });
        self.inner.connections.lock().unwrap().push(task);
    }

    async fn answer(&self, mut call: CallStream) {
        let Ok(Some(name)) = call.next().await else { return };
        let inner = &self.inner;
        match name.as_str() {
            rpc::name::COORDINATE => {
                let _ = rpc::serve_coordinate(
                    &mut call,
                    &inner.hub,
                    AGENT,
                    Authorization::Agent(AGENT),
                    &CancellationToken::new(),
                )
                .await;
            }
            rpc::name::STREAM_DERP_MAPS => {
                let _ = rpc::serve_derp_maps(&mut call, inner.maps.subscribe()).await;
            }
            name => {
                let Ok(Event::Message(data)) = call.recv().await else { return };
                let method = name.rsplit('/').next().unwrap().to_owned();
                match self.record(&method, &data) {
                    Some(answer) => {
                        let _ = call.send(&Raw(answer)).await;
                        let _ = call.close_send().await;
                    }
                    None => {
                        let status = Status { code: 12, text: format!("unknown method {method}") };
                        let _ = call.fail(&status).await;
                    }
                }
            }
        }
    }

    /// The answer of a unary call; none for an unknown one.
    fn record(&self, method: &str, data: &[u8]) -> Option<Vec<u8>> {
        fn read<M: Message + Default>(data: &[u8]) -> M {
            M::decode(data).unwrap()
        }
        let records =
            |change: &dyn Fn(&mut Records)| self.inner.records.send_modify(|records| change(records));
        Some(match method {
            "GetManifest" => self.inner.manifest.lock().unwrap().encode_to_vec(),
            "GetAnnouncementBanners" => messages::GetAnnouncementBannersResponse {
                announcement_banners: vec![messages::BannerConfig {
                    enabled: true,
                    message: "maintenance tonight".to_owned(),
                    background_color: String::new(),
                }],
            }
            .encode_to_vec(),
            "UpdateStartup" => {
                let startup = read::<messages::UpdateStartupRequest>(data).startup.unwrap();
                records(&|records| records.startups.push(startup.clone()));
                startup.encode_to_vec()
            }
            "UpdateLifecycle" => {
                let lifecycle = read::<messages::UpdateLifecycleRequest>(data).lifecycle.unwrap();
                records(&|records| records.states.push(lifecycle.state()));
                lifecycle.encode_to_vec()
            }
            "UpdateStats" => {
                if let Some(stats) = read::<messages::UpdateStatsRequest>(data).stats {
                    records(&|records| records.stats.push(stats.clone()));
                }
                let interval = prost_types::Duration { seconds: 0, nanos: 100_000_000 };
                messages::UpdateStatsResponse { report_interval: Some(interval) }.encode_to_vec()
            }
            "BatchUpdateAppHealths" => {
                let request = read::<messages::BatchUpdateAppHealthRequest>(data);
                records(&|records| records.healths.extend(request.updates.clone()));
                Vec::new()
            }
            "BatchUpdateMetadata" => {
                for metadata in read::<messages::BatchUpdateMetadataRequest>(data).metadata {
                    let result = metadata.result.unwrap();
                    records(&|records| records.metadata.push((metadata.key.clone(), result.clone())));
                }
                Vec::new()
            }
            "BatchCreateLogs" => {
                let request = read::<messages::BatchCreateLogsRequest>(data);
                let source = Uuid::from_slice(&request.log_source_id).unwrap();
                let bytes: usize = request.logs.iter().map(|log| log.output.len()).sum();
                let limit = &self.inner.log_limit;
                let fits = bytes as u64 <= limit.load(Ordering::Relaxed);
                if fits {
                    limit.fetch_sub(bytes as u64, Ordering::Relaxed);
                    records(&|records| {
                        records
                            .logs
                            .extend(request.logs.iter().map(|log| (source, log.output.clone(), log.level)));
                    });
                }
                messages::BatchCreateLogsResponse { log_limit_exceeded: !fits }.encode_to_vec()
            }
            "ScriptCompleted" => {
                let timing = read::<messages::WorkspaceAgentScriptCompletedRequest>(data).timing.unwrap();
                records(&|records| records.timings.push(timing.clone()));
                Vec::new()
            }
            "GetResourcesMonitoringConfiguration" => {
                use messages::get_resources_monitoring_configuration_response as configuration;
                messages::GetResourcesMonitoringConfigurationResponse {
                    config: Some(configuration::Config { num_datapoints: 1, collection_interval_seconds: 1 }),
                    memory: Some(configuration::Memory { enabled: true }),
                    volumes: vec![configuration::Volume { enabled: true, path: "/".to_owned() }],
                }
                .encode_to_vec()
            }
            "PushResourcesMonitoringUsage" => {
                let request = read::<messages::PushResourcesMonitoringUsageRequest>(data);
                records(&|records| records.datapoints += request.datapoints.len());
                Vec::new()
            }
            "ReportConnection" => {
                let report = read::<messages::ReportConnectionRequest>(data).connection.unwrap();
                records(&|records| records.connection_reports.push(report.clone()));
                Vec::new()
            }
            _ => return None,
        })
    }

    fn relay(&self) -> BoxedStream {
        let (near, far) = tokio::io::duplex(256 << 10);
        let relay = self.inner.relay.clone();
        tokio::spawn(async move {
            let _ = relay.serve(far).await;
        });
        Box::new(near)
    }

    /// A user who reaches the agent.
    pub(crate) async fn user(&self) -> Client {
        let node = Node::start(node::Config::client(999, Arc::new(Relays(self.clone()))));
        let mut controller = Controller::new(node.clone(), Role::Client);
        controller.add_destination(AGENT);
        let hub = self.inner.hub.clone();
        let task = tokio::spawn(async move {
            let (connection, mut responses) = hub.connect(Uuid::new_v4(), Authorization::Client(AGENT));
            let (sender, mut requests) = mpsc::channel(32);
            tokio::select! {
                _ = controller.run(&sender, &mut responses) => {}
                () = async { while let Some(request) = requests.recv().await { connection.request(request); } } => {}
            }
        });
        node.wait_reachable(address::of(AGENT), LONG).await.unwrap();
        Client { node, task }
    }
}

impl Transport for Server {
    fn rpc(&self) -> BoxedFuture<'_, Result<BoxedStream, ClientError>> {
        Box::pin(async {
            if self.inner.refuses.load(Ordering::SeqCst) {
                return Err(ClientError::InvalidUrl("the server is stopped".to_owned()));
            }
            let (near, far) = tokio::io::duplex(256 << 10);
            self.serve(Box::new(far));
            Ok(Box::new(near) as BoxedStream)
        })
    }

    fn relay(&self, node: RelayNode, is_embedded: bool, _: bool) -> BoxedFuture<'_, io::Result<BoxedStream>> {
        assert!(is_embedded && node.host_name == "coder.invalid");
        Box::pin(async { Ok(self.relay()) })
    }

    fn server(&self) -> ServerUrl {
        server_url()
    }
}

struct Relays(Server);

impl Dialer for Relays {
    fn dial(&self, _: i32) -> BoxedFuture<'_, io::Result<BoxedStream>> {
        Box::pin(async { Ok(self.0.relay()) })
    }
}

/// A message that is encoded already.
#[derive(Clone, PartialEq, Debug, Default)]
struct Raw(Vec<u8>);

impl Message for Raw {
    fn encode_raw(&self, buffer: &mut impl bytes::BufMut) {
        buffer.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        _: u32,
        _: prost::encoding::WireType,
        _: &mut impl bytes::Buf,
        _: prost::encoding::DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        unreachable!("it is only sent")
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// A user's node.
pub(crate) struct Client {
    pub(crate) node: Node,
    task: JoinHandle<()>,
}

impl Client {
    /// Connects to a port of the agent.
    pub(crate) async fn connect(&self, port: u16) -> Result<TcpStream, node::Error> {
        self.node.connect(SocketAddrV6::new(address::of(AGENT), port, 0, 0)).await
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An agent that runs, and its directory.
pub(crate) struct Running {
    pub(crate) directory: tempfile::TempDir,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(server: &Server) -> Self {
        Self::start_with(server, |_| {})
    }

    pub(crate) fn start_with(server: &Server, change: impl FnOnce(&mut Config)) -> Self {
        Self::start_all(Arc::new(server.clone()), change)
    }

    /// Reaches the server through a transport.
    pub(crate) fn start_over(transport: Arc<dyn Transport>) -> Self {
        Self::start_all(transport, |_| {})
    }

    fn start_all(transport: Arc<dyn Transport>, change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("home");
        std::fs::create_dir(&home).unwrap();
        let mut config = config(directory.path(), home);
        change(&mut config);
        let agent = Agent::new(config, transport);
        let stop = CancellationToken::new();
        let task = tokio::spawn(agent.run(stop.clone()));
        Self { directory, stop, task }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Ends the agent in order.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(LONG, self.task).await.expect("the agent ends").unwrap();
    }
}

fn config(directory: &Path, home: PathBuf) -> Config {
    let path = std::env::var_os("PATH").unwrap();
    Config {
        token: Secret::new("the-token"),
        version: "2.30.0+test".to_owned(),
        log_dir: directory.join("log"),
        script_data_dir: directory.join("data"),
        program: "/opt/coder/coder".into(),
        environment: [("PATH".into(), path), ("FROM_AGENT".into(), "agent".into())].into(),
        user: User { name: "ann".to_owned(), home, shell: "/bin/sh".into() },
        subsystems: Vec::new(),
        ssh_max_timeout: Duration::from_secs(3600),
        block_file_transfer: false,
        log_file: None,
        clock: Arc::new(SystemClock),
    }
}

/// Runs a test on a clock that only moves when nothing else can, for agents without processes.
pub(crate) fn run_paused(test: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(test);
}

/// Runs a test with a deadline. Real processes need a real clock.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        // As the program does. Children would inherit that the signal is ignored, as it is below `nohup`, but not a handler.
        let hangup = tokio::signal::unix::SignalKind::hangup();
        let _handler = tokio::signal::unix::signal(hangup).unwrap();
        tokio::time::timeout(LONG * 3, test).await.expect("the test ends");
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
}
