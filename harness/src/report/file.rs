//! Writes results atomically.

use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// Why results cannot be written: the file, the reason, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The path is a folder.
    #[error("cannot write results to {}: it is a folder; use the path of a file", .0.display())]
    Folder(PathBuf),
    /// The folder of the file does not exist.
    #[error("cannot write results to {}: the folder {} does not exist; create it first", .path.display(), .parent.display())]
    NoParent {
        /// The file.
        path: PathBuf,
        /// Its folder.
        parent: PathBuf,
    },
    /// The system's error.
    #[error("cannot write results to {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// Fails unless a file can be written at this path.
pub fn check(path: &Path) -> Result<(), WriteError> {
    draft(path).map(drop)
}

/// Writes results to a temporary file next to the target and then renames it.
pub fn write(path: &Path, results: &impl Serialize) -> Result<(), WriteError> {
    write_with(path, |file| print(file, results))
}

/// As [`write()`], with the content that `print` writes.
pub fn write_with(
    path: &Path,
    print: impl FnOnce(&mut NamedTempFile) -> io::Result<()>,
) -> Result<(), WriteError> {
    let failed = |source| WriteError::Io { path: path.into(), source };
    let mut file = draft(path)?;
    print(&mut file).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Writes results as indented JSON with a final newline.
pub fn print(to: &mut impl Write, results: &impl Serialize) -> io::Result<()> {
    let mut to = io::BufWriter::new(to);
    serde_json::to_writer_pretty(&mut to, results)?;
    to.write_all(b"\n")?;
    to.flush()
}

/// A temporary file in the folder of the target. It is removed when dropped.
fn draft(path: &Path) -> Result<NamedTempFile, WriteError> {
    if path.is_dir() {
        return Err(WriteError::Folder(path.into()));
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !parent.is_dir() {
        return Err(WriteError::NoParent { path: path.into(), parent: parent.into() });
    }
    let mut builder = Builder::new();
    builder.prefix(".warpheap-");
    readable(&mut builder);
    builder.tempfile_in(parent).map_err(|source| WriteError::Io { path: path.into(), source })
}

/// Makes results readable by all users, as far as the umask permits.
#[cfg(unix)]
fn readable(builder: &mut Builder<'_, '_>) {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    builder.permissions(Permissions::from_mode(0o666));
}

#[cfg(not(unix))]
fn readable(_: &mut Builder<'_, '_>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_replace_a_file_and_leave_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        std::fs::write(&path, "old").unwrap();
        write(&path, &vec![1, 2]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "[\n  1,\n  2\n]\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_missing_folder_and_a_folder_are_different_errors() {
        let folder = tempfile::tempdir().unwrap();
        let missing = check(&folder.path().join("no/results.json")).unwrap_err();
        assert!(matches!(missing, WriteError::NoParent { .. }), "{missing}");
        assert!(matches!(check(folder.path()), Err(WriteError::Folder(_))));
        assert!(check(&folder.path().join("results.json")).is_ok());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a check leaves nothing");
    }
}
