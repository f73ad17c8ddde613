//! Addresses of resource instances: module paths and instance keys.

use std::borrow::Cow;

const INVALID: &str = "invalid terraform address";

/// The leading `module.…` parts of an address with their instance keys (terraform 4.7).
pub(super) fn module_path(address: &str) -> String {
    match parse(address) {
        Some(steps) => address[..end(&steps)].to_owned(),
        None => INVALID.to_owned(),
    }
}

/// Whether the address lies in a module with `count` or `for_each`.
pub(super) fn is_in_keyed_module(address: &str) -> bool {
    parse(address).is_some_and(|steps| steps.iter().any(|step| !step.key.is_empty()))
}

/// The instance keys of the modules in an address, outermost first, as written.
pub(super) fn module_keys(address: &str) -> Vec<&str> {
    let steps = parse(address).unwrap_or_default();
    steps.into_iter().map(|step| step.key).filter(|key| !key.is_empty()).collect()
}

/// Whether two resources can belong together: the modules that both lie in must be the same instances.
pub(super) fn agree(one: &str, other: &str) -> bool {
    let (Some(one), Some(other)) = (parse(one), parse(other)) else { return true };
    let in_common = one.iter().zip(&other).take_while(|(a, b)| a.name == b.name);
    for (a, b) in in_common {
        if a.key != b.key {
            return false;
        }
    }
    true
}

/// The address of the block, without instance keys.
pub(crate) fn without_keys(address: &str) -> Cow<'_, str> {
    if !address.contains('[') {
        return address.into();
    }
    let mut text = String::with_capacity(address.len());
    let mut rest = address;
    while let Some((before, after)) = rest.split_once('[') {
        text.push_str(before);
        let Some(length) = key_length(after) else { return text.into() };
        rest = &after[length + 1..];
    }
    text.push_str(rest);
    text.into()
}

struct ModuleStep<'a> {
    name: &'a str,
    /// The text between the brackets; empty without any.
    key: &'a str,
    /// The end of the step in the address.
    end: usize,
}

fn end(steps: &[ModuleStep<'_>]) -> usize {
    steps.last().map_or(0, |step| step.end)
}

/// The module steps of `[module.NAME[KEY].]…TYPE.NAME[KEY]`; `None` for anything else.
fn parse(address: &str) -> Option<Vec<ModuleStep<'_>>> {
    let mut steps = Vec::new();
    let mut rest = address;
    while let Some(after) = rest.strip_prefix("module.") {
        let (name, after) = identifier(after)?;
        let (key, after) = key(after)?;
        steps.push(ModuleStep { name, key, end: address.len() - after.len() });
        rest = after.strip_prefix('.')?;
    }
    let rest = rest.strip_prefix("data.").unwrap_or(rest);
    let (_, rest) = identifier(rest)?;
    let (_, rest) = identifier(rest.strip_prefix('.')?)?;
    let (_, rest) = key(rest)?;
    rest.is_empty().then_some(steps)
}

fn identifier(text: &str) -> Option<(&str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let length = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let starts_well = text.starts_with(|c: char| is_part(c) && !c.is_ascii_digit());
    starts_well.then(|| text.split_at(length))
}

/// An optional `[key]`, and the rest.
fn key(text: &str) -> Option<(&str, &str)> {
    let Some(inner) = text.strip_prefix('[') else { return Some(("", text)) };
    let length = key_length(inner)?;
    let key = &inner[..length];
    let digits = key.strip_prefix('-').unwrap_or(key);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_text = key.len() >= 2 && key.starts_with('"') && key.ends_with('"');
    (is_number || is_text).then(|| (key, &inner[length + 1..]))
}

/// Bytes up to the bracket that closes a key; brackets in its quoted text do not count.
fn key_length(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, char) in text.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_paths_keep_instance_keys() {
        assert_eq!(module_path("a.b"), "");
        assert_eq!(module_path("module.m.a.b[1]"), "module.m");
        assert_eq!(module_path(r#"module.m["x.]\"y"].module.n[0].a.b"#), r#"module.m["x.]\"y"].module.n[0]"#);
        assert_eq!(module_path("module.m[\"ü/[ .a\"].a.b[\"]\"]"), "module.m[\"ü/[ .a\"]");
    }

    #[test]
    fn invalid_addresses_are_errors() {
        for text in [
            "",
            "invalid",
            "module.m",
            "module.m[0.a.b",
            "module.m[x].a.b",
            "a.b.c",
            "1a.b",
            "a.b[",
            "a.b[\"]",
        ] {
            assert_eq!(module_path(text), INVALID, "{text}");
        }
    }

    #[test]
    fn keys_are_taken_out_wherever_they_are() {
        assert_eq!(without_keys("a.b"), "a.b");
        assert_eq!(without_keys(r#"module.m["x.]"].module.n[0].a.b["[y]"]"#), "module.m.module.n.a.b");
        assert_eq!(without_keys("a.b[\"never closed"), "a.b");
        assert_eq!(module_keys(r#"module.m["x"].module.n.module.o[1].a.b[2]"#), ["\"x\"", "1"]);
    }

    #[test]
    fn instances_agree_when_their_common_modules_do() {
        let x = r#"module.m["x"].a.b"#;
        for (other, wanted) in [
            (r#"module.m["x"].c.d[0]"#, true),
            (r#"module.m["y"].c.d"#, false),
            (r#"module.m["x"].module.n[1].c.d"#, true),
            ("module.n[0].c.d", true),
            ("c.d[\"y\"]", true),
        ] {
            assert_eq!(agree(x, other), wanted, "{other}");
            assert_eq!(agree(other, x), wanted, "{other}");
        }
    }
}
