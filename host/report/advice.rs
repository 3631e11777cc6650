//! The cause of failed allocations, from the figures of a report, and what to do about it.

use super::display::OneLine;
use super::{HeldBy, Holder, MemoryReport, count};
use crate::bytes::Bytes;

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
    /// The request exceeds what others leave of the limit: the limit, and what counts towards it.
    LimitReached(u64, u64),
    /// Too little memory is free.
    InUse,
    /// Enough memory is free, but not in one range.
    Fragmented,
    /// The figures show no cause.
    Unknown,
}

fn cause(report: &MemoryReport) -> Option<Cause> {
    let Some(request) = &report.request else {
        report.failed_allocations.filter(|failed| *failed > 0)?;
        return Some(match report.last_failed_bytes {
            Some(bytes) => cause_of_last(report, bytes),
            None => cause_without_request(report),
        });
    };
    let (bytes, limit) = (request.bytes, report.limit_bytes.unwrap_or(u64::MAX));
    let available = all_free(report).saturating_add(report.device_free_bytes.unwrap_or(0));
    let left = limit.saturating_sub(report.limited_bytes.unwrap_or(report.used_bytes));
    Some(match report.limited_bytes {
        _ if bytes > limit => Cause::TooLarge(limit),
        Some(limited) if bytes > left => Cause::LimitReached(limit, limited),
        _ if bytes > available || bytes > left => Cause::InUse,
        // Without the ranges, neither fragmentation nor its absence is known.
        _ if report.free_ranges.is_some() && report.largest_free_bytes.is_some_and(|most| bytes > most) => {
            Cause::Fragmented
        }
        _ => Cause::Unknown,
    })
}

/// The cause of the last failed allocation, of `bytes`, that the free memory suggests.
fn cause_of_last(report: &MemoryReport, bytes: u64) -> Cause {
    let is_little = all_free(report) < report.reserved_bytes / ENOUGH;
    match report.limit_bytes {
        Some(limit) if bytes > limit => Cause::TooLarge(limit),
        // Other threads have freed memory since.
        _ if report.largest_free_bytes.is_some_and(|most| bytes <= most) => {
            if is_little {
                Cause::InUse
            } else {
                Cause::Unknown
            }
        }
        _ if bytes > report.free_bytes && (is_little || bytes > all_free(report)) => Cause::InUse,
        _ if report.free_ranges.is_none() => Cause::Unknown,
        _ => Cause::Fragmented,
    }
}

/// The cause that the free memory suggests, if the size of the request is not known.
fn cause_without_request(report: &MemoryReport) -> Cause {
    let enough = report.reserved_bytes / ENOUGH;
    match report.free_bytes < enough {
        true if all_free(report) < enough => Cause::InUse,
        _ if report.free_ranges.is_none() => Cause::Unknown,
        false if report.fragmentation() <= 0.5 => Cause::Unknown,
        _ => Cause::Fragmented,
    }
}

fn all_free(report: &MemoryReport) -> u64 {
    report.free_bytes.saturating_add(report.withheld_bytes)
}

/// The sentences of a report.
pub(super) fn advice(report: &MemoryReport) -> Vec<String> {
    match cause(report) {
        None => Vec::new(),
        Some(Cause::TooLarge(limit)) => {
            vec![format!("The request exceeds the limit of {:#}: request less, or raise it.", Bytes(limit))]
        }
        Some(Cause::LimitReached(limit, limited)) => limit_reached(report, limit, limited),
        Some(Cause::InUse) => in_use(report),
        Some(Cause::Fragmented) => fragmented(report),
        Some(Cause::Unknown) => vec![unknown(report)],
    }
}

/// What is free, if that explains no failure.
fn unknown(report: &MemoryReport) -> String {
    let (free, largest) = (Bytes(report.free_bytes), report.largest_free_bytes.map(Bytes));
    let Some(request) = &report.request else {
        let failed = count(report.failed_allocations.unwrap_or(0), "allocation");
        let now = match largest {
            Some(largest) => format!("would serve requests of up to {largest:#}"),
            None => format!("is {free:#}"),
        };
        let sizes = match report.last_failed_bytes.map(Bytes) {
            Some(last) => format!("the last one of {last:#}"),
            None => "of sizes that are not recorded".into(),
        };
        return format!("{failed} failed, {sizes}. The free memory now {now}.");
    };
    if let (Some(of_device), Some(total)) = (report.device_free_bytes, report.device_total_bytes) {
        let (of_device, total) = (Bytes(of_device), Bytes(total));
        return format!(
            "{of_device:#} of {total:#} are free on the device, and {free:#} in the allocator, but only the driver \
             knows in which ranges."
        );
    }
    match largest.filter(|largest| report.free_ranges.is_some() || request.bytes <= largest.0) {
        Some(_) => {
            "Enough memory is free now: when the allocation failed, other threads had taken it, or it did \
                    not fit the request's alignment or rounding. Try again."
                .into()
        }
        None => format!("{free:#} are free, but it is not known in which ranges."),
    }
}

fn limit_reached(report: &MemoryReport, limit: u64, limited: u64) -> Vec<String> {
    let (limit, limited, free) = (Bytes(limit), Bytes(limited), Bytes(report.free_bytes));
    let mut sentences = vec![format!(
        "The limit of {limit:#} is reached: {limited:#} count towards it. The allocator below has {free:#} free."
    )];
    sentences.extend(holders(report));
    sentences.push("Free them earlier, or raise the limit.".into());
    sentences
}

fn in_use(report: &MemoryReport) -> Vec<String> {
    let first = match (report.free_ranges, report.device_free_bytes) {
        (Some(_), _) => "Not fragmented: too little memory is free.".to_owned(),
        (None, Some(free)) => {
            let total = report.device_total_bytes.unwrap_or(0);
            format!("Too little memory is free: {:#} of {:#} on the device.", Bytes(free), Bytes(total))
        }
        (None, None) => "Too little memory is free.".to_owned(),
    };
    let mut sentences = vec![first];
    sentences.extend(holders(report));
    sentences.push(match report.held_by {
        HeldBy::Tag | HeldBy::Site => "Free them earlier, or make the allocator larger.".into(),
        HeldBy::Size => "Tags say which part of the program allocates them (Tagged, tag).".into(),
        HeldBy::Class => "A debug heap says which calls allocate them.".into(),
    });
    sentences
}

/// A sentence for each of the largest holders.
fn holders(report: &MemoryReport) -> impl Iterator<Item = String> {
    let share = move |holder: &Holder| percent(holder.bytes, report.used_bytes);
    let named = report.holders.iter().take(NAMED).filter(move |holder| share(holder) >= LEAST_SHARE);
    named.map(move |holder| {
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
    })
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
    let name = OneLine(&holder.name);
    match held_by {
        HeldBy::Size | HeldBy::Class => format!("Blocks of {name}"),
        HeldBy::Tag => format!("Blocks with the tag `{name}`"),
        HeldBy::Site => format!("Blocks allocated at {name}"),
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 100 / u128::from(whole.max(1))) as u64
}
