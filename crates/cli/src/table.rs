//! Plain tables: columns as wide as they need, two blanks between, no frames, no colours.

/// Rows with a heading.
#[derive(Debug)]
pub(crate) struct Rows {
    heading: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Rows {
    /// Makes a table with these columns.
    pub(crate) fn new(heading: &[&'static str]) -> Self {
        Self { heading: heading.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; its cells are made safe for a terminal.
    pub(crate) fn add(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|c| crate::show::plain(&c)).collect());
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> String {
        let heading: Vec<String> = self.heading.iter().map(|h| (*h).to_owned()).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&heading).chain(&self.rows).collect();
        let width = |column: usize| {
            lines.iter().filter_map(|l| l.get(column)).map(|c| c.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..heading.len()).map(width).collect();
        let mut text = String::new();
        for line in lines {
            let mut row = String::new();
            for (cell, width) in line.iter().zip(&widths) {
                row.push_str(cell);
                let pad = width - cell.chars().count() + 2;
                row.extend(std::iter::repeat_n(' ', pad));
            }
            text.push_str(row.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Keys and values of one thing, one per line; unset ones are left out.
#[derive(Debug, Default)]
pub(crate) struct Facts(Vec<(&'static str, String)>);

impl Facts {
    /// Adds a value.
    #[expect(clippy::needless_pass_by_value, reason = "calls read better with values of any kind")]
    pub(crate) fn add(&mut self, key: &'static str, value: impl ToString) {
        self.0.push((key, value.to_string()));
    }

    /// Adds a value when there is one.
    pub(crate) fn add_some(&mut self, key: &'static str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> String {
        let width = self.0.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
        self.0.iter().map(|(key, value)| format!("{key:width$}  {}\n", crate::show::plain(value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let mut rows = Rows::new(&["A", "LONG", "C"]);
        rows.add(["ä".to_owned(), "x".to_owned(), String::new()]);
        rows.add(["bbb".to_owned(), "yy".to_owned(), "z".to_owned()]);
        assert_eq!(rows.text(), "A    LONG  C\nä    x\nbbb  yy    z\n");
    }

    #[test]
    fn a_name_with_a_line_end_forges_no_row_and_no_fact() {
        let mut rows = Rows::new(&["NAME", "STATE"]);
        rows.add(["x\ny FAKE ROW".to_owned(), "ok".to_owned()]);
        assert_eq!(rows.text(), "NAME           STATE\nx\\ny FAKE ROW  ok\n");
        let mut facts = Facts::default();
        facts.add("name", "x\nstate  ok\t");
        assert_eq!(facts.text(), "name  x\\nstate  ok\\t\n");
    }
}
