//! Writes files.
//!
//! Links are followed, also those to no file. A regular file is replaced in one step: a temporary
//! file beside it, with its permissions and its owner, is renamed over it. Written in place is what
//! is no regular file, such as a pipe or a device, and a file that cannot be replaced so: it has
//! several names, another owner, or a folder that the user cannot write.

#[cfg(test)]
mod tests;

use serde::Serialize;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
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

/// Fails unless a file can be written at this path. A pipe is not opened, because that would wait
/// for its reader.
pub fn check(path: &Path) -> Result<(), WriteError> {
    draft(path).map(drop)
}

/// Writes results as JSON.
#[cfg(test)]
pub fn write(path: &Path, results: &impl Serialize) -> Result<(), WriteError> {
    write_with(path, |file| print(file, results))
}

/// Writes what `print` writes.
pub fn write_with(path: &Path, print: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), WriteError> {
    let written = match draft(path)? {
        Draft::Beside(mut file, target) => {
            let printed = print(file.as_file_mut()).and_then(|()| file.as_file().sync_all());
            printed.and_then(|()| file.persist(target).map(drop).map_err(|error| error.error))
        }
        Draft::InPlace(options, target) => options.open(target).and_then(|mut file| print(&mut file)),
    };
    written.map_err(|source| WriteError::Io { path: path.into(), source })
}

/// Writes results as indented JSON with a final newline.
pub fn print(to: &mut impl Write, results: &impl Serialize) -> io::Result<()> {
    let mut to = io::BufWriter::new(to);
    serde_json::to_writer_pretty(&mut to, results)?;
    to.write_all(b"\n")?;
    to.flush()
}

/// How a file is written.
enum Draft {
    /// By a temporary file, which is renamed to the path. It is removed when dropped.
    Beside(NamedTempFile, PathBuf),
    /// Opened with these options.
    InPlace(OpenOptions, PathBuf),
}

fn draft(path: &Path) -> Result<Draft, WriteError> {
    let failed = |source| WriteError::Io { path: path.into(), source };
    let target = followed(path).map_err(failed)?;
    let mut options = OpenOptions::new();
    options.write(true);
    let old = match fs::metadata(&target) {
        Ok(old) if old.is_dir() => return Err(WriteError::Folder(path.into())),
        Ok(old) => old,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let file = new_file(path, &target)?;
            return Ok(Draft::Beside(file, target));
        }
        Err(error) => return Err(failed(error)),
    };
    // What another process may write, too.
    options.append(is_descriptor(&target));
    if !is_pipe(&old) {
        options.open(&target).map_err(failed)?;
    }
    if old.is_file() && !is_descriptor(&target) {
        if let Ok(file) = temporary(folder_of(&target)).and_then(|file| like(file, &old)) {
            return Ok(Draft::Beside(file, target));
        }
        options.truncate(true);
    }
    Ok(Draft::InPlace(options, target))
}

/// A temporary file for `target`, where no file is.
fn new_file(path: &Path, target: &Path) -> Result<NamedTempFile, WriteError> {
    if target.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(WriteError::Folder(path.into()));
    }
    let parent = folder_of(target);
    if !parent.is_dir() {
        return Err(WriteError::NoParent { path: path.into(), parent: parent.into() });
    }
    temporary(parent).map_err(|source| WriteError::Io { path: path.into(), source })
}

fn temporary(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = Builder::new();
    builder.prefix(".warpheap-");
    readable(&mut builder);
    builder.tempfile_in(folder)
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

/// The temporary file with the owner and the permissions of `old`, which it may replace.
#[cfg(unix)]
fn like(file: NamedTempFile, old: &Metadata) -> io::Result<NamedTempFile> {
    use std::os::unix::fs::{MetadataExt, fchown};
    if old.nlink() > 1 {
        return Err(io::Error::other("the file has several names"));
    }
    let new = file.as_file().metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        fchown(file.as_file(), Some(old.uid()), Some(old.gid()))?;
    }
    file.as_file().set_permissions(old.permissions())?;
    Ok(file)
}

#[cfg(not(unix))]
fn like(file: NamedTempFile, _: &Metadata) -> io::Result<NamedTempFile> {
    Ok(file)
}

#[cfg(unix)]
fn is_pipe(file: &Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    file.file_type().is_fifo()
}

#[cfg(not(unix))]
fn is_pipe(_: &Metadata) -> bool {
    false
}

/// The most links that are followed, as in Linux.
const MAX_LINKS: u32 = 40;

/// The folder of a file.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path behind all symbolic links, where a file need not exist. The link of a descriptor is not
/// followed: it leads to an open file, not to a path.
fn followed(path: &Path) -> io::Result<PathBuf> {
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
fn is_descriptor(path: &Path) -> bool {
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
