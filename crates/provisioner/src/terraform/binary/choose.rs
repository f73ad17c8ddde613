//! Chooses one of the available programs for a template.
//!
//! 1. A template with OpenTofu's own files (`*.tofu`) gets OpenTofu if one fits, and Terraform only if it has a
//!    replacement for each of these files; every other template gets Terraform if one fits, else OpenTofu.
//! 2. Programs of operators precede those that the daemon installed, so that an installation changes nothing
//!    for templates that did not need it.
//! 3. Releases precede pre-releases; then the newest; then the one listed first.

use coder_source::files::Dialect;

use super::program::{Binary, BinaryOrigin, Product};
use super::required::{TemplateRequirements, VersionRequirement};

/// From this version on OpenTofu ignores `required_version` in files that Terraform reads too.
const TOFU_KNOWS_ITSELF: (u64, u64, u64) = (1, 12, 0);

/// The program to run, if one fits.
pub(crate) fn choose<'a>(available: &'a [Binary], required: &TemplateRequirements) -> Option<&'a Binary> {
    let only_tofu =
        required.prefers_opentofu || available.iter().all(|binary| binary.product == Product::OpenTofu);
    available
        .iter()
        .enumerate()
        .filter(|(_, binary)| fits(binary, required, only_tofu))
        .min_by(|(place, one), (other_place, other)| {
            let rank = |binary: &Binary| {
                let by_product = (binary.product == Product::OpenTofu) != required.prefers_opentofu;
                let by_origin = binary.origin == BinaryOrigin::Installed;
                (by_product, by_origin, !binary.version.is_release())
            };
            rank(one)
                .cmp(&rank(other))
                .then_with(|| other.version.order(&one.version))
                .then_with(|| place.cmp(other_place))
        })
        .map(|(_, binary)| binary)
}

fn fits(binary: &Binary, required: &TemplateRequirements, only_tofu: bool) -> bool {
    if required.opentofu_only_file.is_some() && binary.dialect() == Dialect::Terraform {
        return false;
    }
    required
        .requirements
        .iter()
        .filter(|requirement| binds(requirement, binary, only_tofu))
        .all(|requirement| requirement.constraint.accepts(&binary.version))
}

/// Version numbers of one product say little about the other. A constraint for Terraform applies to OpenTofu
/// only where OpenTofu itself would apply it, or while a Terraform is available.
fn binds(requirement: &VersionRequirement, binary: &Binary, only_tofu: bool) -> bool {
    match (binary.product, requirement.opentofu_only) {
        (Product::Terraform, opentofu_only) => !opentofu_only,
        (Product::OpenTofu, true) => binary.dialect() == Dialect::OpenTofu,
        (Product::OpenTofu, false) if requirement.replaced && binary.dialect() == Dialect::OpenTofu => false,
        (Product::OpenTofu, false) => !only_tofu || binary.version.numbers < TOFU_KNOWS_ITSELF,
    }
}

#[cfg(test)]
mod tests {
    use super::super::constraint::Constraint;
    use super::super::version::Version;
    use super::*;

    /// `1.9.8`, `tofu 1.9.0`, or `own 1.9.8` for one that the daemon installed.
    fn binary(text: &str) -> Binary {
        let (product, text) = match text.strip_prefix("tofu ") {
            Some(text) => (Product::OpenTofu, text),
            None => (Product::Terraform, text),
        };
        let (origin, text) = match text.strip_prefix("own ") {
            Some(text) => (BinaryOrigin::Installed, text),
            None => (BinaryOrigin::Configured, text),
        };
        Binary { path: text.into(), version: Version::parse(text).unwrap(), product, origin }
    }

    /// Constraints in Terraform's files; the prefix `tofu:` marks one in an OpenTofu file.
    fn required(constraints: &[&str]) -> TemplateRequirements {
        let requirement = |text: &&str| {
            let (opentofu_only, text) =
                text.strip_prefix("tofu:").map_or((false, *text), |text| (true, text));
            VersionRequirement {
                constraint: Constraint::parse(text).unwrap(),
                place: "main.tf:2".to_owned(),
                opentofu_only,
                replaced: false,
            }
        };
        let requirements: Vec<_> = constraints.iter().map(requirement).collect();
        let prefers_opentofu = requirements.iter().any(|requirement| requirement.opentofu_only);
        let opentofu_only_file = prefers_opentofu.then(|| "more.tofu".to_owned());
        TemplateRequirements { requirements, prefers_opentofu, opentofu_only_file }
    }

    #[test]
    fn opentofu_is_preferred_for_templates_that_both_can_read() {
        let mut both = required(&["~> 1.5.0", "tofu:>= 1.9"]);
        both.opentofu_only_file = None;
        both.requirements[0].replaced = true;
        for (available, wanted) in [
            (&["1.5.7", "tofu 1.9.0"][..], Some(1)),
            (&["1.5.7", "tofu 1.8.0"], Some(0)),
            (&["1.5.7"], Some(0)),
            (&["1.9.8"], None),
            // It reads Terraform's files only.
            (&["tofu 1.7.0"], None),
        ] {
            let binaries: Vec<_> = available.iter().map(|text| binary(text)).collect();
            let chosen = choose(&binaries, &both).map(|chosen| chosen.path.clone());
            let wanted: Option<&str> = wanted.map(|at: usize| available[at].trim_start_matches("tofu "));
            assert_eq!(chosen.as_deref().and_then(|path| path.to_str()), wanted, "{available:?}");
        }
        let mut only_tofu = required(&["tofu:>= 1.0"]);
        only_tofu.requirements.clear();
        let old = [binary("tofu 1.7.0"), binary("1.9.8")];
        assert_eq!(choose(&old, &only_tofu), None, "neither reads *.tofu");
    }

    #[test]
    fn the_newest_that_fits() {
        let table: &[(&[&str], &[&str], Option<usize>)] = &[
            (&[], &[], None),
            (&["1.5.7", "1.11.4", "1.9.8"], &[], Some(1)),
            (&["1.5.7", "1.11.4", "1.9.8"], &["< 1.11"], Some(2)),
            (&["1.5.7", "1.11.4", "1.9.8"], &["~> 1.5.0"], Some(0)),
            (&["1.5.7", "1.11.4", "1.9.8"], &[">= 1.5", "!= 1.11.4"], Some(2)),
            (&["1.5.7", "1.11.4"], &["~> 1.6.0"], None),
            (&["1.5.7", "1.11.4"], &[">= 1.6", "< 1.6"], None),
            // The first one of equals.
            (&["1.9.8", "1.9.8"], &[], Some(0)),
            // Releases first.
            (&["1.12.0-rc1", "1.11.4"], &[], Some(1)),
            (&["1.12.0-rc1", "1.11.4"], &[">= 1.12"], Some(0)),
            (&["1.12.0-rc1", "1.12.0-rc2"], &[], Some(1)),
            (&["1.12.0-rc1", "1.12.0"], &["= 1.12.0-rc1"], Some(0)),
            // Programs of operators first.
            (&["own 1.14.0", "1.11.4"], &[], Some(1)),
            (&["own 1.14.0", "1.11.4"], &[">= 1.12"], Some(0)),
            (&["own 1.14.0", "own 1.13.0"], &[], Some(0)),
            // Terraform first.
            (&["tofu 1.12.6", "1.11.4"], &[], Some(1)),
            (&["tofu 1.12.6", "own 1.11.4"], &[], Some(1)),
            (&["tofu 1.10.0", "1.11.4"], &["~> 1.10.0"], Some(0)),
            (&["tofu 1.12.6", "1.11.4"], &["~> 1.5.0"], None),
            (&["tofu 1.8.0", "tofu 1.12.6"], &[], Some(1)),
            // A constraint for Terraform does not apply to a new OpenTofu when nothing else is available.
            (&["tofu 1.8.0", "tofu 1.12.6"], &["~> 1.5.0"], Some(1)),
            (&["tofu 1.8.0", "tofu 1.12.6"], &["~> 1.8.0"], Some(1)),
            (&["tofu 1.8.0"], &["~> 1.5.0"], None),
            (&["tofu 1.8.0", "tofu 1.12.6", "1.11.4"], &["tofu:~> 1.8.0"], Some(0)),
            (&["1.8.4", "tofu 1.12.6"], &["~> 1.8.0", "tofu:>= 1.9"], Some(1)),
            (&["1.8.4", "tofu 1.9.0"], &["~> 1.8.0", "tofu:>= 1.9"], None),
            (&["1.11.4"], &["tofu:>= 1.0"], None),
        ];
        for (available, constraints, wanted) in table {
            let binaries: Vec<_> = available.iter().map(|text| binary(text)).collect();
            let chosen = choose(&binaries, &required(constraints));
            let place =
                chosen.map(|chosen| binaries.iter().position(|one| std::ptr::eq(one, chosen)).unwrap());
            assert_eq!(place, *wanted, "{constraints:?} of {available:?}");
        }
    }
}
