//! The cause of failed allocations, from the figures of a report, and what to do about it.

use super::{HeldBy, Holder, MemoryReport, count};
use crate::error::Bytes;

/// Holders that are named.
const NAMED: usize = 3;
/// The least share of the used bytes for which a holder is named, in percent.
const LEAST_SHARE: u64 = 10;
/// The least number of blocks for which it is remarkable that none was freed.
const MANY: u64 = 16;
/// Without the size of the request, free memory is enough if it is one part in this many.
const ENOUGH: u64 = 8;

/// Why allocations failed.
enum Cause {
    /// The request exceeds the limit, even with no other block.
    TooLarge(u64),
    /// Too little memory is free.
    InUse,
    /// Enough memory is free, but not in one range.
    Fragmented,
    /// Neither: the request failed in the upstream or the driver, or under contention.
    Other,
}

fn cause(report: &MemoryReport) -> Option<Cause> {
    let all_free = report.free_bytes.saturating_add(report.withheld_bytes);
    let Some(request) = &report.request else {
        report.failed_allocations.filter(|failed| *failed > 0)?;
        let enough = report.reserved_bytes / ENOUGH;
        return Some(match report.free_bytes < enough {
            true if all_free < enough => Cause::InUse,
            false if report.fragmentation() <= 0.5 => Cause::Other,
            _ => Cause::Fragmented,
        });
    };
    let (limit, largest) = (report.limit_bytes.unwrap_or(u64::MAX), report.largest_free_bytes);
    Some(match request.bytes {
        bytes if bytes > limit => Cause::TooLarge(limit),
        bytes if bytes > all_free || bytes > limit.saturating_sub(report.used_bytes) => Cause::InUse,
        bytes if bytes > largest.unwrap_or(u64::MAX) => Cause::Fragmented,
        _ => Cause::Other,
    })
}

/// The sentences of a report.
pub(super) fn advice(report: &MemoryReport) -> Vec<String> {
    match cause(report) {
        None => Vec::new(),
        Some(Cause::TooLarge(limit)) => {
            vec![format!("The request exceeds the limit of {:#}: request less, or raise it.", Bytes(limit))]
        }
        Some(Cause::InUse) => in_use(report),
        Some(Cause::Fragmented) => fragmented(report),
        Some(Cause::Other) if report.picture.is_empty() => {
            vec!["Enough bytes are free, but only the driver knows in which ranges.".into()]
        }
        Some(Cause::Other) => vec![
            "Enough memory is free now: other threads had taken it when the allocation failed. Try again."
                .into(),
        ],
    }
}

fn in_use(report: &MemoryReport) -> Vec<String> {
    let mut sentences = vec!["Not fragmented: too little memory is free.".to_owned()];
    let share = |holder: &Holder| percent(holder.bytes, report.used_bytes);
    let named = report.holders.iter().take(NAMED).filter(|holder| share(holder) >= LEAST_SHARE);
    sentences.extend(named.map(|holder| {
        let (what, blocks) = (subject(report.held_by, holder), count(holder.blocks, "block"));
        let freed = match holder.freed {
            Some(0) if holder.blocks >= MANY => {
                "; none was freed, which is a leak unless all are still needed".to_owned()
            }
            Some(0) => "; none was freed".into(),
            Some(freed) => format!("; {freed} others were freed"),
            None => String::new(),
        };
        format!("{what} hold {} % of the bytes in use, in {blocks}{freed}.", share(holder))
    }));
    sentences.push(match report.held_by {
        HeldBy::Tag | HeldBy::Site => "Free them earlier, or make the allocator larger.".into(),
        HeldBy::Size => "Tags say which part of the program allocates them (Tagged, tag).".into(),
        HeldBy::Class => "A debug heap says which calls allocate them.".into(),
    });
    sentences
}

fn fragmented(report: &MemoryReport) -> Vec<String> {
    let (free, largest) = (Bytes(report.free_bytes), Bytes(report.largest_free_bytes.unwrap_or(0)));
    let ranges = count(report.free_ranges.unwrap_or(0), "range");
    let more = match report.withheld_bytes {
        0 => String::new(),
        more => format!("; {:#} more {}", Bytes(more), report.withheld),
    };
    let mut sentences =
        vec![format!("Fragmented: {free:#} are free, but in {ranges} of at most {largest:#}{more}.")];
    let separator = report.holders.iter().max_by_key(|holder| holder.ends_free_ranges);
    if let Some(holder) = separator.filter(|holder| holder.ends_free_ranges > 0) {
        let (what, ended) = (subject(report.held_by, holder), count(holder.ends_free_ranges, "range"));
        let (blocks, bytes) = (count(holder.blocks, "block"), Bytes(holder.bytes));
        sentences.push(format!(
            "{what} separate them: they end {ended}, and are {blocks} with {bytes:#} in total."
        ));
        sentences.push(
            "Allocate them before the others, or from a pool of their own; or free them together.".into(),
        );
    }
    sentences
}

/// The blocks of a holder, as the subject of a sentence.
fn subject(held_by: HeldBy, holder: &Holder) -> String {
    match held_by {
        HeldBy::Size | HeldBy::Class => format!("Blocks of {}", holder.name),
        HeldBy::Tag => format!("Blocks with the tag `{}`", holder.name),
        HeldBy::Site => format!("Blocks allocated at {}", holder.name),
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 100 / u128::from(whole.max(1))) as u64
}
