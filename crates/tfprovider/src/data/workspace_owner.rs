//! `coder_workspace_owner`: the person the workspace belongs to (terraform 3.5).

use super::DataSource;
use crate::context::{Context, random_id};
use crate::diagnostics::{Diagnostics, Path};
use crate::schema::Type::{ObjectList, Text, TextList};
use crate::schema::{Attribute, Block, Schema};
use crate::value::Value;

const ROLE: &[&str] = &["name", "org_id"];

pub(super) fn data_source() -> DataSource {
    let block = Block::new(vec![
        Attribute::computed("id", Text, "Id of the owner."),
        Attribute::computed("name", Text, "User name."),
        Attribute::computed("full_name", Text, "Name in full."),
        Attribute::computed("email", Text, "E-mail address."),
        Attribute::computed("ssh_public_key", Text, "Public half of the key for Git."),
        Attribute::computed("ssh_private_key", Text, "Private half of the key for Git.").sensitive(),
        Attribute::computed("groups", TextList, "Names of the groups the owner is in."),
        Attribute::computed(
            "session_token",
            Text,
            "Token for the deployment's API; made anew at each start.",
        )
        .sensitive(),
        Attribute::computed("oidc_access_token", Text, "Token of the identity provider; empty without one.")
            .sensitive(),
        Attribute::computed("login_type", Text, "How the owner logs in."),
        Attribute::computed("rbac_roles", ObjectList(ROLE), "Roles of the owner, with their organizations."),
    ]);
    DataSource { name: "coder_workspace_owner", schema: Schema { version: 0, block }, read }
}

fn read(state: &mut Value, _: &Value, context: &Context<'_>, diagnostics: &mut Diagnostics) {
    let environment = context.environment;
    let id = environment.get("CODER_WORKSPACE_OWNER_ID");
    state.set("id", if id.is_empty() { random_id() } else { Value::text(id) });
    for (name, variable, otherwise) in [
        ("name", "CODER_WORKSPACE_OWNER", "default"),
        ("full_name", "CODER_WORKSPACE_OWNER_NAME", "default"),
        ("email", "CODER_WORKSPACE_OWNER_EMAIL", "default@example.com"),
        ("ssh_public_key", "CODER_WORKSPACE_OWNER_SSH_PUBLIC_KEY", ""),
        ("ssh_private_key", "CODER_WORKSPACE_OWNER_SSH_PRIVATE_KEY", ""),
        ("session_token", "CODER_WORKSPACE_OWNER_SESSION_TOKEN", ""),
        ("oidc_access_token", "CODER_WORKSPACE_OWNER_OIDC_ACCESS_TOKEN", ""),
    ] {
        state.set(name, Value::text(environment.get_or(variable, otherwise)));
    }
    let login_type = environment.get("CODER_WORKSPACE_OWNER_LOGIN_TYPE");
    state.set("login_type", if login_type.is_empty() { Value::Null } else { Value::text(login_type) });
    let groups = environment.get("CODER_WORKSPACE_OWNER_GROUPS");
    match list(groups, |item| item.as_str().map(Value::text)) {
        Some(groups) => state.set("groups", groups),
        None => diagnostics.error(
            Path::of("groups"),
            "invalid user groups: they are not a JSON list of text",
            groups,
        ),
    }
    let roles = environment.get("CODER_WORKSPACE_OWNER_RBAC_ROLES");
    match list(roles, role) {
        Some(roles) => state.set("rbac_roles", roles),
        None => diagnostics.error(
            Path::of("rbac_roles"),
            "invalid user roles: they are not a JSON list of roles",
            roles,
        ),
    }
}

/// The elements of a JSON list; nothing and `null` are the empty list.
fn list(json: &str, element: fn(&serde_json::Value) -> Option<Value>) -> Option<Value> {
    if json.is_empty() {
        return Some(Value::List(Vec::new()));
    }
    match serde_json::from_str(json).ok()? {
        serde_json::Value::Null => Some(Value::List(Vec::new())),
        serde_json::Value::Array(items) => items.iter().map(element).collect::<Option<_>>().map(Value::List),
        _ => None,
    }
}

fn role(json: &serde_json::Value) -> Option<Value> {
    let fields = json.as_object()?;
    let field = |name: &'static str| match fields.get(name) {
        None | Some(serde_json::Value::Null) => Some((name, Value::text(""))),
        Some(text) => Some((name, Value::text(text.as_str()?))),
    };
    Some(Value::object(ROLE.iter().map(|name| field(name)).collect::<Option<Vec<_>>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;

    fn state(variables: &[(&str, &str)]) -> (Value, usize) {
        let environment: Environment = variables.iter().copied().collect();
        let (mut state, mut diagnostics) = (Value::object([]), Diagnostics::default());
        read(
            &mut state,
            &Value::Null,
            &Context { environment: &environment, url: "http://x" },
            &mut diagnostics,
        );
        (state, diagnostics.items.len())
    }

    #[test]
    fn without_variables_there_are_defaults() {
        let (state, errors) = state(&[]);
        assert_eq!(errors, 0);
        assert_eq!(state.field("email").as_text(), Some("default@example.com"));
        assert!(state.field("login_type").is_null());
        assert!(*state.field("groups") == Value::List(Vec::new()));
    }

    #[test]
    fn groups_and_roles_are_json() {
        let roles = r#"[{"name":"member","org_id":"1"},{"name":"owner"}]"#;
        let variables =
            [("CODER_WORKSPACE_OWNER_GROUPS", r#"["a","b"]"#), ("CODER_WORKSPACE_OWNER_RBAC_ROLES", roles)];
        let (state, errors) = state(&variables);
        assert_eq!(errors, 0);
        assert_eq!(state.field("groups").items().len(), 2);
        assert_eq!(state.field("rbac_roles").items()[1].field("org_id").as_text(), Some(""));
        assert_eq!(self::state(&[("CODER_WORKSPACE_OWNER_GROUPS", "null")]).1, 0);
        assert_eq!(
            self::state(&[
                ("CODER_WORKSPACE_OWNER_GROUPS", "{"),
                ("CODER_WORKSPACE_OWNER_RBAC_ROLES", "[1]")
            ])
            .1,
            2
        );
    }
}
