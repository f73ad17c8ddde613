//! Which form control fits which parameter (terraform 3.6).

/// Every form type the schema accepts; `error` is never allowed by the table.
pub(super) const ALL: &[&str] = &[
    "radio",
    "slider",
    "input",
    "dropdown",
    "checkbox",
    "switch",
    "multi-select",
    "tag-select",
    "textarea",
    "error",
];

/// The allowed form types; the first is the default.
fn allowed(kind: &str, has_options: bool) -> &'static [&'static str] {
    match (kind, has_options) {
        ("string" | "number" | "bool", true) => &["radio", "dropdown"],
        ("string", false) => &["input", "textarea"],
        ("number", false) => &["input", "slider"],
        ("bool", false) => &["checkbox", "switch"],
        ("list(string)", true) => &["radio", "multi-select"],
        ("list(string)", false) => &["tag-select"],
        _ => &[],
    }
}

/// The form type to use, or why the given one does not fit.
pub(super) fn resolve<'a>(kind: &str, has_options: bool, form_type: &'a str) -> Result<&'a str, String> {
    let fitting = allowed(kind, has_options);
    if form_type.is_empty() {
        return fitting.first().copied().ok_or_else(|| format!("the type {kind:?} is not known"));
    }
    if fitting.contains(&form_type) {
        return Ok(form_type);
    }
    let condition = match (allowed(kind, !has_options).contains(&form_type), has_options) {
        (false, _) => "",
        (true, true) => " when options exist",
        (true, false) => " when options do not exist",
    };
    Err(format!(
        "\"form_type\" {form_type:?} is not supported for \"type\" {kind:?}{condition}, choose one of [{}]",
        fitting.join(" ")
    ))
}

/// The type each option's value has.
pub(super) fn option_kind<'a>(kind: &'a str, form_type: &str) -> &'a str {
    if form_type == "multi-select" { "string" } else { kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_table_is_allowed() {
        let mut count = 0;
        for kind in ["string", "number", "bool", "list(string)"] {
            for has_options in [true, false] {
                for form_type in ALL {
                    let fits = allowed(kind, has_options).contains(form_type);
                    assert_eq!(resolve(kind, has_options, form_type).is_ok(), fits);
                    count += usize::from(fits);
                }
            }
        }
        assert_eq!(count, 15);
    }

    #[test]
    fn defaults_and_reasons() {
        assert_eq!(resolve("list(string)", false, ""), Ok("tag-select"));
        assert_eq!(resolve("bool", true, ""), Ok("radio"));
        assert!(
            resolve("string", false, "radio").is_err_and(|text| text.contains("when options do not exist"))
        );
        assert!(resolve("string", true, "input").is_err_and(|text| text.contains("when options exist")));
        assert!(resolve("string", true, "error").is_err_and(|text| text.ends_with("[radio dropdown]")));
    }
}
