//! Suggestions for a misspelled name.

/// The nearest of `names`, if it is near enough.
pub(crate) fn nearest<'n>(wanted: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let wanted = wanted.to_lowercase();
    let distance = |name: &str| {
        let name = name.to_lowercase();
        // A name of which only the beginning was typed.
        if wanted.len() >= 3 && name.starts_with(&wanted) { 1 } else { strsim::osa_distance(&wanted, &name) }
    };
    let measured = names.into_iter().map(|name| (distance(name), name));
    let (distance, name) = measured.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1 + wanted.chars().count() / 4).then_some(name)
}

/// `did you mean "x"? ` for the nearest name, or nothing.
pub(crate) fn did_you_mean<'n>(wanted: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    nearest(wanted, names).map(|name| format!("did you mean {name:?}? ")).unwrap_or_default()
}

/// The text after "there is no …": the near name, or the command that lists all names.
pub(crate) fn instead<'n>(wanted: &str, names: impl IntoIterator<Item = &'n str>, list: &str) -> String {
    match nearest(wanted, names) {
        Some(name) => format!("did you mean {name:?}? See `{list}`"),
        None => format!("see `{list}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_names_are_offered() {
        let names = ["docker", "kubernetes", "region"];
        assert_eq!(nearest("dokcer", names), Some("docker"));
        assert_eq!(nearest("regoin", names), Some("region"));
        assert_eq!(nearest("Kubernets", names), Some("kubernetes"));
        assert_eq!(nearest("kub", names), Some("kubernetes"));
        assert_eq!(nearest("x", names), None);
        assert_eq!(nearest("terraform", names), None);
        assert_eq!(nearest("docker", []), None);
        assert_eq!(
            instead("dokcer", names, "coder templates list"),
            "did you mean \"docker\"? See `coder templates list`"
        );
    }
}
