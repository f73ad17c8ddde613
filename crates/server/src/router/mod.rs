//! All routes, and the layers around them.

pub mod layers;
pub mod table;

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use coder_api::paths;
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt as _, service_fn};

use self::table::Access::{Agent, Authenticated, Daemon, Public};
use self::table::{Row, Table};
use crate::apps;
use crate::apps::destination::Destination;
use crate::context::App;
use crate::http::connection::Service;
use crate::http::limits::Group::{Files, Login};
use crate::pages;
use crate::routes::{
    applications, audit, builds, connection_log, dry_runs, external_auth, files, job_logs, keys, meta,
    network, organizations, provisioner_daemons, provisioner_jobs, provisioner_keys, templates, users,
    versions, workspace_agents, workspaces,
};

/// Every route.
#[rustfmt::skip]
fn table(app: App) -> Table {
    Table::new(app)
        // Outside the API
        .get(Public, "/", pages::home)
        .get(Public, "/login", pages::login)
        .post_limited(Login, Public, "/login", pages::submit_login)
        .get(Public, paths::CLI_AUTH, pages::cli_auth)
        .post_limited(Login, Public, paths::CLI_AUTH, pages::make_cli_token)
        .get(Public, paths::EXTERNAL_AUTH_PAGE, pages::external_auth)
        .post_limited(Login, Public, paths::EXTERNAL_AUTH_PAGE, pages::submit_external_auth)
        .get_limited(Login, Public, paths::EXTERNAL_AUTH_CALLBACK, pages::external_auth_callback)
        .get(Public, paths::HEALTHZ, meta::healthz)
        .get(Public, paths::READYZ, meta::readyz)
        .get(Public, paths::LATENCY_CHECK, meta::healthz)
        .get(Public, "/bin", meta::list_binaries)
        .get(Public, "/bin/{name}", meta::binary)
        .get(Public, "/install.sh", meta::install_script)
        // The overlay network
        .get(Public, paths::DERP, network::relay::derp)
        .get(Public, paths::DERP_MESH, network::mesh::mesh)
        .get(Public, paths::DERP_LATENCY_CHECK, meta::healthz)
        .get(Public, paths::DERP_MAP, network::derp_map::derp_map)
        .get(Authenticated, paths::TAILNET, network::coordinate::tailnet)
        .get(Authenticated, paths::AGENTS_CONNECTION, network::connection::any_agent)
        .get(Authenticated, paths::AGENT_CONNECTION, network::connection::agent)
        .get(Authenticated, paths::AGENT_COORDINATE, network::coordinate::coordinate)
        // The server itself
        .get(Public, "/api/v2", meta::root)
        .get(Public, paths::BUILD_INFO, meta::build_info)
        .get(Public, paths::ENTITLEMENTS, meta::entitlements)
        .get(Public, paths::UPDATE_CHECK, meta::update_check)
        .get(Authenticated, paths::HEALTH, meta::health)
        .get(Authenticated, paths::APPEARANCE, meta::appearance)
        .get(Authenticated, paths::REGIONS, meta::regions)
        .get(Authenticated, paths::APPLICATIONS_HOST, applications::host)
        .get_limited(Login, Public, paths::APPLICATIONS_AUTH_REDIRECT, apps::sign_in::auth_redirect)
        .get(Public, "/assets/{name}", pages::asset)
        .get(Authenticated, paths::DEPLOYMENT_SSH, meta::ssh_config)
        .get(Authenticated, paths::EXPERIMENTS, meta::experiments)
        .get(Authenticated, paths::EXPERIMENTS_AVAILABLE, meta::available_experiments)
        // Users, sessions, tokens
        .get(Public, paths::FIRST_USER, users::first::show)
        .post(Public, paths::FIRST_USER, users::first::create)
        .post_limited(Login, Public, paths::LOGIN, users::login::login)
        .post(Authenticated, paths::LOGOUT, users::login::logout)
        .get(Public, paths::AUTH_METHODS, users::login::methods)
        .get(Authenticated, paths::SITE_ROLES, users::roles::assignable)
        .get(Authenticated, paths::USERS, users::list::list)
        .post(Authenticated, paths::USERS, users::create::create)
        .get(Authenticated, paths::USER, users::get::get)
        .delete(Authenticated, paths::USER, users::delete::delete)
        .get(Authenticated, paths::USER_ROLES, users::roles::show)
        .put(Authenticated, paths::USER_ROLES, users::roles::update)
        .get(Authenticated, paths::USER_QUIET_HOURS, users::quiet_hours::show)
        .put(Authenticated, paths::USER_QUIET_HOURS, users::quiet_hours::update)
        .put(Authenticated, paths::USER_SUSPEND, users::status::suspend)
        .put(Authenticated, paths::USER_ACTIVATE, users::status::activate)
        .put(Authenticated, paths::USER_PROFILE, users::profile::update)
        .put_limited(Login, Authenticated, paths::USER_PASSWORD, users::password::update)
        .get(Authenticated, paths::USER_LOGIN_TYPE, users::get::login_type)
        .get(Authenticated, paths::USER_ORGANIZATIONS, users::organizations::list)
        .get(Authenticated, paths::USER_ORGANIZATION, users::organizations::get)
        .get(Authenticated, paths::USER_GIT_SSH_KEY, users::git_ssh_key::get)
        .put(Authenticated, paths::USER_GIT_SSH_KEY, users::git_ssh_key::regenerate)
        .post(Authenticated, paths::USER_KEYS, keys::create::session)
        .get(Authenticated, paths::USER_KEY, keys::get::by_id)
        .delete(Authenticated, paths::USER_KEY, keys::delete::delete)
        .get(Authenticated, paths::USER_TOKENS, keys::list::list)
        .post(Authenticated, paths::USER_TOKENS, keys::create::token)
        .get(Authenticated, paths::TOKEN_CONFIG, keys::get::config)
        .get(Authenticated, paths::USER_TOKEN, keys::get::by_name)
        .get(Authenticated, paths::USER_WORKSPACE, workspaces::get::by_name)
        .get(Authenticated, paths::USER_WORKSPACE_BUILD, builds::get::by_number)
        .post(Authenticated, paths::USER_WORKSPACES, workspaces::create::create)
        .get(Authenticated, paths::EXTERNAL_AUTHS, external_auth::list)
        .get(Authenticated, paths::EXTERNAL_AUTH, external_auth::get)
        .delete(Authenticated, paths::EXTERNAL_AUTH, external_auth::delete)
        .get_limited(Login, Authenticated, paths::EXTERNAL_AUTH_DEVICE, external_auth::device)
        .post_limited(Login, Authenticated, paths::EXTERNAL_AUTH_DEVICE, external_auth::redeem_device)
        .get(Public, paths::AUTH_SCOPES, keys::get::scopes)
        .get(Authenticated, paths::AUDIT, audit::list)
        .get(Authenticated, paths::CONNECTION_LOG, connection_log::list)
        // Organizations
        .get(Authenticated, paths::ORGANIZATIONS, organizations::list)
        .get(Authenticated, paths::ORGANIZATION, organizations::get)
        .post(Authenticated, paths::ORGANIZATIONS, organizations::create::create)
        .patch(Authenticated, paths::ORGANIZATION, organizations::update::update)
        .delete(Authenticated, paths::ORGANIZATION, organizations::delete::delete)
        .get(Authenticated, paths::ORGANIZATION_ROLES, organizations::roles::assignable)
        .post(Authenticated, paths::ORGANIZATION_ROLES, organizations::roles::custom)
        .put(Authenticated, paths::ORGANIZATION_ROLES, organizations::roles::custom)
        .put(Authenticated, paths::MEMBER_ROLES, organizations::roles::update)
        .get(Authenticated, paths::MEMBERS, organizations::members::list)
        .get(Authenticated, paths::PAGINATED_MEMBERS, organizations::members::paginated)
        .post(Authenticated, paths::MEMBER, organizations::members::add)
        .delete(Authenticated, paths::MEMBER, organizations::members::remove)
        .post(Authenticated, paths::MEMBER_WORKSPACES, workspaces::create::in_organization)
        // Provisioners
        .get(Daemon, paths::SERVE, provisioner_daemons::serve)
        .get(Authenticated, paths::DAEMONS, provisioner_daemons::list)
        .post(Authenticated, paths::DAEMON_DRAIN, provisioner_daemons::drain)
        .delete(Authenticated, paths::DAEMON_DRAIN, provisioner_daemons::undrain)
        .get(Authenticated, paths::JOBS, provisioner_jobs::list)
        .get(Authenticated, paths::JOB, provisioner_jobs::get)
        .get(Authenticated, paths::JOB_EXPLANATION, provisioner_jobs::explain)
        .get(Authenticated, paths::PROVISIONER_KEYS, provisioner_keys::list)
        .post(Authenticated, paths::PROVISIONER_KEYS, provisioner_keys::create)
        .get(Authenticated, paths::PROVISIONER_KEY_DAEMONS, provisioner_keys::daemons)
        .patch(Authenticated, paths::PROVISIONER_KEY, provisioner_keys::update)
        .delete(Authenticated, paths::PROVISIONER_KEY, provisioner_keys::delete)
        .post(Authenticated, paths::PROVISIONER_KEY_ROTATE, provisioner_keys::rotate)
        .get(Daemon, paths::OWN_PROVISIONER_KEY, provisioner_keys::get)
        // Files
        .post_limited(Files, Authenticated, paths::FILES, files::upload)
        .get_limited(Files, Authenticated, paths::FILE, files::download)
        // Templates
        .get(Authenticated, paths::TEMPLATES, templates::list::list)
        .get(Authenticated, paths::TEMPLATE, templates::get::get)
        .patch(Authenticated, paths::TEMPLATE, templates::update::update)
        .delete(Authenticated, paths::TEMPLATE, templates::delete::delete)
        .get(Authenticated, paths::TEMPLATE_ACL, templates::access::get)
        .patch(Authenticated, paths::TEMPLATE_ACL, templates::access::update)
        .get(Authenticated, paths::TEMPLATE_VERSIONS, versions::list::list)
        .patch(Authenticated, paths::TEMPLATE_VERSIONS, templates::activate::activate)
        .post(Authenticated, paths::TEMPLATE_VERSIONS_ARCHIVE, versions::archive::archive_unused)
        .get(Authenticated, paths::TEMPLATE_VERSION_BY_NAME, versions::get::by_template_and_name)
        .get(Authenticated, paths::ORGANIZATION_TEMPLATES, templates::list::in_organization)
        .post(Authenticated, paths::ORGANIZATION_TEMPLATES, templates::create::create)
        .get(Authenticated, paths::ORGANIZATION_TEMPLATE, templates::get::by_name)
        .get(Authenticated, paths::ORGANIZATION_TEMPLATE_VERSION, versions::get::by_names)
        .get(Authenticated, paths::ORGANIZATION_TEMPLATE_PREVIOUS, versions::get::previous)
        // Template versions
        .post(Authenticated, paths::CREATE_TEMPLATE_VERSION, versions::create::create)
        .get(Authenticated, paths::VERSION, versions::get::get)
        .patch(Authenticated, paths::VERSION, versions::update::update)
        .patch(Authenticated, paths::VERSION_CANCEL, versions::cancel::cancel)
        .post(Authenticated, paths::VERSION_ARCHIVE, versions::archive::archive)
        .post(Authenticated, paths::VERSION_UNARCHIVE, versions::archive::unarchive)
        .get(Authenticated, paths::VERSION_LOGS, job_logs::version)
        .get(Authenticated, paths::VERSION_RESOURCES, versions::content::resources)
        .get(Authenticated, paths::VERSION_VARIABLES, versions::content::variables)
        .get(Authenticated, paths::VERSION_RICH_PARAMETERS, versions::content::parameters)
        .get(Authenticated, paths::VERSION_PRESETS, versions::content::presets)
        .get(Authenticated, paths::VERSION_EXTERNAL_AUTH, versions::content::accounts)
        .get(Authenticated, paths::VERSION_SCHEMA, versions::content::nothing)
        .get(Authenticated, paths::VERSION_PARAMETERS, versions::content::nothing)
        .post(Authenticated, paths::DRY_RUNS, dry_runs::create)
        .get(Authenticated, paths::DRY_RUN, dry_runs::get)
        .get(Authenticated, paths::DRY_RUN_MATCHED, dry_runs::matched)
        .get(Authenticated, paths::DRY_RUN_RESOURCES, dry_runs::resources)
        .get(Authenticated, paths::DRY_RUN_LOGS, job_logs::dry_run)
        .patch(Authenticated, paths::DRY_RUN_CANCEL, dry_runs::cancel)
        // Workspaces
        .get(Authenticated, paths::WORKSPACES, workspaces::list::list)
        .get(Authenticated, paths::WORKSPACE, workspaces::get::get)
        .patch(Authenticated, paths::WORKSPACE, workspaces::settings::rename)
        .put(Authenticated, paths::WORKSPACE_AUTOSTART, workspaces::schedule::autostart)
        .put(Authenticated, paths::WORKSPACE_TTL, workspaces::schedule::ttl)
        .put(Authenticated, paths::WORKSPACE_EXTEND, workspaces::schedule::extend)
        .put(Authenticated, paths::WORKSPACE_AUTOUPDATES, workspaces::settings::automatic_updates)
        .put(Authenticated, paths::WORKSPACE_DORMANT, workspaces::settings::dormant)
        .put(Authenticated, paths::WORKSPACE_FAVORITE, workspaces::settings::favorite)
        .delete(Authenticated, paths::WORKSPACE_FAVORITE, workspaces::settings::unfavorite)
        .post(Authenticated, paths::WORKSPACE_USAGE, workspaces::usage::usage)
        .get(Authenticated, paths::WORKSPACE_WATCH, workspaces::watch::watch)
        .get(Authenticated, paths::WORKSPACE_WATCH_WS, workspaces::watch::watch_ws)
        .get(Authenticated, paths::WORKSPACE_PORT_SHARE, workspaces::port_shares::list)
        .post(Authenticated, paths::WORKSPACE_PORT_SHARE, workspaces::port_shares::upsert)
        .delete(Authenticated, paths::WORKSPACE_PORT_SHARE, workspaces::port_shares::delete)
        .get(Authenticated, paths::WORKSPACE_RESOLVE_AUTOSTART, workspaces::schedule::resolve_autostart)
        .get(Authenticated, "/api/v2/workspaces/{workspace}/timings", builds::content::latest_timings)
        // Builds
        .get(Authenticated, paths::WORKSPACE_BUILDS, builds::list::list)
        .post(Authenticated, paths::WORKSPACE_BUILDS, builds::create::create)
        .get(Authenticated, paths::BUILD, builds::get::get)
        .patch(Authenticated, paths::BUILD_CANCEL, builds::cancel::cancel)
        .get(Authenticated, paths::BUILD_LOGS, job_logs::build)
        .get(Authenticated, paths::BUILD_PARAMETERS, builds::content::parameters)
        .get(Authenticated, paths::BUILD_RESOURCES, builds::content::resources)
        .get(Authenticated, paths::BUILD_STATE, builds::state::get)
        .put(Authenticated, paths::BUILD_STATE, builds::state::update)
        .get(Authenticated, paths::BUILD_TIMINGS, builds::content::timings)
        // Agents
        .get(Agent, paths::AGENT_RPC, workspace_agents::rpc)
        .get(Agent, paths::AGENT_REINIT, workspace_agents::reinit)
        .get(Agent, paths::AGENT_GIT_SSH_KEY, workspace_agents::git_ssh_key)
        .get(Agent, paths::AGENT_EXTERNAL_AUTH, workspace_agents::external_auth)
        .patch(Agent, paths::AGENT_OWN_LOGS, workspace_agents::append_logs)
        .post(Agent, paths::AGENT_LOG_SOURCE, workspace_agents::create_log_source)
        .post(Public, paths::AWS_INSTANCE_IDENTITY, workspace_agents::aws)
        .post(Public, paths::AZURE_INSTANCE_IDENTITY, workspace_agents::azure)
        .post(Public, paths::GOOGLE_INSTANCE_IDENTITY, workspace_agents::google)
        .get(Authenticated, paths::AGENT, workspace_agents::get)
        .get(Authenticated, paths::AGENT_LOGS, workspace_agents::logs)
        .get(Authenticated, paths::AGENT_WATCH_METADATA, workspace_agents::watch_metadata)
        .get(Authenticated, paths::AGENT_WATCH_METADATA_WS, workspace_agents::watch_metadata_ws)
        .get(Authenticated, paths::AGENT_CONTAINERS, workspace_agents::containers)
        .get(Authenticated, paths::AGENT_LISTENING_PORTS, workspace_agents::listening_ports)
        .get(Public, paths::AGENT_PTY, workspace_agents::pty)
}

/// The rows of the table, for documentation and for the test that walks them.
#[must_use]
pub fn rows(app: App) -> Vec<Row> {
    table(app).finish().0
}

/// The service that answers requests.
#[must_use]
pub fn service(app: App) -> Service {
    let (_, routes) = table(app.clone()).finish();
    let router: Router = routes
        .fallback(layers::unknown_path)
        .method_not_allowed_fallback(layers::wrong_method)
        .layer(from_fn_with_state(app.clone(), layers::outermost))
        .with_state(app.clone());
    let site = ServiceBuilder::new()
        .map_request(layers::strip_slash)
        .service(router.into_service::<axum::body::Body>());
    // Paths of apps are the apps' own, so nothing here may change them.
    let apps: Router = Router::new()
        .fallback(apps::serve)
        .layer(from_fn_with_state(app.clone(), layers::outermost))
        .with_state(app.clone());
    let apps = apps.into_service::<axum::body::Body>();
    BoxCloneSyncService::new(service_fn(move |mut request: Request| {
        let (site, apps, destination) = (site.clone(), apps.clone(), Destination::of(&app.config, &request));
        async move {
            match destination {
                Some(destination) => {
                    request.extensions_mut().insert(destination);
                    apps.oneshot(request).await
                }
                None => site.oneshot(request).await,
            }
        }
    }))
}
