//! `docs/results.md`: `page.txt` with a table of each file below its section.
//!
//! In `page.txt`, `@files KIND` names the files of a section, by their `kind`, `schema` or name.
//! Below it, `@table POINTER` names rows of the file, and is followed by the columns as
//! `heading: field format, …`.

use super::report::{Report, cell, table};

/// Headings and fields of a table, and where its rows are.
struct Table<'a> {
    rows: &'a str,
    columns: Vec<(&'a str, &'a str)>,
}

fn read_table(lines: &str) -> Table<'_> {
    let (rows, columns) = lines.split_once('\n').unwrap();
    let columns = columns.trim().split(',').map(|column| column.trim().split_once(": ").unwrap());
    Table { rows: rows.trim_matches('.'), columns: columns.collect() }
}

/// Whether `report` belongs to a section for `kind`.
fn is_of(report: &Report, kind: &str) -> bool {
    let has = |field: &str| report.json[field] == kind;
    has("kind") || has("schema") || report.name().split('-').next() == Some(kind)
}

pub fn render(reports: &[Report]) -> String {
    let (head, sections) = include_str!("page.txt").split_once("\n## ").unwrap();
    let (mut page, mut shown) = (head.to_owned(), 0);
    for section in sections.split("\n## ") {
        let (text, files) = section.split_once("\n@files ").unwrap();
        let mut parts = files.split("@table ");
        let kind = parts.next().unwrap().trim();
        let tables: Vec<Table> = parts.map(read_table).collect();
        let reports: Vec<&Report> = reports.iter().filter(|report| is_of(report, kind)).collect();
        if !reports.is_empty() {
            page += &format!("\n## {text}");
        }
        shown += reports.len();
        page.extend(reports.iter().map(|report| one_file(report, &tables)));
    }
    assert_eq!(shown, reports.len(), "page.txt must have one section for each file of results/");
    page
}

fn one_file(report: &Report, tables: &[Table]) -> String {
    let mut page = format!("\n{}\n", origin(report));
    for Table { rows, columns } in tables {
        let (head, fields): (Vec<_>, Vec<_>) = columns.iter().copied().unzip();
        let cells = |row| fields.iter().map(|field| cell(row, field)).collect();
        let rows: Vec<Vec<String>> = report.rows(rows).iter().map(cells).collect();
        if !rows.is_empty() {
            page += &format!("\n{}", table(&head, &rows));
        }
    }
    for left_out in report.rows("/data/left_out").iter().chain(&report.rows("/data/wrong")) {
        page += &format!("\nNot measured: {}.\n", cell(left_out, "."));
    }
    page
}

/// A link to the file, with its command, commit, date, device and driver, as far as it has them.
fn origin(report: &Report) -> String {
    let json = &report.json;
    let mut parts = vec![format!("**[{}](../{})**", &report.path["results/".len()..], report.path)];
    for (before, column) in [
        ("", "command command"),
        ("commit ", "commit code"),
        ("", "date day"),
        ("", "device/name"),
        ("", "device"),
        ("", "compiler"),
        ("driver ", "driver"),
        ("kernels for ", "kernels"),
    ] {
        let pointer = format!("/{}", column.split(' ').next().unwrap());
        if json.pointer(&pointer).is_some_and(|value| !value.is_null() && !value.is_object()) {
            parts.push(format!("{before}{}", cell(json, column)));
        }
    }
    parts.join(", ")
}
