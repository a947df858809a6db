//! Tables of text, for terminals and pipes.

use unicode_width::UnicodeWidthStr as _;

/// Formats rows as columns, each as wide as its widest cell; `is_number` tells the columns that end at the right. Nothing
/// follows the last cell of a line. Takes time in proportion to the cells: there may be 50,000 rows.
pub(crate) fn text_table<C: AsRef<str>>(rows: &[Vec<C>], is_number: impl Fn(usize) -> bool) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| Some(row.get(column)?.as_ref().width())).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let begin = out.len();
        for (column, cell) in row.iter().enumerate() {
            let (cell, gap) = (cell.as_ref(), if column == 0 { 0 } else { BETWEEN });
            let fill = widths[column] - cell.width();
            let (before, after) = if is_number(column) { (gap + fill, 0) } else { (gap, fill) };
            out.extend(std::iter::repeat_n(' ', before));
            out.push_str(cell);
            out.extend(std::iter::repeat_n(' ', after));
        }
        out.truncate(begin + out[begin..].trim_end_matches(' ').len());
        out.push('\n');
    }
    out
}

/// The spaces between two columns.
const BETWEEN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_on_a_screen() {
        let rows =
            [vec!["NAME", "N", "END"], vec!["日本", "12", ""], vec!["a-long-one", "7", "x"], vec!["b"]];
        let expected = "NAME         N  END\n日本        12\na-long-one   7  x\nb\n";
        assert_eq!(text_table(&rows, |column| column == 1), expected);
        assert_eq!(text_table::<&str>(&[], |_| false), "");
    }
}
