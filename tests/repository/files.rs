//! The tracked files.

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
