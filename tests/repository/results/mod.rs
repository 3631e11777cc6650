//! `docs/results.md` and the figures in the README agree with the JSON files in `results/`.
//!
//! With `WARPHEAP_UPDATE=1`, as `scripts/results.sh` sets it, the tests write both files instead.

mod document;
mod readme;
mod report;

use std::path::Path;
use std::{env, fs};

/// Compares `file` with `rendered`, or writes it.
fn compare(file: &str, rendered: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if env::var_os("WARPHEAP_UPDATE").is_some() {
        return fs::write(&path, rendered).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    let line =
        found.lines().zip(rendered.lines()).take_while(|(found, rendered)| found == rendered).count() + 1;
    assert!(found == rendered, "line {line} of {file} differs from results/: run scripts/results.sh");
}

#[test]
fn the_document_has_all_results() {
    compare("docs/results.md", &document::render(&report::read_all()));
}

#[test]
fn the_readme_has_the_newest_results() {
    let readme = include_str!("../../../README.md");
    compare("README.md", &readme::fill(readme, &report::read_all()));
}

#[test]
fn values_have_three_digits_and_a_unit() {
    let show = |value: serde_json::Value, format: &str| report::cell(&value, &format!(". {format}"));
    assert_eq!([show(57.46.into(), "ns"), show(1059.8.into(), "us")], ["57.5 ns", "1.06 ms"]);
    assert_eq!([show(1.255.into(), "x"), show(9999.into(), "count")], ["1.25×", "9999"]);
    assert_eq!([show((1 << 20).into(), "count"), show((1 << 20).into(), "bytes")], ["1.05 M", "1.00 MiB"]);
    assert_eq!([show((1 << 20).into(), "threads"), show(().into(), "ns")], ["2^20", "–"]);
}
