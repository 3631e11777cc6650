//! The files of `results/`, and how their values are shown.

use serde_json::Value;
use std::fs;
use std::path::Path;

/// One file: JSON, or an array of the lines of a `.jsonl`.
pub struct Report {
    /// Relative to the repository.
    pub path: String,
    pub json: Value,
}

/// All files: the newest set first, and by name inside a set.
pub fn read_all() -> Vec<Report> {
    let mut reports = Vec::new();
    read_folder("results", &mut reports);
    let folder = |report: &Report| Path::new(&report.path).parent().unwrap().to_owned();
    reports.sort_by(|a, b| folder(b).cmp(&folder(a)).then_with(|| a.name().cmp(b.name())));
    reports
}

fn read_folder(folder: &str, reports: &mut Vec<Report>) {
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap() {
        let file = entry.unwrap().path();
        let path = format!("{folder}/{}", file.file_name().unwrap().display());
        let parse = |text: &str| serde_json::from_str(text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let read = || fs::read_to_string(&file).unwrap();
        if file.is_dir() {
            read_folder(&path, reports);
        } else if path.ends_with(".json") {
            reports.push(Report { json: parse(&read()), path });
        } else if path.ends_with(".jsonl") {
            reports.push(Report { json: read().lines().map(parse).collect(), path });
        }
    }
}

impl Report {
    /// The name of the file without its ending.
    pub fn name(&self) -> &str {
        Path::new(&self.path).file_stem().unwrap().to_str().unwrap()
    }

    /// The rows at `pointer`: the items of an array, or the values of an object as `of`, with their
    /// keys as `key`.
    pub fn rows(&self, pointer: &str) -> Vec<Value> {
        match self.json.pointer(pointer) {
            Some(Value::Array(rows)) => rows.clone(),
            Some(Value::Object(rows)) => {
                rows.iter().map(|(key, of)| serde_json::json!({"key": key, "of": of})).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The row of `rows` in which all of `fields` have these values.
    pub fn row(&self, rows: &str, fields: &[(&str, Value)]) -> Value {
        let found =
            self.rows(rows).into_iter().find(|row| fields.iter().all(|(name, value)| row[name] == *value));
        found.unwrap_or_else(|| panic!("{} has no {fields:?}", self.path))
    }
}

/// The value of a column `field format` or `field/field format`; "–" if it or its parent is null.
pub fn cell(row: &Value, column: &str) -> String {
    let (path, format) = column.split_once(' ').unwrap_or((column, "text"));
    let mut value = row;
    for field in path.split('/').filter(|_| path != ".") {
        if !value.is_null() {
            value = value.get(field).unwrap_or_else(|| panic!("no field {path} in {row}"));
        }
    }
    if value.is_null() { "–".into() } else { shown(value, format, row) }
}

/// `value` in a format of a column; other formats are units.
fn shown(value: &Value, format: &str, row: &Value) -> String {
    let text = || value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let items = || value.as_array().into_iter().flatten();
    match format {
        "text" => text(),
        // Fractions with three digits.
        "value" if value.is_f64() => format!("{:.3}", value.as_f64().unwrap()),
        "value" => text(),
        "code" => format!("`{}`", text()),
        "day" => text()[..10].to_owned(),
        "command" => format!("`{}`", command(items().filter_map(Value::as_str).collect())),
        "entries" => {
            let entries = value.as_object().unwrap().iter();
            entries
                .map(|(key, of)| format!("{key}: {}", shown(of, "text", row)))
                .collect::<Vec<_>>()
                .join("; ")
        }
        "unit" => shown(value, row["unit"].as_str().unwrap(), row),
        "target" => {
            let sign = if row["holds"] == "at_most" { "≤" } else { "≥" };
            let met = row.get("passed").unwrap_or(&row["met"]).as_bool().unwrap();
            format!("{sign} {}{}", shown(value, "unit", row), if met { "" } else { ", **missed**" })
        }
        "targets" => {
            items().map(|of| cell(of, "what") + " " + &cell(of, "bar target")).collect::<Vec<_>>().join("; ")
        }
        "held" => format!("{} of {}", items().filter(|of| of["holds"] == true).count(), items().count()),
        unit => quantity(value.as_f64().unwrap_or_else(|| panic!("{value} is not a number of {unit}")), unit),
    }
}

/// A command line without the name of its output, which is the name of the report.
fn command(mut words: Vec<&str>) -> String {
    if let Some(output) = words.iter().position(|word| *word == "--json") {
        words.drain(output..output + 2);
    }
    let quoted =
        words.iter().map(|word| if word.contains(' ') { format!("'{word}'") } else { word.to_string() });
    quoted.collect::<Vec<_>>().join(" ")
}

/// `value` with three significant digits and a unit of its size.
fn quantity(value: f64, unit: &str) -> String {
    match unit {
        "ns" => scaled(value, &[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")]),
        "us" => quantity(value * 1e3, "ns"),
        "ms" => quantity(value * 1e6, "ns"),
        "s" => quantity(value * 1e9, "ns"),
        "bytes" if value < 1024.0 => format!("{value} B"),
        "bytes" => scaled(value, &[(1_073_741_824.0, "GiB"), (1_048_576.0, "MiB"), (1024.0, "KiB")]),
        "threads" if value == 0.0 => "–".into(),
        "threads" if value >= 1024.0 && value.log2().fract() == 0.0 => format!("2^{}", value.log2()),
        "count" | "threads" if value < 10_000.0 => format!("{value:.0}"),
        "count" | "threads" => scaled(value, &[(1e9, "G"), (1e6, "M"), (1e3, "k")]),
        "x" => format!("{}×", digits(value)),
        _ => format!("{} {unit}", digits(value)),
    }
}

/// Three significant digits; more before the point.
fn digits(value: f64) -> String {
    format!("{value:.*}", if value < 9.995 { 2 } else { usize::from(value < 99.95) })
}

/// `value` in the first of the units that is not above it, or in the last.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let (unit, name) = units.iter().find(|(unit, _)| value >= *unit).unwrap_or(&units[units.len() - 1]);
    format!("{} {name}", digits(value / unit))
}

/// A table in Markdown, without the columns that have no value in any row.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let used: Vec<usize> =
        (0..head.len()).filter(|at| rows.iter().any(|row| !["–", ""].contains(&&*row[*at]))).collect();
    let line = |cell: &dyn Fn(usize) -> String| {
        used.iter().fold("|".to_owned(), |line, at| line + " " + &cell(*at) + " |") + "\n"
    };
    let rows: String = rows.iter().map(|row| line(&|at| row[at].replace('|', "\\|"))).collect();
    line(&|at| head[at].to_owned()) + &line(&|_| "---".to_owned()) + &rows
}
