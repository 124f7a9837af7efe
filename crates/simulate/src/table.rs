//! Tables for people.

/// Rows under a headline, each column as wide as it must be.
pub(crate) fn render<const COLUMNS: usize>(head: [&str; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    let mut all = vec![head.map(str::to_owned)];
    all.extend_from_slice(rows);
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        all.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    });
    all.insert(1, widths.map(|width| "-".repeat(width)));
    let lines = all.iter().map(|row| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let rows = [["µs".to_owned(), "1".to_owned()], ["long".to_owned(), "2".to_owned()]];
        assert_eq!(render(["a", "b"], &rows), "a     b\n----  -\nµs    1\nlong  2\n");
    }
}
