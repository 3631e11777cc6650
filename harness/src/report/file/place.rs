//! The file that a path leads to.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The most links that are followed, as in Linux.
const MAX_LINKS: u32 = 40;

/// The folder of a file.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path behind all symbolic links, where a file need not exist. The link of a descriptor is not
/// followed: it leads to an open file, not to a path.
pub fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        if is_descriptor(&path) || !fs::symlink_metadata(&path).is_ok_and(|file| file.is_symlink()) {
            return Ok(path);
        }
        let link = fs::read_link(&path)?;
        path = folder_of(&path).join(link);
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "it leads through too many symbolic links"))
}

/// Whether the path is that of an open descriptor: `/proc/self/fd/1`.
pub fn is_descriptor(path: &Path) -> bool {
    let folder = folder_of(path).canonicalize();
    folder.is_ok_and(|folder| folder.starts_with("/proc") && folder.ends_with("fd"))
}

/// Whether the path leads to the standard output of this process: `/dev/stdout`, `/dev/fd/1`.
pub fn is_stdout(path: &Path) -> bool {
    let own = Path::new("/proc/self/fd").canonicalize();
    followed(path).is_ok_and(|path| {
        path.ends_with("1") && own.is_ok_and(|own| folder_of(&path).canonicalize().ok() == Some(own))
    })
}

/// Whether writing one of two files changes the other. Pipes and devices are never the same.
pub fn is_same(a: &Path, b: &Path) -> bool {
    match (fs::metadata(a), fs::metadata(b)) {
        (Ok(of_a), Ok(of_b)) => of_a.is_file() && (place(a) == place(b) || is_one_file(&of_a, &of_b)),
        (Err(_), Err(_)) => place(a) == place(b),
        _ => false,
    }
}

/// A path without links and `..`, as far as its file or its folder exists.
fn place(path: &Path) -> PathBuf {
    let in_folder = || {
        let path = followed(path).ok()?;
        Some(folder_of(&path).canonicalize().ok()?.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(in_folder).unwrap_or_else(|| path.into())
}

/// Whether they are two names of one file.
#[cfg(unix)]
fn is_one_file(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn is_one_file(_: &Metadata, _: &Metadata) -> bool {
    false
}
