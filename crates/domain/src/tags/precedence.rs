//! Which tags a job gets from a template, a request and an import (scheduling-and-auth 1.4).

use std::collections::BTreeMap;

use super::{OWNER, TagSet};
use crate::ids::UserId;

/// The tags of an import: those of the template's source, overridden by those of the request (TAG-11). User scope
/// belongs to the importing user, whatever owner they name (TAG-12).
#[must_use]
pub fn for_import(
    requester: UserId,
    workspace_tags: &BTreeMap<String, String>,
    request: &BTreeMap<String, String>,
) -> TagSet {
    TagSet::canonical(requester, [workspace_tags, request])
}

/// Whether an import needs the value that the source has for this tag: not if the request sets it (TAG-14). An empty
/// value in a request sets nothing (TAG-3).
#[must_use]
pub fn needs_source(key: &str, request: &BTreeMap<String, String>) -> bool {
    request.get(key).is_none_or(String::is_empty)
}

/// The tags of a build: those of the import, overridden by those that the template's source sets for this build, empty
/// ones included (TAG-17, TAG-18: the opposite order of an import). User scope belongs to the workspace's owner (TAG-20).
///
/// Officially a template may also write another user's id into `owner` and so reach that user's own daemons with other
/// people's builds. A user-scoped daemon runs its owner's jobs only, so here the owner of a user-scoped build is always
/// the workspace's.
#[must_use]
pub fn for_build(owner: UserId, import: &TagSet, workspace_tags: &BTreeMap<String, String>) -> TagSet {
    let mut tags = TagSet::canonical(owner, [import.as_map()]).0;
    tags.extend(workspace_tags.iter().map(|(key, value)| (key.clone(), value.clone())));
    let tags = TagSet(tags);
    if !tags.is_user_scoped() {
        return tags;
    }
    let mut tags = tags.0;
    tags.insert(OWNER.to_owned(), owner.to_string());
    TagSet(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn pairs(tags: &TagSet) -> Vec<(&str, &str)> {
        tags.as_map().iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    #[test]
    fn tag_11_at_import_the_request_wins() {
        let tags =
            for_import(UserId::random(), &map(&[("a", "template"), ("b", "1")]), &map(&[("a", "request")]));
        assert_eq!(pairs(&tags), [("a", "request"), ("b", "1"), ("owner", ""), ("scope", "organization")]);
        assert!(for_import(UserId::random(), &map(&[]), &map(&[])).is_untagged());
    }

    #[test]
    fn tag_12_user_scope_is_the_importers() {
        let user = UserId::random();
        let tags = for_import(user, &map(&[("scope", "user"), ("owner", "somebody")]), &map(&[]));
        assert_eq!(tags.get("owner"), Some(user.to_string().as_str()));
        let organization = for_import(user, &map(&[("owner", "somebody")]), &map(&[]));
        assert!(organization.is_untagged());
    }

    #[test]
    fn tag_14_what_the_request_sets_need_not_be_known() {
        let request = map(&[("a", "1"), ("b", "")]);
        assert!(!needs_source("a", &request) && needs_source("b", &request) && needs_source("c", &request));
    }

    #[test]
    fn tag_18_at_build_the_template_wins_even_with_an_empty_value() {
        let owner = UserId::random();
        let import = for_import(UserId::random(), &map(&[]), &map(&[("a", "request"), ("b", "1")]));
        let tags = for_build(owner, &import, &map(&[("a", "template"), ("b", "")]));
        assert_eq!(pairs(&tags), [("a", "template"), ("b", ""), ("owner", ""), ("scope", "organization")]);
    }

    #[test]
    fn tag_20_user_scope_is_the_workspace_owners_and_nobody_elses() {
        let (importer, owner, victim) = (UserId::random(), UserId::random(), UserId::random());
        let import = for_import(importer, &map(&[]), &map(&[("scope", "user")]));
        let tags = for_build(owner, &import, &map(&[]));
        assert_eq!(tags.owner(), owner.to_string());
        let stolen = map(&[("scope", "user"), ("owner", &victim.to_string())]);
        assert_eq!(for_build(owner, &TagSet::untagged(), &stolen).owner(), owner.to_string());
        assert_eq!(for_build(owner, &import, &map(&[("owner", "x")])).owner(), owner.to_string());
    }
}
