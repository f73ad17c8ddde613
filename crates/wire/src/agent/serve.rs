//! Serves the calls of one agent.

use std::sync::Arc;
use std::time::Duration;

use super::name;
use super::service::Service;
use crate::daemon::Limits;
use crate::daemon::call::{CallResult, Calls, IncomingCall};
use crate::daemon::serve::run;
use crate::drpc::Status;
use crate::mux::{self, Session};

/// Limits of an agent's connection. An agent has one call of each kind at work, and a few streams of the Tailnet service.
pub const LIMITS: Limits =
    Limits { calls: 8, waiting: 16, file_bytes: 0, state_bytes: 0, io_timeout: Duration::from_secs(60) };

/// The code of a call that does not exist.
const UNIMPLEMENTED: u64 = 12;

/// Serves an agent until its session ends, and returns the cause, after the last handler. Close the session to stop.
pub async fn serve<S: Service>(session: &Session, service: Arc<S>) -> mux::Error {
    run(session, Arc::new(AgentCalls(service)), LIMITS).await
}

struct AgentCalls<S>(Arc<S>);

impl<S: Service> Calls for AgentCalls<S> {
    async fn call(&self, call: IncomingCall<'_>, name: &str) -> CallResult {
        // Most of the time an agent only has waiting calls of the Tailnet service.
        if name.starts_with(name::TAILNET) {
            self.tailnet(call, name).await
        } else {
            Box::pin(self.work(call, name)).await
        }
    }
}

impl<S: Service> AgentCalls<S> {
    /// These calls wait for hours and are not counted as work.
    async fn tailnet(&self, call: IncomingCall<'_>, name: &str) -> CallResult {
        call.permit.release();
        call.finish(async |stream| self.0.tailnet(name, stream).await).await
    }

    async fn work(&self, call: IncomingCall<'_>, name: &str) -> CallResult {
        let service = &*self.0;
        match name {
            name::GET_MANIFEST => call.unary(|request, _| service.get_manifest(request)).await,
            name::GET_SERVICE_BANNER => call.unary(|request, _| service.get_service_banner(request)).await,
            name::GET_ANNOUNCEMENT_BANNERS => {
                call.unary(|request, _| service.get_announcement_banners(request)).await
            }
            name::UPDATE_STARTUP => call.unary(|request, _| service.update_startup(request)).await,
            name::UPDATE_LIFECYCLE => call.unary(|request, _| service.update_lifecycle(request)).await,
            name::UPDATE_STATS => call.unary(|request, _| service.update_stats(request)).await,
            name::BATCH_UPDATE_APP_HEALTHS => {
                call.unary(|request, _| service.batch_update_app_healths(request)).await
            }
            name::BATCH_UPDATE_METADATA => {
                call.unary(|request, _| service.batch_update_metadata(request)).await
            }
            name::BATCH_CREATE_LOGS => call.unary(|request, _| service.batch_create_logs(request)).await,
            name::SCRIPT_COMPLETED => call.unary(|request, _| service.script_completed(request)).await,
            name::GET_RESOURCES_MONITORING_CONFIGURATION => {
                call.unary(|request, _| service.get_resources_monitoring_configuration(request)).await
            }
            name::PUSH_RESOURCES_MONITORING_USAGE => {
                call.unary(|request, _| service.push_resources_monitoring_usage(request)).await
            }
            name::REPORT_CONNECTION => call.unary(|request, _| service.report_connection(request)).await,
            name::CREATE_SUB_AGENT => call.unary(|request, _| service.create_sub_agent(request)).await,
            name::DELETE_SUB_AGENT => call.unary(|request, _| service.delete_sub_agent(request)).await,
            name::LIST_SUB_AGENTS => call.unary(|request, _| service.list_sub_agents(request)).await,
            name::REPORT_BOUNDARY_LOGS => {
                call.unary(|request, _| service.report_boundary_logs(request)).await
            }
            other => {
                let shortened: String = other.chars().take(200).collect();
                let status = Status { code: UNIMPLEMENTED, text: format!("unknown call {shortened:?}") };
                call.finish(async |stream| stream.fail(&status).await).await
            }
        }
    }
}
