//! Reading a log: by the names of its columns, and with the line and the column of what is wrong.
//!
//! Capitals in names, blanks around values and the order of columns do not count. RMM's logs are read as they are: without
//! `align`, where 256 is what its allocators promise, with times of day, and with streams as addresses.

use super::{LogAction, LogRecord};
use crate::error::{Error, Result};
use csv::{StringRecord, Trim};
use std::collections::HashSet;
use std::io::Read;

/// What a log without the column `align` was allocated with.
const DEFAULT_ALIGN: u64 = 256;

/// A row of a log, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogRow {
    /// The line of the file, from 1, which is that of the columns' names.
    pub line: u64,
    pub record: LogRecord,
}

/// Reads a log, and returns its rows by time.
///
/// # Errors
/// [`Error::AllocLog`] for what is no log, with the line and the column of the first value that is none, and for what cannot be
/// read.
pub fn read_log(from: impl Read) -> Result<Vec<LogRecord>> {
    Ok(read_rows(from)?.into_iter().map(|row| row.record).collect())
}

/// The same with the lines.
pub(crate) fn read_rows(from: impl Read) -> Result<Vec<LogRow>> {
    let mut reader = csv::ReaderBuilder::new().trim(Trim::All).flexible(true).from_reader(from);
    let header = reader.headers().map_err(refuse)?;
    if header.is_empty() {
        return Ok(Vec::new());
    }
    let columns = Columns::find(header)?;
    let mut rows = Vec::new();
    for record in reader.records() {
        rows.push(columns.read(&record.map_err(refuse)?)?);
    }
    Ok(in_order(rows))
}

/// Where the columns are, from 0.
struct Columns {
    count: usize,
    thread: usize,
    time: usize,
    action: usize,
    pointer: usize,
    size: usize,
    stream: usize,
    align: Option<usize>,
}

impl Columns {
    fn find(header: &StringRecord) -> Result<Columns> {
        let place = |name: &str| header.iter().position(|column| column.eq_ignore_ascii_case(name));
        let needed = |name| {
            place(name).ok_or_else(|| {
                let names: Vec<_> = header.iter().collect();
                refuse(format!("line 1 names no column `{name}`, but {}", names.join(", ")))
            })
        };
        Ok(Columns {
            count: header.len(),
            thread: needed("thread")?,
            time: needed("time")?,
            action: needed("action")?,
            pointer: needed("pointer")?,
            size: needed("size")?,
            stream: needed("stream")?,
            align: place("align"),
        })
    }

    fn read(&self, record: &StringRecord) -> Result<LogRow> {
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() != self.count {
            let (found, named) = (record.len(), self.count);
            return Err(refuse(format!("line {line} has {found} columns, and line 1 names {named}")));
        }
        let cell = |column: usize, name: &'static str| Cell { line, column, name, text: &record[column] };
        let align = self.align.map(|column| cell(column, "align").align());
        let record = LogRecord {
            thread: cell(self.thread, "thread").number("a number of a thread")?,
            time: cell(self.time, "time").time()?,
            action: cell(self.action, "action").action()?,
            pointer: cell(self.pointer, "pointer").address()?,
            size: cell(self.size, "size").number("a number of bytes")?,
            stream: cell(self.stream, "stream").stream()?,
            align: align.transpose()?.unwrap_or(DEFAULT_ALIGN),
        };
        Ok(LogRow { line, record })
    }
}

/// A value, and where it stands.
struct Cell<'a> {
    line: u64,
    column: usize,
    name: &'static str,
    text: &'a str,
}

impl Cell<'_> {
    fn refused(&self, why: impl std::fmt::Display) -> Error {
        refuse(format!("line {}, column {} (`{}`): {why}", self.line, self.column + 1, self.name))
    }

    fn number(&self, what: &str) -> Result<u64> {
        self.text.parse().map_err(|_| self.refused(format_args!("`{}` is not {what}", self.text)))
    }

    fn action(&self) -> Result<LogAction> {
        match self.text {
            "allocate" => Ok(LogAction::Allocate),
            "allocate failure" => Ok(LogAction::AllocateFailure),
            "free" => Ok(LogAction::Free),
            "free failure" => Ok(LogAction::FreeFailure),
            other => Err(self.refused(format_args!(
                "`{other}` is none of `allocate`, `allocate failure`, `free` and `free failure`"
            ))),
        }
    }

    fn address(&self) -> Result<u64> {
        address(self.text).map_err(|why| self.refused(why))
    }

    /// A number, or an address in its place.
    fn stream(&self) -> Result<u64> {
        let number = self.text.parse().ok().or_else(|| {
            let digits = self.text.strip_prefix("0x")?;
            u64::from_str_radix(digits, 16).ok()
        });
        number.ok_or_else(|| self.refused(format_args!("`{}` is not a number of a stream", self.text)))
    }

    fn align(&self) -> Result<u64> {
        let align = self.number("an alignment")?;
        if align.is_power_of_two() {
            return Ok(align);
        }
        Err(self.refused(format_args!("`{align}` is not an alignment: it must be a power of two")))
    }

    /// Nanoseconds, or the time of day.
    fn time(&self) -> Result<u64> {
        let nanos = self.text.parse().ok().or_else(|| time_of_day(self.text));
        nanos.ok_or_else(|| {
            let text = self.text;
            self.refused(format_args!(
                "`{text}` is neither a number of nanoseconds nor a time as 12:34:56.789012"
            ))
        })
    }
}

/// Nanoseconds since midnight, of `12:34:56.789012` or `12:34:56:789012`.
fn time_of_day(text: &str) -> Option<u64> {
    let mut parts = text.split([':', '.']);
    let mut next = || parts.next().and_then(|part| part.parse::<u64>().ok());
    let (hours, minutes, seconds, micros) = (next()?, next()?, next()?, next()?);
    let within = hours < 24 && minutes < 60 && seconds <= 60 && micros < 1_000_000;
    // Six digits: of another number, nobody could say what they mean.
    let is_whole = parts.next().is_none() && text.len() - text.rfind([':', '.'])? == 7;
    (within && is_whole).then(|| (((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros) * 1000)
}

/// `0x7f00`, also without its first two letters.
pub(super) fn address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| format!("`{text}` is no address"))
}

/// By time. Of one tick of the clock, an allocation of an address that is live comes after its free, and the rest as
/// it was written: an allocation has its row before anyone can give it back.
fn in_order(mut rows: Vec<LogRow>) -> Vec<LogRow> {
    rows.sort_by_key(|row| row.record.time);
    let (mut ordered, mut live) = (Vec::with_capacity(rows.len()), HashSet::new());
    for tick in rows.chunk_by(|a, b| a.record.time == b.record.time) {
        let mut waiting: Vec<LogRow> = Vec::new();
        for row in tick {
            let pointer = row.record.pointer;
            match row.record.action {
                LogAction::Allocate if !live.insert(pointer) => waiting.push(*row),
                LogAction::Free => {
                    live.remove(&pointer);
                    ordered.push(*row);
                    if let Some(place) = waiting.iter().position(|row| row.record.pointer == pointer) {
                        live.insert(pointer);
                        ordered.push(waiting.remove(place));
                    }
                }
                _ => ordered.push(*row),
            }
        }
        // Allocated twice: whoever reads the log is to see that.
        ordered.append(&mut waiting);
    }
    ordered
}

fn refuse(why: impl ToString) -> Error {
    Error::AllocLog {
        what: "read",
        why: why.to_string(),
        advice: "a log has the columns thread, time, action, pointer, size, stream and, if it likes, align, with these names in \
                 its first line",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &str = "thread,time,action,pointer,size,stream,align\n";

    fn refused(rows: &str) -> String {
        read_log(format!("{NAMES}{rows}").as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_column() {
        for (row, words) in [
            ("one,2,allocate,0x100,4,1,1", "line 3, column 1 (`thread`): `one` is not a number of a thread"),
            ("1,noon,allocate,0x100,4,1,1", "line 3, column 2 (`time`): `noon` is neither"),
            ("1,2,lend,0x100,4,1,1", "line 3, column 3 (`action`): `lend` is none of"),
            ("1,2,allocate,0xz,4,1,1", "line 3, column 4 (`pointer`): `0xz` is no address"),
            ("1,2,allocate,0x100,4 KiB,1,1", "line 3, column 5 (`size`): `4 KiB` is not a number of bytes"),
            ("1,2,allocate,0x100,-4,1,1", "line 3, column 5 (`size`)"),
            ("1,2,allocate,0x100,4,second,1", "line 3, column 6 (`stream`)"),
            ("1,2,allocate,0x100,4,1,3", "line 3, column 7 (`align`): `3` is not an alignment"),
            ("1,2,allocate,0x100,4,1", "line 3 has 6 columns, and line 1 names 7"),
            ("1,2,allocate,0x100,4,1,1,", "line 3 has 8 columns, and line 1 names 7"),
        ] {
            let said = refused(&format!("1,1,allocate,0x200,8,1,1\n{row}\n"));
            assert!(said.contains(words), "{row}: {said}");
        }
        let said = read_log(&b"thread,time,action,pointer,size\n"[..]).unwrap_err().to_string();
        assert!(said.contains("no column `stream`, but thread, time, action, pointer, size;"), "{said}");
    }

    #[test]
    fn a_log_of_rmm_is_read_as_it_is() {
        let log = "Thread,Time,Action,Pointer,Size,Stream\n\
            140230,01:00:02.000003,allocate,0x7f00,4096,0x0\n\
            140230,01:00:02:000004,free,0x7f00,4096,0x7ffe10\n";
        let rows = read_log(log.as_bytes()).unwrap();
        assert_eq!((rows[0].time, rows[1].time), (3_602_000_003_000, 3_602_000_004_000));
        assert_eq!((rows[0].align, rows[0].stream, rows[1].stream), (256, 0, 0x7f_fe10));
        for time in ["24:00:00.000000", "01:60:00.000000", "01:02:03.5", "01:02:03", "1:2:3:000004:5"] {
            assert_eq!(time_of_day(time), None, "{time}");
        }
    }

    #[test]
    fn blanks_and_the_order_of_columns_do_not_count() {
        let log = "align, size,stream ,pointer,time,thread,action\n 16, 4 ,1,0x10, 9,2, allocate failure\n\n";
        let rows = read_log(log.as_bytes()).unwrap();
        assert_eq!((rows.len(), rows[0].align, rows[0].size, rows[0].thread), (1, 16, 4, 2));
        assert_eq!(rows[0].action, LogAction::AllocateFailure);
    }

    #[test]
    fn within_a_tick_a_free_comes_before_what_it_makes_room_for_and_after_its_own_allocation() {
        let log = format!(
            "{NAMES}1,9,allocate,0x100,4,1,1\n1,5,allocate,0x200,4,1,1\n1,9,free,0x100,4,1,1\n\
             2,9,allocate,0x200,8,1,1\n1,9,free,0x200,4,1,1\n"
        );
        let rows = read_rows(log.as_bytes()).unwrap();
        assert_eq!(rows.iter().map(|row| row.line).collect::<Vec<_>>(), [3, 2, 4, 6, 5]);
    }

    #[test]
    fn what_is_allocated_twice_stays_in_the_log() {
        let log =
            format!("{NAMES}1,1,allocate,0x100,4,1,1\n1,1,allocate,0x100,4,1,1\n1,2,free,0x100,4,1,1\n");
        assert_eq!(read_log(log.as_bytes()).unwrap().len(), 3);
    }
}
