//! Tables for a terminal.

use std::fmt::{self, Write};

/// How many characters of a line fit on a terminal.
const TERMINAL: usize = 100;

/// The alignment of a column.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    Left,
    Right,
}

/// A table whose columns are as wide as their widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Flush)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these columns and no rows.
    pub(crate) fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Flush)>) -> Self {
        let columns = columns.into_iter().map(|(name, flush)| (name.to_owned(), flush)).collect();
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row with one cell per column.
    pub(crate) fn push(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "one cell per column");
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let lines = || std::iter::once(&head).chain(&self.rows);
        let width = |column: usize| lines().map(|cells| cells[column].chars().count()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        // Columns move closer together if they would not fit otherwise.
        let wide = widths.iter().map(|width| width + 2).sum::<usize>() > TERMINAL + 2;
        let between = if wide { " " } else { "  " };
        for cells in lines() {
            let mut line = String::new();
            for ((cell, (_, flush)), &width) in cells.iter().zip(&self.columns).zip(&widths) {
                match flush {
                    Flush::Left => write!(line, "{cell:<width$}{between}")?,
                    Flush::Right => write!(line, "{cell:>width$}{between}")?,
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let mut table = Table::new([("name", Flush::Left), ("n", Flush::Right)]);
        table.push(vec!["a".to_owned(), "1,000".to_owned()]);
        table.push(vec!["longer".to_owned(), "2".to_owned()]);
        assert_eq!(table.to_string(), "name        n\na       1,000\nlonger      2\n");
    }
}
