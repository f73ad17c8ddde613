//! The calls of one connection to the server. Each has a stream of its own (agent 2.1).

use std::sync::Arc;
use std::time::Duration;

use coder_wire::drpc::client::unary;
use coder_wire::drpc::{Error, Status};
use coder_wire::messages::coder::agent::v2 as messages;
use coder_wire::mux::{Session, Stream};
use jiff::Timestamp;
use prost::Message;

/// How long an answer may take. The server answers within milliseconds; a connection that is lost is noticed by its pings.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The code of a method that the server does not know.
const UNIMPLEMENTED: u64 = 12;

/// Makes calls over one connection.
#[derive(Debug, Clone)]
pub(crate) struct Calls {
    session: Arc<Session>,
}

macro_rules! calls {
    ($($(#[$doc:meta])* $function:ident: $name:literal, $request:ident => $response:ty;)*) => {
        impl Calls {
            $(
                $(#[$doc])*
                pub(crate) async fn $function(&self, request: messages::$request) -> Result<$response, Error> {
                    self.call(concat!("/coder.agent.v2.Agent/", $name), &request).await
                }
            )*
        }
    };
}

calls! {
    manifest: "GetManifest", GetManifestRequest => messages::Manifest;
    banners: "GetAnnouncementBanners", GetAnnouncementBannersRequest => messages::GetAnnouncementBannersResponse;
    startup: "UpdateStartup", UpdateStartupRequest => messages::Startup;
    lifecycle: "UpdateLifecycle", UpdateLifecycleRequest => messages::Lifecycle;
    stats: "UpdateStats", UpdateStatsRequest => messages::UpdateStatsResponse;
    app_healths: "BatchUpdateAppHealths", BatchUpdateAppHealthRequest => messages::BatchUpdateAppHealthResponse;
    metadata: "BatchUpdateMetadata", BatchUpdateMetadataRequest => messages::BatchUpdateMetadataResponse;
    logs: "BatchCreateLogs", BatchCreateLogsRequest => messages::BatchCreateLogsResponse;
    script_completed: "ScriptCompleted", WorkspaceAgentScriptCompletedRequest
        => messages::WorkspaceAgentScriptCompletedResponse;
    resources_configuration: "GetResourcesMonitoringConfiguration", GetResourcesMonitoringConfigurationRequest
        => messages::GetResourcesMonitoringConfigurationResponse;
    resources_usage: "PushResourcesMonitoringUsage", PushResourcesMonitoringUsageRequest
        => messages::PushResourcesMonitoringUsageResponse;
    connection: "ReportConnection", ReportConnectionRequest => ();
}

impl Calls {
    pub(crate) fn new(session: Session) -> Self {
        Self { session: Arc::new(session) }
    }

    async fn call<M: Message + Default>(
        &self,
        name: &'static str,
        request: &impl Message,
    ) -> Result<M, Error> {
        let answer = async { unary(self.session.open().await?, name, request).await };
        tokio::time::timeout(CALL_TIMEOUT, answer).await.unwrap_or(Err(Error::Stalled))
    }

    /// A stream for a call that is made elsewhere.
    pub(crate) async fn open(&self) -> Result<Stream, Error> {
        Ok(self.session.open().await?)
    }

    /// Waits for the end of the connection.
    pub(crate) async fn closed(&self) -> Error {
        self.session.closed().await.into()
    }

    /// Closes the connection in order.
    pub(crate) async fn close(&self) {
        self.session.close().await;
    }
}

/// Whether the server does not know the method, as an older one does not. The connection goes on.
pub(crate) fn is_unimplemented(error: &Error) -> bool {
    matches!(error, Error::Refused(Status { code: UNIMPLEMENTED, .. }))
}

/// An instant as messages have it.
pub(crate) fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() }
}
