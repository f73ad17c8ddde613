//! Notes every 15 seconds which agents are connected here, and writes their reports every second: one statement for all agents,
//! and none without any.

use std::collections::HashSet;

use coder_store::workspaces::agent_connections;

use super::driver::Task;
use crate::context::App;

/// Notes the contact with all agents that are connected here, and closes connections whose build is over.
pub struct Contacts;

impl Task for Contacts {
    const NAME: &'static str = "agent contacts";

    async fn run(&mut self, app: &App) -> Result<(), coder_store::Error> {
        let connected = app.agents.agents();
        if connected.is_empty() {
            return Ok(());
        }
        agent_connections::update_contacts(&mut app.store.single().await?, &connected, app.now()).await?;
        // The connections hear of new builds; this makes up for lost wake-ups.
        let allowed = agent_connections::list_allowed(&mut app.store.reader().await?, &connected).await?;
        let allowed: HashSet<_> = allowed.into_iter().collect();
        connected.iter().filter(|agent| !allowed.contains(agent)).for_each(|agent| app.agents.close(*agent));
        Ok(())
    }
}

/// Writes reports that are written together.
pub struct AgentReports;

impl Task for AgentReports {
    const NAME: &'static str = "agent reports";

    async fn run(&mut self, app: &App) -> Result<(), coder_store::Error> {
        app.pending.write(app).await
    }
}
