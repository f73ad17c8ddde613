//! Who may do what, as two grids to review, and the promises that hold for every cell.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use coder_domain::ids::{OrganizationId, UserId};
use coder_domain::rbac::{
    Action, Object, OrgRole, Resource, Scopes, SiteRole, Subject, Visibility, decide,
    may_assign_organization, may_assign_site, may_take_over, scope, visibility,
};
use proptest::prelude::*;
use uuid::Uuid;

const ME: UserId = UserId(Uuid::from_u128(1));
const OTHER_USER: UserId = UserId(Uuid::from_u128(2));
const OWN_ORGANIZATION: OrganizationId = OrganizationId(Uuid::from_u128(3));
const FOREIGN: OrganizationId = OrganizationId(Uuid::from_u128(4));

fn subject(site: &[SiteRole], organization: Option<&[OrgRole]>) -> Subject {
    Subject {
        user: ME,
        site: site.iter().copied().collect(),
        organizations: organization
            .map(|roles| (OWN_ORGANIZATION, roles.iter().copied().collect()))
            .into_iter()
            .collect(),
        scopes: Scopes::all(),
    }
}

/// Everybody the grid has a column for: site roles without any membership, then members of one organization.
fn subjects() -> Vec<(&'static str, Subject)> {
    let mut all = vec![("nobody", subject(&[], None))];
    all.extend(SiteRole::ALL.iter().map(|role| (role.as_str(), subject(&[*role], None))));
    all.push(("organization-member", subject(&[], Some(&[]))));
    all.extend(OrgRole::ALL.iter().map(|role| (role.as_str(), subject(&[], Some(&[*role])))));
    all
}

/// Whose object it is, with the letter that says yes in the grid.
fn objects(resource: Resource) -> [(char, Object); 6] {
    let (mine, foreign) =
        (Object::in_organization(resource, OWN_ORGANIZATION), Object::in_organization(resource, FOREIGN));
    [
        ('s', Object::site(resource)),
        ('p', Object::site(resource).owned_by(ME)),
        ('o', mine.owned_by(OTHER_USER)),
        ('m', mine.owned_by(ME)),
        ('f', foreign.owned_by(OTHER_USER)),
        ('x', foreign.owned_by(ME)),
    ]
}

#[test]
fn role_resource_action() {
    let mut grid = String::from(
        "letters say where it is allowed: s the site's, p my own outside organizations, o another's in my \
         organization,\nm my own in my organization, f another's in a foreign organization, x my own in a foreign \
         organization\n",
    );
    for resource in Resource::ALL {
        let _ = write!(grid, "\n## {}\n", resource.as_str());
        for (name, subject) in subjects() {
            let mut cells = Vec::new();
            for action in resource.actions().iter().copied() {
                let yes: String = objects(resource)
                    .into_iter()
                    .map(|(letter, object)| if decide(&subject, action, object) { letter } else { '-' })
                    .collect();
                if yes != "------" {
                    cells.push(format!("{}:{yes}", action.as_str()));
                }
            }
            let _ = writeln!(
                grid,
                "{name:36} {}",
                if cells.is_empty() { "nothing".to_owned() } else { cells.join(" ") }
            );
        }
    }
    insta::assert_snapshot!("role_resource_action", grid);
}

#[test]
fn scope_resource_action() {
    let mut grid = String::new();
    for name in scope::public() {
        let scopes = Scopes::parse([name.as_str()], []).unwrap();
        if scopes.is_all() {
            let _ = writeln!(grid, "{name:32} everything");
            continue;
        }
        let mut cells = Vec::new();
        for resource in Resource::ALL {
            let allowed =
                resource.actions().iter().copied().filter(|action| scopes.allow(resource, *action, None));
            let allowed: Vec<_> = allowed.map(Action::as_str).collect();
            if !allowed.is_empty() {
                cells.push(format!("{}[{}]", resource.as_str(), allowed.join(" ")));
            }
        }
        let _ = writeln!(grid, "{name:32} {}", cells.join(" "));
    }
    insta::assert_snapshot!("scope_resource_action", grid);
}

#[test]
fn who_may_assign_roles() {
    for (name, subject) in subjects() {
        let site = SiteRole::ALL.iter().all(|role| may_assign_site(&subject, *role));
        assert_eq!(site, name == "owner", "{name}");
        let organization = |id| OrgRole::ALL.iter().all(|role| may_assign_organization(&subject, id, *role));
        assert_eq!(organization(OWN_ORGANIZATION), ["owner", "organization-admin"].contains(&name), "{name}");
        assert_eq!(organization(FOREIGN), name == "owner", "{name}");
    }
    let mut narrow = subject(&[SiteRole::Owner], None);
    narrow.scopes = Scopes::parse(["workspace:*"], []).unwrap();
    assert!(!may_assign_site(&narrow, SiteRole::Owner), "a narrow token makes nobody an owner");
}

/// Rows: who changes the password; columns: whose it is.
#[test]
fn who_may_take_over_whom() {
    // A name, site roles, and roles in organizations.
    type Holder = (String, Vec<&'static str>, Vec<(OrganizationId, &'static str)>);
    let mut holders: Vec<Holder> = vec![("plain member".to_owned(), vec![], vec![])];
    let site = SiteRole::ALL.iter().map(|role| role.as_str()).chain(["role-of-a-newer-release"]);
    holders.extend(site.map(|role| (role.to_owned(), vec![role], vec![])));
    for (place, id) in [("mine", OWN_ORGANIZATION), ("foreign", FOREIGN)] {
        let roles = OrgRole::ALL.iter().map(|role| role.as_str()).chain(["organization-new"]);
        holders.extend(roles.map(|role| (format!("{role} in {place}"), vec![], vec![(id, role)])));
    }
    // One harmless role does not hide another.
    holders.push((
        "two roles".to_owned(),
        vec![],
        vec![(OWN_ORGANIZATION, "organization-auditor"), (FOREIGN, "x")],
    ));
    let mut grid = String::new();
    for (name, mut subject) in subjects() {
        let mut allowed = Vec::new();
        for (holder, site, organizations) in &holders {
            let may = may_take_over(&subject, site.iter().copied(), organizations.iter().copied());
            if may {
                allowed.push(holder.as_str());
            }
            assert!(may || !site.is_empty() || !organizations.is_empty(), "{name}: {holder}");
        }
        let all = allowed.len() == holders.len();
        let _ = writeln!(grid, "{name:36} {}", if all { "everybody".to_owned() } else { allowed.join(", ") });
        for scopes in [&["user:update_personal"][..], &["coder:apikeys.manage_self"], &["workspace:*"]] {
            subject.scopes = Scopes::parse(scopes.iter().copied(), []).unwrap();
            assert!(!may_take_over(&subject, [], []), "a limited token of {name}");
        }
        subject.scopes = Scopes::parse([], ["user:*", "assign_role:*", "assign_org_role:*"]).unwrap();
        assert!(!may_take_over(&subject, [], []), "a token of {name} with an allow list");
    }
    insta::assert_snapshot!("who_may_take_over_whom", grid);
}

fn some_subject() -> impl Strategy<Value = Subject> {
    let site = proptest::sample::subsequence(SiteRole::ALL, 0..=SiteRole::ALL.len());
    let roles = proptest::sample::subsequence(OrgRole::ALL, 0..=OrgRole::ALL.len());
    let names = scope::public();
    let limit = names.len();
    let scopes = prop_oneof![
        1 => Just(vec!["all".to_owned()]),
        1 => proptest::sample::subsequence(names, 0..limit.min(6)),
    ];
    (site, proptest::option::of(roles), scopes).prop_map(|(site, roles, scopes)| {
        let mut subject = subject(&site, roles.as_deref());
        subject.scopes = Scopes::from_stored(&scopes, &[]);
        subject
    })
}

fn some_question() -> impl Strategy<Value = (Action, Object)> {
    let action = proptest::sample::select(&Action::ALL[..]);
    let resource = proptest::sample::select(&Resource::ALL[..]);
    (action, resource, 0_usize..6).prop_map(|(action, resource, which)| (action, objects(resource)[which].1))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Another role never takes away, the one ban aside; a scope never gives.
    #[test]
    fn roles_add_and_scopes_only_take(
        subject in some_subject(), (action, object) in some_question(),
        site in proptest::sample::select(SiteRole::ALL), role in proptest::sample::select(OrgRole::ALL),
    ) {
        let before = decide(&subject, action, object);
        let mut more = subject.clone();
        more.site.insert(site);
        if role != OrgRole::WorkspaceCreationBan
            && let Some(roles) = more.organizations.get_mut(&OWN_ORGANIZATION)
        {
            roles.insert(role);
        }
        prop_assert!(!before || decide(&more, action, object));
        let unlimited = Subject { scopes: Scopes::all(), ..subject };
        prop_assert!(!before || decide(&unlimited, action, object));
    }

    /// What one may do to a thing one may also see, so that a refusal never has to hide it. Making is asked of things
    /// that are not there yet; a narrow token may be made to do and not to see.
    #[test]
    fn right_to_change_includes_right_to_see(subject in some_subject(), (action, object) in some_question()) {
        let subject = Subject { scopes: Scopes::all(), ..subject };
        if action != Action::Create && decide(&subject, action, object) {
            prop_assert!(decide(&subject, Action::Read, object), "{:?} {:?}", action, object);
        }
    }

    /// A list shows exactly what may be read one by one, where rows belong to organizations.
    #[test]
    fn lists_show_what_may_be_read(subject in some_subject(), resource in proptest::sample::select(vec![
        Resource::Template, Resource::Workspace, Resource::ProvisionerDaemon, Resource::ProvisionerJob,
    ])) {
        for (_, object) in &objects(resource)[2..] {
            let listed = match visibility(&subject, resource) {
                Visibility::Everything => true,
                Visibility::Some { organizations, own } => {
                    object.organization.is_some_and(|id| organizations.contains(&id)) || object.owner == Some(own)
                }
            };
            // A member may not read own things of these kinds in an organization that is not theirs any more; lists of
            // workspaces name them, and the look at one refuses them.
            let left = object.owner == Some(ME) && object.organization.is_none_or(|id| !subject.organizations.contains_key(&id));
            let readable = decide(&subject, Action::Read, *object);
            prop_assert!(listed || !readable);
            let own_rows = [Resource::Workspace, Resource::ProvisionerDaemon].contains(&resource);
            if own_rows && !left {
                prop_assert_eq!(listed, readable);
            }
        }
    }
}

#[test]
fn a_ban_beats_every_role_of_its_organization_and_no_site_role() {
    let everything: BTreeSet<_> = OrgRole::ALL.iter().copied().collect();
    let mut banned = subject(&[], None);
    banned.organizations = BTreeMap::from([(OWN_ORGANIZATION, everything)]);
    let workspace = Object::in_organization(Resource::Workspace, OWN_ORGANIZATION).owned_by(ME);
    for action in Action::ALL {
        let taken = matches!(action, Action::Create | Action::Delete);
        let without = decide(&subject(&[], Some(&OrgRole::ALL[..4])), action, workspace);
        assert_eq!(decide(&banned, action, workspace), without && !taken, "{action:?}");
    }
    banned.site.insert(SiteRole::Owner);
    assert!(decide(&banned, Action::Create, workspace));
}

/// A role or a scope that names an action which its kind does not have would be a slip of the pen.
#[test]
fn tables_name_only_actions_that_exist() {
    for resource in Resource::ALL {
        for action in Action::ALL.into_iter().filter(|action| !resource.actions().contains(action)) {
            for name in scope::public() {
                let scopes = Scopes::parse([name.as_str()], []).unwrap();
                assert!(scopes.is_all() || !scopes.allow(resource, action, None), "{name}");
            }
            for (name, subject) in subjects()
                .iter()
                .filter(|(name, _)| !name.ends_with("owner") && *name != "organization-admin")
            {
                let any = objects(resource).into_iter().any(|(_, object)| decide(subject, action, object));
                assert!(!any, "{name}: {} {}", resource.as_str(), action.as_str());
            }
        }
    }
}

/// What an older release stored, or what a newer one added: entries that are not known never widen a token.
#[test]
fn stored_scopes_that_are_not_known_grant_nothing() {
    let id = Uuid::from_u128(7);
    let reads = |scopes: &Scopes, id| scopes.allow(Resource::Template, Action::Read, Some(id));
    let plain = Scopes::from_stored(&["template:read"], &[]);
    assert!(reads(&plain, id) && reads(&plain, Uuid::from_u128(8)), "an empty allow list limits nothing");
    let listed = Scopes::from_stored(&["template:read"], &[format!("template:{id}").as_str()]);
    assert!(reads(&listed, id) && !reads(&listed, Uuid::from_u128(8)));
    let mixed = Scopes::from_stored(&["template:read"], &["planet:*", format!("template:{id}").as_str()]);
    assert!(reads(&mixed, id) && !reads(&mixed, Uuid::from_u128(8)));
    for unknown in [["planet:*"], ["template:not-an-id"], ["nonsense"]] {
        let scopes = Scopes::from_stored(&["template:read"], &unknown);
        assert!(!reads(&scopes, id), "{unknown:?} must not count as no list at all");
    }
    assert!(!reads(&Scopes::from_stored(&["planet:read"], &[]), id));
    assert!(!reads(&Scopes::from_stored::<&str>(&[], &[]), id), "no scope is stored, so nothing is allowed");
}

/// A token whose allow list names one object reaches it only through [`Object::with_id`].
#[test]
fn an_allow_list_reaches_the_object_that_it_names() {
    let (named, other) = (Uuid::from_u128(7), Uuid::from_u128(8));
    let mut owner = subject(&[SiteRole::Owner], None);
    owner.scopes = Scopes::from_stored(&["workspace:*"], &[format!("workspace:{named}").as_str()]);
    let workspace = Object::in_organization(Resource::Workspace, OWN_ORGANIZATION).owned_by(OTHER_USER);
    assert!(decide(&owner, Action::Read, workspace.with_id(named)));
    assert!(!decide(&owner, Action::Read, workspace.with_id(other)));
    assert!(!decide(&owner, Action::Read, workspace), "an object without an id is not one of the named ones");
    let same = workspace.with_id(named);
    assert_eq!(
        (same.resource, same.organization, same.owner),
        (Resource::Workspace, Some(OWN_ORGANIZATION), Some(OTHER_USER))
    );
}
