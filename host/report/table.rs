//! Tables: lines and corners on a terminal, columns alone elsewhere.

use comfy_table::{CellAlignment, Table, presets};

/// A table with one column of names on the left and numbers to the right of it.
pub struct Summary {
    table: Table,
    columns: usize,
}

impl Summary {
    /// An empty one with these headings.
    pub fn new(headings: &[&str], for_terminal: bool) -> Summary {
        let mut table = Table::new();
        table.load_style(if for_terminal { presets::UTF8_HORIZONTAL_ONLY } else { presets::NOTHING });
        table.set_header(headings);
        Summary { table, columns: headings.len() }
    }

    /// Adds a row; the first cell is its name.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns);
        self.table.add_row(cells);
    }

    /// The whole table, with no spaces at the ends of lines.
    pub fn render(mut self) -> String {
        for column in self.table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let text = self.table.to_string();
        text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
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
