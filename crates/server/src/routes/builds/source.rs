//! The source of a template, for what a build needs beyond the results of the import: workspace tags, and parameters that
//! depend on each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coder_domain::Timestamp;
use coder_domain::ids::{FileId, OrganizationId, UserId};
use coder_domain::parameter::Definition;
use coder_source::{Flow, Inputs, Parameter, Template as ParsedTemplate};
use coder_store::templates::version_details;
use coder_store::templates::versions::Version;
use coder_store::{Store, Tx, files};
use parking_lot::Mutex;

use crate::http::{Error, Result};
use crate::owners;
use crate::routes::versions::tags as source;

/// A parsed source.
#[derive(Clone)]
pub struct TemplateSource {
    template: Arc<ParsedTemplate>,
    inputs: Inputs,
    /// The number of workspace tags that the import found.
    pub imported_tags: usize,
}

/// A source that a build needs, before it is parsed.
pub struct UnparsedSource {
    file: files::FileInfo,
    owner: (UserId, OrganizationId),
    inputs: Inputs,
    imported_tags: usize,
}

/// Finds the source of a version; `None` when a build does not need it.
pub async fn find(
    tx: &mut Tx,
    flow: Flow,
    version: &Version,
    file: FileId,
    owner: UserId,
    now: Timestamp,
) -> Result<Option<UnparsedSource>> {
    if is_plain(file) {
        return Ok(None);
    }
    let Some(file) = files::find(tx, file).await? else {
        return Err(Error::bad_request("The source of the template version is missing; push it again."));
    };
    let variables = source::stored_variables(tx, version.id).await?;
    let imported_tags = version_details::list_workspace_tags(tx, version.id).await?.len();
    let (parameters, overridden) = Default::default();
    let inputs = Inputs { flow, variables, parameters, overridden, owner: None, now };
    Ok(Some(UnparsedSource { file, owner: (owner, version.organization_id), inputs, imported_tags }))
}

impl UnparsedSource {
    /// Parses the source; `None` when a build does not need it. The caller has a place of [`crate::memory::Memory::work_place`].
    pub async fn parse(self, store: &Store) -> Result<Option<TemplateSource>> {
        let Self { file, owner: (owner, organization), mut inputs, imported_tags } = self;
        let template = source::read(store, &file).await?;
        if !template.has_workspace_tags()
            && !template.has_dependent_parameters()
            && template.invalid_files().is_empty()
        {
            remember_plain(file.id);
            return Ok(None);
        }
        if template.may_refer_to_owner() {
            inputs.owner = Some(owners::find(&mut store.reader().await?, owner, organization).await?);
        }
        Ok(Some(TemplateSource { template: Arc::new(template), inputs, imported_tags }))
    }
}

impl TemplateSource {
    /// The parsed source. Evaluate it on a blocking thread.
    pub const fn template(&self) -> &Arc<ParsedTemplate> {
        &self.template
    }

    /// The inputs with these parameter values.
    pub fn with(&self, parameters: BTreeMap<String, String>) -> Inputs {
        Inputs { parameters, ..self.inputs.clone() }
    }

    /// The parameters of a version for the given values. Parameters that depend on the values are evaluated from the source, the
    /// others are as the import found them. In the classic flow no parameter depends on values.
    pub async fn definitions(
        &self,
        found: Vec<Definition>,
        values: BTreeMap<String, String>,
    ) -> Result<Vec<Definition>> {
        if self.inputs.flow == Flow::Classic || !self.template.has_dependent_parameters() {
            return Ok(found);
        }
        let given: Vec<String> = values.keys().cloned().collect();
        let (template, mut inputs) = (self.template.clone(), (self.inputs.clone(), self.with(values)));
        inputs.0.owner = Some(owners::of_import());
        let work = move || Some((template.parameters(&inputs.0)?, template.parameters(&inputs.1)?));
        let evaluated = tokio::task::spawn_blocking(work).await;
        let mut all = match evaluated.map_err(|e| Error::internal("Internal error.", e))? {
            Some((before, after)) => changed(found.clone(), &before, after),
            None => found.clone(),
        };
        if self.template.has_dependent_modules() {
            let is_new =
                |name: &String| [&found, &all].iter().all(|known| known.iter().all(|one| one.name != *name));
            let new: Vec<_> = given.into_iter().filter(is_new).map(in_a_module).collect();
            all.extend(new);
        }
        Ok(all)
    }
}

/// A parameter in a module, which only Terraform finds and validates.
fn in_a_module(name: String) -> Definition {
    Definition { name, kind: "string".to_owned(), mutable: true, ..Definition::default() }
}

fn changed(found: Vec<Definition>, before: &[Parameter], after: Vec<Parameter>) -> Vec<Definition> {
    let named = |all: &[Parameter], name: &str| all.iter().find(|one| one.name == name).cloned();
    let mut all: Vec<_> = found
        .into_iter()
        .filter_map(|old| match (named(before, &old.name), named(&after, &old.name)) {
            (Some(_), None) => None,
            (Some(was), Some(is)) if was.definition != is.definition => Some(is.definition.unwrap_or(old)),
            _ => Some(old),
        })
        .collect();
    for new in after {
        if named(before, &new.name).is_none() && all.iter().all(|one| one.name != new.name) {
            all.extend(new.definition);
        }
    }
    all
}

/// Files whose source builds do not need. A file's content never changes, so most builds need not read it again.
static PLAIN: Mutex<BTreeSet<FileId>> = Mutex::new(BTreeSet::new());
/// Most entries of that set. It is cleared when it is full.
const MOST_PLAIN: usize = 10_000;

fn is_plain(file: FileId) -> bool {
    PLAIN.lock().contains(&file)
}

fn remember_plain(file: FileId) {
    let mut plain = PLAIN.lock();
    if plain.len() >= MOST_PLAIN {
        plain.clear();
    }
    plain.insert(file);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(name: &str, default: &str) -> Definition {
        Definition { name: name.to_owned(), default_value: default.to_owned(), ..Definition::default() }
    }

    #[test]
    fn only_what_values_change_is_taken_from_the_source() {
        let of = |definition: Definition| Parameter {
            name: definition.name.clone(),
            definition: Some(definition),
        };
        let found = ["same", "gone", "other", "module", "unknown"].map(|name| definition(name, "import"));
        let unknown = Parameter { name: "unknown".to_owned(), definition: None };
        let same = || of(definition("same", "source"));
        let before = [
            same(),
            of(definition("gone", "a")),
            of(definition("other", "a")),
            of(definition("unknown", "a")),
        ];
        let after = vec![same(), of(definition("other", "b")), unknown, of(definition("new", "n"))];
        let wanted = [
            definition("same", "import"),
            definition("other", "b"),
            definition("module", "import"),
            definition("unknown", "import"),
            definition("new", "n"),
        ];
        assert_eq!(changed(found.to_vec(), &before, after), wanted);
    }
}
