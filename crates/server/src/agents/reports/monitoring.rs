//! Memory and volumes that the template wants watched. The server's log says when a threshold is exceeded.

use coder_domain::agent::{MonitorState, Sample, is_exceeded};
use coder_wire::messages::coder::agent::v2 as pb;
use coder_wire::messages::coder::agent::v2::get_resources_monitoring_configuration_response as response;

use crate::agents::session::{AgentSession, Answer};

/// Samples of one report, and seconds between two samples. Official agents need numbers above zero.
const CONFIG: response::Config = response::Config { num_datapoints: 20, collection_interval_seconds: 10 };
/// Samples of one report that are looked at.
const MAX_SAMPLES: usize = 100;

/// What the agent has to watch.
pub(in crate::agents) async fn configuration(
    session: &AgentSession,
    _: pb::GetResourcesMonitoringConfigurationRequest,
) -> Answer<pb::GetResourcesMonitoringConfigurationResponse> {
    let definition = &session.row().await?.definition;
    let volumes = definition.volume_monitors.iter();
    Ok(pb::GetResourcesMonitoringConfigurationResponse {
        config: Some(CONFIG),
        memory: definition.memory_monitor.map(|monitor| response::Memory { enabled: monitor.enabled }),
        volumes: volumes
            .map(|(path, monitor)| response::Volume { enabled: monitor.enabled, path: path.clone() })
            .collect(),
    })
}

/// Compares what is used with the thresholds.
pub(in crate::agents) async fn push(
    session: &AgentSession,
    request: pb::PushResourcesMonitoringUsageRequest,
) -> Answer<pb::PushResourcesMonitoringUsageResponse> {
    let definition = &session.row().await?.definition;
    let mut points = request.datapoints;
    points.truncate(MAX_SAMPLES);
    if let Some(monitor) = definition.memory_monitor.filter(|monitor| monitor.enabled) {
        let samples = points.iter().filter_map(|point| point.memory.as_ref());
        let samples: Vec<_> =
            samples.map(|memory| Sample { used: memory.used, total: memory.total }).collect();
        compare(session, None, &samples, monitor.threshold);
    }
    for (path, monitor) in definition.volume_monitors.iter().filter(|(_, monitor)| monitor.enabled) {
        let samples =
            points.iter().filter_map(|point| point.volumes.iter().find(|volume| volume.volume == *path));
        let samples: Vec<_> =
            samples.map(|volume| Sample { used: volume.used, total: volume.total }).collect();
        compare(session, Some(path), &samples, monitor.threshold);
    }
    Ok(pb::PushResourcesMonitoringUsageResponse {})
}

fn compare(session: &AgentSession, volume: Option<&String>, samples: &[Sample], threshold_percent: i32) {
    let mut monitors = session.monitors.lock();
    let state = monitors.entry(volume.cloned()).or_insert(MonitorState::Ok);
    let now = is_exceeded(*state, samples, threshold_percent);
    if std::mem::replace(state, now) == now {
        return;
    }
    let (agent, workspace) = (session.identity.agent_id, session.identity.workspace_id);
    let resource = volume.map_or("memory", String::as_str);
    match now {
        MonitorState::Exceeded => {
            tracing::warn!(agent_id = %agent, workspace_id = %workspace, resource, threshold_percent, "a workspace uses too much of a resource");
        }
        MonitorState::Ok => {
            tracing::info!(agent_id = %agent, workspace_id = %workspace, resource, "a workspace uses less of a resource again");
        }
    }
}
