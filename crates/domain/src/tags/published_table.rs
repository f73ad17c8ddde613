//! The published table of which daemon runs which job, answered by the predicate; `docs/provisioners.md` prints it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{DaemonCapabilities, JobRequirements, TagSet, matches};
use crate::ids::OrganizationId;

/// A row: the daemon's tags, the job's tags, whether both are of one organization.
type Row = (&'static str, &'static str, bool);

/// The rows of scheduling-and-auth 1.3, in its order, without the answers.
const ROWS: [Row; 21] = [
    ("scope=organization owner=", "scope=organization owner=", true),
    ("scope=organization owner= environment=on-prem", "scope=organization owner= environment=on-prem", true),
    (
        "scope=organization owner= environment=on-prem datacenter=chicago",
        "scope=organization owner= environment=on-prem",
        true,
    ),
    (
        "scope=organization owner= environment=on-prem datacenter=chicago",
        "scope=organization owner= environment=on-prem datacenter=chicago",
        true,
    ),
    ("scope=user owner=aaa", "scope=user owner=aaa", true),
    ("scope=user owner=aaa environment=on-prem", "scope=user owner=aaa", true),
    ("scope=user owner=aaa environment=on-prem", "scope=user owner=aaa environment=on-prem", true),
    (
        "scope=user owner=aaa environment=on-prem datacenter=chicago",
        "scope=user owner=aaa environment=on-prem",
        true,
    ),
    (
        "scope=user owner=aaa environment=on-prem datacenter=chicago",
        "scope=user owner=aaa environment=on-prem datacenter=chicago",
        true,
    ),
    ("scope=organization owner=", "scope=organization owner= environment=on-prem", true),
    ("scope=organization owner= environment=on-prem", "scope=organization owner=", true),
    (
        "scope=organization owner= environment=on-prem",
        "scope=organization owner= environment=on-prem datacenter=chicago",
        true,
    ),
    (
        "scope=organization owner= environment=on-prem datacenter=new_york",
        "scope=organization owner= environment=on-prem datacenter=chicago",
        true,
    ),
    ("scope=user owner=aaa", "scope=organization owner=", true),
    ("scope=user owner=aaa", "scope=user owner=bbb", true),
    ("scope=organization owner=", "scope=user owner=aaa", true),
    ("scope=organization owner=", "scope=user owner=aaa environment=on-prem", true),
    ("scope=user owner=aaa", "scope=user owner=aaa environment=on-prem", true),
    (
        "scope=user owner=aaa environment=on-prem",
        "scope=user owner=aaa environment=on-prem datacenter=chicago",
        true,
    ),
    (
        "scope=user owner=aaa environment=on-prem datacenter=chicago",
        "scope=user owner=aaa environment=on-prem datacenter=new_york",
        true,
    ),
    ("scope=organization owner= environment=on-prem", "scope=organization owner= environment=on-prem", false),
];

fn set(text: &str) -> TagSet {
    let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    TagSet::from_stored(pairs.map(owned).collect::<BTreeMap<_, _>>())
}

fn runs((daemon, job, same): &Row) -> bool {
    let types = ["terraform".to_owned()];
    let other = if *same { OrganizationId::NIL } else { OrganizationId::random() };
    let (daemon, job) = (set(daemon), set(job));
    let capabilities =
        DaemonCapabilities { organization: OrganizationId::NIL, provisioners: &types, tags: &daemon };
    matches(&capabilities, &JobRequirements { organization: other, provisioner: "terraform", tags: &job })
}

/// The table in Markdown, each answer computed by [`matches`].
#[must_use]
pub fn published_table() -> String {
    let mut text = String::from(
        "| # | daemon's tags | job's tags | one organization | runs? |\n| --: | --- | --- | --- | --- |\n",
    );
    for (number, row) in (1..).zip(&ROWS) {
        let (daemon, job, same) = row;
        let word = |yes: bool| if yes { "yes" } else { "no" };
        // Written to a String, which cannot fail.
        let _ = writeln!(text, "| {number} | `{daemon}` | `{job}` | {} | {} |", word(*same), word(runs(row)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which rows run (scheduling-and-auth 1.3).
    const RUN: [bool; 21] = [
        true, true, true, true, true, true, true, true, true, false, false, false, false, false, false,
        false, false, false, false, false, false,
    ];

    #[test]
    fn the_21_published_rows() {
        for (number, (row, expected)) in (1..).zip(ROWS.iter().zip(RUN)) {
            assert_eq!(runs(row), expected, "row {number}: {row:?}");
        }
    }

    /// Without the last row's difference, its pair would match: the organization alone decides.
    #[test]
    fn row_21_differs_by_the_organization_alone() {
        let (daemon, job, _) = ROWS[20];
        assert!(runs(&(daemon, job, true)));
    }
}
