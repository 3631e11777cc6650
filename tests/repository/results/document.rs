//! `docs/results.md`: `page.txt` with a table of each file below its section.
//!
//! In `page.txt`, `@files KIND` names the files of a section, by their `kind`, `schema` or name.
//! `@files KIND POINTER` names those among them that have rows there, which another section may
//! have, too. A section without files is left out.
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

/// Whether a section for `files`, a kind and perhaps a pointer, has `report`.
fn has(files: &str, report: &Report) -> bool {
    let (kind, rows) = files.split_once(' ').unwrap_or((files, ""));
    is_of(report, kind) && (rows.is_empty() || !report.rows(rows).is_empty())
}

pub fn render(reports: &[Report]) -> String {
    let (head, sections) = include_str!("page.txt").split_once("\n## ").unwrap();
    let mut page = head.to_owned();
    let mut without: Vec<&str> = reports.iter().map(|report| &*report.path).collect();
    for section in sections.split("\n## ") {
        let (text, files) = section.split_once("\n@files ").unwrap();
        let mut parts = files.split("@table ");
        let files = parts.next().unwrap().trim();
        let tables: Vec<Table> = parts.map(read_table).collect();
        let reports: Vec<&Report> = reports.iter().filter(|report| has(files, report)).collect();
        if !reports.is_empty() {
            page += &format!("\n## {text}");
        }
        without.retain(|path| reports.iter().all(|report| report.path != *path));
        // The first section of a kind has what was not measured.
        let is_first = !files.contains(' ');
        page.extend(reports.iter().map(|report| one_file(report, &tables, is_first)));
    }
    assert!(without.is_empty(), "page.txt must have a section for each file of results/: {without:?}");
    page
}

fn one_file(report: &Report, tables: &[Table], with_left_out: bool) -> String {
    let mut page = format!("\n{}\n", origin(report));
    for Table { rows, columns } in tables {
        let (head, fields): (Vec<_>, Vec<_>) = columns.iter().copied().unzip();
        let cells = |row| fields.iter().map(|field| cell(row, field)).collect();
        let rows: Vec<Vec<String>> = report.rows(rows).iter().map(cells).collect();
        if !rows.is_empty() {
            page += &format!("\n{}", table(&head, &rows));
        }
    }
    let left_out = [report.rows("/data/left_out"), report.rows("/data/wrong")].concat();
    for left_out in left_out.iter().filter(|_| with_left_out) {
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

#[test]
fn a_section_for_rows_has_only_files_with_such_rows() {
    let report = |data: &str| {
        let json = serde_json::from_str(&format!(r#"{{"kind": "bench", "data": {{{data}}}}}"#)).unwrap();
        Report { path: "results/x/bench-suite.json".into(), json }
    };
    let load = r#""load": [{"heap_bytes": 1073741824, "min_bytes": 16, "max_bytes": 512, "percent": 98,
        "fill": {"first_ns": 0.5, "mean_ns": 0.25, "failed_percent": 0.0},
        "turn": {"first_ns": 2.0, "median_ns": 1.5, "worst_ns": 1700.0, "failed_percent": 3.125},
        "floor_ns": 0.125}], "left_out": ["x: y"]"#;
    let page = render(&[report(load)]);
    let row = "| 1.00 GiB | 16 B | 512 B | 98 | 0.50 ns | 0.25 ns | 0.00 % | 2.00 ns | 1.50 ns | 1.70 µs | 3.12 % | 0.12 ns |";
    assert!(page.contains(row), "{page}");
    assert!(page.contains("## A heap over its load") && !page.contains("## Drift"), "{page}");
    assert_eq!(page.matches("Not measured: x: y.").count(), 1);
    assert!(!render(&[report(r#""figures": []"#)]).contains("over its load"));
}
