//! Names and labels of what a resource makes, within the limits of Kubernetes and of the server.

use std::collections::BTreeMap;

/// Longest label value, and longest name of what becomes part of a pod's name.
const MAX_LABEL: usize = 63;
/// Longest name of an object.
const MAX_OBJECT_NAME: usize = 253;
/// Longest name of a provisioner key.
const MAX_KEY_NAME: usize = 64;

/// The label of the resource; also part of the pods' selector.
pub const INSTANCE: &str = "app.kubernetes.io/instance";
/// The label of the application.
pub const NAME: &str = "app.kubernetes.io/name";
/// The label of the operator.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Its value. It is the official operator's, since the selector of an existing Deployment cannot change.
pub const MANAGER: &str = "coder-k8s";
/// The application of a pool.
pub const PROVISIONER: &str = "coder-provisioner";
/// The application of a control plane.
pub const CONTROL_PLANE: &str = "coder-control-plane";
/// Marks the pods of busy daemons.
pub const BUSY: &str = "coder.com/busy";
/// The annotation of a pod template with the id of its key, and the label of pods with the beginning of that id.
pub const KEY_ID: &str = "coder.com/provisioner-key-id";
/// The annotation of objects in other namespaces that says to which resource they belong.
pub const OWNER_UID: &str = "coder.com/owner-uid";
/// The annotation of a namespace that names the namespaces whose resources may have permissions in it, or `*`.
pub const WORKSPACES_FROM: &str = "coder.com/workspaces-from";
/// The annotation of a resource that asks for a new key whenever its value changes.
pub const ROTATE: &str = "coder.com/rotate-key";
/// The annotation with the hash of what was applied.
pub const APPLIED: &str = "coder.com/applied";
/// The label of ephemeral pods with the hash of their template.
pub const TEMPLATE: &str = "coder.com/template-hash";
/// The finalizer of a control plane that has objects in other namespaces.
pub const PLANE_FINALIZER: &str = "coder.com/workspace-permissions-cleanup";
/// The finalizer of a pool.
pub const FINALIZER: &str = "coder.com/provisioner-key-cleanup";

/// FNV-1a with 32 bits in hexadecimal: short and stable, not a protection against intent.
#[must_use]
pub fn hash8(text: &str) -> String {
    let hash =
        text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

/// `prefix`, `text` and `suffix`; a text that is too long is cut and gets the hash of the whole.
fn fit(prefix: &str, text: &str, suffix: &str, limit: usize) -> String {
    let whole = format!("{prefix}{text}{suffix}");
    if whole.len() <= limit {
        return whole;
    }
    cut(prefix, text, text, suffix, limit)
}

/// `prefix`, the beginning of `shown`, the hash of `text`, `suffix`.
fn cut(prefix: &str, shown: &str, text: &str, suffix: &str, limit: usize) -> String {
    let room = limit.saturating_sub(prefix.len() + suffix.len() + 9);
    let shown = shown[..shown.floor_char_boundary(room)].trim_end_matches(['-', '.']);
    format!("{prefix}{shown}-{}{suffix}", hash8(text))
}

/// As [`fit`], for names that become host names: those end at the first dot, so a name with dots is changed.
fn fit_host(prefix: &str, text: &str) -> String {
    if text.contains('.') {
        return cut(prefix, &text.replace('.', "-"), text, "", MAX_LABEL);
    }
    fit(prefix, text, "", MAX_LABEL)
}

/// The names of what a pool makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Of the resource.
    pub resource: String,
    /// Its namespace.
    pub namespace: String,
    /// Of the Deployment, and the beginning of the names of ephemeral Jobs.
    pub workload: String,
    /// Of the Role and the RoleBinding.
    pub role: String,
    /// Of the service account that is made by default.
    pub service_account: String,
    /// Of the Secret by default.
    pub secret: String,
    /// The value of the label [`INSTANCE`].
    pub instance: String,
    /// The value of the label [`NAME`].
    pub application: &'static str,
}

impl Names {
    /// The names for a resource.
    #[must_use]
    pub fn new(namespace: &str, resource: &str) -> Self {
        Self {
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            workload: fit_host("provisioner-", resource),
            role: fit("provisioner-", resource, "", MAX_LABEL),
            service_account: fit("", resource, "-provisioner", MAX_LABEL),
            secret: fit("", resource, "-provisioner-key", MAX_OBJECT_NAME),
            instance: fit("", resource, "", MAX_LABEL),
            application: PROVISIONER,
        }
    }

    /// The names for a control plane. Its Service needs a name that begins with a letter.
    #[must_use]
    pub fn of_control_plane(namespace: &str, resource: &str) -> Self {
        let prefix = if resource.starts_with(|first: char| first.is_ascii_digit()) { "coder-" } else { "" };
        Self {
            workload: fit_host(prefix, resource),
            role: fit("", resource, "-workspaces", MAX_LABEL),
            service_account: fit("", resource, "", MAX_LABEL),
            secret: fit("", resource, "-operator-token", MAX_OBJECT_NAME),
            application: CONTROL_PLANE,
            ..Self::new(namespace, resource)
        }
    }

    /// The name of the Secret with the password of a control plane's first user.
    #[must_use]
    pub fn initial_admin(&self) -> String {
        fit("", &self.resource, "-initial-admin", MAX_OBJECT_NAME)
    }

    /// The labels of everything that is made, which are also the selector of the pods.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        [(NAME, self.application), (INSTANCE, self.instance.as_str()), (MANAGED_BY, MANAGER)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    /// The selector as text.
    #[must_use]
    pub fn selector(&self) -> String {
        let labels = self.labels();
        labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
    }

    /// The name of Role and RoleBinding in another namespace; resources of several namespaces may meet there.
    #[must_use]
    pub fn foreign_role(&self) -> String {
        let text = format!("{}-{}", self.namespace, self.resource);
        let prefix = if self.application == CONTROL_PLANE { "control-plane-" } else { "provisioner-" };
        cut(prefix, &text, &text, "", MAX_LABEL)
    }
}

/// Keys have small letters only on the server.
#[must_use]
pub fn key_name(base: &str, identity: &str) -> String {
    cut("", &base.to_lowercase(), identity, "", MAX_KEY_NAME)
}

/// The name of an Event about an object; `unique` tells the Events of one object apart.
#[must_use]
pub fn event(object: &str, unique: i128) -> String {
    fit("", object, &format!(".{unique:x}"), MAX_OBJECT_NAME)
}

/// A part of a label's value that identifies a key.
#[must_use]
pub fn short_id(id: &str) -> String {
    id.chars().filter(char::is_ascii_alphanumeric).take(32).collect()
}

#[cfg(test)]
mod tests {
    use coder_domain::names as rules;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_names_are_those_of_the_official_operator() {
        let names = Names::new("builds", "linux");
        assert_eq!(names.workload, "provisioner-linux");
        assert_eq!(names.role, "provisioner-linux");
        assert_eq!(names.service_account, "linux-provisioner");
        assert_eq!(names.secret, "linux-provisioner-key");
        assert_eq!(
            names.selector(),
            "app.kubernetes.io/instance=linux,app.kubernetes.io/managed-by=coder-k8s,app.kubernetes.io/name=coder-provisioner"
        );
    }

    #[test]
    fn names_with_dots_become_host_names() {
        let names = Names::new("builds", "team.linux");
        assert_eq!(names.workload, format!("provisioner-team-linux-{}", hash8("team.linux")));
        assert_ne!(names.workload, Names::new("builds", "team-linux").workload);
        assert_eq!(names.role, "provisioner-team.linux", "a role's name may have dots");
    }

    #[test]
    fn hash8_is_fnv_1a() {
        assert_eq!(hash8(""), "811c9dc5");
        assert_eq!(hash8("a"), "e40c292c");
    }

    proptest! {
        #[test]
        fn names_fit_whatever_the_resource_is_called(
            resource in "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?",
            namespace in "[a-z0-9]{1,63}",
        ) {
            let names = Names::new(&namespace, &resource);
            for name in [&names.workload, &names.role, &names.service_account, &names.instance, &names.foreign_role()] {
                prop_assert!(name.len() <= 63, "{name}");
                prop_assert!(!name.ends_with(['-', '.']));
            }
            let plane = Names::of_control_plane(&namespace, &resource);
            for name in [&names.secret, &plane.secret, &plane.initial_admin(), &event(&resource, i128::from(u64::MAX))] {
                prop_assert!(name.len() <= 253, "{name}");
            }
            prop_assert!(!names.workload.contains('.'));
        }

        #[test]
        fn every_key_name_is_accepted_by_the_server(base in "[A-Za-z0-9._-]{1,253}", identity in ".*") {
            let name = key_name(&base, &identity);
            prop_assert!(rules::provisioner_key(&name).is_ok(), "{}", name);
            prop_assert_eq!(name.to_lowercase(), name.clone());
        }

        #[test]
        fn long_names_with_equal_beginnings_differ(common in "[a-z]{80}", one in "[a-z]{5}", other in "[a-z]{5}") {
            prop_assume!(one != other);
            let names = [one, other].map(|end| Names::new("ns", &format!("{common}{end}")));
            prop_assert_ne!(&names[0].workload, &names[1].workload);
            prop_assert_ne!(&names[0].instance, &names[1].instance);
        }
    }
}
