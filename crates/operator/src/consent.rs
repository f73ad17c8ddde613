//! Whether another namespace lets a resource have permissions in it.
//!
//! The operator may make Roles in all namespaces. A user who may make a pool may not. So the other namespace has to agree.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use crate::crd::rbac::{Rbac, WorkspaceNamespace};
use crate::names::{OWNER_UID, WORKSPACES_FROM};
use crate::rules::conditions::{Finding, RBAC};

/// The service account that is to get the permissions.
pub(crate) struct Account<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// What the namespaces of a resource say.
#[derive(Default)]
pub(crate) struct Answers<'a> {
    /// They accept permissions.
    pub(crate) willing: Vec<&'a WorkspaceNamespace>,
    /// They do not, but somebody gave the account permissions there: the official operator, or an administrator.
    pub(crate) kept: Vec<&'a str>,
    /// Why the others do not.
    pub(crate) refusal: Option<Finding>,
}

impl Answers<'_> {
    /// The finding if nothing is refused.
    #[must_use]
    pub(crate) fn granted(&self) -> Finding {
        let mut message = "templates have their permissions".to_owned();
        if !self.kept.is_empty() {
            let list = self.kept.join(", ");
            message.push_str(&format!("; in {list} those that were there already"));
        }
        Finding::yes(RBAC, "Granted", message)
    }
}

enum Answer {
    Accepts,
    HasBinding,
    Refuses(&'static str, String),
}

/// Asks all namespaces of `rbac`.
///
/// # Errors
/// The API server did not answer.
pub(crate) async fn ask<'a>(
    kube: &Client,
    account: &Account<'_>,
    rbac: &'a Rbac,
) -> Result<Answers<'a>, kube::Error> {
    let mut answers = Answers::default();
    for namespace in &rbac.workspace_namespaces {
        match answer(kube, account, &namespace.name).await? {
            Answer::Accepts => answers.willing.push(namespace),
            Answer::HasBinding => answers.kept.push(&namespace.name),
            Answer::Refuses(reason, message) => match &mut answers.refusal {
                None => answers.refusal = Some(Finding::no(RBAC, reason, message)),
                Some(finding) => finding.message.push_str(&format!("; {message}")),
            },
        }
    }
    Ok(answers)
}

async fn answer(kube: &Client, account: &Account<'_>, to: &str) -> Result<Answer, kube::Error> {
    let from = account.namespace;
    if from == to {
        return Ok(Answer::Accepts);
    }
    let namespaces: Api<Namespace> = Api::all(kube.clone());
    match namespaces.get_opt(to).await {
        Ok(Some(namespace)) => {
            let list = namespace.annotations().get(WORKSPACES_FROM).map_or("", String::as_str);
            if names(list, from) {
                return Ok(Answer::Accepts);
            }
            if has_binding(kube, account, to).await? {
                return Ok(Answer::HasBinding);
            }
            Ok(Answer::Refuses("NotAllowed", advice(list, from, to)))
        }
        Ok(None) => Ok(Answer::Refuses("Rejected", format!("there is no namespace {to:?}"))),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Ok(Answer::Refuses("Forbidden", format!("cannot read the namespace {to:?}: {}", status.message)))
        }
        Err(error) => Err(error),
    }
}

/// Whether somebody who may do so bound the account there already. What operators of this kind made does not count.
async fn has_binding(kube: &Client, account: &Account<'_>, to: &str) -> Result<bool, kube::Error> {
    let bindings: Api<RoleBinding> = Api::namespaced(kube.clone(), to);
    let found = bindings.list(&ListParams::default()).await?;
    Ok(found.items.iter().any(|binding| {
        let mut subjects = binding.subjects.iter().flatten();
        !binding.annotations().contains_key(OWNER_UID)
            && subjects.any(|subject| {
                subject.kind == "ServiceAccount"
                    && subject.name == account.name
                    && subject.namespace.as_deref() == Some(account.namespace)
            })
    }))
}

/// What an administrator of the namespace has to run. What the annotation has already stays in it.
fn advice(list: &str, from: &str, to: &str) -> String {
    let is_name = |entry: &&str| {
        !entry.is_empty() && entry.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let mut entries: Vec<&str> = list.split(',').map(str::trim).filter(is_name).collect();
    entries.push(from);
    let overwrite = if list.is_empty() { "" } else { " --overwrite" };
    format!(
        "the namespace {to:?} does not accept permissions for the namespace {from:?} yet: \
         kubectl annotate namespace {to} {WORKSPACES_FROM}={}{overwrite}",
        entries.join(",")
    )
}

/// Whether a list, separated by commas, has this namespace.
fn names(list: &str, namespace: &str) -> bool {
    list.split(',').map(str::trim).any(|entry| entry == "*" || entry == namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_namespaces_or_all() {
        for (list, expected) in [
            ("builds", true),
            ("other, builds", true),
            ("*", true),
            ("", false),
            ("builds-2", false),
            ("build*", false),
        ] {
            assert_eq!(names(list, "builds"), expected, "{list:?}");
        }
    }

    #[test]
    fn the_advice_is_a_command_that_keeps_what_is_there() {
        for (list, end) in [
            ("", "namespace work coder.com/workspaces-from=builds"),
            ("a, b", "namespace work coder.com/workspaces-from=a,b,builds --overwrite"),
            ("$(id), a;b", "namespace work coder.com/workspaces-from=builds --overwrite"),
        ] {
            let advice = advice(list, "builds", "work");
            assert!(advice.ends_with(&format!("yet: kubectl annotate {end}")), "{advice}");
        }
    }
}
