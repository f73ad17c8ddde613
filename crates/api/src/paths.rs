//! Where every endpoint is, once: the route templates a server registers and the functions that fill them in.

use std::fmt::{Display, Write as _};

/// Defines, per line, a route template and a function that makes a path out of it. Arguments are escaped, so that a name
/// with a slash or a question mark stays one segment.
macro_rules! paths {
    ($($template:ident, $fill:ident($($arg:ident),*) = $path:literal;)*) => {
        $(
            #[doc = concat!("Route template `", $path, "`.")]
            pub const $template: &str = $path;

            #[doc = concat!("A path of [`", stringify!($template), "`].")]
            #[must_use]
            pub fn $fill($($arg: impl Display),*) -> String {
                fill($path, &[$(&$arg),*])
            }
        )*

        $(const _: () = assert!(
            placeholders($path) == <[&str]>::len(&[$(stringify!($arg)),*]),
            "a path's function takes one argument per placeholder"
        );)*

        /// Every route template in this module.
        pub const ALL: &[&str] = &[$($path),*];
    };
}

paths! {
    API_ROOT, api_root() = "/api/v2/";
    HEALTHZ, healthz() = "/healthz";
    READYZ, readyz() = "/readyz";
    LATENCY_CHECK, latency_check() = "/latency-check";
    CLI_AUTH, cli_auth() = "/cli-auth";
    EXTERNAL_AUTH_PAGE, external_auth_page(provider) = "/external-auth/{externalauth}";
    EXTERNAL_AUTH_CALLBACK, external_auth_callback(provider) = "/external-auth/{externalauth}/callback";

    EXTERNAL_AUTHS, external_auths() = "/api/v2/external-auth";
    EXTERNAL_AUTH, external_auth(provider) = "/api/v2/external-auth/{externalauth}";
    EXTERNAL_AUTH_DEVICE, external_auth_device(provider) = "/api/v2/external-auth/{externalauth}/device";

    BUILD_INFO, build_info() = "/api/v2/buildinfo";
    ENTITLEMENTS, entitlements() = "/api/v2/entitlements";
    APPEARANCE, appearance() = "/api/v2/appearance";
    DEPLOYMENT_SSH, deployment_ssh() = "/api/v2/deployment/ssh";
    APPLICATIONS_HOST, applications_host() = "/api/v2/applications/host";
    APPLICATIONS_AUTH_REDIRECT, applications_auth_redirect() = "/api/v2/applications/auth-redirect";
    REGIONS, regions() = "/api/v2/regions";
    EXPERIMENTS, experiments() = "/api/v2/experiments";
    EXPERIMENTS_AVAILABLE, experiments_available() = "/api/v2/experiments/available";
    UPDATE_CHECK, update_check() = "/api/v2/updatecheck";
    AUTH_SCOPES, auth_scopes() = "/api/v2/auth/scopes";
    AUDIT, audit() = "/api/v2/audit";
    CONNECTION_LOG, connection_log() = "/api/v2/connectionlog";

    HEALTH, health() = "/api/v2/debug/health";

    FIRST_USER, first_user() = "/api/v2/users/first";
    LOGIN, login() = "/api/v2/users/login";
    LOGOUT, logout() = "/api/v2/users/logout";
    AUTH_METHODS, auth_methods() = "/api/v2/users/authmethods";
    USERS, users() = "/api/v2/users";
    SITE_ROLES, site_roles() = "/api/v2/users/roles";
    USER, user(user) = "/api/v2/users/{user}";
    USER_ROLES, user_roles(user) = "/api/v2/users/{user}/roles";
    USER_SUSPEND, user_suspend(user) = "/api/v2/users/{user}/status/suspend";
    USER_ACTIVATE, user_activate(user) = "/api/v2/users/{user}/status/activate";
    USER_QUIET_HOURS, user_quiet_hours(user) = "/api/v2/users/{user}/quiet-hours";
    USER_ORGANIZATIONS, user_organizations(user) = "/api/v2/users/{user}/organizations";
    USER_ORGANIZATION, user_organization(user, name) = "/api/v2/users/{user}/organizations/{organizationname}";
    USER_PROFILE, user_profile(user) = "/api/v2/users/{user}/profile";
    USER_PASSWORD, user_password(user) = "/api/v2/users/{user}/password";
    USER_LOGIN_TYPE, user_login_type(user) = "/api/v2/users/{user}/login-type";
    USER_KEYS, user_keys(user) = "/api/v2/users/{user}/keys";
    USER_KEY, user_key(user, key) = "/api/v2/users/{user}/keys/{keyid}";
    USER_TOKENS, user_tokens(user) = "/api/v2/users/{user}/keys/tokens";
    TOKEN_CONFIG, token_config(user) = "/api/v2/users/{user}/keys/tokens/tokenconfig";
    USER_TOKEN, user_token(user, name) = "/api/v2/users/{user}/keys/tokens/{keyname}";
    USER_GIT_SSH_KEY, user_git_ssh_key(user) = "/api/v2/users/{user}/gitsshkey";
    USER_WORKSPACES, user_workspaces(user) = "/api/v2/users/{user}/workspaces";
    USER_WORKSPACE, user_workspace(user, name) = "/api/v2/users/{user}/workspace/{workspacename}";
    USER_WORKSPACE_BUILD, user_workspace_build(user, name, number) =
        "/api/v2/users/{user}/workspace/{workspacename}/builds/{buildnumber}";

    ORGANIZATIONS, organizations() = "/api/v2/organizations";
    ORGANIZATION, organization(organization) = "/api/v2/organizations/{organization}";
    MEMBERS, members(organization) = "/api/v2/organizations/{organization}/members";
    PAGINATED_MEMBERS, paginated_members(organization) = "/api/v2/organizations/{organization}/paginated-members";
    ORGANIZATION_ROLES, organization_roles(organization) = "/api/v2/organizations/{organization}/members/roles";
    MEMBER, member(organization, user) = "/api/v2/organizations/{organization}/members/{user}";
    MEMBER_ROLES, member_roles(organization, user) = "/api/v2/organizations/{organization}/members/{user}/roles";
    MEMBER_WORKSPACES, member_workspaces(organization, user) =
        "/api/v2/organizations/{organization}/members/{user}/workspaces";

    PROVISIONER_KEYS, provisioner_keys(organization) = "/api/v2/organizations/{organization}/provisionerkeys";
    PROVISIONER_KEY_DAEMONS, provisioner_key_daemons(organization) =
        "/api/v2/organizations/{organization}/provisionerkeys/daemons";
    PROVISIONER_KEY, provisioner_key(organization, name) =
        "/api/v2/organizations/{organization}/provisionerkeys/{provisionerkey}";
    PROVISIONER_KEY_ROTATE, provisioner_key_rotate(organization, name) =
        "/api/v2/organizations/{organization}/provisionerkeys/{provisionerkey}/rotate";
    OWN_PROVISIONER_KEY, own_provisioner_key(anything) = "/api/v2/provisionerkeys/{provisionerkey}";
    DAEMONS, daemons(organization) = "/api/v2/organizations/{organization}/provisionerdaemons";
    SERVE, serve(organization) = "/api/v2/organizations/{organization}/provisionerdaemons/serve";
    DAEMON_DRAIN, daemon_drain(organization, daemon) =
        "/api/v2/organizations/{organization}/provisionerdaemons/{daemon}/drain";
    JOBS, jobs(organization) = "/api/v2/organizations/{organization}/provisionerjobs";
    JOB, job(organization, job) = "/api/v2/organizations/{organization}/provisionerjobs/{job}";
    JOB_EXPLANATION, job_explanation(organization, job) =
        "/api/v2/organizations/{organization}/provisionerjobs/{job}/explain";

    FILES, files() = "/api/v2/files";
    FILE, file(file) = "/api/v2/files/{fileid}";

    TEMPLATES, templates() = "/api/v2/templates";
    TEMPLATE_EXAMPLES, template_examples() = "/api/v2/templates/examples";
    TEMPLATE, template(template) = "/api/v2/templates/{template}";
    TEMPLATE_ACL, template_acl(template) = "/api/v2/templates/{template}/acl";
    TEMPLATE_VERSIONS, template_versions(template) = "/api/v2/templates/{template}/versions";
    TEMPLATE_VERSIONS_ARCHIVE, template_versions_archive(template) = "/api/v2/templates/{template}/versions/archive";
    TEMPLATE_VERSION_BY_NAME, template_version_by_name(template, name) =
        "/api/v2/templates/{template}/versions/{templateversionname}";
    ORGANIZATION_TEMPLATES, organization_templates(organization) =
        "/api/v2/organizations/{organization}/templates";
    ORGANIZATION_TEMPLATE_EXAMPLES, organization_template_examples(organization) =
        "/api/v2/organizations/{organization}/templates/examples";
    ORGANIZATION_TEMPLATE, organization_template(organization, name) =
        "/api/v2/organizations/{organization}/templates/{templatename}";
    ORGANIZATION_TEMPLATE_VERSION, organization_template_version(organization, name, version) =
        "/api/v2/organizations/{organization}/templates/{templatename}/versions/{templateversionname}";
    ORGANIZATION_TEMPLATE_PREVIOUS, organization_template_previous(organization, name, version) =
        "/api/v2/organizations/{organization}/templates/{templatename}/versions/{templateversionname}/previous";

    CREATE_TEMPLATE_VERSION, create_template_version(organization) =
        "/api/v2/organizations/{organization}/templateversions";
    VERSION, version(version) = "/api/v2/templateversions/{templateversion}";
    VERSION_CANCEL, version_cancel(version) = "/api/v2/templateversions/{templateversion}/cancel";
    VERSION_LOGS, version_logs(version) = "/api/v2/templateversions/{templateversion}/logs";
    VERSION_RESOURCES, version_resources(version) = "/api/v2/templateversions/{templateversion}/resources";
    VERSION_VARIABLES, version_variables(version) = "/api/v2/templateversions/{templateversion}/variables";
    VERSION_RICH_PARAMETERS, version_rich_parameters(version) =
        "/api/v2/templateversions/{templateversion}/rich-parameters";
    VERSION_PRESETS, version_presets(version) = "/api/v2/templateversions/{templateversion}/presets";
    VERSION_EXTERNAL_AUTH, version_external_auth(version) =
        "/api/v2/templateversions/{templateversion}/external-auth";
    VERSION_SCHEMA, version_schema(version) = "/api/v2/templateversions/{templateversion}/schema";
    VERSION_PARAMETERS, version_parameters(version) = "/api/v2/templateversions/{templateversion}/parameters";
    VERSION_ARCHIVE, version_archive(version) = "/api/v2/templateversions/{templateversion}/archive";
    VERSION_UNARCHIVE, version_unarchive(version) = "/api/v2/templateversions/{templateversion}/unarchive";
    DRY_RUNS, dry_runs(version) = "/api/v2/templateversions/{templateversion}/dry-run";
    DRY_RUN, dry_run(version, job) = "/api/v2/templateversions/{templateversion}/dry-run/{job}";
    DRY_RUN_MATCHED, dry_run_matched(version, job) =
        "/api/v2/templateversions/{templateversion}/dry-run/{job}/matched-provisioners";
    DRY_RUN_RESOURCES, dry_run_resources(version, job) =
        "/api/v2/templateversions/{templateversion}/dry-run/{job}/resources";
    DRY_RUN_LOGS, dry_run_logs(version, job) = "/api/v2/templateversions/{templateversion}/dry-run/{job}/logs";
    DRY_RUN_CANCEL, dry_run_cancel(version, job) = "/api/v2/templateversions/{templateversion}/dry-run/{job}/cancel";

    WORKSPACES, workspaces() = "/api/v2/workspaces";
    WORKSPACE, workspace(workspace) = "/api/v2/workspaces/{workspace}";
    WORKSPACE_BUILDS, workspace_builds(workspace) = "/api/v2/workspaces/{workspace}/builds";
    WORKSPACE_AUTOSTART, workspace_autostart(workspace) = "/api/v2/workspaces/{workspace}/autostart";
    WORKSPACE_TTL, workspace_ttl(workspace) = "/api/v2/workspaces/{workspace}/ttl";
    WORKSPACE_EXTEND, workspace_extend(workspace) = "/api/v2/workspaces/{workspace}/extend";
    WORKSPACE_RESOLVE_AUTOSTART, workspace_resolve_autostart(workspace) =
        "/api/v2/workspaces/{workspace}/resolve-autostart";
    WORKSPACE_DORMANT, workspace_dormant(workspace) = "/api/v2/workspaces/{workspace}/dormant";
    WORKSPACE_AUTOUPDATES, workspace_autoupdates(workspace) = "/api/v2/workspaces/{workspace}/autoupdates";
    WORKSPACE_FAVORITE, workspace_favorite(workspace) = "/api/v2/workspaces/{workspace}/favorite";
    WORKSPACE_USAGE, workspace_usage(workspace) = "/api/v2/workspaces/{workspace}/usage";
    WORKSPACE_WATCH, workspace_watch(workspace) = "/api/v2/workspaces/{workspace}/watch";
    WORKSPACE_WATCH_WS, workspace_watch_ws(workspace) = "/api/v2/workspaces/{workspace}/watch-ws";
    WORKSPACE_PORT_SHARE, workspace_port_share(workspace) = "/api/v2/workspaces/{workspace}/port-share";

    BUILD, build(build) = "/api/v2/workspacebuilds/{workspacebuild}";
    BUILD_CANCEL, build_cancel(build) = "/api/v2/workspacebuilds/{workspacebuild}/cancel";
    BUILD_LOGS, build_logs(build) = "/api/v2/workspacebuilds/{workspacebuild}/logs";
    BUILD_PARAMETERS, build_parameters(build) = "/api/v2/workspacebuilds/{workspacebuild}/parameters";
    BUILD_RESOURCES, build_resources(build) = "/api/v2/workspacebuilds/{workspacebuild}/resources";
    BUILD_STATE, build_state(build) = "/api/v2/workspacebuilds/{workspacebuild}/state";
    BUILD_TIMINGS, build_timings(build) = "/api/v2/workspacebuilds/{workspacebuild}/timings";

    DERP, derp() = "/derp";
    DERP_MESH, derp_mesh() = "/derp/mesh";
    DERP_LATENCY_CHECK, derp_latency_check() = "/derp/latency-check";
    DERP_MAP, derp_map() = "/api/v2/derp-map";
    TAILNET, tailnet() = "/api/v2/tailnet";
    AGENTS_CONNECTION, agents_connection() = "/api/v2/workspaceagents/connection";
    AGENT_CONNECTION, agent_connection(agent) = "/api/v2/workspaceagents/{workspaceagent}/connection";
    AGENT_COORDINATE, agent_coordinate(agent) = "/api/v2/workspaceagents/{workspaceagent}/coordinate";
    AGENT, agent(agent) = "/api/v2/workspaceagents/{workspaceagent}";
    AGENT_RPC, agent_rpc() = "/api/v2/workspaceagents/me/rpc";
    AGENT_REINIT, agent_reinit() = "/api/v2/workspaceagents/me/reinit";
    AGENT_GIT_SSH_KEY, agent_git_ssh_key() = "/api/v2/workspaceagents/me/gitsshkey";
    AGENT_EXTERNAL_AUTH, agent_external_auth() = "/api/v2/workspaceagents/me/external-auth";
    AGENT_OWN_LOGS, agent_own_logs() = "/api/v2/workspaceagents/me/logs";
    AGENT_LOG_SOURCE, agent_log_source() = "/api/v2/workspaceagents/me/log-source";
    AWS_INSTANCE_IDENTITY, aws_instance_identity() = "/api/v2/workspaceagents/aws-instance-identity";
    AZURE_INSTANCE_IDENTITY, azure_instance_identity() = "/api/v2/workspaceagents/azure-instance-identity";
    GOOGLE_INSTANCE_IDENTITY, google_instance_identity() = "/api/v2/workspaceagents/google-instance-identity";
    AGENT_LOGS, agent_logs(agent) = "/api/v2/workspaceagents/{workspaceagent}/logs";
    AGENT_WATCH_METADATA, agent_watch_metadata(agent) =
        "/api/v2/workspaceagents/{workspaceagent}/watch-metadata";
    AGENT_WATCH_METADATA_WS, agent_watch_metadata_ws(agent) =
        "/api/v2/workspaceagents/{workspaceagent}/watch-metadata-ws";
    AGENT_LISTENING_PORTS, agent_listening_ports(agent) =
        "/api/v2/workspaceagents/{workspaceagent}/listening-ports";
    AGENT_PTY, agent_pty(agent) = "/api/v2/workspaceagents/{workspaceagent}/pty";
    AGENT_CONTAINERS, agent_containers(agent) = "/api/v2/workspaceagents/{workspaceagent}/containers";
}

/// The organization every deployment has, in a path.
pub const DEFAULT_ORGANIZATION: &str = "default";
/// The caller, in a path.
pub const ME: &str = "me";

const fn placeholders(template: &str) -> usize {
    let (bytes, mut index, mut count) = (template.as_bytes(), 0, 0);
    while index < bytes.len() {
        if bytes[index] == b'{' {
            count += 1;
        }
        index += 1;
    }
    count
}

fn fill(template: &str, arguments: &[&dyn Display]) -> String {
    let mut path = String::with_capacity(template.len() + 32);
    let mut arguments = arguments.iter();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (_, after) = after.split_once('}').expect("templates are literals with closed braces");
        path.push_str(before);
        let argument = arguments.next().expect("the macro's functions take one argument per placeholder");
        escape_segment(&argument.to_string(), &mut path);
        rest = after;
    }
    path.push_str(rest);
    path
}

/// Percent-escapes everything that could end a segment or be read as a dot segment.
fn escape_segment(text: &str, path: &mut String) {
    let dots = matches!(text, "." | "..");
    for byte in text.bytes() {
        match byte {
            b'.' if !dots => path.push('.'),
            b'-' | b'_' | b'~' => path.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => path.push(char::from(byte)),
            _ => write!(path, "%{byte:02X}").expect("writing to a String cannot fail"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_escaped_in_order() {
        assert_eq!(dry_run("a b", "c/d?e"), "/api/v2/templateversions/a%20b/dry-run/c%2Fd%3Fe");
        assert_eq!(login(), LOGIN);
        assert_eq!(user(".."), "/api/v2/users/%2E%2E");
        assert_eq!(user("v1.2_x"), "/api/v2/users/v1.2_x");
    }
}
