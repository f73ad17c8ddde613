//! Import circles: groups of files of one crate that reach each other through what they import.
//!
//! An import counts from the file that names an item to the file that defines it. Re-exports are followed and are not imports of
//! their own. What a module and its own submodules take from each other does not count: they are one unit. Tests, generated files
//! and the definitions of macros are left out; the arguments of macros count.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, Result};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use regex::Regex;
use syn::visit::Visit;

use super::{is_generated, relative, walk};
use crate::run::root;

/// The most files that a circle may have.
const LARGEST: usize = 5;

/// A path of several segments as a token stream prints it.
static PATH: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\w+(?: :: \w+)+").expect("a valid pattern"));

/// Every circle that is larger than [`LARGEST`].
pub(super) fn problems() -> Result<Vec<String>> {
    let mut sources: Vec<PathBuf> = vec![root().join("xtask/src")];
    for entry in std::fs::read_dir(root().join("crates"))? {
        sources.push(entry?.path().join("src"));
    }
    let mut problems = Vec::new();
    for source in sources {
        problems.extend(Crate::read(&source)?.problems());
    }
    Ok(problems)
}

/// The path of a module within its crate; that of the crate's root is empty.
type ModulePath = Vec<String>;

/// What one file defines, hands on and imports.
#[derive(Default)]
struct Module {
    name: String,
    items: BTreeSet<String>,
    /// Name, or `*`, and the path that `pub use` gives it.
    exports: Vec<(String, ModulePath)>,
    /// Local name and path of each import.
    imports: Vec<(String, ModulePath)>,
    /// Paths of several segments in the code.
    paths: Vec<ModulePath>,
}

#[derive(Default)]
struct Crate {
    modules: BTreeMap<ModulePath, Module>,
}

impl Crate {
    fn read(source: &Path) -> Result<Self> {
        let (mut found, mut files) = (Self::default(), Vec::new());
        walk(source, "rs", &mut files)?;
        for path in files.iter().filter(|path| !is_generated(path)) {
            if let Some(module) = module_path(path.strip_prefix(source)?) {
                let text = std::fs::read_to_string(path)?;
                let file = syn::parse_file(&text).with_context(|| path.display().to_string())?;
                let mut reader = Module { name: relative(path).display().to_string(), ..Module::default() };
                reader.visit_file(&file);
                found.modules.insert(module, reader);
            }
        }
        Ok(found)
    }

    fn problems(&self) -> Vec<String> {
        let circles = self.circles().into_iter().filter(|circle| circle.len() > LARGEST);
        let message = |circle: Vec<&str>| {
            format!("{} files import each other in a circle: {}", circle.len(), circle.join(", "))
        };
        circles.map(message).collect()
    }

    fn circles(&self) -> Vec<Vec<&str>> {
        let mut graph = DiGraphMap::<&ModulePath, ()>::new();
        for (from, module) in &self.modules {
            for target in self.targets(from, module) {
                if !target.starts_with(from) && !from.starts_with(target) {
                    graph.add_edge(from, target, ());
                }
            }
        }
        let names = |circle: Vec<&ModulePath>| {
            let mut names: Vec<_> = circle.into_iter().map(|path| self.modules[path].name.as_str()).collect();
            names.sort_unstable();
            names
        };
        tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1).map(names).collect()
    }

    /// The modules that define what `module` names.
    fn targets<'a>(&'a self, from: &ModulePath, module: &Module) -> BTreeSet<&'a ModulePath> {
        let local: HashMap<_, _> = module.imports.iter().map(|(name, path)| (name.as_str(), path)).collect();
        let mut targets = BTreeSet::new();
        for (name, path) in &module.imports {
            let is_used = |found: &&ModulePath| name == "*" || !self.is_module(from, path, found);
            targets.extend(self.defining(from, path, 0).filter(is_used));
        }
        for path in &module.paths {
            let whole = match local.get(path[0].as_str()) {
                Some(import) => import.iter().chain(&path[1..]).cloned().collect(),
                None => path.clone(),
            };
            targets.extend(self.defining(from, &whole, 0));
        }
        targets
    }

    /// Whether an import names a module itself. Then the uses of the module count, not the import.
    fn is_module(&self, from: &ModulePath, path: &[String], found: &ModulePath) -> bool {
        self.absolute(from, path).is_some_and(|whole| whole == *found)
    }

    fn absolute(&self, from: &ModulePath, path: &[String]) -> Option<ModulePath> {
        let mut whole = from.clone();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => (whole, rest) = (Vec::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|segment| segment == "super") {
                    whole.pop();
                    rest = &rest[1..];
                }
            }
            first => {
                let mut child = from.clone();
                child.push(first.to_owned());
                self.modules.get(&child)?;
            }
        }
        whole.extend(rest.iter().cloned());
        Some(whole)
    }

    /// The module that defines the item at `path`, re-exports followed.
    fn defining(&self, from: &ModulePath, path: &[String], depth: usize) -> Option<&ModulePath> {
        let whole = self.absolute(from, path)?;
        let length = (0..=whole.len()).rev().find(|length| self.modules.contains_key(&whole[..*length]))?;
        let (place, module) = self.modules.get_key_value(&whole[..length])?;
        let Some(name) = whole.get(length).filter(|name| !module.items.contains(*name) && depth < 8) else {
            return Some(place);
        };
        let named = module.exports.iter().find(|(exported, _)| exported == name);
        let target = match named {
            Some((_, target)) => self.defining(place, target, depth + 1),
            None => module.exports.iter().filter(|(exported, _)| exported == "*").find_map(|(_, target)| {
                let mut item = target.clone();
                item.push(name.clone());
                let found = self.defining(place, &item, depth + 1)?;
                self.modules[found].items.contains(name).then_some(found)
            }),
        };
        target.or(Some(place))
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        use syn::Item;
        let (attributes, name) = match item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Mod(item) => (&item.attrs, None),
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Impl(item) => (&item.attrs, None),
            Item::Use(item) => (&item.attrs, None),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            _ => return syn::visit::visit_item(self, item),
        };
        if attributes.iter().any(is_for_tests) {
            return;
        }
        self.items.extend(name.map(ToString::to_string));
        if !matches!(item, Item::Macro(item) if item.mac.path.is_ident("macro_rules")) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let exported = !matches!(item.vis, syn::Visibility::Inherited);
        let uses = if exported { &mut self.exports } else { &mut self.imports };
        flatten(&item.tree, &mut Vec::new(), uses);
    }

    /// The path in `pub(in …)` imports nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        let arguments = item.tokens.to_string();
        let paths = PATH.find_iter(&arguments).map(|path| path.as_str());
        self.paths.extend(paths.map(|path| path.split(" :: ").map(str::to_owned).collect()));
        syn::visit::visit_macro(self, item);
    }
}

/// Adds every name that a tree of imports brings, with its path.
fn flatten(tree: &syn::UseTree, prefix: &mut ModulePath, uses: &mut Vec<(String, ModulePath)>) {
    let joined = |last: String| prefix.iter().cloned().chain([last]).collect::<ModulePath>();
    match tree {
        syn::UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, uses);
            prefix.pop();
        }
        syn::UseTree::Name(name) if name.ident == "self" => {
            uses.extend(prefix.last().map(|last| (last.clone(), prefix.clone())));
        }
        syn::UseTree::Name(name) => uses.push((name.ident.to_string(), joined(name.ident.to_string()))),
        syn::UseTree::Rename(rename) => {
            uses.push((rename.rename.to_string(), joined(rename.ident.to_string())))
        }
        syn::UseTree::Glob(_) => uses.push(("*".to_owned(), prefix.clone())),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, prefix, uses)),
    }
}

/// `#[cfg(test)]`, and conditions that have `test` or the feature of that kind in them.
fn is_for_tests(attribute: &syn::Attribute) -> bool {
    let condition = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
    attribute.path().is_ident("cfg") && (condition == "test" || condition.contains("\"testing\""))
}

/// The module of a source file; none for programs and files of tests.
fn module_path(file: &Path) -> Option<ModulePath> {
    let mut path: ModulePath =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path.iter().any(|part| part == "tests" || part == "testing" || part == "bin") || path == ["main"] {
        return None;
    }
    if path.last().is_some_and(|last| last == "mod") || path == ["lib"] {
        path.pop();
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> (tempfile::TempDir, Crate) {
        let folder = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        let krate = Crate::read(folder.path()).expect("a crate");
        (folder, krate)
    }

    fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let (folder, krate) = read(files);
        let short =
            |name: &str| Path::new(name).strip_prefix(folder.path()).expect("inside").display().to_string();
        krate.circles().into_iter().map(|circle| circle.into_iter().map(short).collect()).collect()
    }

    #[test]
    fn no_circle_is_large() {
        assert_eq!(problems().expect("sources"), Vec::<String>::new());
    }

    #[test]
    fn a_circle_runs_through_imports_paths_and_re_exports() {
        let lib = ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;");
        let a = ("a.rs", "use crate::b::B;\npub struct A(B);");
        let b = ("b/mod.rs", "mod inner;\npub use inner::B;");
        let inner = ("b/inner.rs", "pub struct B;\nfn f() { crate::c::run(); }");
        let c = ("c.rs", "use crate::{a, d};\npub fn run() { let _: Option<a::A> = None; d::end(); }");
        let d = ("d.rs", "pub fn end() {}\n#[cfg(test)]\nmod tests { use crate::a::A; }");
        assert_eq!(circles_of(&[lib, a, b, inner, c, d]), [["a.rs", "b/inner.rs", "c.rs"]]);
    }

    #[test]
    fn a_parent_that_hands_on_its_children_is_no_circle() {
        let lib = ("lib.rs", "pub mod a;");
        let a = ("a/mod.rs", "mod x;\nmod y;\npub use x::*;\npub use y::Y;");
        let x = ("a/x.rs", "use super::Y;\npub struct X(Y);");
        let y = ("a/y.rs", "pub struct Y;");
        assert_eq!(circles_of(&[lib, a, x, y]), Vec::<Vec<String>>::new());
    }

    #[test]
    fn a_circle_runs_through_globs_and_arguments_of_macros() {
        let lib = ("lib.rs", "mod a;\nmod b;\nmod c;");
        let a = ("a.rs", "use crate::b::*;\npub struct A(B);");
        let b = ("b.rs", "use crate::c;\npub struct B;\nfn f() { run!(x, || c::call(1)); }");
        let c = ("c.rs", "pub fn call(_: u8) { println!(\"{:?}\", crate::a::A::new()); }");
        assert_eq!(circles_of(&[lib, a, b, c]), [["a.rs", "b.rs", "c.rs"]]);
        let definition = ("c.rs", "pub fn call(_: u8) {}\nmacro_rules! run { () => { crate::a::A::new() } }");
        assert_eq!(circles_of(&[lib, a, b, definition]), Vec::<Vec<String>>::new());
    }

    #[test]
    fn a_circle_of_six_files_is_a_problem() {
        let circle = |length: usize| {
            let mut files: Vec<_> = (0..length)
                .map(|file| {
                    (format!("m{file}.rs"), format!("use crate::m{}::T;\npub struct T;", (file + 1) % length))
                })
                .collect();
            files.push(("lib.rs".to_owned(), (0..length).map(|file| format!("mod m{file};")).collect()));
            let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
            read(&files).1.problems()
        };
        assert_eq!(circle(LARGEST), Vec::<String>::new());
        let problems = circle(LARGEST + 1);
        assert!(matches!(&problems[..], [one] if one.starts_with("6 files")), "{problems:?}");
    }
}
