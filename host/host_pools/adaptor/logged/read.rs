//! Reads a log by its column names. Errors name the line and column of the invalid value.
//!
//! The case of names, blanks around values and the order of columns do not matter. RMM's logs are
//! read unchanged: without `align`, where 256 is what RMM's allocators promise, without `tag`, with
//! the time of day, which continues after midnight, and with addresses as streams.

mod rows;
#[cfg(test)]
mod tests;
mod time;

pub use rows::LogReader;
pub use time::LogTicks;

use super::{LogAction, LogRecord};
use crate::error::{Error, Result};
use csv::StringRecord;
use std::collections::HashSet;
use std::io::Read;
use std::sync::Arc;
use time::{Days, time_of_day};

/// Alignment of allocations in a log without the column `align`.
const DEFAULT_ALIGN: u64 = 256;

/// A row of a log, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRow {
    /// Line of the file. Line 1 contains the column names.
    pub line: u64,
    /// Content of the row.
    pub record: LogRecord,
}

/// Reads a log, and returns its rows sorted by time. Needs the feature `csv`.
///
/// # Errors
/// [`Error::AllocLog`] for input that is not a log, with the line and the column of the first
/// invalid value, and for input that cannot be read.
pub fn read_log(from: impl Read) -> Result<Vec<LogRecord>> {
    Ok(read_rows(from)?.into_iter().map(|row| row.record).collect())
}

/// Reads a log like [`read_log`], and returns the rows with their lines.
///
/// # Errors
/// The errors of [`read_log`].
pub fn read_rows(from: impl Read) -> Result<Vec<LogRow>> {
    let (mut reader, mut rows) = (LogReader::new(from)?, Vec::new());
    while let Some(row) = reader.read()? {
        rows.push(row);
    }
    Ok(in_order(rows))
}

/// Column positions, from 0.
struct Columns {
    count: usize,
    thread: usize,
    time: usize,
    action: usize,
    pointer: usize,
    size: usize,
    stream: usize,
    align: Option<usize>,
    tag: Option<usize>,
}

/// The distinct tags of a log, each stored once.
#[derive(Default)]
struct Tags(HashSet<Arc<str>>);

impl Tags {
    fn of(&mut self, name: &str) -> Option<Arc<str>> {
        if let Some(tag) = self.0.get(name) {
            return Some(tag.clone());
        }
        let tag: Arc<str> = (!name.is_empty()).then(|| name.into())?;
        self.0.insert(tag.clone());
        Some(tag)
    }
}

/// The columns of every log.
const NAMES: [&str; 6] = ["thread", "time", "action", "pointer", "size", "stream"];
const ALIGN: &str = "align";
const TAG: &str = "tag";

impl Columns {
    fn find(header: &StringRecord) -> Result<Columns> {
        let named = |name: &str| header.iter().filter(|column| column.eq_ignore_ascii_case(name)).count();
        let listed = || header.iter().collect::<Vec<_>>().join(", ");
        let absent: Vec<_> = NAMES.into_iter().filter(|name| named(name) == 0).map(quoted).collect();
        if absent.len() == NAMES.len() {
            return Err(invalid_header(format!("line 1 has none of the column names, but {}", listed())));
        }
        if !absent.is_empty() {
            return Err(invalid_header(format!(
                "line 1 has no column {}, but {}",
                absent.join(", "),
                listed()
            )));
        }
        if let Some(name) = NAMES.into_iter().chain([ALIGN, TAG]).find(|name| named(name) > 1) {
            return Err(invalid_header(format!("line 1 has the column `{name}` twice")));
        }
        let place = |name: &str| header.iter().position(|column| column.eq_ignore_ascii_case(name));
        let [thread, time, action, pointer, size, stream] = NAMES.map(|name| place(name).unwrap_or_default());
        let (count, align, tag) = (header.len(), place(ALIGN), place(TAG));
        Ok(Columns { count, thread, time, action, pointer, size, stream, align, tag })
    }

    fn read(&self, record: &StringRecord, tags: &mut Tags, days: &mut Days) -> Result<LogRow> {
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() != self.count {
            let (found, named) = (record.len(), self.count);
            return Err(invalid_row(format!("line {line} has {found} columns, but line 1 has {named}")));
        }
        let cell =
            |column: usize, name: &'static str| Cell { line, column, name, text: record[column].trim() };
        let align = self.align.map(|column| cell(column, ALIGN).align());
        let record = LogRecord {
            thread: cell(self.thread, "thread").number("a thread number")?,
            time: cell(self.time, "time").time(days)?,
            action: cell(self.action, "action").action()?,
            pointer: cell(self.pointer, "pointer").address()?,
            size: cell(self.size, "size").number("a number of bytes")?,
            stream: cell(self.stream, "stream").stream()?,
            align: align.transpose()?.unwrap_or(DEFAULT_ALIGN),
            tag: self.tag.and_then(|column| tags.of(record[column].trim())),
        };
        Ok(LogRow { line, record })
    }
}

/// A value, and its position.
struct Cell<'a> {
    line: u64,
    column: usize,
    name: &'static str,
    text: &'a str,
}

impl Cell<'_> {
    fn invalid(&self, why: impl std::fmt::Display) -> Error {
        let place = format!("line {}, column {} (`{}`)", self.line, self.column + 1, self.name);
        match self.text {
            "" => invalid_row(format!("{place}: the value is missing")),
            _ => invalid_row(format!("{place}: {why}")),
        }
    }

    fn number(&self, what: &str) -> Result<u64> {
        self.text.parse().map_err(|_| self.invalid(format_args!("`{}` is not {what}", self.text)))
    }

    fn action(&self) -> Result<LogAction> {
        match self.text {
            "allocate" => Ok(LogAction::Allocate),
            "allocate failure" => Ok(LogAction::AllocateFailure),
            "free" => Ok(LogAction::Free),
            "free failure" => Ok(LogAction::FreeFailure),
            other => Err(self.invalid(format_args!(
                "`{other}` is none of `allocate`, `allocate failure`, `free` and `free failure`"
            ))),
        }
    }

    fn address(&self) -> Result<u64> {
        address(self.text).map_err(|why| self.invalid(why))
    }

    /// A number, or an address in its place.
    fn stream(&self) -> Result<u64> {
        let number = self.text.parse().ok().or_else(|| {
            let digits = self.text.strip_prefix("0x")?;
            u64::from_str_radix(digits, 16).ok()
        });
        number.ok_or_else(|| self.invalid(format_args!("`{}` is not a stream number", self.text)))
    }

    fn align(&self) -> Result<u64> {
        let align = self.number("an alignment")?;
        if align.is_power_of_two() {
            return Ok(align);
        }
        Err(self.invalid(format_args!("`{align}` is not an alignment: it must be a power of two")))
    }

    /// Nanoseconds, or the time of day.
    fn time(&self, days: &mut Days) -> Result<u64> {
        let of_day = || time_of_day(self.text).map(|time| days.continued(time));
        let nanos = self.text.parse().ok().or_else(of_day);
        nanos.ok_or_else(|| {
            let text = self.text;
            self.invalid(format_args!(
                "`{text}` is neither a number of nanoseconds nor a time as 12:34:56.789012"
            ))
        })
    }
}

/// Parses `0x7f00`, with or without the prefix.
fn address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| format!("`{text}` is not an address"))
}

/// Sorts by time, and orders the rows of each clock tick.
fn in_order(mut rows: Vec<LogRow>) -> Vec<LogRow> {
    rows.sort_by_key(|row| row.record.time);
    let (mut ordered, mut ticks) = (Vec::with_capacity(rows.len()), LogTicks::default());
    for tick in rows.chunk_by(|a, b| a.record.time == b.record.time) {
        ticks.order(tick.iter().cloned(), |row| &row.record, |row| ordered.push(row));
    }
    ordered
}

fn quoted(name: &str) -> String {
    format!("`{name}`")
}

/// The columns are not those of a log.
fn invalid_header(why: String) -> Error {
    let advice = "a log has the columns thread, time, action, pointer, size, stream and, optionally, align and tag, named in its first \
                  line and separated by commas";
    Error::AllocLog { what: "read", why, advice }
}

/// A row is invalid.
fn invalid_row(why: String) -> Error {
    Error::AllocLog { what: "read", why, advice: "correct that line, or remove it" }
}

/// The input is empty or cannot be read.
fn unreadable(error: &csv::Error) -> Error {
    match error.kind() {
        csv::ErrorKind::Utf8 { pos, err } => {
            let line = pos.as_ref().map_or(1, csv::Position::line);
            invalid_row(format!("line {line}, column {}: the text is not valid UTF-8", err.field() + 1))
        }
        _ => Error::AllocLog { what: "read", why: error.to_string(), advice: "specify a readable text file" },
    }
}
