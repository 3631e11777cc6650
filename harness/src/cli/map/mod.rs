//! `warpheap map`: draws heaps, from saved maps or from a demonstration.
//!
//! `read` reads files, `demo` makes heaps; `report::heap_map` draws.

mod demo;
mod read;

use super::args::{BackendChoice, ColourChoice, DemoHeap, DeviceArgs, MapArgs};
use super::backend::choose_bare;
use super::console::Console;
use super::results::{watchdog, write_target};
use super::status::{Failure, Status};
use crate::report::file;
use crate::report::heap_map::{Style, terminal};
use crate::view::map::svg;
use crate::view::trace::{check_times, perfetto_of_maps};
use std::time::Duration;
use warpheap::device_pools::HeapMap;

/// Columns of text that goes to no terminal.
const COLUMNS: usize = 100;
/// Bytes of a demonstration: on most devices, a cell is one slab.
const DEMO_BYTES: u64 = 16 << 20;
const WATCHDOG: Duration = Duration::from_secs(300);
const ADVICE: &str = "Check whether `warpheap doctor` gets a response from the driver.";

/// Draws the maps.
pub fn run(args: MapArgs, console: &Console) -> Result<Status, Failure> {
    let maps = match args.demo {
        Some(kind) => demo_maps(kind, &args, console)?,
        None => read::maps(&args.files)?,
    };
    if args.perfetto.is_some() {
        let advice = "--perfetto needs maps in order of time";
        check_times(&maps).map_err(|why| Failure::usage(format_args!("{advice}: {why}")))?;
    }
    console.say(terminal(&maps, style(&args, console)));
    if let Some(map) = maps.last().filter(|_| args.report) {
        console.say(format_args!("{}\n", map.report()));
    }
    if let Some(target) = &args.svg {
        write_target(target, "picture", console, |to| to.write_all(svg(&maps).as_bytes()))?;
    }
    if let Some(target) = &args.perfetto {
        write_target(target, "trace", console, |to| perfetto_of_maps(&maps, to))?;
    }
    if let Some(target) = &args.json {
        write_target(target, "map", console, |mut to| match &maps[..] {
            [map] => file::print(&mut to, map),
            maps => file::print(&mut to, &maps),
        })?;
    }
    Ok(Status::Clean)
}

fn demo_maps(kind: DemoHeap, args: &MapArgs, console: &Console) -> Result<Vec<HeapMap>, Failure> {
    let backend = args.backend.unwrap_or(BackendChoice::Auto);
    let bare = choose_bare(DeviceArgs { backend, device: args.device })?;
    let watchdog = watchdog(WATCHDOG, "making the heap", ADVICE);
    let maps = demo::maps(&bare.device, kind, args.bytes.unwrap_or(DEMO_BYTES))?;
    drop(watchdog);
    bare.say(console)?;
    console.say("");
    Ok(maps)
}

fn style(args: &MapArgs, console: &Console) -> Style {
    let is_terminal = console.is_terminal();
    let size = is_terminal.then(terminal_size::terminal_size).flatten();
    let columns = size.map_or(COLUMNS, |(terminal_size::Width(columns), _)| columns.into());
    let is_disabled = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let has_colour = match args.color {
        ColourChoice::Auto => is_terminal && !is_disabled,
        ColourChoice::Always => true,
        ColourChoice::Never => false,
    };
    Style { width: args.width.unwrap_or(columns.clamp(40, 1000)), has_colour, is_terminal }
}
