//! The whole URL surface on one screen, and what every request passes on its way.

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use std::convert::Infallible;
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt};

use super::layers;
use super::limits::Group::{Files, Login};
use super::table::Access::{Daemon, Public, Signed};
use super::table::{Row, Table};
use crate::context::App;
use crate::pages;
use crate::routes::{
    builds, dry_runs, files, job_logs, keys, meta, organizations, provisioner_daemons, provisioner_jobs,
    provisioner_keys, templates, users, versions, workspaces,
};

/// A request in, a response out.
pub type Service = BoxCloneSyncService<Request, Response, Infallible>;

/// Every route.
#[rustfmt::skip]
fn table(app: App) -> Table {
    Table::new(app)
        // Outside the API
        .get(Public, "/", pages::home)
        .get(Public, "/login", pages::login)
        .get(Public, "/cli-auth", pages::cli_auth)
        .get(Public, "/healthz", meta::healthz)
        .get(Public, "/latency-check", meta::healthz)
        .get(Public, "/bin/{name}", meta::binary)
        .get(Public, "/install.sh", meta::install_script)
        .under("/api/v2")
        // The server itself
        .get(Public, "", meta::root)
        .get(Public, "/buildinfo", meta::build_info)
        .get(Public, "/entitlements", meta::entitlements)
        .get(Public, "/updatecheck", meta::update_check)
        .get(Signed, "/appearance", meta::appearance)
        .get(Signed, "/regions", meta::regions)
        .get(Signed, "/deployment/ssh", meta::ssh_config)
        .get(Signed, "/experiments", meta::experiments)
        .get(Signed, "/experiments/available", meta::available_experiments)
        // Users, sessions, tokens
        .get(Public, "/users/first", users::first::show)
        .post(Public, "/users/first", users::first::create)
        .post_limited(Login, Public, "/users/login", users::login::login)
        .post(Signed, "/users/logout", users::login::logout)
        .get(Public, "/users/authmethods", users::login::methods)
        .get(Signed, "/users/roles", users::roles::assignable)
        .get(Signed, "/users", users::list::list)
        .post(Signed, "/users", users::create::create)
        .get(Signed, "/users/{user}", users::get::get)
        .delete(Signed, "/users/{user}", users::delete::delete)
        .get(Signed, "/users/{user}/roles", users::roles::show)
        .put(Signed, "/users/{user}/roles", users::roles::update)
        .put(Signed, "/users/{user}/status/suspend", users::status::suspend)
        .put(Signed, "/users/{user}/status/activate", users::status::activate)
        .put(Signed, "/users/{user}/profile", users::profile::update)
        .put_limited(Login, Signed, "/users/{user}/password", users::password::update)
        .get(Signed, "/users/{user}/login-type", users::get::login_type)
        .get(Signed, "/users/{user}/organizations", users::organizations::list)
        .get(Signed, "/users/{user}/organizations/{name}", users::organizations::get)
        .post(Signed, "/users/{user}/keys", keys::create::session)
        .get(Signed, "/users/{user}/keys/{id}", keys::get::by_id)
        .delete(Signed, "/users/{user}/keys/{id}", keys::delete::delete)
        .get(Signed, "/users/{user}/keys/tokens", keys::list::list)
        .post(Signed, "/users/{user}/keys/tokens", keys::create::token)
        .get(Signed, "/users/{user}/keys/tokens/tokenconfig", keys::get::config)
        .get(Signed, "/users/{user}/keys/tokens/{name}", keys::get::by_name)
        .get(Signed, "/users/{user}/workspace/{workspace}", workspaces::get::by_name)
        .get(Signed, "/users/{user}/workspace/{workspace}/builds/{number}", builds::get::by_number)
        .post(Signed, "/users/{user}/workspaces", workspaces::create::create)
        // Organizations
        .get(Signed, "/organizations", organizations::list)
        .get(Signed, "/organizations/{organization}", organizations::get)
        .get(Signed, "/organizations/{organization}/members", organizations::members)
        .get(Signed, "/organizations/{organization}/paginated-members", organizations::paginated_members)
        .post(Signed, "/organizations/{organization}/members/{user}", organizations::add_member)
        .delete(Signed, "/organizations/{organization}/members/{user}", organizations::remove_member)
        .post(Signed, "/organizations/{organization}/members/{user}/workspaces", workspaces::create::in_organization)
        // Provisioners
        .get(Daemon, "/organizations/{organization}/provisionerdaemons/serve", provisioner_daemons::serve)
        .get(Signed, "/organizations/{organization}/provisionerdaemons", provisioner_daemons::list)
        .get(Signed, "/organizations/{organization}/provisionerjobs", provisioner_jobs::list)
        .get(Signed, "/organizations/{organization}/provisionerjobs/{job}", provisioner_jobs::get)
        .get(Signed, "/organizations/{organization}/provisionerkeys", provisioner_keys::list)
        .post(Signed, "/organizations/{organization}/provisionerkeys", provisioner_keys::create)
        .get(Signed, "/organizations/{organization}/provisionerkeys/daemons", provisioner_keys::daemons)
        .delete(Signed, "/organizations/{organization}/provisionerkeys/{name}", provisioner_keys::delete)
        .get(Daemon, "/provisionerkeys/{key}", provisioner_keys::get)
        // Files
        .post_limited(Files, Signed, "/files", files::upload)
        .get_limited(Files, Signed, "/files/{file}", files::download)
        // Templates
        .get(Signed, "/templates", templates::list::list)
        .get(Signed, "/templates/{template}", templates::get::get)
        .patch(Signed, "/templates/{template}", templates::update::update)
        .delete(Signed, "/templates/{template}", templates::delete::delete)
        .get(Signed, "/templates/{template}/versions", versions::list::list)
        .patch(Signed, "/templates/{template}/versions", templates::activate::activate)
        .get(Signed, "/templates/{template}/versions/{name}", versions::get::by_template_and_name)
        .get(Signed, "/organizations/{organization}/templates", templates::list::in_organization)
        .post(Signed, "/organizations/{organization}/templates", templates::create::create)
        .get(Signed, "/organizations/{organization}/templates/{name}", templates::get::by_name)
        .get(Signed, "/organizations/{organization}/templates/{template}/versions/{name}", versions::get::by_names)
        // Template versions
        .post(Signed, "/organizations/{organization}/templateversions", versions::create::create)
        .get(Signed, "/templateversions/{version}", versions::get::get)
        .patch(Signed, "/templateversions/{version}", versions::update::update)
        .patch(Signed, "/templateversions/{version}/cancel", versions::cancel::cancel)
        .post(Signed, "/templateversions/{version}/archive", versions::archive::archive)
        .post(Signed, "/templateversions/{version}/unarchive", versions::archive::unarchive)
        .get(Signed, "/templateversions/{version}/logs", job_logs::version)
        .get(Signed, "/templateversions/{version}/resources", versions::content::resources)
        .get(Signed, "/templateversions/{version}/variables", versions::content::variables)
        .get(Signed, "/templateversions/{version}/rich-parameters", versions::content::parameters)
        .get(Signed, "/templateversions/{version}/presets", versions::content::presets)
        .get(Signed, "/templateversions/{version}/external-auth", versions::content::external_auth)
        .get(Signed, "/templateversions/{version}/schema", versions::content::nothing)
        .get(Signed, "/templateversions/{version}/parameters", versions::content::nothing)
        .post(Signed, "/templateversions/{version}/dry-run", dry_runs::create)
        .get(Signed, "/templateversions/{version}/dry-run/{job}", dry_runs::get)
        .get(Signed, "/templateversions/{version}/dry-run/{job}/matched-provisioners", dry_runs::matched)
        .get(Signed, "/templateversions/{version}/dry-run/{job}/resources", dry_runs::resources)
        .get(Signed, "/templateversions/{version}/dry-run/{job}/logs", job_logs::dry_run)
        .patch(Signed, "/templateversions/{version}/dry-run/{job}/cancel", dry_runs::cancel)
        // Workspaces
        .get(Signed, "/workspaces", workspaces::list::list)
        .get(Signed, "/workspaces/{workspace}", workspaces::get::get)
        .patch(Signed, "/workspaces/{workspace}", workspaces::settings::rename)
        .put(Signed, "/workspaces/{workspace}/autostart", workspaces::settings::autostart)
        .put(Signed, "/workspaces/{workspace}/ttl", workspaces::settings::ttl)
        .put(Signed, "/workspaces/{workspace}/autoupdates", workspaces::settings::automatic_updates)
        .put(Signed, "/workspaces/{workspace}/dormant", workspaces::settings::dormant)
        .put(Signed, "/workspaces/{workspace}/favorite", workspaces::settings::favorite)
        .delete(Signed, "/workspaces/{workspace}/favorite", workspaces::settings::unfavorite)
        .get(Signed, "/workspaces/{workspace}/resolve-autostart", workspaces::settings::resolve_autostart)
        .get(Signed, "/workspaces/{workspace}/timings", builds::content::latest_timings)
        // Builds
        .get(Signed, "/workspaces/{workspace}/builds", builds::list::list)
        .post(Signed, "/workspaces/{workspace}/builds", builds::create::create)
        .get(Signed, "/workspacebuilds/{build}", builds::get::get)
        .patch(Signed, "/workspacebuilds/{build}/cancel", builds::cancel::cancel)
        .get(Signed, "/workspacebuilds/{build}/logs", job_logs::build)
        .get(Signed, "/workspacebuilds/{build}/parameters", builds::content::parameters)
        .get(Signed, "/workspacebuilds/{build}/resources", builds::content::resources)
        .get(Signed, "/workspacebuilds/{build}/state", builds::state::get)
        .put(Signed, "/workspacebuilds/{build}/state", builds::state::update)
        .get(Signed, "/workspacebuilds/{build}/timings", builds::content::timings)
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
        .layer(from_fn_with_state(app.clone(), layers::surround))
        .with_state(app);
    let inner = router.into_service::<axum::body::Body>();
    BoxCloneSyncService::new(ServiceBuilder::new().map_request(layers::strip_slash).service(inner))
}
