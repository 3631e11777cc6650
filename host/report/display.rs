//! Prints a report.
//!
//! ```text
//! report of the caching pool `activations`
//!   request    16.0 MiB, aligned to 256, tag `result`
//!   failed     1 allocation so far
//!   in use     16.0 MiB of 64.0 MiB
//!   free       48.0 MiB in 16 ranges, the largest 3.0 MiB; fragmentation 93.8 %
//!   addresses  [#...#...#...#...
//!              1.0 MiB per cell: . free, 1 to 9 tenths in use, # all in use
//!   by tag           bytes    blocks     freed  ends ranges
//!                 16.0 MiB        16         0           15  index
//!   advice     Fragmented: ...
//! ```

use super::space::Cell;
use super::{HeldBy, Holder, MemoryReport, Withheld, count};
use crate::bytes::Bytes;
use std::fmt::{self, Display, Formatter, Write};

/// Holders that are printed.
const SHOWN: usize = 8;

impl Display for MemoryReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return self.fmt_line(f);
        }
        write!(f, "report of {}", OneLine(&self.allocator))?;
        self.fmt_request(f)?;
        self.fmt_figures(f)?;
        self.fmt_picture(f)?;
        self.fmt_holders(f)?;
        for (index, sentence) in self.advice.iter().enumerate() {
            write!(f, "\n  {:<11}{sentence}", if index == 0 { "advice" } else { "" })?;
        }
        Ok(())
    }
}

/// Prints a name that a program chose, with control characters escaped.
pub(super) struct OneLine<'a>(pub &'a str);

impl Display for OneLine<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char.is_control() {
            true => write!(f, "{}", char.escape_default()),
            false => f.write_char(char),
        })
    }
}

impl MemoryReport {
    /// The alternate form.
    fn fmt_line(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (used, reserved) = (Bytes(self.used_bytes), Bytes(self.reserved_bytes));
        write!(f, "{}: {used:#} of {reserved:#} in use, free ", OneLine(&self.allocator))?;
        self.fmt_free(f)?;
        if let Some(failed) = self.failed_allocations.filter(|failed| *failed > 0) {
            write!(f, "; {} failed", count(failed, "allocation"))?;
        }
        self.advice.first().map_or(Ok(()), |sentence| write!(f, ". {sentence}"))
    }

    fn fmt_request(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(request) = &self.request {
            let size = Bytes(request.bytes);
            write!(f, "\n  request    {size:#}, aligned to {}", request.align)?;
            if let Some(tag) = &request.tag {
                write!(f, ", tag `{}`", OneLine(tag))?;
            }
        }
        if let Some(failed) = self.failed_allocations {
            write!(f, "\n  failed     {} so far", count(failed, "allocation"))?;
        }
        self.last_failed_bytes.map_or(Ok(()), |last| write!(f, ", the last one of {:#}", Bytes(last)))
    }

    fn fmt_figures(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\n  in use     {:#} of {:#}", Bytes(self.used_bytes), Bytes(self.reserved_bytes))?;
        if let Some(limit) = self.limit_bytes.filter(|limit| *limit != self.reserved_bytes) {
            write!(f, "; limit {:#}", Bytes(limit))?;
        }
        if let Some(limited) = self.limited_bytes.filter(|limited| *limited != self.used_bytes) {
            write!(f, ", {:#} count towards it", Bytes(limited))?;
        }
        write!(f, "\n  free       ")?;
        self.fmt_free(f)?;
        if self.withheld_bytes > 0 {
            let more = Bytes(self.withheld_bytes);
            write!(f, "\n             {more:#} more {}", self.withheld)?;
        }
        match (self.device_free_bytes, self.device_total_bytes) {
            (Some(free), Some(total)) => {
                write!(f, "\n  device     {:#} of {:#} free", Bytes(free), Bytes(total))
            }
            _ => Ok(()),
        }
    }

    /// The free bytes, their ranges, and the largest of these.
    fn fmt_free(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", Bytes(self.free_bytes))?;
        if let Some(ranges) = self.free_ranges {
            write!(f, " in {}", count(ranges, "range"))?;
        }
        let Some(largest) = self.largest_free_bytes.map(Bytes) else { return Ok(()) };
        write!(f, ", the largest {largest:#}; fragmentation {:.1} %", 100.0 * self.fragmentation())
    }

    fn fmt_picture(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(first) = self.picture.first() else { return Ok(()) };
        let cells: String = self.picture.iter().map(Cell::glyph).collect();
        let size = Bytes(first.bytes);
        write!(f, "\n  addresses  [{cells}]")?;
        write!(f, "\n             {size:#} per cell: . free, 1 to 9 tenths in use, # all in use")
    }

    fn fmt_holders(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.holders.is_empty() {
            return Ok(());
        }
        let by = match self.held_by {
            HeldBy::Size => "by size",
            HeldBy::Class => "by class",
            HeldBy::Tag => "by tag",
            HeldBy::Site => "by site",
        };
        let has_freed = self.holders.iter().any(|holder| holder.freed.is_some());
        let freed = if has_freed { "     freed" } else { "" };
        write!(f, "\n  {by:<11}{:>11} {:>9}{freed} {:>12}", "bytes", "blocks", "ends ranges")?;
        for holder in self.holders.iter().take(SHOWN) {
            holder.fmt_row(f, has_freed)?;
        }
        match self.holders.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n  {:<11}and {more} more", ""),
        }
    }
}

impl Holder {
    fn fmt_row(&self, f: &mut Formatter<'_>, has_freed: bool) -> fmt::Result {
        let Holder { blocks, ends_free_ranges, name, .. } = self;
        write!(f, "\n  {:<11}{:>11} {blocks:>9}", "", format!("{:#}", Bytes(self.bytes)))?;
        if has_freed {
            write!(f, " {:>9}", self.freed.map_or("-".into(), |freed| freed.to_string()))?;
        }
        write!(f, " {ends_free_ranges:>12}  {}", OneLine(name))
    }
}

/// The end of a sentence about these bytes.
impl Display for Withheld {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Withheld::InClasses => "are free for one size class each",
            Withheld::InQuarantine => "are in quarantine, or free for one size class each",
            Withheld::UntilReset => "are free after a reset",
        })
    }
}

impl Cell {
    /// The character of a cell: `.` if it is free, `#` if all of it is used, otherwise the used
    /// tenths from 1 to 9.
    fn glyph(&self) -> char {
        match self.used_bytes {
            0 => '.',
            used if used >= self.bytes => '#',
            used => {
                let tenths = (u128::from(used) * 10 / u128::from(self.bytes)).clamp(1, 9);
                char::from(b'0' + tenths as u8)
            }
        }
    }
}
