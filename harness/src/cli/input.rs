//! What the program reads: files, and standard input for `-`.

use super::status::Failure;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use warpheap::Bytes;

/// The largest results and maps: several maps of a heap of 1 TiB.
const MAX_DOCUMENT: u64 = 512 << 20;
/// The largest log that is replayed, or exported from a pipe: a replay keeps its rows in memory.
const MAX_LOG: u64 = 4 << 30;

/// Whether the path is that of standard input.
pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// The name of an input in messages.
pub fn name(path: &Path) -> String {
    if is_stdin(path) { "standard input".into() } else { path.display().to_string() }
}

/// The content of a document.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Capped::new(open(path)?, MAX_DOCUMENT).read_to_end(&mut text)?;
    Ok(text)
}

/// A log that is read once.
pub fn log(path: &Path) -> Result<impl Read, Failure> {
    Ok(Capped::new(open(path).map_err(|error| no_log(path, &error))?, MAX_LOG))
}

/// A log that is read twice. What is no regular file is copied to a temporary one.
pub fn log_twice(path: &Path) -> Result<Box<dyn ReadSeek>, Failure> {
    let opened = || -> io::Result<Box<dyn ReadSeek>> {
        if !is_stdin(path) {
            let file = File::open(path)?;
            if file.metadata()?.is_file() {
                return Ok(Box::new(file));
            }
        }
        let from: Box<dyn Read> = Box::new(Capped::new(open(path)?, MAX_LOG));
        Ok(Box::new(Spool { from: Some(from), kept: tempfile::tempfile()? }))
    };
    opened().map_err(|error| no_log(path, &error))
}

fn no_log(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format_args!("{}: {error}; --trace names a log of allocations", name(path)))
}

fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    Ok(if is_stdin(path) { Box::new(io::stdin().lock()) } else { Box::new(File::open(path)?) })
}

/// An input that can be read again.
pub trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

/// An input that fails beyond `max` bytes.
struct Capped<R> {
    from: R,
    left: u64,
    max: u64,
}

impl<R> Capped<R> {
    fn new(from: R, max: u64) -> Capped<R> {
        Capped { from, left: max, max }
    }
}

impl<R: Read> Read for Capped<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(to)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => return Err(io::Error::other(format!("it has more than {:#}", Bytes(self.max)))),
        }
        Ok(read)
    }
}

/// Keeps what is read in a file, from which it is read again after a seek.
struct Spool {
    from: Option<Box<dyn Read>>,
    kept: File,
}

impl Read for Spool {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let Some(from) = &mut self.from else { return self.kept.read(to) };
        let read = from.read(to)?;
        self.kept.write_all(&to[..read])?;
        Ok(read)
    }
}

impl Seek for Spool {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        // A seek to the start of what was not read yet changes nothing.
        if self.kept.stream_position()? > 0 {
            self.from = None;
        }
        self.kept.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_may_have_its_limit_and_no_more() {
        let mut text = Vec::new();
        assert_eq!(Capped::new(&b"12345"[..], 5).read_to_end(&mut text).unwrap(), 5);
        let error = Capped::new(&b"123456"[..], 5).read_to_end(&mut text).unwrap_err();
        assert_eq!(error.to_string(), "it has more than 5 B");
    }

    #[test]
    fn a_pipe_is_read_twice() {
        let mut spool = Spool { from: Some(Box::new(&b"a log"[..])), kept: tempfile::tempfile().unwrap() };
        for _ in 0..3 {
            spool.rewind().unwrap();
            assert_eq!(io::read_to_string(&mut spool).unwrap(), "a log");
        }
    }
}
