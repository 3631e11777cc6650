//! Rust files have at most 300 lines, except for those listed.

use crate::files::tracked;

const MOST_LINES: usize = 300;

/// Longer files with their number of lines. A row may only shrink, and is removed once the file is
/// short enough.
const LONGER: [(&str, usize); 1] = [("gpu/src/heap/block_cache.rs", 310)];

/// The rows that [`LONGER`] should have and does not have, and rows that it should no longer have.
fn differences(files: &[(String, String)], longer: &[(&str, usize)]) -> Vec<String> {
    let lines = |text: &str| text.lines().count();
    let of = |name: &str| longer.iter().find(|(listed, _)| *listed == name).map(|(_, max)| *max);
    let rust = files.iter().filter(|(name, _)| name.ends_with(".rs"));
    let grown = rust.filter(|(name, text)| lines(text) > of(name).unwrap_or(MOST_LINES));
    let grown = grown.map(|(name, text)| format!("split {name}, of {} lines", lines(text)));
    let is_long = |name: &str| files.iter().any(|(other, text)| other == name && lines(text) > MOST_LINES);
    let stale = longer.iter().filter(|(name, _)| !is_long(name));
    grown.chain(stale.map(|(name, _)| format!("remove the row of {name}"))).collect()
}

#[test]
fn files_are_short() {
    let Some(files) = tracked() else { return };
    let differences = differences(&files, &LONGER);
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn a_planted_file_that_is_long_is_reported() {
    let file = |lines| [("x.rs".to_owned(), "\n".repeat(lines)), ("x.md".to_owned(), "\n".repeat(999))];
    assert_eq!(differences(&file(300), &[]), [""; 0]);
    assert_eq!(differences(&file(301), &[]), ["split x.rs, of 301 lines"]);
    assert_eq!(differences(&file(310), &[("x.rs", 310)]), [""; 0]);
    assert_eq!(differences(&file(311), &[("x.rs", 310)]), ["split x.rs, of 311 lines"]);
    assert_eq!(differences(&file(300), &[("x.rs", 310)]), ["remove the row of x.rs"]);
    assert_eq!(differences(&[], &[("x.rs", 310)]), ["remove the row of x.rs"]);
}
