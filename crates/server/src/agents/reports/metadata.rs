//! Values of metadata: `BatchUpdateMetadata` (agent 2.7). They are written together with those of other agents.

use coder_domain::agent::{MAX_METADATA_CALL_BYTES, bounded_metadata};
use coder_store::workspaces::agent_reports::MetadataValue;
use coder_wire::drpc::Status;
use coder_wire::messages::coder::agent::v2 as pb;

use crate::agents::session::{AgentSession, Answer};

/// Keeps the values of items that the definition names; others are ignored, as on the official server.
pub(in crate::agents) async fn update(
    session: &AgentSession,
    request: pb::BatchUpdateMetadataRequest,
) -> Answer<pb::BatchUpdateMetadataResponse> {
    let row = session.row().await?;
    let (agent_id, collected_at) = (session.identity.agent_id, session.app.now());
    let mut key_bytes = 0_usize;
    for pb::Metadata { key, result } in request.metadata {
        key_bytes = key_bytes.saturating_add(key.len());
        if key_bytes > MAX_METADATA_CALL_BYTES {
            return Err(Status::new(format!(
                "the keys of one report have more than {MAX_METADATA_CALL_BYTES} bytes; the rest was not stored"
            )));
        }
        let Some(result) = result.filter(|_| row.definition.metadata.iter().any(|item| item.key == key))
        else {
            continue;
        };
        let (value, error) = bounded_metadata(result.value, result.error);
        session.app.pending.metadata(MetadataValue { agent_id, key, value, error, collected_at });
    }
    Ok(pb::BatchUpdateMetadataResponse {})
}
