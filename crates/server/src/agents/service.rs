//! The calls that a connected agent makes here. Each is worked on in a file of its own.

use coder_wire::agent::Service;
use coder_wire::drpc::Error;
use coder_wire::drpc::server::CallStream;
use coder_wire::messages::coder::agent::v2 as pb;

use super::manifest;
use super::reports::{
    app_health, boundary, connections, lifecycle, logs, metadata, monitoring, scripts, startup, stats,
    sub_agents,
};
use super::session::{AgentSession, Answer};

/// Waits for the agent's turn, and works on the call.
macro_rules! calls {
    ($($method:ident($request:ident) -> $answer:ty = $work:path;)*) => {$(
        async fn $method(&self, request: pb::$request) -> Answer<$answer> {
            self.pace.wait().await;
            $work(self, request).await
        }
    )*};
}

impl Service for AgentSession {
    calls! {
        get_manifest(GetManifestRequest) -> pb::Manifest = manifest::get;
        update_startup(UpdateStartupRequest) -> pb::Startup = startup::update;
        update_lifecycle(UpdateLifecycleRequest) -> pb::Lifecycle = lifecycle::update;
        update_stats(UpdateStatsRequest) -> pb::UpdateStatsResponse = stats::update;
        batch_update_app_healths(BatchUpdateAppHealthRequest) -> pb::BatchUpdateAppHealthResponse = app_health::update;
        batch_update_metadata(BatchUpdateMetadataRequest) -> pb::BatchUpdateMetadataResponse = metadata::update;
        batch_create_logs(BatchCreateLogsRequest) -> pb::BatchCreateLogsResponse = logs::append;
        script_completed(WorkspaceAgentScriptCompletedRequest) -> pb::WorkspaceAgentScriptCompletedResponse
            = scripts::completed;
        get_resources_monitoring_configuration(GetResourcesMonitoringConfigurationRequest)
            -> pb::GetResourcesMonitoringConfigurationResponse = monitoring::configuration;
        push_resources_monitoring_usage(PushResourcesMonitoringUsageRequest)
            -> pb::PushResourcesMonitoringUsageResponse = monitoring::push;
        report_connection(ReportConnectionRequest) -> () = connections::report;
        create_sub_agent(CreateSubAgentRequest) -> pb::CreateSubAgentResponse = sub_agents::create;
        delete_sub_agent(DeleteSubAgentRequest) -> pb::DeleteSubAgentResponse = sub_agents::delete;
        list_sub_agents(ListSubAgentsRequest) -> pb::ListSubAgentsResponse = sub_agents::list;
        report_boundary_logs(ReportBoundaryLogsRequest) -> pb::ReportBoundaryLogsResponse = boundary::report;
    }

    /// This server has no banners (`GET /appearance`).
    async fn get_service_banner(&self, _: pb::GetServiceBannerRequest) -> Answer<pb::ServiceBanner> {
        Ok(pb::ServiceBanner::default())
    }

    async fn get_announcement_banners(
        &self,
        _: pb::GetAnnouncementBannersRequest,
    ) -> Answer<pb::GetAnnouncementBannersResponse> {
        Ok(pb::GetAnnouncementBannersResponse::default())
    }

    async fn tailnet(&self, name: &str, stream: &mut CallStream) -> Result<(), Error> {
        self.tailnet.serve(name, stream).await
    }
}
