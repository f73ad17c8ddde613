//! What a server answers to its agents.

use std::future::Future;

use crate::drpc::server::CallStream;
use crate::drpc::{Error, Status};
use crate::messages::coder::agent::v2 as pb;

macro_rules! service {
    ($($(#[$doc:meta])* fn $method:ident($request:ident) -> $answer:ident;)*) => {
        /// The calls of one agent. Several run at the same time.
        pub trait Service: Send + Sync + 'static {
            $(
                $(#[$doc])*
                fn $method(&self, request: pb::$request) -> impl Future<Output = Result<service!(@$answer), Status>> + Send;
            )*

            /// A call of the Tailnet service. Its stream is handed over; the call is over when this returns.
            fn tailnet(&self, name: &str, stream: &mut CallStream) -> impl Future<Output = Result<(), Error>> + Send;
        }
    };
    (@Nothing) => { () };
    (@$answer:ident) => { pb::$answer };
}

service! {
    /// See [`super::name::GET_MANIFEST`].
    fn get_manifest(GetManifestRequest) -> Manifest;
    /// See [`super::name::GET_SERVICE_BANNER`].
    fn get_service_banner(GetServiceBannerRequest) -> ServiceBanner;
    /// See [`super::name::GET_ANNOUNCEMENT_BANNERS`].
    fn get_announcement_banners(GetAnnouncementBannersRequest) -> GetAnnouncementBannersResponse;
    /// See [`super::name::UPDATE_STARTUP`].
    fn update_startup(UpdateStartupRequest) -> Startup;
    /// See [`super::name::UPDATE_LIFECYCLE`].
    fn update_lifecycle(UpdateLifecycleRequest) -> Lifecycle;
    /// See [`super::name::UPDATE_STATS`].
    fn update_stats(UpdateStatsRequest) -> UpdateStatsResponse;
    /// See [`super::name::BATCH_UPDATE_APP_HEALTHS`].
    fn batch_update_app_healths(BatchUpdateAppHealthRequest) -> BatchUpdateAppHealthResponse;
    /// See [`super::name::BATCH_UPDATE_METADATA`].
    fn batch_update_metadata(BatchUpdateMetadataRequest) -> BatchUpdateMetadataResponse;
    /// See [`super::name::BATCH_CREATE_LOGS`].
    fn batch_create_logs(BatchCreateLogsRequest) -> BatchCreateLogsResponse;
    /// See [`super::name::SCRIPT_COMPLETED`].
    fn script_completed(WorkspaceAgentScriptCompletedRequest) -> WorkspaceAgentScriptCompletedResponse;
    /// See [`super::name::GET_RESOURCES_MONITORING_CONFIGURATION`].
    fn get_resources_monitoring_configuration(GetResourcesMonitoringConfigurationRequest)
        -> GetResourcesMonitoringConfigurationResponse;
    /// See [`super::name::PUSH_RESOURCES_MONITORING_USAGE`].
    fn push_resources_monitoring_usage(PushResourcesMonitoringUsageRequest) -> PushResourcesMonitoringUsageResponse;
    /// See [`super::name::REPORT_CONNECTION`].
    fn report_connection(ReportConnectionRequest) -> Nothing;
    /// See [`super::name::CREATE_SUB_AGENT`].
    fn create_sub_agent(CreateSubAgentRequest) -> CreateSubAgentResponse;
    /// See [`super::name::DELETE_SUB_AGENT`].
    fn delete_sub_agent(DeleteSubAgentRequest) -> DeleteSubAgentResponse;
    /// See [`super::name::LIST_SUB_AGENTS`].
    fn list_sub_agents(ListSubAgentsRequest) -> ListSubAgentsResponse;
    /// See [`super::name::REPORT_BOUNDARY_LOGS`].
    fn report_boundary_logs(ReportBoundaryLogsRequest) -> ReportBoundaryLogsResponse;
}
