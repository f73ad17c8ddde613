//! Merges several statements into one for Postgres. Its parts run one after the other, in the order in which its last
//! line refers to them. This saves one round trip per part; a merged statement that is a whole transaction also saves
//! BEGIN and COMMIT.
//!
//! All parts see the rows as they were before the first part. So no part may depend on another one, and no two parts
//! may change the same row. Foreign keys are checked after the last part.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;

use super::statement::Statement;
use super::value::Value;

/// A statement that is merged with others.
pub(super) struct MergePart {
    pub(super) statement: &'static Statement,
    pub(super) values: Vec<Value>,
    /// If it must change a row and does not, the whole merged statement fails.
    pub(super) must_change: bool,
}

/// Groups the parts that may be merged, in their order.
pub(super) fn groups(parts: Vec<MergePart>) -> Vec<Vec<MergePart>> {
    let mut groups: Vec<Vec<MergePart>> = Vec::new();
    for part in parts {
        let apart = |other: &MergePart| {
            target(other.statement) == target(part.statement)
                && !(is_plain_insert(other.statement) && is_plain_insert(part.statement))
        };
        match groups.last_mut() {
            // Two parts that change one table may match the same row, or one may depend on a row of the other.
            Some(group) if !group.iter().any(apart) => group.push(part),
            _ => groups.push(vec![part]),
        }
    }
    groups
}

/// The table that a statement changes, if it changes one.
fn target(statement: &Statement) -> &str {
    let mut words = statement.postgres.split_whitespace();
    let table = if words.next() == Some("update") { words.next() } else { words.nth(1) };
    table.unwrap_or_default()
}

fn is_plain_insert(statement: &Statement) -> bool {
    statement.postgres.starts_with("insert") && !statement.postgres.contains("on conflict")
}

type GroupKey = Vec<(&'static str, bool)>;

/// The merged texts so far. There is one for each sequence of statements in the code.
#[derive(Default)]
pub(super) struct MergedTexts(Mutex<HashMap<GroupKey, Arc<str>>>);

impl MergedTexts {
    /// The merged text of at least two statements.
    pub(super) fn get(&self, group: &[MergePart]) -> Arc<str> {
        let key: GroupKey = group.iter().map(|part| (part.statement.name, part.must_change)).collect();
        let mut texts = self.0.lock();
        Arc::clone(texts.entry(key).or_insert_with(|| text(group).into()))
    }
}

/// The error message of a part that must change a row and did not: the merged statement casts this word and the number
/// of the part to a number, which fails.
const UNCHANGED: &str = "unchanged";

fn text(group: &[MergePart]) -> String {
    let (mut parts, mut counts) = (String::new(), String::new());
    let mut offset = 0;
    for (index, part) in group.iter().enumerate() {
        let between = if index == 0 { "with" } else { "," };
        let renumbered = renumber(part.statement.postgres, offset);
        write!(parts, "{between} part_{index} as ({renumbered} returning 1) ")
            .expect("a text takes any text");
        let between = if index == 0 { "select" } else { "," };
        let count = format!("(select count(*) from part_{index})");
        let count = if part.must_change {
            format!("cast(case when {count} > 0 then '1' else '{UNCHANGED} {index}' end as bigint)")
        } else {
            count
        };
        write!(counts, "{between} {count} as part_{index} ").expect("a text takes any text");
        offset += part.values.len();
    }
    parts + &counts
}

/// Adds an offset to the numbers of the parameters. `'$.name'` is not a parameter.
fn renumber(text: &str, offset: usize) -> String {
    let mut renumbered = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at + 1);
        renumbered.push_str(before);
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        match after[..digits].parse::<usize>() {
            Ok(number) => renumbered.push_str(&(number + offset).to_string()),
            Err(_) => renumbered.push_str(&after[..digits]),
        }
        rest = &after[digits..];
    }
    renumbered + rest
}

/// The part that caused this error message.
pub(super) fn unchanged(message: &str) -> Option<usize> {
    let (_, number) = message.split_once(UNCHANGED)?;
    number.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{sql, values};

    const INSERT: Statement = Statement::new(
        "things",
        "things.INSERT",
        sql(
            "insert into things (id, name) select $1, json_extract(item.value, '$.name') from json_each($2) as item",
        ),
    );
    const PUT: Statement = Statement::new(
        "things",
        "things.PUT",
        sql("insert into things (id) values ($1) on conflict (id) do nothing"),
    );
    const END: Statement =
        Statement::new("things", "things.END", sql("update things set name = $2 where id = $1"));

    const OTHER: Statement =
        Statement::new("others", "others.END", sql("delete from others where id = $1 or id = $2"));

    fn part(statement: &'static Statement, must_change: bool) -> MergePart {
        MergePart { statement, values: values![1_i64, 2_i64], must_change }
    }

    #[test]
    fn parameters_are_numbered_through_and_parts_asked_for_in_their_order() {
        let text = text(&[part(&END, true), part(&INSERT, false)]);
        assert!(
            text.contains("with part_0 as (update things set name = $2 where id = $1 returning 1) "),
            "{text}"
        );
        assert!(text.contains("select $3, json_extract(item.value, '$.name') from json_each($4)"), "{text}");
        assert!(text.find("from part_0").unwrap() < text.find("from part_1").unwrap(), "{text}");
        assert!(text.contains("'unchanged 0'") && !text.contains("'unchanged 1'"), "{text}");
    }

    #[test]
    fn statements_that_may_change_the_same_row_are_not_merged() {
        let names = |parts: Vec<&'static Statement>| -> Vec<Vec<&str>> {
            let groups = groups(parts.into_iter().map(|statement| part(statement, false)).collect());
            groups.iter().map(|group| group.iter().map(|part| part.statement.name).collect()).collect()
        };
        assert_eq!(names(vec![&INSERT, &INSERT, &OTHER]), [["things.INSERT", "things.INSERT", "others.END"]]);
        assert_eq!(
            names(vec![&INSERT, &END]),
            [["things.INSERT"], ["things.END"]],
            "it would not see the row"
        );
        assert_eq!(names(vec![&PUT, &OTHER, &PUT]), [vec!["things.PUT", "others.END"], vec!["things.PUT"]]);
        assert_eq!(names(vec![&END, &END]), [["things.END"], ["things.END"]]);
    }

    #[test]
    fn a_complaint_names_its_part() {
        assert_eq!(unchanged("invalid input syntax for type bigint: \"unchanged 12\""), Some(12));
        assert_eq!(unchanged("invalid input syntax for type bigint: \"\""), None);
    }

    #[test]
    fn the_numbers_of_parameters_grow_by_those_before() {
        for (text, offset, expected) in [
            ("", 5, ""),
            ("no parameter", 5, "no parameter"),
            ("$1", 0, "$1"),
            ("$1", 5, "$6"),
            ("a = $1 and b = $23.", 7, "a = $8 and b = $30."),
            ("$1$2 $", 1, "$2$3 $"),
            ("json_extract($2, '$.name')", 3, "json_extract($5, '$.name')"),
            ("'$.a' '$' $9", 1, "'$.a' '$' $10"),
        ] {
            assert_eq!(renumber(text, offset), expected);
        }
        let three = text(&[part(&END, true), part(&OTHER, true), part(&END, false)]);
        assert_eq!(
            three,
            "with part_0 as (update things set name = $2 where id = $1 returning 1) \
             , part_1 as (delete from others where id = $3 or id = $4 returning 1) \
             , part_2 as (update things set name = $6 where id = $5 returning 1) \
             select cast(case when (select count(*) from part_0) > 0 then '1' else 'unchanged 0' end as bigint) as part_0 \
             , cast(case when (select count(*) from part_1) > 0 then '1' else 'unchanged 1' end as bigint) as part_1 \
             , (select count(*) from part_2) as part_2 "
        );
    }

    #[test]
    fn the_table_of_a_statement_is_the_one_it_changes() {
        for (statement, table, is_plain) in [
            (&INSERT, "things", true),
            (&PUT, "things", false),
            (&END, "things", false),
            (&OTHER, "others", false),
        ] {
            assert_eq!(target(statement), table, "{}", statement.name);
            assert_eq!(is_plain_insert(statement), is_plain, "{}", statement.name);
        }
    }

    #[test]
    fn a_merged_text_is_made_for_each_sequence_of_statements() {
        let texts = MergedTexts::default();
        let groups = [
            [part(&END, true), part(&OTHER, false)],
            [part(&END, false), part(&OTHER, false)],
            [part(&OTHER, false), part(&END, true)],
        ];
        let made: Vec<_> = groups.iter().map(|group| texts.get(group)).collect();
        for (group, made) in groups.iter().zip(&made) {
            assert_eq!(**made, *text(group));
            assert!(Arc::ptr_eq(made, &texts.get(group)), "it is kept");
        }
        assert!(made[0] != made[1] && made[0] != made[2]);
    }
}
