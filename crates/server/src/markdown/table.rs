//! Tables: columns that are as wide as their widest cell, below a line.

use pulldown_cmark::Alignment;
use unicode_width::UnicodeWidthStr as _;

use super::tree::Node;

pub(super) fn write(table: &Node, alignments: &[Alignment], out: &mut String) {
    let cell = |node: &Node| {
        let mut text = String::new();
        super::inlines(&node.children, &mut text);
        text
    };
    let rows: Vec<Vec<String>> =
        table.children.iter().map(|row| row.children.iter().map(cell).collect()).collect();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max();
    let widths: Vec<usize> = (0..alignments.len()).map(|column| width(column).unwrap_or_default()).collect();
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let cells = row.iter().zip(&widths).zip(alignments);
        let cells: Vec<_> =
            cells.map(|((cell, width), alignment)| aligned(cell, *width, *alignment)).collect();
        out.push_str(&cells.join("│"));
        if index == 0 {
            let lines: Vec<_> = widths.iter().map(|width| "─".repeat(width + 2)).collect();
            out.push_str(&format!("\n{}", lines.join("┼")));
        }
    }
}

/// A cell with a space on either side.
fn aligned(cell: &str, width: usize, alignment: Alignment) -> String {
    let room = width.saturating_sub(cell.width());
    let left = match alignment {
        Alignment::None | Alignment::Left => 0,
        Alignment::Center => room / 2,
        Alignment::Right => room,
    };
    format!(" {}{cell}{} ", " ".repeat(left), " ".repeat(room - left))
}
