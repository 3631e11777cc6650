//! Tables: with a line under the headings on a terminal, columns only elsewhere.

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

/// Columns only.
const PLAIN: TableStyle = TableStyle::new();
/// A line under the headings.
const RULED: TableStyle = PLAIN.header_separator(LineStyle::none().fill('─').junction('─'));

/// A table with a column of names on the left and columns of numbers.
pub struct Summary {
    table: Table,
    columns: usize,
}

impl Summary {
    /// An empty table with these headings.
    pub fn new(headings: &[&str], for_terminal: bool) -> Summary {
        let mut table = Table::new();
        table.load_style(if for_terminal { RULED } else { PLAIN });
        table.set_header(headings);
        Summary { table, columns: headings.len() }
    }

    /// Adds a row; the first cell is its name.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns);
        self.table.add_row(cells);
    }

    /// The text of the table, without trailing spaces.
    pub fn render(mut self) -> String {
        for column in self.table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        self.table.trim_fmt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_nothing_is_drawn_off_a_terminal() {
        let mut table = Summary::new(&["", "bump"], false);
        table.row(vec!["rounds".into(), "24".into()]);
        table.row(vec!["a".into(), "1,234,567".into()]);
        let text = table.render();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].ends_with("       24") && lines[2].ends_with("1,234,567"), "{text}");
        assert!(text.is_ascii() && !text.contains(['|', '-']), "{text}");
    }
}
