//! Reports that are written together, once a second, for all agents of this process: values of metadata, and which
//! workspaces were used. A killed server loses those of the last second; agents report again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use coder_domain::ids::{AgentId, WorkspaceId};
use coder_store::workspaces::agent_reports::{self, MetadataValue};
use coder_store::{Error, workspaces};
use parking_lot::Mutex;

use crate::context::App;
use crate::schedules::deadlines;

/// A clone is the same object.
#[derive(Clone, Debug, Default)]
pub struct PendingReports(Arc<Mutex<Reports>>);

#[derive(Debug, Default)]
struct Reports {
    /// At most one value for each item of a connected agent.
    metadata: HashMap<(AgentId, String), MetadataValue>,
    used: HashSet<WorkspaceId>,
}

impl PendingReports {
    /// A new value of a metadata item, in the place of one that was not written yet.
    pub fn metadata(&self, value: MetadataValue) {
        self.0.lock().metadata.insert((value.agent_id, value.key.clone()), value);
    }

    /// A workspace is in use.
    pub fn used(&self, workspace: WorkspaceId) {
        self.0.lock().used.insert(workspace);
    }

    /// Writes everything: one statement for each kind of report, none when there is nothing.
    ///
    /// # Errors
    /// Only when the database fails; what was not written is written by the next call.
    pub async fn write(&self, app: &App) -> Result<(), Error> {
        let Reports { metadata, used } = std::mem::take(&mut *self.0.lock());
        let values: Vec<_> = metadata.into_values().collect();
        if let Err(error) = write_metadata(app, &values).await {
            let mut reports = self.0.lock();
            for value in values {
                // Newer ones may have come meanwhile.
                reports.metadata.entry((value.agent_id, value.key.clone())).or_insert(value);
            }
            reports.used.extend(used);
            return Err(error);
        }
        let used: Vec<_> = used.into_iter().collect();
        if let Err(error) = write_used(app, &used).await {
            self.0.lock().used.extend(used);
            return Err(error);
        }
        Ok(())
    }
}

async fn write_metadata(app: &App, values: &[MetadataValue]) -> Result<(), Error> {
    if values.is_empty() {
        return Ok(());
    }
    agent_reports::upsert_metadata(&mut app.store.single().await?, values).await?;
    let agents: HashSet<_> = values.iter().map(|value| value.agent_id).collect();
    agents.into_iter().for_each(|agent| app.events.agent_metadata_changed(agent));
    Ok(())
}

async fn write_used(app: &App, used: &[WorkspaceId]) -> Result<(), Error> {
    if used.is_empty() {
        return Ok(());
    }
    let now = app.now();
    workspaces::update_all_used(&mut app.store.single().await?, used, now).await?;
    deadlines::extend_used(app, used, now).await?;
    used.iter().for_each(|workspace| app.events.workspace_changed(*workspace));
    Ok(())
}
