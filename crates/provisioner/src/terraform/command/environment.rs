//! The environment of Terraform: the daemon's own without its secrets, plus the variables of the job (terraform
//! 2).

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use coder_wire::messages::provisioner as pb;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::process::Command;

use crate::isolation::JobHome;
use crate::terraform::bootstrap;

/// Values of these may be logged; all others may be credentials (terraform 1.6).
const LOGGED_VARIABLES: [&str; 10] = [
    "TF_LOG",
    "TF_LOG_PATH",
    "TF_INPUT",
    "TF_DATA_DIR",
    "TF_WORKSPACE",
    "TF_IN_AUTOMATION",
    "TF_REGISTRY_DISCOVERY_RETRY",
    "TF_REGISTRY_CLIENT_TIMEOUT",
    "TF_CLI_CONFIG_FILE",
    "TF_IGNORE",
];

/// Always inherited.
const INHERITED_VARIABLES: [&str; 11] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "USER",
    "LANG",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GOGC",
    "GOMEMLIMIT",
    "CHECKPOINT_DISABLE",
];

/// They name directories for configuration; jobs use those in their own home.
const FOLDERS_OF_HOME: [&str; 4] = ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"];

/// Shorter values are switches, not secrets.
const SHORTEST_SECRET: usize = 8;

/// The part of the environment that is the same for all jobs of a daemon.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    variables: Vec<(OsString, OsString)>,
    missing_config: Option<PathBuf>,
    /// What jobs see of the home directory; `None` before it is set.
    home: Option<JobHome>,
}

impl Environment {
    /// Reads the environment of this process.
    pub(crate) fn of_daemon() -> Self {
        Self::from_variables(std::env::vars_os())
    }

    fn from_variables(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut kept: Vec<(OsString, OsString)> = variables
            .into_iter()
            .filter(|(name, _)| !name.as_encoded_bytes().starts_with(b"CODER_"))
            .filter(|(name, _)| !FOLDERS_OF_HOME.iter().any(|folder| name == folder))
            .collect();
        let mut missing_config = None;
        for (name, value) in &mut kept {
            // Terraform warns on every command about a missing configuration file; an empty one has the same
            // effect.
            if name == "TF_CLI_CONFIG_FILE" && !value.is_empty() && !std::path::Path::new(value).exists() {
                missing_config = Some(PathBuf::from(&value));
                *value = OsString::from("/dev/null");
            }
        }
        let mut default = |name: &str, value: &str| {
            if !kept.iter().any(|(known, _)| known == name) {
                kept.push((name.into(), value.into()));
            }
        };
        // Terraform's short commands spend up to a third of their time on garbage collection.
        default("GOGC", "400");
        default("GOMEMLIMIT", "2GiB");
        // Without it every command checks for updates over the network.
        kept.retain(|(name, _)| name != "CHECKPOINT_DISABLE");
        kept.push(("CHECKPOINT_DISABLE".into(), "1".into()));
        Self { variables: kept, missing_config, home: None }
    }

    /// Keeps only what programs need to run, what was set here, and the allowed names.
    pub(crate) fn narrow(&mut self, allowed: &[String]) {
        let is_named = |name: &str| {
            allowed.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning),
                None => name == pattern,
            })
        };
        self.variables.retain(|(name, _)| {
            name.to_str().is_some_and(|name| {
                INHERITED_VARIABLES.contains(&name) || name.starts_with("LC_") || is_named(name)
            })
        });
    }

    pub(crate) fn path(&self) -> Option<&OsStr> {
        self.variables.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str())
    }

    /// The file that `TF_CLI_CONFIG_FILE` names, when it does not exist.
    pub(crate) fn missing_config(&self) -> Option<&std::path::Path> {
        self.missing_config.as_deref()
    }

    /// All variables that jobs inherit.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &(OsString, OsString)> + Clone {
        self.variables.iter()
    }

    /// From now on only configuration that jobs can see counts.
    pub(crate) fn set_home(&mut self, home: JobHome) {
        self.home = Some(home);
    }

    /// A path in the home directory, if jobs see it.
    fn in_home(&self, name: &str) -> Option<PathBuf> {
        let (_, home) = self.variables.iter().find(|(name, _)| name == "HOME")?;
        let path = PathBuf::from(home).join(name);
        self.home.as_ref().is_none_or(|home| home.exposes(&path)).then_some(path)
    }

    /// Variables of Terraform itself.
    pub(crate) fn terraform_variables(&self) -> impl Iterator<Item = &(OsString, OsString)> {
        self.variables.iter().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"TF_"))
    }

    /// The content of Terraform's CLI configuration; empty without one.
    pub(crate) fn cli_config(&self) -> Vec<u8> {
        let value =
            |wanted: &str| self.variables.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
        let named = value("TF_CLI_CONFIG_FILE").filter(|file| !file.is_empty()).map(PathBuf::from);
        let file = named.or_else(|| self.in_home(".terraformrc"));
        file.and_then(|file| std::fs::read(file).ok()).unwrap_or_default()
    }

    /// Whether Terraform may have settings for a host, such as a token.
    pub(crate) fn has_settings_for(&self, host: &str) -> bool {
        let plain = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
        let has_token = self.terraform_variables().any(|(name, _)| {
            name.to_str()
                .and_then(|name| name.strip_prefix("TF_TOKEN_"))
                .is_some_and(|of| plain(of) == plain(host))
        });
        let more = self.in_home(".terraform.d").into_iter();
        let more = more.flat_map(|dir| dir.read_dir().into_iter().flatten().flatten());
        let files = more.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains(".tfrc"));
        let mut texts = files.filter_map(|path| std::fs::read(path).ok()).chain([self.cli_config()]);
        let says = |text: Vec<u8>| {
            let text = String::from_utf8_lossy(&text);
            text.contains(host) || text.contains("credentials_helper")
        };
        has_token || texts.any(says)
    }

    /// The values of inherited variables whose names suggest a secret.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        const SECRET_WORDS: [&str; 6] =
            ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "PRIVATE_KEY", "ACCESS_KEY"];
        let secret = |(name, value): &'_ &(OsString, OsString)| {
            let name = name.to_string_lossy().to_ascii_uppercase();
            // Ids of secrets and paths of secret files are not secrets.
            SECRET_WORDS.iter().any(|word| name.contains(word))
                && !name.ends_with("_ID")
                && !value.as_encoded_bytes().starts_with(b"/")
                && value.len() >= SHORTEST_SECRET
        };
        self.variables.iter().filter(secret).filter_map(|(_, value)| value.to_str())
    }

    pub(crate) fn apply_basic(&self, command: &mut Command) {
        command.env_clear().envs(self.variables.iter().map(|(name, value)| (name, value)));
    }

    /// One line for each inherited Terraform variable, without values that may be secret.
    pub(crate) fn announcements(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .variables
            .iter()
            .filter_map(|(name, value)| {
                let name = name.to_str().filter(|name| name.starts_with("TF_"))?;
                if name == "TF_CLI_CONFIG_FILE" && self.missing_config.is_some() {
                    // The daemon's own log says it once.
                    return None;
                }
                let shown = if LOGGED_VARIABLES.contains(&name) {
                    value.to_string_lossy()
                } else {
                    "<value redacted>".into()
                };
                Some(format!("terraform environment variable: {name}={shown}"))
            })
            .collect();
        lines.sort();
        lines
    }
}

#[derive(Clone, Copy)]
pub(crate) struct StepInput<'a> {
    pub(crate) metadata: &'a pb::Metadata,
    pub(crate) parameters: &'a [pb::RichParameterValue],
    pub(crate) previous_parameters: &'a [pb::RichParameterValue],
    pub(crate) external_auth: &'a [pb::ExternalAuthProvider],
}

#[derive(Serialize)]
struct Role<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    org_id: &'a str,
}

pub(crate) type EnvVars = Vec<(String, String)>;

/// The variables of a plan: those of an apply, and the user's parameters.
pub(crate) fn for_plan(input: StepInput<'_>) -> EnvVars {
    let mut variables = for_apply(input.metadata);
    let mut set = |name: String, value: &str| variables.push((name, value.replace('\0', "")));
    for parameter in input.parameters {
        set(format!("CODER_PARAMETER_{}", digest(&parameter.name)), &parameter.value);
    }
    for parameter in input.previous_parameters {
        set(format!("CODER_PARAMETER_PREVIOUS_{}", digest(&parameter.name)), &parameter.value);
    }
    for provider in input.external_auth {
        // A name with `=` or NUL cannot be a variable.
        if provider.id.contains(['=', '\0']) {
            continue;
        }
        set(format!("CODER_EXTERNAL_AUTH_ACCESS_TOKEN_{}", provider.id), &provider.access_token);
        set(format!("CODER_GIT_AUTH_ACCESS_TOKEN_{}", provider.id), &provider.access_token);
    }
    variables
}

/// The variables of an apply.
pub(crate) fn for_apply(metadata: &pb::Metadata) -> EnvVars {
    let mut variables = EnvVars::new();
    let mut set = |name: &str, value: &str| variables.push((name.to_owned(), value.replace('\0', "")));
    let transition = match metadata.workspace_transition() {
        pb::WorkspaceTransition::Start => "start",
        pb::WorkspaceTransition::Stop => "stop",
        pb::WorkspaceTransition::Destroy => "destroy",
    };
    set("CODER_AGENT_URL", &metadata.coder_url);
    set("CODER_WORKSPACE_TRANSITION", transition);
    set("CODER_WORKSPACE_NAME", &metadata.workspace_name);
    set("CODER_WORKSPACE_ID", &metadata.workspace_id);
    set("CODER_WORKSPACE_BUILD_ID", &metadata.workspace_build_id);
    set("CODER_WORKSPACE_OWNER", &metadata.workspace_owner);
    set("CODER_WORKSPACE_OWNER_ID", &metadata.workspace_owner_id);
    set("CODER_WORKSPACE_OWNER_EMAIL", &metadata.workspace_owner_email);
    set("CODER_WORKSPACE_OWNER_NAME", &metadata.workspace_owner_name);
    set("CODER_WORKSPACE_OWNER_LOGIN_TYPE", &metadata.workspace_owner_login_type);
    set("CODER_WORKSPACE_OWNER_GROUPS", &json_list(&metadata.workspace_owner_groups));
    let roles: Vec<Role<'_>> = metadata
        .workspace_owner_rbac_roles
        .iter()
        .map(|role| Role { name: &role.name, org_id: &role.org_id })
        .collect();
    set("CODER_WORKSPACE_OWNER_RBAC_ROLES", &json_list(&roles));
    set("CODER_WORKSPACE_OWNER_OIDC_ACCESS_TOKEN", &metadata.workspace_owner_oidc_access_token);
    set("CODER_WORKSPACE_OWNER_SESSION_TOKEN", &metadata.workspace_owner_session_token);
    set("CODER_WORKSPACE_OWNER_SSH_PUBLIC_KEY", &metadata.workspace_owner_ssh_public_key);
    set("CODER_WORKSPACE_OWNER_SSH_PRIVATE_KEY", &metadata.workspace_owner_ssh_private_key);
    set("CODER_WORKSPACE_TEMPLATE_ID", &metadata.template_id);
    set("CODER_WORKSPACE_TEMPLATE_NAME", &metadata.template_name);
    set("CODER_WORKSPACE_TEMPLATE_VERSION", &metadata.template_version);
    set("CODER_TASK_ID", &metadata.task_id);
    set("CODER_TASK_PROMPT", &metadata.task_prompt);
    match metadata.prebuilt_workspace_build_stage() {
        pb::PrebuiltWorkspaceBuildStage::None => {}
        pb::PrebuiltWorkspaceBuildStage::Create => set("CODER_WORKSPACE_IS_PREBUILD", "true"),
        pb::PrebuiltWorkspaceBuildStage::Claim => set("CODER_WORKSPACE_IS_PREBUILD_CLAIM", "true"),
    }
    match metadata.running_agent_auth_tokens.as_slice() {
        // A single agent is found without its id, which a claim may change.
        [only] => set(&format!("CODER_RUNNING_WORKSPACE_AGENT_TOKEN_{}", digest("")), &only.token),
        several => {
            for token in several {
                set(
                    &format!("CODER_RUNNING_WORKSPACE_AGENT_TOKEN_{}", digest(&token.agent_id)),
                    &token.token,
                );
            }
        }
    }
    variables.extend(bootstrap::variables());
    variables
}

fn digest(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

/// A JSON list; an empty one is `null`, as in the reference implementation.
fn json_list<T: Serialize>(items: &[T]) -> String {
    if items.is_empty() {
        return "null".to_owned();
    }
    serde_json::to_string(items).expect("strings always serialise")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        Environment::from_variables(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    fn value<'v>(variables: &'v EnvVars, name: &str) -> Option<&'v str> {
        variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn credentials_of_a_host_are_found_in_configuration_and_variables() {
        let home = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = home.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let at_home = home.path().to_str().unwrap();
        let (of_host, of_all) =
            (file("rc", "host \"x.example\" {}"), file("helper", "credentials_helper \"y\" {}"));
        let knows = |name: &str, value: &str| environment(&[(name, value)]).has_settings_for("x.example");
        assert!(knows("TF_TOKEN_x_example", "secret") && !knows("TF_TOKEN_y_example", "secret"));
        assert!(knows("TF_CLI_CONFIG_FILE", &of_host) && knows("TF_CLI_CONFIG_FILE", &of_all));
        assert!(!knows("HOME", at_home));
        file(".terraform.d/credentials.tfrc.json", r#"{"credentials":{"x.example":{"token":"secret"}}}"#);
        assert!(knows("HOME", at_home));
    }

    #[test]
    fn configuration_that_jobs_do_not_see_does_not_count() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(".terraformrc"), "credentials_helper \"y\" {}").unwrap();
        let mut environment =
            environment(&[("HOME", home.path().to_str().unwrap()), ("XDG_CONFIG_HOME", "/elsewhere")]);
        assert!(environment.variables().all(|(name, _)| name != "XDG_CONFIG_HOME"));
        assert!(environment.has_settings_for("x.example") && !environment.cli_config().is_empty());
        let listed = [PathBuf::from(".terraformrc")];
        let passed = JobHome::from_environment(environment.variables(), &listed, true);
        environment.set_home(passed);
        assert!(environment.has_settings_for("x.example") && !environment.cli_config().is_empty());
        let none = JobHome::from_environment(environment.variables(), &[], true);
        environment.set_home(none);
        assert!(!environment.has_settings_for("x.example") && environment.cli_config().is_empty());
    }

    #[test]
    fn the_daemons_own_variables_stay_with_the_daemon() {
        let environment = environment(&[
            ("CODER_PROVISIONER_DAEMON_KEY", "secret"),
            ("CODERX", "kept"),
            ("PATH", "/bin"),
            ("CHECKPOINT_DISABLE", "0"),
        ]);
        let names: Vec<_> = environment.variables.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert!(!names.contains(&"CODER_PROVISIONER_DAEMON_KEY"));
        assert!(names.contains(&"CODERX") && names.contains(&"PATH"));
        let checkpoint = environment.variables.iter().find(|(name, _)| name == "CHECKPOINT_DISABLE").unwrap();
        assert_eq!(checkpoint.1, "1");
    }

    #[test]
    fn a_missing_cli_configuration_is_replaced_by_an_empty_one() {
        let environment = environment(&[("TF_CLI_CONFIG_FILE", "/nowhere/terraformrc")]);
        assert_eq!(environment.missing_config().unwrap(), std::path::Path::new("/nowhere/terraformrc"));
        assert!(environment.variables.contains(&("TF_CLI_CONFIG_FILE".into(), "/dev/null".into())));
        assert!(environment.announcements().is_empty(), "jobs do not repeat what the daemon has said");
    }

    #[test]
    fn a_narrow_environment_has_what_is_named_and_what_is_needed() {
        let mut environment = environment(&[
            ("PATH", "/bin"),
            ("AWS_REGION", "eu"),
            ("AWS_X", "x"),
            ("KUBECONFIG", "k"),
            ("OTHER", "o"),
        ]);
        environment.narrow(&["AWS_*".to_owned(), "KUBECONFIG".to_owned()]);
        let mut names: Vec<_> = environment.variables.iter().filter_map(|(name, _)| name.to_str()).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            ["AWS_REGION", "AWS_X", "CHECKPOINT_DISABLE", "GOGC", "GOMEMLIMIT", "KUBECONFIG", "PATH"]
        );
    }

    #[test]
    fn secrets_are_recognized_by_their_names() {
        let environment = environment(&[
            ("AWS_SECRET_ACCESS_KEY", "very-secret"),
            ("AWS_ACCESS_KEY_ID", "not-so-secret"),
            ("API_TOKEN", "short"),
            ("TOKEN_FILE", "/run/secrets/token"),
            ("EDITOR", "something-long"),
        ]);
        assert_eq!(environment.secrets().collect::<Vec<_>>(), ["very-secret"]);
    }

    #[test]
    fn announced_values_are_hidden_unless_harmless() {
        let lines = environment(&[("TF_LOG", "debug"), ("TF_TOKEN_app", "hunter2"), ("HOME", "/root")])
            .announcements();
        assert_eq!(
            lines,
            [
                "terraform environment variable: TF_LOG=debug",
                "terraform environment variable: TF_TOKEN_app=<value redacted>"
            ]
        );
    }

    #[test]
    fn plans_see_choices_and_applies_do_not() {
        let metadata = pb::Metadata {
            workspace_owner_groups: vec!["Everyone".to_owned()],
            workspace_owner_rbac_roles: vec![pb::Role { name: "owner".to_owned(), org_id: String::new() }],
            workspace_transition: pb::WorkspaceTransition::Stop.into(),
            workspace_name: "w\0x".to_owned(),
            ..pb::Metadata::default()
        };
        let parameters = [pb::RichParameterValue { name: "region".to_owned(), value: "eu".to_owned() }];
        let auth = [pb::ExternalAuthProvider { id: "github".to_owned(), access_token: "t".to_owned() }];
        let input = StepInput {
            metadata: &metadata,
            parameters: &parameters,
            previous_parameters: &[],
            external_auth: &auth,
        };
        let plan = for_plan(input);
        let key = format!("CODER_PARAMETER_{}", digest("region"));
        assert_eq!(value(&plan, &key), Some("eu"));
        assert_eq!(value(&plan, "CODER_GIT_AUTH_ACCESS_TOKEN_github"), Some("t"));
        assert_eq!(value(&plan, "CODER_WORKSPACE_OWNER_GROUPS"), Some(r#"["Everyone"]"#));
        assert_eq!(value(&plan, "CODER_WORKSPACE_OWNER_RBAC_ROLES"), Some(r#"[{"name":"owner"}]"#));
        assert_eq!(value(&plan, "CODER_WORKSPACE_TRANSITION"), Some("stop"));
        assert_eq!(value(&plan, "CODER_WORKSPACE_NAME"), Some("wx"));
        assert_eq!(value(&plan, "CODER_WORKSPACE_OWNER"), Some(""));
        let apply = for_apply(&metadata);
        assert!(value(&apply, &key).is_none());
        assert!(value(&apply, "CODER_AGENT_SCRIPT_linux_amd64").is_some());
    }

    #[test]
    fn one_running_token_is_found_without_an_agent_id() {
        let token = |id: &str| pb::RunningAgentAuthToken { agent_id: id.to_owned(), token: format!("t{id}") };
        let mut metadata =
            pb::Metadata { running_agent_auth_tokens: vec![token("a")], ..pb::Metadata::default() };
        let empty = "CODER_RUNNING_WORKSPACE_AGENT_TOKEN_e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(value(&for_apply(&metadata), empty), Some("ta"));
        metadata.running_agent_auth_tokens.push(token("b"));
        assert!(value(&for_apply(&metadata), empty).is_none());
    }
}
