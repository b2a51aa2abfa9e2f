//! Tables of text: columns of numbers to the right, names at the end.

use std::io::{self, Write};

/// Rows of which the last cell is a name and all others are numbers.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column heads.
    pub fn new(heads: &[&str]) -> Self {
        Table {
            rows: vec![heads.iter().map(|head| (*head).to_owned()).collect()],
        }
    }

    /// Adds a row with as many cells as there are heads.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.rows[0].len());
        self.rows.push(cells);
    }

    /// Writes the table with two spaces in front of every cell.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let numbers = self.rows[0].len() - 1;
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..numbers).map(width).collect();
        for row in &self.rows {
            for (cell, width) in row.iter().zip(&widths) {
                write!(out, "  {cell:>width$}")?;
            }
            writeln!(out, "  {}", row[numbers])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right() {
        let mut table = Table::new(&["self", "n", "function"]);
        table.row(vec!["1.0%".into(), "1,234".into(), "f".into()]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "  self      n  function\n  1.0%  1,234  f\n");
    }
}
