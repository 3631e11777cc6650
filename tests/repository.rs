//! The repository must not contain paths of one machine, package hosts of one network, or scripts
//! that continue after a failure.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Absolute paths of one machine, split so that this file does not contain them.
const FOREIGN: [&str; 5] = [
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!("arti", "factory"),
];

/// Tracked files; `None` outside a git checkout.
fn tracked() -> Option<Vec<PathBuf>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().ok()?;
    let names = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(names.split('\0').filter(|name| !name.is_empty()).map(|name| root.join(name)).collect())
}

/// The lines of `text` that contain paths of one machine.
fn foreign(text: &str) -> Vec<&str> {
    text.lines().filter(|line| FOREIGN.iter().any(|part| line.contains(part))).collect()
}

#[test]
fn no_tracked_file_names_one_machine() {
    let Some(files) = tracked() else { return };
    assert!(files.len() > 20, "only {} files", files.len());
    for file in files {
        // Binary files and files deleted from the working tree cannot be read as text.
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        assert_eq!(foreign(&text), [""; 0], "in {}", file.display());
    }
}

#[test]
fn a_planted_path_is_seen() {
    let planted = format!("fine\nlet path = \"{}someone/x\";\n/usr/bin/rustc\n", FOREIGN[1]);
    assert_eq!(foreign(&planted).len(), 1);
}

#[test]
fn scripts_are_strict() {
    for (name, text) in [
        (".ci/run", include_str!("../.ci/run")),
        ("check-dependency-ranges", include_str!("../scripts/check-dependency-ranges.sh")),
        ("bundle", include_str!("../scripts/bundle.sh")),
        ("results", include_str!("../scripts/results.sh")),
        ("sanitize", include_str!("../scripts/sanitize.sh")),
        ("setup", include_str!("../scripts/setup.sh")),
        ("stress", include_str!("../scripts/stress.sh")),
        ("test", include_str!("../scripts/test.sh")),
    ] {
        assert!(
            text.starts_with("#!/usr/bin/env bash\n") && text.contains("\nset -euo pipefail\n"),
            "{name}"
        );
    }
}
