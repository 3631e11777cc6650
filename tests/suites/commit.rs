//! The commit that a suite is built from, for the build scripts of `tests/alloc` and
//! `tests/crates`.

use std::process::Command;

/// The commit, with `-dirty` after it when a tracked file differs. Empty outside a checkout.
pub fn commit() -> String {
    println!("cargo::rerun-if-changed=../../.git/logs/HEAD");
    for sources in ["builder", "gpu", "host", "ptx", "tests/suites"] {
        println!("cargo::rerun-if-changed=../../{sources}");
    }
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("--no-optional-locks").args(args).output();
        let output = output.ok().filter(|output| output.status.success());
        output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().into())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    match git(&["status", "--porcelain", "--untracked-files=no"]).as_str() {
        "" => commit,
        _ => format!("{commit}-dirty"),
    }
}
