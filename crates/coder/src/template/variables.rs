//! Where values of Terraform variables come from: flags, a YAML file, and the variable files of the template.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::template::{flat_yaml, pack, tfvars};

/// Splits `name=value`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not of the form name=value")),
    }
}

/// Values by name, weakest source first: the template's variable files, then `--variables-file`, then `--variable`.
pub(crate) fn collect(
    root: Option<&Path>,
    file: Option<&Path>,
    flags: &[(String, String)],
) -> anyhow::Result<BTreeMap<String, String>> {
    let mut values = BTreeMap::new();
    if let Some(root) = root {
        values.extend(automatic(root)?);
    }
    if let Some(file) = file {
        values.extend(from_yaml(file)?);
    }
    values.extend(flags.iter().cloned());
    Ok(values)
}

/// Reads `name: value` pairs of a YAML file.
pub(crate) fn from_yaml(file: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    flat_yaml::parse(&text).with_context(|| format!("in {}", file.display()))
}

/// Terraform's own order: `terraform.tfvars`, `terraform.tfvars.json`, then `*.auto.tfvars*` by name.
fn automatic(root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let entries = fs::read_dir(root).with_context(|| format!("read {}", root.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| pack::is_variables_file(true, name)).collect();
    names.sort_by_key(|name| (!name.starts_with("terraform.tfvars"), name.clone()));
    let mut values = Vec::new();
    for name in names {
        let path = root.join(&name);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let parsed = if name.ends_with(".json") { tfvars::parse_json(&text) } else { tfvars::parse(&text) };
        values.extend(parsed.with_context(|| format!("in {}", path.display()))?);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_source_wins() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        write("terraform.tfvars", "a = \"1\"\nb = \"1\"\nc = \"1\"\nd = \"1\"\n");
        write("z.auto.tfvars.json", "{\"b\": \"2\", \"c\": \"2\", \"d\": \"2\"}");
        write("values.yaml", "c: 3\nd: 3\n");
        let flags = [("d".to_owned(), "4".to_owned())];
        let values = collect(Some(root.path()), Some(&root.path().join("values.yaml")), &flags).unwrap();
        let text: String = values.iter().map(|(name, value)| format!("{name}{value} ")).collect();
        assert_eq!(text, "a1 b2 c3 d4 ");
    }

    #[test]
    fn pairs() {
        assert_eq!(pair("a=b=c").unwrap(), ("a".to_owned(), "b=c".to_owned()));
        assert_eq!(pair("a=").unwrap(), ("a".to_owned(), String::new()));
        assert!(pair("a").is_err() && pair("=a").is_err());
    }
}
