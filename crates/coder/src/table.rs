//! Lists as people (tables that fit the terminal) and programs (`-o json`) want them, with chosen columns (`-c`).

use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;
use coder_api::Timestamp;
use coder_domain::clock::{Clock as _, SystemClock};
use serde::Serialize;

use crate::duration;
use crate::output::{Look, Printer};

/// `-o`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns for people.
    #[default]
    Table,
    /// The objects as the server sent them.
    Json,
}

/// One column: its name for `-c` and how to get its text.
pub(crate) struct Column<T> {
    /// Name as typed and, in capitals, as shown.
    pub(crate) name: &'static str,
    /// Whether it is shown when `-c` is not given.
    pub(crate) shown: bool,
    /// The cell.
    pub(crate) cell: fn(&T) -> String,
}

/// `-c` and `-o` of a command that lists.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Columns to show, separated by commas.
    #[arg(short = 'c', long = "column", value_delimiter = ',', value_name = "NAMES")]
    pub(crate) columns: Vec<String>,
    /// Output format.
    #[arg(short = 'o', long = "output", value_enum, default_value = "table", value_name = "FORMAT")]
    pub(crate) format: Format,
}

/// Prints `rows`, or `empty` to standard error when there are none.
pub(crate) fn print<T: Serialize>(
    printer: &Printer,
    options: &Options,
    columns: &[Column<T>],
    rows: &[T],
    empty: &str,
) -> anyhow::Result<()> {
    let chosen = choose(columns, &options.columns)?;
    if options.format == Format::Json {
        printer.data(&serde_json::to_string_pretty(rows)?);
        return Ok(());
    }
    if rows.is_empty() {
        printer.note(empty);
        return Ok(());
    }
    let heads = chosen.iter().map(|column| column.name.to_uppercase()).collect();
    let cells = rows.iter().map(|row| chosen.iter().map(|column| (column.cell)(row)).collect()).collect();
    lines(printer, heads, cells).iter().for_each(|line| printer.data(line));
    Ok(())
}

fn choose<'a, T>(columns: &'a [Column<T>], wanted: &[String]) -> anyhow::Result<Vec<&'a Column<T>>> {
    if wanted.is_empty() {
        return Ok(columns.iter().filter(|column| column.shown).collect());
    }
    let mut chosen = Vec::with_capacity(wanted.len());
    for name in wanted {
        let plain = name.trim().replace('_', " ");
        match columns.iter().find(|column| column.name.eq_ignore_ascii_case(&plain)) {
            Some(column) => chosen.push(column),
            None => {
                let known: Vec<_> = columns.iter().map(|column| column.name).collect();
                bail!("there is no column {name:?}, choose from: {}", known.join(", "));
            }
        }
    }
    Ok(chosen)
}

/// Aligns cells; on a terminal the widest columns are cut until a line fits.
pub(crate) fn lines(printer: &Printer, heads: Vec<String>, rows: Vec<Vec<String>>) -> Vec<String> {
    let mut widths: Vec<usize> = heads.iter().map(|head| length(head)).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(length(cell));
        }
    }
    if let Some(limit) = printer.width() {
        fit(&mut widths, limit);
    }
    let line = |cells: &[String]| {
        let padded: Vec<_> = cells.iter().zip(&widths).map(|(cell, width)| pad(cell, *width)).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let mut lines = vec![printer.paint(Look::Bold, &line(&heads))];
    lines.extend(rows.iter().map(|row| line(row)));
    lines
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn fit(widths: &mut [usize], limit: usize) {
    const NARROWEST: usize = 8;
    let gaps = widths.len().saturating_sub(1) * 2;
    while widths.iter().sum::<usize>() + gaps > limit {
        match widths.iter_mut().max() {
            Some(widest) if *widest > NARROWEST => *widest -= 1,
            _ => return,
        }
    }
}

fn pad(cell: &str, width: usize) -> String {
    let cell = cell.replace(['\n', '\t'], " ");
    if length(&cell) <= width {
        return format!("{cell:width$}");
    }
    let kept: String = cell.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// An instant as lists show it.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// An instant that may be absent.
pub(crate) fn time_or(at: Option<Timestamp>, absent: &str) -> String {
    at.map_or_else(|| absent.to_owned(), time)
}

/// How long ago an instant was.
pub(crate) fn ago(at: Timestamp) -> String {
    let passed = Duration::try_from(SystemClock.now().duration_since(at)).unwrap_or_default();
    if passed.as_secs() < 5 { "now".to_owned() } else { format!("{} ago", duration::short(passed)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column<&str>] = &[
        Column { name: "created at", shown: false, cell: |_| "now".to_owned() },
        Column { name: "name", shown: true, cell: |row| (*row).to_owned() },
    ];

    #[test]
    fn columns_are_chosen_by_name_in_the_order_asked() {
        let names = |wanted: &[&str]| {
            let wanted: Vec<_> = wanted.iter().map(|name| (*name).to_owned()).collect();
            choose(COLUMNS, &wanted)
                .map(|columns| columns.iter().map(|column| column.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap(), ["name"]);
        assert_eq!(names(&["Name", "created_at"]).unwrap(), ["name", "created at"]);
        assert!(names(&["colour"]).unwrap_err().to_string().contains("created at, name"));
    }

    #[test]
    fn the_widest_column_gives_way() {
        let mut widths = [4, 30, 10];
        fit(&mut widths, 30);
        assert_eq!(widths.iter().sum::<usize>() + 4, 30);
        assert_eq!(widths[0], 4);
        assert_eq!(pad("abcdefghij", 5), "abcd…");
    }
}
