//! The tracked files, and rules for each: its length, how a script starts, and no path or package
//! host of one machine or network.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Paths from the root of the repository, with the texts of the files. Binary files and files that
/// were deleted from the working tree are left out. `None` outside a git checkout.
pub fn tracked() -> Option<Vec<(String, String)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !root.join(".git").exists() {
        return None;
    }
    // In a checkout a failure of git must not skip the checks.
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).unwrap();
    let read = |name: &str| Some((name.to_owned(), fs::read_to_string(root.join(name)).ok()?));
    let files: Vec<_> = names.split('\0').filter_map(read).collect();
    assert!(files.len() > 20, "only {} files", files.len());
    Some(files)
}

/// Rust files have at most this number of lines: a file is one concept.
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

/// Continues after a failure, and checks every exit status itself.
const CHECKS_ITSELF: &str = "scripts/gpu-suite.sh";

fn is_strict(text: &str) -> bool {
    text.starts_with("#!/usr/bin/env bash\n") && text.contains("\nset -euo pipefail\n")
}

#[test]
fn scripts_are_strict() {
    let Some(files) = tracked() else { return };
    let is_script = |name: &str| name == ".ci/run" || name.ends_with(".sh") && name != CHECKS_ITSELF;
    let scripts: Vec<_> = files.iter().filter(|(name, _)| is_script(name)).collect();
    assert!(scripts.len() >= 7, "{} scripts", scripts.len());
    for (name, text) in scripts {
        assert!(is_strict(text), "{name}");
    }
}

#[test]
fn a_script_that_continues_is_reported() {
    assert!(is_strict("#!/usr/bin/env bash\nset -euo pipefail\n"));
    assert!(!is_strict("#!/usr/bin/env bash\nset -uo pipefail\n"));
}

/// Parts of such names, split so that this file does not contain them.
const FOREIGN: [&str; 5] = [
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!("arti", "factory"),
];

fn foreign(text: &str) -> Vec<&str> {
    text.lines().filter(|line| FOREIGN.iter().any(|part| line.contains(part))).collect()
}

#[test]
fn no_tracked_file_names_one_machine() {
    for (name, text) in tracked().unwrap_or_default() {
        assert_eq!(foreign(&text), [""; 0], "in {name}");
    }
}

#[test]
fn a_planted_path_is_reported() {
    let planted = format!("fine\nlet path = \"{}user/x\";\n/usr/bin/rustc\n", FOREIGN[1]);
    assert_eq!(foreign(&planted).len(), 1);
}
