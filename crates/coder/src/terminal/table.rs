//! Lists as tables that fit the terminal or as JSON (`-o json`), with chosen columns (`-c`).

use std::marker::PhantomData;
use std::time::Duration;

use anyhow::bail;
use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches, ValueEnum};
use coder_api::Timestamp;
use coder_domain::clock::{Clock as _, SystemClock};
use coder_domain::tags::TagSet;
use serde::Serialize;

use crate::terminal::output::{Printer, Style, one_line};
use crate::{duration, plural, suggest};

/// `-o`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The most important columns, fitted to the terminal.
    #[default]
    Table,
    /// All columns at full length.
    Wide,
    /// The objects as the server sent them.
    Json,
}

/// How a column gets the text of a cell.
enum Value<T> {
    Text(fn(&T) -> String),
    /// A terminal shows how long ago an instant was, because absolute times are wide. The second value is shown for a
    /// missing instant.
    Time(fn(&T) -> Option<Timestamp>, &'static str),
    /// A narrow terminal does not show the tags that every job and daemon of an organization has.
    Tags(fn(&T) -> &TagSet),
}

/// How cells are written.
#[derive(Clone, Copy, Debug, Default)]
struct CellStyle {
    /// Instants are shown relative to now.
    is_relative: bool,
    /// Implied tags are not shown.
    has_short_tags: bool,
}

/// One column: its name for `-c` and how to get its text.
pub(crate) struct Column<T> {
    /// Name as typed and, in capitals, as shown.
    pub(crate) name: &'static str,
    /// Whether it is shown when `-c` is not given.
    shown: bool,
    /// Whether it is omitted when the terminal is too narrow for all.
    is_optional: bool,
    value: Value<T>,
}

impl<T> Column<T> {
    /// A column of text.
    pub(crate) const fn text(name: &'static str, shown: bool, cell: fn(&T) -> String) -> Self {
        Self { name, shown, is_optional: false, value: Value::Text(cell) }
    }

    /// A column of instants; `absent` stands for none.
    pub(crate) const fn time(
        name: &'static str,
        shown: bool,
        cell: fn(&T) -> Option<Timestamp>,
        absent: &'static str,
    ) -> Self {
        Self { name, shown, is_optional: false, value: Value::Time(cell, absent) }
    }

    /// A column of tags.
    pub(crate) const fn tags(cell: fn(&T) -> &TagSet) -> Self {
        Self { name: "tags", shown: true, is_optional: false, value: Value::Tags(cell) }
    }

    /// The same column, omitted on a narrow terminal.
    pub(crate) const fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }

    /// Whether its cells must not be shortened: ids and tags are copied, times are short.
    fn is_whole(&self) -> bool {
        matches!(self.value, Value::Time(..) | Value::Tags(_))
            || self.name == "id"
            || self.name.ends_with(" id")
    }

    fn cell(&self, row: &T, style: CellStyle) -> String {
        match &self.value {
            Value::Text(cell) => cell(row),
            Value::Time(cell, absent) => match cell(row) {
                None => (*absent).to_owned(),
                Some(at) if style.is_relative => relative(at),
                Some(at) => time(at),
            },
            Value::Tags(cell) if style.has_short_tags => short_tags(cell(row)),
            Value::Tags(cell) => cell(row).to_string(),
        }
    }
}

/// The tags without those of every job and daemon of an organization, unless it has no others.
fn short_tags(tags: &TagSet) -> String {
    let is_implied = |(key, value): &(&String, &String)| {
        matches!((key.as_str(), value.as_str()), ("owner", "") | ("scope", "organization"))
    };
    let own = tags.as_map().iter().filter(|pair| !is_implied(pair));
    let own: Vec<_> = own.map(|(key, value)| format!("{key}={value}")).collect();
    if own.is_empty() { tags.to_string() } else { own.join(" ") }
}

/// What a list shows of each of its rows.
pub(crate) trait Listed: Serialize + Sized + 'static {
    /// All columns, in the order of a table.
    const COLUMNS: &'static [Column<Self>];
}

/// `-c` and `-o` of a command that lists.
pub(crate) struct TableOptions<T> {
    pub(crate) columns: Vec<String>,
    pub(crate) format: Format,
    rows: PhantomData<fn() -> T>,
}

impl<T> std::fmt::Debug for TableOptions<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableOptions").field("columns", &self.columns).field("format", &self.format).finish()
    }
}

impl<T> TableOptions<T> {
    pub(crate) const fn new(columns: Vec<String>, format: Format) -> Self {
        Self { columns, format, rows: PhantomData }
    }
}

// Implemented by hand, because the help names the columns of the list.
impl<T: Listed> clap::Args for TableOptions<T> {
    fn augment_args(command: Command) -> Command {
        let names: Vec<_> = T::COLUMNS.iter().map(|column| column.name).collect();
        let columns = Arg::new("column")
            .short('c')
            .long("column")
            .value_delimiter(',')
            .action(ArgAction::Append)
            .value_name("NAMES")
            .help(format!("Columns to show, separated by commas: {}", names.join(", ")));
        let output = Arg::new("output")
            .short('o')
            .long("output")
            .value_parser(clap::builder::EnumValueParser::<Format>::new())
            .hide_possible_values(true)
            .default_value("table")
            .value_name("FORMAT")
            .help("Output format: table, wide (all columns at full length) or json");
        command.arg(columns).arg(output)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Listed> FromArgMatches for TableOptions<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let columns = matches.get_many::<String>("column").into_iter().flatten().cloned().collect();
        Ok(Self::new(columns, matches.get_one("output").copied().unwrap_or_default()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Prints `rows`, or `empty` to standard error when there are none.
pub(crate) fn print<T: Listed>(
    printer: &Printer,
    options: &TableOptions<T>,
    rows: &[T],
    empty: &str,
) -> anyhow::Result<()> {
    let chosen = choose(options)?;
    if options.format == Format::Json {
        return printer.json(rows);
    }
    if rows.is_empty() {
        printer.note(empty);
        return Ok(());
    }
    let limit = printer.width().filter(|_| options.format == Format::Table);
    let style = CellStyle { is_relative: limit.is_some(), has_short_tags: false };
    let mut table = Table::new(chosen.clone(), rows, style);
    let mut left_out = 0;
    if let Some(limit) = limit {
        if table.width() > limit {
            table = Table::new(chosen, rows, CellStyle { has_short_tags: true, ..style });
        }
        // Explicitly named columns are all shown.
        left_out = if options.columns.is_empty() { table.leave_out(limit) } else { 0 };
        table.shorten(limit);
    }
    table.lines(printer).iter().for_each(|line| printer.data(line));
    if left_out > 0 {
        let columns = plural::count(left_out, "column does", "columns do");
        let text = format!("{columns} not fit into the terminal; -o wide shows all.");
        printer.note(&printer.paint(Style::Faint, &text));
    }
    Ok(())
}

fn choose<T: Listed>(options: &TableOptions<T>) -> anyhow::Result<Vec<&'static Column<T>>> {
    if options.columns.is_empty() {
        let is_wide = options.format == Format::Wide;
        return Ok(T::COLUMNS.iter().filter(|column| is_wide || column.shown).collect());
    }
    let mut chosen = Vec::with_capacity(options.columns.len());
    for name in &options.columns {
        let plain = name.trim().replace('_', " ");
        match T::COLUMNS.iter().find(|column| column.name.eq_ignore_ascii_case(&plain)) {
            Some(column) => chosen.push(column),
            None => {
                let known: Vec<_> = T::COLUMNS.iter().map(|column| column.name).collect();
                let near = suggest::did_you_mean(&plain, known.iter().copied());
                bail!("there is no column {name:?}: {near}choose from: {}", known.join(", "));
            }
        }
    }
    Ok(chosen)
}

/// Cells with the width of each column.
struct Table<T: 'static> {
    columns: Vec<&'static Column<T>>,
    cells: Vec<Vec<String>>,
    widths: Vec<usize>,
}

impl<T: 'static> Table<T> {
    fn new(columns: Vec<&'static Column<T>>, rows: &[T], style: CellStyle) -> Self {
        let cells: Vec<Vec<String>> = rows
            .iter()
            .map(|row| columns.iter().map(|column| one_line(&column.cell(row, style))).collect())
            .collect();
        let width = |(at, column): (usize, &&Column<T>)| {
            let longest = cells.iter().map(|row| length(&row[at])).max().unwrap_or_default();
            longest.max(length(column.name))
        };
        let widths = columns.iter().enumerate().map(width).collect();
        Self { columns, cells, widths }
    }

    fn width(&self) -> usize {
        self.widths.iter().sum::<usize>() + self.widths.len().saturating_sub(1) * 2
    }

    /// The width to which a column can be shortened. The heading of an optional column stays whole.
    fn narrowest(&self, at: usize) -> usize {
        const MIN_COLUMN_WIDTH: usize = 8;
        let column = self.columns[at];
        let least =
            if column.is_optional { MIN_COLUMN_WIDTH.max(length(column.name)) } else { MIN_COLUMN_WIDTH };
        if column.is_whole() { self.widths[at] } else { self.widths[at].min(least) }
    }

    /// The width that a column keeps as long as there are optional columns.
    fn wanted(&self, at: usize) -> usize {
        const LONGEST_KEPT: usize = 40;
        if self.columns[at].is_optional || self.columns[at].is_whole() {
            self.narrowest(at)
        } else {
            self.widths[at].min(LONGEST_KEPT)
        }
    }

    /// Whether the table fits when its columns have these widths.
    fn fits(&self, limit: usize, width: impl Fn(&Self, usize) -> usize) -> bool {
        let widths: usize = (0..self.columns.len()).map(|at| width(self, at)).sum();
        widths + self.columns.len().saturating_sub(1) * 2 <= limit
    }

    /// Omits optional columns until shortening the others is enough. Returns how many.
    fn leave_out(&mut self, limit: usize) -> usize {
        let mut left_out = 0;
        while !self.fits(limit, |table, at| table.widths[at]) {
            let Some(at) = self.least(limit) else { return left_out };
            self.columns.remove(at);
            self.widths.remove(at);
            for row in &mut self.cells {
                row.remove(at);
            }
            left_out += 1;
        }
        left_out
    }

    /// The optional column that matters least: one without any text; if that is not enough a time, then the last one.
    fn least(&self, limit: usize) -> Option<usize> {
        let is_optional = |at: &usize| self.columns[*at].is_optional;
        let all = || (0..self.columns.len()).filter(is_optional);
        let is_empty = |at: &usize| self.cells.iter().all(|row| row[*at].is_empty());
        let is_time = |at: &usize| matches!(self.columns[*at].value, Value::Time(..));
        let empty = all().find(is_empty);
        if empty.is_some() || self.fits(limit, Self::wanted) {
            return empty;
        }
        all().find(is_time).or_else(|| all().next_back())
    }

    /// Makes the widest column that may be shortened narrower, until a line fits. Optional columns are shortened before
    /// the others. When nothing helps, all stay as they are.
    fn shorten(&mut self, limit: usize) {
        if !self.fits(limit, Self::narrowest) {
            return;
        }
        while self.width() > limit {
            match self.widest(true).or_else(|| self.widest(false)) {
                Some(at) => self.widths[at] -= 1,
                None => return,
            }
        }
    }

    /// The widest of the optional or of the other columns that may be shortened.
    fn widest(&self, is_optional: bool) -> Option<usize> {
        let may = |at: &usize| {
            self.columns[*at].is_optional == is_optional && self.widths[*at] > self.narrowest(*at)
        };
        (0..self.columns.len()).filter(may).max_by_key(|at| self.widths[*at])
    }

    fn lines(&self, printer: &Printer) -> Vec<String> {
        let heads = self.columns.iter().zip(&self.widths);
        let heads = heads.map(|(column, width)| pad(&column.name.to_uppercase(), *width)).collect::<Vec<_>>();
        let mut lines = vec![printer.paint(Style::Bold, heads.join("  ").trim_end())];
        for row in &self.cells {
            let last = row.len().saturating_sub(1);
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                let padded = pad(cell, self.widths[at]);
                let shown = if at == last { padded.trim_end() } else { &padded };
                match status_style(self.columns[at].name, cell) {
                    Some(style) => line.push_str(&printer.paint(style, shown)),
                    None => line.push_str(shown),
                }
                if at < last {
                    line.push_str("  ");
                }
            }
            lines.push(line.trim_end().to_owned());
        }
        lines
    }
}

/// The color of a status word.
fn status_style(column: &str, cell: &str) -> Option<Style> {
    let is_status = column == "status" || column.ends_with(" status") || column == "healthy";
    if !is_status {
        return None;
    }
    let word = cell.to_ascii_lowercase();
    Some(match word.split([',', ':']).next().unwrap_or_default().trim() {
        "running" | "succeeded" | "idle" | "active" | "connected" | "true" => Style::Good,
        "failed" | "false" | "unhealthy" | "offline" => Style::Bad,
        "pending" | "starting" | "stopping" | "deleting" | "canceling" | "busy" | "suspended" => Style::Warn,
        "stopped" | "canceled" | "dormant" | "deleted" => Style::Faint,
        _ => return None,
    })
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn pad(cell: &str, width: usize) -> String {
    if length(cell) <= width {
        return format!("{cell:width$}");
    }
    let kept: String = cell.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// An instant as programs read it.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// An instant that may be absent.
pub(crate) fn time_or(at: Option<Timestamp>, absent: &str) -> String {
    at.map_or_else(|| absent.to_owned(), time)
}

/// How long ago an instant was, or in how long it will be.
pub(crate) fn relative(at: Timestamp) -> String {
    let now = SystemClock.now();
    let (from, to, is_past) = if at <= now { (at, now, true) } else { (now, at, false) };
    let distance = Duration::try_from(to.duration_since(from)).unwrap_or_default();
    if distance.as_secs() < 5 {
        return "now".to_owned();
    }
    let text = duration::coarse(distance);
    if is_past { format!("{text} ago") } else { format!("in {text}") }
}

#[cfg(test)]
mod tests {
    use coder_domain::ids::UserId;

    use super::*;

    #[derive(Clone, Copy, Serialize)]
    struct Row {
        name: &'static str,
        text: &'static str,
    }

    impl Listed for Row {
        const COLUMNS: &'static [Column<Self>] = &[
            Column::text("id", true, |_| "0b4e37b6-7a21-4b0a-8d0e-8d3b5c6f7a10".to_owned()),
            Column::text("name", true, |row| row.name.to_owned()),
            Column::text("text", true, |row| row.text.to_owned()),
            Column::optional(Column::text("status", true, |_| "running".to_owned())),
            Column::optional(Column::time("created at", true, |_| Some(Timestamp::UNIX_EPOCH), "never")),
            Column::text("hidden", false, |_| "x".to_owned()),
        ];
    }

    fn options(columns: &[&str], format: Format) -> TableOptions<Row> {
        TableOptions::new(columns.iter().map(|name| (*name).to_owned()).collect(), format)
    }

    fn names(options: &TableOptions<Row>) -> anyhow::Result<Vec<&'static str>> {
        Ok(choose(options)?.iter().map(|column| column.name).collect())
    }

    #[test]
    fn columns_are_chosen_by_name_in_the_order_asked() {
        assert_eq!(
            names(&options(&[], Format::Table)).unwrap(),
            ["id", "name", "text", "status", "created at"]
        );
        assert_eq!(names(&options(&[], Format::Wide)).unwrap().len(), 6);
        assert_eq!(names(&options(&["Name", "created_at"], Format::Table)).unwrap(), ["name", "created at"]);
        let error = names(&options(&["nmae"], Format::Table)).unwrap_err().to_string();
        assert!(error.contains("did you mean \"name\"?") && error.contains("id, name, text"), "{error}");
    }

    fn lines(limit: usize) -> (Vec<String>, usize) {
        let rows = [Row { name: "a-rather-long-name-of-a-workspace", text: "words that go on and on" }];
        let chosen = choose(&options(&[], Format::Table)).unwrap();
        let mut table = Table::new(chosen, &rows, CellStyle { is_relative: true, has_short_tags: true });
        let left_out = table.leave_out(limit);
        table.shorten(limit);
        (table.lines(&Printer::plain()), left_out)
    }

    #[test]
    fn cells_do_not_control_the_terminal() {
        let rows = [Row { name: "a\u{1b}]0;title\u{7}b", text: "\u{1b}[2Jc\u{202e}d\n\u{9b}e" }];
        let chosen = choose(&options(&["name", "text"], Format::Table)).unwrap();
        let lines = Table::new(chosen, &rows, CellStyle::default()).lines(&Printer::plain());
        assert_eq!(lines[1].trim_end(), "ab    cd e");
    }

    #[test]
    fn a_narrow_terminal_gets_fewer_and_shorter_columns() {
        for limit in [60, 70, 80, 100, 120] {
            let (lines, _) = lines(limit);
            assert!(lines.iter().all(|line| length(line) <= limit), "{limit}: {lines:#?}");
            assert!(
                lines[1].starts_with("0b4e37b6-7a21-4b0a-8d0e-8d3b5c6f7a10  "),
                "ids are whole: {lines:#?}"
            );
        }
        assert_eq!(lines(60).1, 2);
        assert_eq!(lines(200).1, 0);
        assert!(lines(200).0[1].contains(" ago"), "times are relative on a terminal");
    }

    #[test]
    fn names_are_shortened_last() {
        let (lines, left_out) = lines(112);
        assert_eq!(left_out, 1, "{lines:#?}");
        assert!(
            lines[1].contains("a-rather-long-name-of-a-workspace  words that go on and on  running"),
            "{lines:#?}"
        );
        let status = lines[0].split_whitespace().last();
        assert_eq!(status, Some("STATUS"), "headings are whole: {lines:#?}");
    }

    #[test]
    fn implied_tags_are_not_shown_where_there_is_no_room() {
        let tags = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            short_tags(&TagSet::canonical(UserId::NIL, [&pairs.collect()]))
        };
        assert_eq!(tags(&[("environment", "on_prem")]), "environment=on_prem");
        assert_eq!(tags(&[]), "owner= scope=organization");
    }

    #[test]
    fn a_status_has_the_colour_of_its_meaning() {
        assert!(matches!(status_style("status", "Running"), Some(Style::Good)));
        assert!(matches!(status_style("status", "busy, draining"), Some(Style::Warn)));
        assert!(matches!(status_style("current job status", "failed"), Some(Style::Bad)));
        assert!(status_style("name", "running").is_none());
    }
}
