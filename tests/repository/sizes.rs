//! Rust files have at most 600 lines: a file is one concept.

use crate::files::tracked;

const MOST_LINES: usize = 600;

/// The files that are too long.
fn long(files: &[(String, String)]) -> Vec<String> {
    let rust = files.iter().filter(|(name, _)| name.ends_with(".rs"));
    let lines = rust.map(|(name, text)| (name, text.lines().count()));
    let long = lines.filter(|(_, lines)| *lines > MOST_LINES);
    long.map(|(name, lines)| format!("split {name}, of {lines} lines")).collect()
}

#[test]
fn files_are_short() {
    let Some(files) = tracked() else { return };
    let long = long(&files);
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn a_planted_file_that_is_long_is_reported() {
    let file = |lines| [("x.rs".to_owned(), "\n".repeat(lines)), ("x.md".to_owned(), "\n".repeat(999))];
    assert_eq!(long(&file(600)), [""; 0]);
    assert_eq!(long(&file(601)), ["split x.rs, of 601 lines"]);
}
