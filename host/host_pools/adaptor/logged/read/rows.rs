//! Reads the rows of a log one by one, in the order of the file.

use super::{Columns, Days, LogRow, Tags, unreadable};
use crate::error::Result;
use csv::{Reader, ReaderBuilder, StringRecord, Trim};
use std::fmt;
use std::io::{self, Read};

/// The largest row in bytes, so that input without lines does not fill the memory.
const MAX_ROW: u64 = 1 << 20;
/// Bytes that the reader may read ahead of the row.
const AHEAD: u64 = 64 << 10;

/// Reads a log row by row. Its memory depends on the number of tags, not on the number of rows.
pub struct LogReader<R> {
    reader: Reader<Rows<R>>,
    /// `None` for an empty input.
    columns: Option<Columns>,
    tags: Tags,
    days: Days,
    /// The last row.
    record: StringRecord,
}

impl<R> fmt::Debug for LogReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogReader").field("record", &self.record).finish_non_exhaustive()
    }
}

impl<R: Read> LogReader<R> {
    /// Reads the column names.
    ///
    /// # Errors
    /// [`Error::AllocLog`](crate::Error::AllocLog) if the first line does not have the names of the
    /// columns, or cannot be read.
    pub fn new(from: R) -> Result<LogReader<R>> {
        let mut reader = ReaderBuilder::new()
            .trim(Trim::Headers)
            .flexible(true)
            .from_reader(Rows { from, left: MAX_ROW + AHEAD });
        let header = reader.headers().map_err(|error| unreadable(&error))?;
        let columns = if header.is_empty() { None } else { Some(Columns::find(header)?) };
        let (tags, days, record) = (Tags::default(), Days::default(), StringRecord::new());
        Ok(LogReader { reader, columns, tags, days, record })
    }

    /// Reads the next row. `None` at the end.
    ///
    /// # Errors
    /// [`Error::AllocLog`](crate::Error::AllocLog) with the line and the column of an invalid
    /// value, and for input that cannot be read.
    pub fn read(&mut self) -> Result<Option<LogRow>> {
        let Some(columns) = &self.columns else { return Ok(None) };
        self.reader.get_mut().left = MAX_ROW + AHEAD;
        if !self.reader.read_record(&mut self.record).map_err(|error| unreadable(&error))? {
            return Ok(None);
        }
        columns.read(&self.record, &mut self.tags, &mut self.days).map(Some)
    }

    /// Whether the log has the column `tag`.
    pub fn has_tags(&self) -> bool {
        self.columns.as_ref().is_some_and(|columns| columns.tag.is_some())
    }
}

/// Input of which one row may have `left` more bytes.
struct Rows<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for Rows<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(to)?;
        let Some(left) = self.left.checked_sub(read as u64) else {
            return Err(io::Error::other(format!("a row has more than {MAX_ROW} bytes")));
        };
        self.left = left;
        Ok(read)
    }
}
