//! Names of the calls of the Agent service.

/// Begins the names of all calls of the Tailnet service.
pub const TAILNET: &str = "/coder.tailnet.v2.Tailnet/";

/// What the agent is, and what it has to run.
pub const GET_MANIFEST: &str = "/coder.agent.v2.Agent/GetManifest";
/// The banner, for agents before 2.1.
pub const GET_SERVICE_BANNER: &str = "/coder.agent.v2.Agent/GetServiceBanner";
/// The banners that shells show.
pub const GET_ANNOUNCEMENT_BANNERS: &str = "/coder.agent.v2.Agent/GetAnnouncementBanners";
/// Version and directory.
pub const UPDATE_STARTUP: &str = "/coder.agent.v2.Agent/UpdateStartup";
/// A new lifecycle state.
pub const UPDATE_LIFECYCLE: &str = "/coder.agent.v2.Agent/UpdateLifecycle";
/// Traffic and sessions.
pub const UPDATE_STATS: &str = "/coder.agent.v2.Agent/UpdateStats";
/// The health of apps.
pub const BATCH_UPDATE_APP_HEALTHS: &str = "/coder.agent.v2.Agent/BatchUpdateAppHealths";
/// Values of metadata.
pub const BATCH_UPDATE_METADATA: &str = "/coder.agent.v2.Agent/BatchUpdateMetadata";
/// Log lines.
pub const BATCH_CREATE_LOGS: &str = "/coder.agent.v2.Agent/BatchCreateLogs";
/// How a script ended.
pub const SCRIPT_COMPLETED: &str = "/coder.agent.v2.Agent/ScriptCompleted";
/// Which resources to watch.
pub const GET_RESOURCES_MONITORING_CONFIGURATION: &str =
    "/coder.agent.v2.Agent/GetResourcesMonitoringConfiguration";
/// How much of the watched resources is used.
pub const PUSH_RESOURCES_MONITORING_USAGE: &str = "/coder.agent.v2.Agent/PushResourcesMonitoringUsage";
/// A session was opened or closed.
pub const REPORT_CONNECTION: &str = "/coder.agent.v2.Agent/ReportConnection";
/// A new agent for a development container.
pub const CREATE_SUB_AGENT: &str = "/coder.agent.v2.Agent/CreateSubAgent";
/// The end of such an agent.
pub const DELETE_SUB_AGENT: &str = "/coder.agent.v2.Agent/DeleteSubAgent";
/// All such agents.
pub const LIST_SUB_AGENTS: &str = "/coder.agent.v2.Agent/ListSubAgents";
/// What a process behind a boundary tried to reach.
pub const REPORT_BOUNDARY_LOGS: &str = "/coder.agent.v2.Agent/ReportBoundaryLogs";
