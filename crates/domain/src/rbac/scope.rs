//! What a token may be used for at most (scheduling-and-auth 4.7). A scope grants nothing by itself: the user's roles must
//! allow an action too.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{Action, Resource};

use Action::{
    ApplicationConnect, Connect, Create, Delete, Read, ReadPersonal, Start, Stop, Update, UpdatePersonal,
    Use, ViewInsights,
};

/// The name of the scope without limits, as it is stored and shown.
pub const ALL: &str = "coder:all";
/// The scope of tokens that only open workspace apps, as it is stored and shown.
pub const APPLICATION_CONNECT: &str = "coder:application_connect";

type Grant = (Resource, &'static [Action]);

/// The scopes that name a task instead of single actions.
const COMPOSITE: &[(&str, &[Grant])] = &[
    (APPLICATION_CONNECT, &[(Resource::Workspace, &[ApplicationConnect])]),
    ("coder:apikeys.manage_self", &[(Resource::ApiKey, &[Create, Read, Update, Delete])]),
    (
        "coder:templates.author",
        &[
            (Resource::Template, &[Create, Read, Update, Delete, Use, ViewInsights]),
            (Resource::File, &[Create, Read]),
            (Resource::ProvisionerDaemon, &[Read]),
            (Resource::Organization, &[Read]),
        ],
    ),
    (
        "coder:templates.build",
        &[
            (Resource::Template, &[Read, Create, Update]),
            (Resource::File, &[Create, Read]),
            (Resource::ProvisionerJob, &[Read]),
            (Resource::ProvisionerDaemon, &[Read]),
            (Resource::Organization, &[Read]),
        ],
    ),
    (
        "coder:workspaces.access",
        &[(Resource::Workspace, &[Read, Connect, ApplicationConnect]), (Resource::Template, &[Read])],
    ),
    (
        "coder:workspaces.create",
        &[
            (Resource::Workspace, &[Create, Read, Update, Start]),
            (Resource::Template, &[Read, Use]),
            (Resource::Organization, &[Read]),
        ],
    ),
    (
        "coder:workspaces.delete",
        &[(Resource::Workspace, &[Read, Delete, Stop]), (Resource::Template, &[Read, Use])],
    ),
    (
        "coder:workspaces.operate",
        &[(Resource::Workspace, &[Read, Update, Start, Stop]), (Resource::Template, &[Read, Use])],
    ),
];

/// Which single actions a token may be limited to, as `resource:action`, and as `resource:*` for all of a kind.
/// Provisioner daemons and jobs are not among them: a token cannot be limited to serving jobs; provisioner keys are for
/// that.
const SINGLE: &[Grant] = &[
    (Resource::ApiKey, &[Create, Read, Update, Delete]),
    (Resource::File, &[Create, Read]),
    (Resource::Organization, &[Read, Update, Delete]),
    (Resource::Template, &[Create, Read, Update, Delete, Use, ViewInsights]),
    (Resource::User, &[ReadPersonal, UpdatePersonal]),
    (Resource::Workspace, &[Create, Read, Update, Delete, Start, Stop, Connect, ApplicationConnect]),
];

/// A scope, or an entry of an allow list, that does not exist or cannot be requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    #[error("unknown scope {0:?}: GET /api/v2/auth/scopes lists them")]
    Scope(String),
    /// An entry of an allow list.
    #[error("invalid allow list entry {0:?}: write it as type:id, either may be *")]
    Target(String),
}

/// One entry of an allow list: a kind of objects, or one object; none stands for every.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    resource: Option<Resource>,
    id: Option<Uuid>,
}

/// What a token may be used for at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scopes {
    /// None for everything.
    actions: Option<BTreeSet<(Resource, Action)>>,
    /// None for every object.
    targets: Option<BTreeSet<Target>>,
}

impl Default for Scopes {
    fn default() -> Self {
        Self::all()
    }
}

impl Scopes {
    /// No limits: sessions, and tokens by default.
    #[must_use]
    pub const fn all() -> Self {
        Self { actions: None, targets: None }
    }

    /// Parses the scopes and the allow list of a request for a token. Without scopes there are no limits.
    pub fn parse<'a>(
        scopes: impl IntoIterator<Item = &'a str>,
        allow_list: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, Unknown> {
        let mut scopes = scopes.into_iter().peekable();
        let mut read = if scopes.peek().is_none() { Self::all() } else { Self::nothing() };
        for name in scopes {
            let actions = actions_of(name).ok_or_else(|| Unknown::Scope(name.to_owned()))?;
            read.add(actions);
        }
        let mut targets = BTreeSet::new();
        for entry in allow_list {
            targets.insert(target(entry).ok_or_else(|| Unknown::Target(entry.to_owned()))?);
        }
        read.limit(targets);
        Ok(read)
    }

    /// Parses stored scopes. Scopes of a newer release grant nothing here.
    #[must_use]
    pub fn from_stored<S: AsRef<str>>(scopes: &[S], allow_list: &[S]) -> Self {
        let mut read = Self::nothing();
        scopes.iter().filter_map(|name| actions_of(name.as_ref())).for_each(|actions| read.add(actions));
        let targets: BTreeSet<_> = allow_list.iter().filter_map(|entry| target(entry.as_ref())).collect();
        if targets.is_empty() && !allow_list.is_empty() {
            return Self::nothing();
        }
        read.limit(targets);
        read
    }

    const fn nothing() -> Self {
        Self { actions: Some(BTreeSet::new()), targets: None }
    }

    /// Scopes are a union.
    fn add(&mut self, actions: Option<BTreeSet<(Resource, Action)>>) {
        match (&mut self.actions, actions) {
            (Some(own), Some(more)) => own.extend(more),
            (own, _) => *own = None,
        }
    }

    fn limit(&mut self, targets: BTreeSet<Target>) {
        let everything = Target { resource: None, id: None };
        self.targets = (!targets.is_empty() && !targets.contains(&everything)).then_some(targets);
    }

    /// Whether the token may be used for this at all. Without the object's id, for example before it is created, only
    /// entries of the allow list for its whole kind count.
    #[must_use]
    pub fn allow(&self, resource: Resource, action: Action, id: Option<Uuid>) -> bool {
        let action_allowed =
            self.actions.as_ref().is_none_or(|actions| actions.contains(&(resource, action)));
        let reaches = |target: &Target| {
            target.resource.is_none_or(|kind| kind == resource) && (target.id.is_none() || target.id == id)
        };
        action_allowed && self.targets.as_ref().is_none_or(|targets| targets.iter().any(reaches))
    }

    /// Whether a token with the other scopes may do nothing that this one may not. Checked when a token creates another
    /// token; otherwise a limited token could create an unlimited one.
    #[must_use]
    pub fn cover(&self, other: &Self) -> bool {
        let actions = match (&self.actions, &other.actions) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(others)) => others.is_subset(own),
        };
        let reaches = |own: &Target, target: &Target| {
            (own.resource.is_none() || own.resource == target.resource)
                && (own.id.is_none() || own.id == target.id)
        };
        let targets = match (&self.targets, &other.targets) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(others)) => {
                others.iter().all(|target| own.iter().any(|candidate| reaches(candidate, target)))
            }
        };
        actions && targets
    }

    /// Whether nothing limits the token.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        self.actions.is_none() && self.targets.is_none()
    }
}

/// The name under which a scope is stored: two old names have new ones.
#[must_use]
pub fn stored_name(name: &str) -> &str {
    match name {
        "all" => ALL,
        "application_connect" => APPLICATION_CONNECT,
        other => other,
    }
}

/// The actions of a scope, or `Some(None)` for the one without limits.
#[expect(clippy::option_option, reason = "unknown, everything, and a list are three answers")]
fn actions_of(name: &str) -> Option<Option<BTreeSet<(Resource, Action)>>> {
    let name = stored_name(name);
    if name == ALL {
        return Some(None);
    }
    let flat = |grants: &[Grant]| -> BTreeSet<(Resource, Action)> {
        grants.iter().flat_map(|(kind, actions)| actions.iter().map(|action| (*kind, *action))).collect()
    };
    if let Some((_, grants)) = COMPOSITE.iter().find(|(scope, _)| *scope == name) {
        return Some(Some(flat(grants)));
    }
    let (resource, action) = name.split_once(':')?;
    let grant = SINGLE.iter().find(|(kind, _)| kind.as_str() == resource)?;
    if action == "*" {
        return Some(Some(flat(&[*grant])));
    }
    let action = grant.1.iter().find(|known| known.as_str() == action)?;
    Some(Some(BTreeSet::from([(grant.0, *action)])))
}

fn target(entry: &str) -> Option<Target> {
    let (kind, id) = entry.split_once(':')?;
    let resource = match kind {
        "*" => None,
        name => Some(*Resource::ALL.iter().find(|known| known.as_str() == name)?),
    };
    let id = if id == "*" { None } else { Some(Uuid::try_parse(id).ok()?) };
    Some(Target { resource, id })
}

/// The names of all scopes that can be requested, sorted; `GET /auth/scopes` lists them.
#[must_use]
pub fn public() -> Vec<String> {
    let composite = COMPOSITE.iter().map(|(name, _)| (*name).to_owned());
    let single = SINGLE.iter().flat_map(|(kind, actions)| {
        let names = actions.iter().map(|action| action.as_str()).chain(["*"]);
        names.map(|action| format!("{}:{action}", kind.as_str()))
    });
    let mut names: Vec<_> = composite.chain(single).chain([ALL.to_owned()]).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(names: &[&str], allow_list: &[&str]) -> Scopes {
        Scopes::parse(names.iter().copied(), allow_list.iter().copied()).expect("known scopes")
    }

    #[test]
    fn no_scope_and_the_old_word_all_mean_everything() {
        for names in [&[][..], &["all"], &["coder:all"], &["workspace:read", "all"]] {
            assert!(scopes(names, &["*:*"]).is_all(), "{names:?}");
        }
        assert!(!scopes(&["application_connect"], &[]).is_all());
    }

    #[test]
    fn several_scopes_are_a_union() {
        let token = scopes(&["workspace:start", "template:*"], &[]);
        assert!(token.allow(Resource::Workspace, Start, None));
        assert!(token.allow(Resource::Template, Delete, None));
        assert!(!token.allow(Resource::Workspace, Stop, None));
        assert!(!token.allow(Resource::User, Read, None));
    }

    #[test]
    fn unknown_and_reserved_scopes_are_refused_when_asked_for_and_grant_nothing_when_stored() {
        for name in [
            "",
            "workspace",
            "workspace:",
            "workspace:fly",
            "provisioner_daemon:read",
            "provisioner_jobs:*",
            "user:read",
            "coder:workspaces.fly",
            "*:*",
        ] {
            assert_eq!(Scopes::parse([name], []), Err(Unknown::Scope(name.to_owned())));
            assert!(!Scopes::from_stored(&[name], &[]).allow(Resource::Workspace, Read, None));
        }
        assert!(!Scopes::from_stored::<&str>(&[], &[]).allow(Resource::User, Read, None));
    }

    #[test]
    fn an_allow_list_narrows_to_objects() {
        let id = Uuid::from_u128(7);
        let one = format!("workspace:{id}");
        let token = scopes(&["all"], &[&one, "template:*"]);
        assert!(token.allow(Resource::Workspace, Read, Some(id)));
        assert!(!token.allow(Resource::Workspace, Read, Some(Uuid::from_u128(8))));
        assert!(!token.allow(Resource::Workspace, Create, None), "it has no id yet");
        assert!(
            token.allow(Resource::Template, Read, Some(id)) && token.allow(Resource::Template, Create, None)
        );
        assert!(!token.allow(Resource::User, Read, None));
        for entry in ["", "workspace", "workspace:x", "rocket:*", "*"] {
            assert_eq!(Scopes::parse([], [entry]), Err(Unknown::Target(entry.to_owned())));
            assert!(!Scopes::from_stored(&["coder:all"], &[entry]).allow(Resource::User, Read, None));
        }
    }

    #[test]
    fn a_token_covers_what_is_narrower() {
        let id = format!("workspace:{}", Uuid::from_u128(7));
        let all = scopes(&[], &[]);
        let work = scopes(&["workspace:*"], &[]);
        let read = scopes(&["workspace:read"], &[]);
        let kind = scopes(&["workspace:*"], &["workspace:*"]);
        let one = scopes(&["workspace:*"], &[&id]);
        let ordered = [&all, &work, &kind, &one];
        for (wide, left) in ordered.iter().enumerate() {
            for (narrow, right) in ordered.iter().enumerate() {
                assert_eq!(left.cover(right), wide <= narrow, "{left:?} {right:?}");
            }
        }
        assert!(work.cover(&read) && !read.cover(&work));
        assert!(!scopes(&["coder:apikeys.manage_self"], &[]).cover(&all));
    }

    #[test]
    fn every_public_scope_can_be_asked_for() {
        let names = public();
        assert!(names.iter().all(|name| Scopes::parse([name.as_str()], []).is_ok()));
        assert!(!names.iter().any(|name| name.starts_with("provisioner")));
        assert!(
            names.contains(&"workspace:ssh".to_owned()) && names.contains(&"user:update_personal".to_owned())
        );
    }
}
