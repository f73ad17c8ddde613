//! Figures, their medians, and the table that goes into `docs/performance.md`.

/// One line of the table.
pub(crate) struct Row {
    pub what: String,
    pub target: String,
    pub measured: String,
    pub met: bool,
}

impl Row {
    /// A figure that must not exceed `limit`.
    pub(crate) fn at_most(what: impl Into<String>, measured: f64, limit: f64, unit: &str) -> Self {
        Self {
            what: what.into(),
            target: format!("≤ {} {unit}", number(limit)),
            measured: format!("{} {unit}", number(measured)),
            met: measured <= limit,
        }
    }

    /// A figure that must reach `limit`.
    pub(crate) fn at_least(what: impl Into<String>, measured: f64, limit: f64, unit: &str) -> Self {
        Self {
            what: what.into(),
            target: format!("≥ {} {unit}", number(limit)),
            measured: format!("{} {unit}", number(measured)),
            met: measured >= limit,
        }
    }

    /// A figure that is only reported.
    pub(crate) fn seen(what: impl Into<String>, measured: f64, unit: &str) -> Self {
        let measured = format!("{} {unit}", number(measured));
        Self { what: what.into(), target: "–".to_owned(), measured, met: true }
    }
}

/// The middle of the values; they are sorted.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A markdown table.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::from("| what | target | measured | met |\n| --- | --- | --- | --- |\n");
    for row in rows {
        let met = if row.met { "yes" } else { "**no**" };
        text.push_str(&format!("| {} | {} | {} | {met} |\n", row.what, row.target, row.measured));
    }
    text
}

fn number(value: f64) -> String {
    if value.abs() >= 100.0 || value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]).to_bits(), 2.0_f64.to_bits());
    }

    #[test]
    fn the_table_shows_a_missed_target() {
        assert!(table(&[Row::at_most("a", 2.0, 1.0, "ms")]).contains("**no**"));
        assert!(table(&[Row::at_least("a", 2.0, 1.0, "/s")]).contains("| yes |"));
    }
}
