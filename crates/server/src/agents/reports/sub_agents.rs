//! Agents of development containers: `CreateSubAgent`, `DeleteSubAgent`, `ListSubAgents`.

use std::collections::HashSet;

use coder_domain::ids::{AgentId, AppId};
use coder_domain::names;
use coder_domain::secret::Secret;
use coder_store::transaction;
use coder_store::workspaces::agents::{self, Agent, App, AppDefinition, Definition};
use coder_wire::drpc::Status;
use coder_wire::messages::coder::agent::v2 as pb;
use coder_wire::messages::coder::agent::v2::create_sub_agent_request as request;
use coder_wire::messages::coder::agent::v2::create_sub_agent_request::app::{OpenIn, SharingLevel};
use coder_wire::messages::coder::agent::v2::create_sub_agent_response::AppCreationError;
use uuid::Uuid;

use super::{bounded, id};
use crate::agents::session::{AgentSession, Answer};

/// Sub-agents that one agent may have.
const MAX_CHILDREN: usize = 32;
/// Apps that one sub-agent may have.
const MAX_APPS: usize = 100;
/// Longest text of an app or an agent, in bytes.
const MAX_TEXT_BYTES: usize = 4096;

/// Makes an agent, with a token of its own.
pub(in crate::agents) async fn create(
    session: &AgentSession,
    request: pb::CreateSubAgentRequest,
) -> Answer<pb::CreateSubAgentResponse> {
    let (app, identity) = (&session.app, &session.identity);
    if identity.parent_id.is_some() {
        return Err(Status::new("a sub-agent cannot have sub-agents"));
    }
    if !names::agent(&request.name) {
        let shown: String = request.name.chars().take(64).collect();
        return Err(Status::new(format!(
            "agent name {shown:?} must be letters and digits with single hyphens between them"
        )));
    }
    let parent = session.row().await?;
    let (now, token) = (app.now(), Uuid::new_v4());
    let secret = Secret::new(token.to_string());
    let definition = Definition {
        directory: bounded(request.directory, MAX_TEXT_BYTES, "the directory")?,
        architecture: bounded(request.architecture, MAX_TEXT_BYTES, "the architecture")?,
        operating_system: bounded(request.operating_system, MAX_TEXT_BYTES, "the operating system")?,
        display_apps: request.display_apps.iter().filter_map(|number| display_app(*number)).collect(),
        connection_timeout_seconds: parent.definition.connection_timeout_seconds,
        ..Definition::default()
    };
    let name = request.name;
    let mut row = Agent::reported(parent.resource_id, 0, name.clone(), secret, definition, now);
    row.parent_id = Some(identity.agent_id);
    let (apps, app_creation_errors) = apps(row.id, request.apps, now);
    let made = transaction!(app.store, coder_store::Error, |tx| {
        let siblings = agents::list_children(tx, identity.agent_id).await?;
        if siblings.len() >= MAX_CHILDREN {
            return Ok(Err("the agent has too many sub-agents; delete one first"));
        }
        if siblings.iter().any(|sibling| sibling.name.eq_ignore_ascii_case(&name)) {
            return Ok(Err("the agent has a sub-agent of this name"));
        }
        agents::insert(tx, std::slice::from_ref(&row)).await?;
        agents::insert_apps(tx, &apps).await?;
        Ok(Ok(()))
    });
    made.map_err(|error| session.failed(&error))?.map_err(Status::new)?;
    app.events.workspace_changed(identity.workspace_id);
    let agent = pb::SubAgent {
        name: row.name,
        id: row.id.0.as_bytes().to_vec(),
        auth_token: token.as_bytes().to_vec(),
    };
    Ok(pb::CreateSubAgentResponse { agent: Some(agent), app_creation_errors })
}

/// Removes an agent that this one made; its connection ends.
pub(in crate::agents) async fn delete(
    session: &AgentSession,
    request: pb::DeleteSubAgentRequest,
) -> Answer<pb::DeleteSubAgentResponse> {
    let (app, identity) = (&session.app, &session.identity);
    let child = AgentId(id(&request.id, "the id of an agent")?);
    let deleted = async {
        let mut tx = app.store.single().await?;
        agents::delete_child(&mut tx, child, identity.agent_id, app.now()).await
    };
    match deleted.await {
        Ok(()) => {
            app.agents.close(child);
            app.events.workspace_changed(identity.workspace_id);
            Ok(pb::DeleteSubAgentResponse {})
        }
        Err(coder_store::Error::Stale { .. }) => {
            Err(Status::new(format!("the agent has no sub-agent {child}")))
        }
        Err(error) => Err(session.failed(&error)),
    }
}

/// Lists them. Their tokens are known only when they are made, because only hashes are stored.
pub(in crate::agents) async fn list(
    session: &AgentSession,
    _: pb::ListSubAgentsRequest,
) -> Answer<pb::ListSubAgentsResponse> {
    let children = async {
        let mut tx = session.app.store.reader().await?;
        agents::list_children(&mut tx, session.identity.agent_id).await
    };
    let children = children.await.map_err(|error| session.failed(&error))?;
    let view = |row: Agent| pb::SubAgent {
        name: row.name,
        id: row.id.0.as_bytes().to_vec(),
        auth_token: Vec::new(),
    };
    Ok(pb::ListSubAgentsResponse { agents: children.into_iter().map(view).collect() })
}

/// The apps that can be made, and why the others cannot.
fn apps(
    agent: AgentId,
    asked: Vec<request::App>,
    now: coder_domain::Timestamp,
) -> (Vec<App>, Vec<AppCreationError>) {
    let (mut apps, mut errors, mut slugs) = (Vec::new(), Vec::new(), HashSet::new());
    for (index, app) in (0_i32..).zip(asked) {
        let why = if apps.len() >= MAX_APPS {
            Some("a sub-agent has too many apps")
        } else if !names::app_slug(&app.slug) {
            Some("the slug must be lower-case letters and digits with single hyphens between them")
        } else if texts(&app).any(|text| text.len() > MAX_TEXT_BYTES) {
            Some("a text of the app is too long")
        } else if !slugs.insert(app.slug.clone()) {
            Some("another app has this slug")
        } else {
            None
        };
        if let Some(why) = why {
            errors.push(AppCreationError { index, field: Some("slug".to_owned()), error: why.to_owned() });
            continue;
        }
        let slug = app.slug.clone();
        let definition = definition(app);
        let health = if definition.healthcheck_url.is_empty() { "disabled" } else { "initializing" };
        let position = i64::from(index);
        let health = health.to_owned();
        apps.push(App {
            id: AppId::random(),
            agent_id: agent,
            position,
            slug,
            definition,
            health,
            created_at: now,
        });
    }
    (apps, errors)
}

fn texts(app: &request::App) -> impl Iterator<Item = &String> {
    let check = app.healthcheck.as_ref().map(|check| &check.url);
    let texts = [&app.command, &app.display_name, &app.group, &app.icon, &app.url];
    texts.into_iter().flatten().chain(check)
}

fn definition(app: request::App) -> AppDefinition {
    let check = app.healthcheck.clone().unwrap_or_default();
    let sharing_level = match app.share() {
        SharingLevel::Owner => "owner",
        SharingLevel::Authenticated => "authenticated",
        SharingLevel::Public => "public",
        SharingLevel::Organization => "organization",
    };
    let open_in = match app.open_in() {
        OpenIn::SlimWindow => "slim-window",
        OpenIn::Tab => "tab",
    };
    AppDefinition {
        display_name: app.display_name.unwrap_or_default(),
        command: app.command.unwrap_or_default(),
        url: app.url.unwrap_or_default(),
        icon: app.icon.unwrap_or_default(),
        subdomain: app.subdomain.unwrap_or_default(),
        healthcheck_url: check.url,
        healthcheck_interval: check.interval,
        healthcheck_threshold: check.threshold,
        sharing_level: sharing_level.to_owned(),
        external: app.external.unwrap_or_default(),
        order: app.order.map(i64::from).unwrap_or_default(),
        hidden: app.hidden.unwrap_or_default(),
        open_in: open_in.to_owned(),
        group: app.group.unwrap_or_default(),
        tooltip: String::new(),
    }
}

fn display_app(number: i32) -> Option<String> {
    use request::DisplayApp;
    let word = match DisplayApp::try_from(number).ok()? {
        DisplayApp::Vscode => "vscode",
        DisplayApp::VscodeInsiders => "vscode_insiders",
        DisplayApp::WebTerminal => "web_terminal",
        DisplayApp::SshHelper => "ssh_helper",
        DisplayApp::PortForwardingHelper => "port_forwarding_helper",
    };
    Some(word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(slug: &str) -> request::App {
        request::App { slug: slug.to_owned(), ..request::App::default() }
    }

    #[test]
    fn apps_have_what_was_asked_for() {
        let check = request::app::Healthcheck {
            interval: 5,
            threshold: 6,
            url: "http://localhost/healthz".to_owned(),
        };
        let asked = request::App {
            command: Some("htop".to_owned()),
            display_name: Some("Web".to_owned()),
            external: Some(true),
            group: Some("Editors".to_owned()),
            healthcheck: Some(check),
            hidden: Some(true),
            icon: Some("/icon.svg".to_owned()),
            open_in: Some(OpenIn::Tab.into()),
            order: Some(7),
            share: Some(SharingLevel::Public.into()),
            subdomain: Some(true),
            url: Some("http://localhost:8000".to_owned()),
            ..app("web")
        };
        let agent = AgentId::random();
        let (made, errors) = apps(agent, vec![app("plain"), asked], coder_domain::Timestamp::UNIX_EPOCH);
        assert!(errors.is_empty(), "{errors:?}");
        let plain = AppDefinition {
            sharing_level: "owner".to_owned(),
            open_in: "slim-window".to_owned(),
            ..AppDefinition::default()
        };
        assert_eq!((&made[0].definition, &*made[0].health, made[0].position), (&plain, "disabled", 0));
        let web = AppDefinition {
            display_name: "Web".to_owned(),
            command: "htop".to_owned(),
            url: "http://localhost:8000".to_owned(),
            icon: "/icon.svg".to_owned(),
            subdomain: true,
            healthcheck_url: "http://localhost/healthz".to_owned(),
            healthcheck_interval: 5,
            healthcheck_threshold: 6,
            sharing_level: "public".to_owned(),
            external: true,
            order: 7,
            hidden: true,
            open_in: "tab".to_owned(),
            group: "Editors".to_owned(),
            tooltip: String::new(),
        };
        assert_eq!((&made[1].definition, &*made[1].health, made[1].position), (&web, "initializing", 1));
        assert!(made.iter().all(|app| app.agent_id == agent));
        let levels = [SharingLevel::Authenticated, SharingLevel::Organization]
            .map(|level| definition(request::App { share: Some(level.into()), ..app("x") }).sharing_level);
        assert_eq!(levels, ["authenticated", "organization"]);
    }

    #[test]
    fn apps_that_cannot_be_made_are_named() {
        let long = |slug, bytes| request::App { url: Some("x".repeat(bytes)), ..app(slug) };
        let check = request::app::Healthcheck { url: "x".repeat(MAX_TEXT_BYTES + 1), ..Default::default() };
        let checked = request::App { healthcheck: Some(check), ..app("checked") };
        let (over, within) = (long("over", MAX_TEXT_BYTES + 1), long("within", MAX_TEXT_BYTES));
        let asked = vec![app("a"), app("a"), app("B"), over, checked, app("c"), within, app("over")];
        let (made, errors) = apps(AgentId::random(), asked, coder_domain::Timestamp::UNIX_EPOCH);
        let made: Vec<_> = made.iter().map(|app| (&*app.slug, app.position)).collect();
        let refused: Vec<_> = errors.iter().map(|error| (error.index, &*error.error)).collect();
        let slug = "the slug must be lower-case letters and digits with single hyphens between them";
        assert_eq!(made, [("a", 0), ("c", 5), ("within", 6), ("over", 7)]);
        assert_eq!(
            refused,
            [
                (1, "another app has this slug"),
                (2, slug),
                (3, "a text of the app is too long"),
                (4, "a text of the app is too long"),
            ]
        );
        let many = (0..=MAX_APPS).map(|number| app(&format!("app{number}"))).collect();
        let (made, errors) = apps(AgentId::random(), many, coder_domain::Timestamp::UNIX_EPOCH);
        assert_eq!((made.len(), &*errors[0].error), (MAX_APPS, "a sub-agent has too many apps"));
    }

    #[test]
    fn display_apps_have_the_names_of_the_template() {
        let names: Vec<_> = (0..6).map(display_app).collect();
        let known = ["vscode", "vscode_insiders", "web_terminal", "ssh_helper", "port_forwarding_helper"];
        let known: Vec<_> = known.iter().map(|name| Some((*name).to_owned())).chain([None]).collect();
        assert_eq!(names, known);
    }
}
