//! `warpheap pool export`: writes a log in a format that viewers open.

use super::super::args::{PoolExportArgs, TraceFormat};
use super::super::console::Console;
use super::super::input::{self, ReadSeek};
use super::super::results::write_target;
use super::super::status::{Failure, Status};
use crate::report::human::Count;
use crate::view::{perfetto, pytorch};
use std::path::Path;
use std::time::Duration;
use warpheap_harness::pool_tools::timeline::{EventsSummary, Filter, Log};

/// Exports the events of the log that pass the filters.
pub fn run(args: PoolExportArgs, console: &Console) -> Result<Status, Failure> {
    let filter = filter(&args)?;
    let (mut log, path) = (open(&args.trace)?, input::name(&args.trace));
    if !args.tag.is_empty() && !log.has_tags() {
        return Err(Failure::usage(format_args!("{path}: --tag needs a log with the column `tag`")));
    }
    let rows = Count(log.rows());
    let mut events = log.events(filter)?;
    if !events.has_next()? {
        return Err(Failure::usage(format_args!(
            "{path}: none of its {rows} rows is exported: they do not pass the filters, or match no allocation"
        )));
    }
    console.say(format_args!("warpheap pool export of {path}"));
    write_target(&args.out, "trace", console, |to| match args.format {
        TraceFormat::Perfetto => perfetto(&mut events, to),
        TraceFormat::Pytorch => pytorch(&mut events, to),
    })?;
    tell(&events.summary(), console);
    Ok(Status::Clean)
}

fn filter(args: &PoolExportArgs) -> Result<Filter, Failure> {
    let (min_size, max_size) = (args.min_size, args.max_size);
    if min_size.zip(max_size).is_some_and(|(min, max)| min > max) {
        return Err(Failure::usage("--min-size is more than --max-size: no block is left"));
    }
    if args.from.zip(args.to).is_some_and(|(from, to)| from >= to) {
        return Err(Failure::usage("--from is not before --to: no event is left"));
    }
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (streams, tags) = (args.stream.clone(), args.tag.clone());
    Ok(Filter { min_size, max_size, from: args.from.map(nanos), to: args.to.map(nanos), streams, tags })
}

fn open(path: &Path) -> Result<Log<Box<dyn ReadSeek>>, Failure> {
    let named = |why| Failure::usage(format_args!("{}: {why}", input::name(path)));
    Log::scan(input::log_twice(path)?).map_err(named)
}

fn tell(summary: &EventsSummary, console: &Console) {
    let EventsSummary { rows, allocations, frees, failures, events, .. } = *summary;
    console.say(format_args!(
        "  read     {} rows: {} allocations, {} frees, {} failed calls",
        Count(rows),
        Count(allocations),
        Count(frees),
        Count(failures)
    ));
    console.say(format_args!("  written  {} events", Count(events)));
    console.say(format_args!(
        "  memory   at most {} rows and {} live blocks at a time",
        Count(summary.most_held_rows as u64),
        Count(summary.peak_live_blocks as u64)
    ));
    for (what, count) in [
        ("frees of blocks that are not live, not exported", summary.unmatched_frees),
        ("allocations of an address that is live; the earlier block ends there", summary.allocated_twice),
        ("calls of zero bytes, not exported", summary.empty),
    ] {
        if count > 0 {
            console.say(format_args!("  {what}: {}", Count(count)));
        }
    }
}
