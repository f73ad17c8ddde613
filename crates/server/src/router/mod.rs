//! The whole URL surface on one screen, and what every request passes on its way.

pub mod layers;
pub mod table;

use axum::Router;
use axum::middleware::from_fn_with_state;
use coder_api::paths;
use tower::ServiceBuilder;
use tower::util::BoxCloneSyncService;

use self::table::Access::{Daemon, Public, Signed};
use self::table::{Row, Table};
use crate::context::App;
use crate::http::connection::Service;
use crate::http::limits::Group::{Files, Login};
use crate::pages;
use crate::routes::{
    audit, builds, dry_runs, external_auth, files, job_logs, keys, meta, organizations, provisioner_daemons,
    provisioner_jobs, provisioner_keys, templates, users, versions, workspaces,
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
        .get(Public, "/bin/{name}", meta::binary)
        .get(Public, "/install.sh", meta::install_script)
        // The server itself
        .get(Public, "/api/v2", meta::root)
        .get(Public, paths::BUILD_INFO, meta::build_info)
        .get(Public, paths::ENTITLEMENTS, meta::entitlements)
        .get(Public, paths::UPDATE_CHECK, meta::update_check)
        .get(Signed, paths::HEALTH, meta::health)
        .get(Signed, paths::APPEARANCE, meta::appearance)
        .get(Signed, paths::REGIONS, meta::regions)
        .get(Signed, paths::DEPLOYMENT_SSH, meta::ssh_config)
        .get(Signed, paths::EXPERIMENTS, meta::experiments)
        .get(Signed, paths::EXPERIMENTS_AVAILABLE, meta::available_experiments)
        // Users, sessions, tokens
        .get(Public, paths::FIRST_USER, users::first::show)
        .post(Public, paths::FIRST_USER, users::first::create)
        .post_limited(Login, Public, paths::LOGIN, users::login::login)
        .post(Signed, paths::LOGOUT, users::login::logout)
        .get(Public, paths::AUTH_METHODS, users::login::methods)
        .get(Signed, paths::SITE_ROLES, users::roles::assignable)
        .get(Signed, paths::USERS, users::list::list)
        .post(Signed, paths::USERS, users::create::create)
        .get(Signed, paths::USER, users::get::get)
        .delete(Signed, paths::USER, users::delete::delete)
        .get(Signed, paths::USER_ROLES, users::roles::show)
        .put(Signed, paths::USER_ROLES, users::roles::update)
        .put(Signed, paths::USER_SUSPEND, users::status::suspend)
        .put(Signed, paths::USER_ACTIVATE, users::status::activate)
        .put(Signed, paths::USER_PROFILE, users::profile::update)
        .put_limited(Login, Signed, paths::USER_PASSWORD, users::password::update)
        .get(Signed, paths::USER_LOGIN_TYPE, users::get::login_type)
        .get(Signed, paths::USER_ORGANIZATIONS, users::organizations::list)
        .get(Signed, paths::USER_ORGANIZATION, users::organizations::get)
        .post(Signed, paths::USER_KEYS, keys::create::session)
        .get(Signed, paths::USER_KEY, keys::get::by_id)
        .delete(Signed, paths::USER_KEY, keys::delete::delete)
        .get(Signed, paths::USER_TOKENS, keys::list::list)
        .post(Signed, paths::USER_TOKENS, keys::create::token)
        .get(Signed, paths::TOKEN_CONFIG, keys::get::config)
        .get(Signed, paths::USER_TOKEN, keys::get::by_name)
        .get(Signed, paths::USER_WORKSPACE, workspaces::get::by_name)
        .get(Signed, paths::USER_WORKSPACE_BUILD, builds::get::by_number)
        .post(Signed, paths::USER_WORKSPACES, workspaces::create::create)
        .get(Signed, paths::EXTERNAL_AUTHS, external_auth::list)
        .get(Signed, paths::EXTERNAL_AUTH, external_auth::get)
        .delete(Signed, paths::EXTERNAL_AUTH, external_auth::delete)
        .get_limited(Login, Signed, paths::EXTERNAL_AUTH_DEVICE, external_auth::device)
        .post_limited(Login, Signed, paths::EXTERNAL_AUTH_DEVICE, external_auth::redeem_device)
        .get(Public, paths::AUTH_SCOPES, keys::get::scopes)
        .get(Signed, paths::AUDIT, audit::list)
        // Organizations
        .get(Signed, paths::ORGANIZATIONS, organizations::list)
        .get(Signed, paths::ORGANIZATION, organizations::get)
        .post(Signed, paths::ORGANIZATIONS, organizations::create::create)
        .patch(Signed, paths::ORGANIZATION, organizations::update::update)
        .delete(Signed, paths::ORGANIZATION, organizations::delete::delete)
        .get(Signed, paths::ORGANIZATION_ROLES, organizations::roles::assignable)
        .post(Signed, paths::ORGANIZATION_ROLES, organizations::roles::custom)
        .put(Signed, paths::ORGANIZATION_ROLES, organizations::roles::custom)
        .put(Signed, paths::MEMBER_ROLES, organizations::roles::update)
        .get(Signed, paths::MEMBERS, organizations::members::list)
        .get(Signed, paths::PAGINATED_MEMBERS, organizations::members::paginated)
        .post(Signed, paths::MEMBER, organizations::members::add)
        .delete(Signed, paths::MEMBER, organizations::members::remove)
        .post(Signed, paths::MEMBER_WORKSPACES, workspaces::create::in_organization)
        // Provisioners
        .get(Daemon, paths::SERVE, provisioner_daemons::serve)
        .get(Signed, paths::DAEMONS, provisioner_daemons::list)
        .post(Signed, paths::DAEMON_DRAIN, provisioner_daemons::drain)
        .delete(Signed, paths::DAEMON_DRAIN, provisioner_daemons::undrain)
        .get(Signed, paths::JOBS, provisioner_jobs::list)
        .get(Signed, paths::JOB, provisioner_jobs::get)
        .get(Signed, paths::JOB_EXPLANATION, provisioner_jobs::explain)
        .get(Signed, paths::PROVISIONER_KEYS, provisioner_keys::list)
        .post(Signed, paths::PROVISIONER_KEYS, provisioner_keys::create)
        .get(Signed, paths::PROVISIONER_KEY_DAEMONS, provisioner_keys::daemons)
        .patch(Signed, paths::PROVISIONER_KEY, provisioner_keys::update)
        .delete(Signed, paths::PROVISIONER_KEY, provisioner_keys::delete)
        .post(Signed, paths::PROVISIONER_KEY_ROTATE, provisioner_keys::rotate)
        .get(Daemon, paths::OWN_PROVISIONER_KEY, provisioner_keys::get)
        // Files
        .post_limited(Files, Signed, paths::FILES, files::upload)
        .get_limited(Files, Signed, paths::FILE, files::download)
        // Templates
        .get(Signed, paths::TEMPLATES, templates::list::list)
        .get(Signed, paths::TEMPLATE, templates::get::get)
        .patch(Signed, paths::TEMPLATE, templates::update::update)
        .delete(Signed, paths::TEMPLATE, templates::delete::delete)
        .get(Signed, paths::TEMPLATE_ACL, templates::access::get)
        .patch(Signed, paths::TEMPLATE_ACL, templates::access::update)
        .get(Signed, paths::TEMPLATE_VERSIONS, versions::list::list)
        .patch(Signed, paths::TEMPLATE_VERSIONS, templates::activate::activate)
        .post(Signed, paths::TEMPLATE_VERSIONS_ARCHIVE, versions::archive::archive_unused)
        .get(Signed, paths::TEMPLATE_VERSION_BY_NAME, versions::get::by_template_and_name)
        .get(Signed, paths::ORGANIZATION_TEMPLATES, templates::list::in_organization)
        .post(Signed, paths::ORGANIZATION_TEMPLATES, templates::create::create)
        .get(Signed, paths::ORGANIZATION_TEMPLATE, templates::get::by_name)
        .get(Signed, paths::ORGANIZATION_TEMPLATE_VERSION, versions::get::by_names)
        .get(Signed, paths::ORGANIZATION_TEMPLATE_PREVIOUS, versions::get::previous)
        // Template versions
        .post(Signed, paths::CREATE_TEMPLATE_VERSION, versions::create::create)
        .get(Signed, paths::VERSION, versions::get::get)
        .patch(Signed, paths::VERSION, versions::update::update)
        .patch(Signed, paths::VERSION_CANCEL, versions::cancel::cancel)
        .post(Signed, paths::VERSION_ARCHIVE, versions::archive::archive)
        .post(Signed, paths::VERSION_UNARCHIVE, versions::archive::unarchive)
        .get(Signed, paths::VERSION_LOGS, job_logs::version)
        .get(Signed, paths::VERSION_RESOURCES, versions::content::resources)
        .get(Signed, paths::VERSION_VARIABLES, versions::content::variables)
        .get(Signed, paths::VERSION_RICH_PARAMETERS, versions::content::parameters)
        .get(Signed, paths::VERSION_PRESETS, versions::content::presets)
        .get(Signed, paths::VERSION_EXTERNAL_AUTH, versions::content::accounts)
        .get(Signed, paths::VERSION_SCHEMA, versions::content::nothing)
        .get(Signed, paths::VERSION_PARAMETERS, versions::content::nothing)
        .post(Signed, paths::DRY_RUNS, dry_runs::create)
        .get(Signed, paths::DRY_RUN, dry_runs::get)
        .get(Signed, paths::DRY_RUN_MATCHED, dry_runs::matched)
        .get(Signed, paths::DRY_RUN_RESOURCES, dry_runs::resources)
        .get(Signed, paths::DRY_RUN_LOGS, job_logs::dry_run)
        .patch(Signed, paths::DRY_RUN_CANCEL, dry_runs::cancel)
        // Workspaces
        .get(Signed, paths::WORKSPACES, workspaces::list::list)
        .get(Signed, paths::WORKSPACE, workspaces::get::get)
        .patch(Signed, paths::WORKSPACE, workspaces::settings::rename)
        .put(Signed, paths::WORKSPACE_AUTOSTART, workspaces::settings::autostart)
        .put(Signed, paths::WORKSPACE_TTL, workspaces::settings::ttl)
        .put(Signed, paths::WORKSPACE_AUTOUPDATES, workspaces::settings::automatic_updates)
        .put(Signed, paths::WORKSPACE_DORMANT, workspaces::settings::dormant)
        .put(Signed, paths::WORKSPACE_FAVORITE, workspaces::settings::favorite)
        .delete(Signed, paths::WORKSPACE_FAVORITE, workspaces::settings::unfavorite)
        .get(Signed, "/api/v2/workspaces/{workspace}/resolve-autostart", workspaces::settings::resolve_autostart)
        .get(Signed, "/api/v2/workspaces/{workspace}/timings", builds::content::latest_timings)
        // Builds
        .get(Signed, paths::WORKSPACE_BUILDS, builds::list::list)
        .post(Signed, paths::WORKSPACE_BUILDS, builds::create::create)
        .get(Signed, paths::BUILD, builds::get::get)
        .patch(Signed, paths::BUILD_CANCEL, builds::cancel::cancel)
        .get(Signed, paths::BUILD_LOGS, job_logs::build)
        .get(Signed, paths::BUILD_PARAMETERS, builds::content::parameters)
        .get(Signed, paths::BUILD_RESOURCES, builds::content::resources)
        .get(Signed, paths::BUILD_STATE, builds::state::get)
        .put(Signed, paths::BUILD_STATE, builds::state::update)
        .get(Signed, paths::BUILD_TIMINGS, builds::content::timings)
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
        .layer(from_fn_with_state(app.clone(), layers::surround))
        .with_state(app);
    let inner = router.into_service::<axum::body::Body>();
    BoxCloneSyncService::new(ServiceBuilder::new().map_request(layers::strip_slash).service(inner))
}
