//! `warpheap map`: draws heaps, from saved maps or from a demonstration.
//!
//! `demo` makes heaps; `report::heap_map` draws text, `view` pictures.

mod demo;

use super::args::{BackendChoice, ColourChoice, DemoHeap, DeviceArgs, MapArgs};
use super::backend::choose_bare;
use super::console::Console;
use super::input::{name, read};
use super::results::{watchdog, write_target};
use super::status::{Failure, Status};
use crate::report::file;
use crate::report::heap_map::{Style, terminal};
use crate::report::human::make_printable;
use crate::view::{check_times, perfetto_of_maps, picture_of_maps};
use serde_json::Value;
use std::fmt::Display;
use std::path::{Path, PathBuf};
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
        None => read_maps(&args.files)?,
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
        write_target(target, "picture", console, |to| to.write_all(picture_of_maps(&maps).as_bytes()))?;
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

/// The maps of all files, in the given order. A file has one map, or an array of maps.
fn read_maps(files: &[PathBuf]) -> Result<Vec<HeapMap>, Failure> {
    let maps: Result<Vec<_>, _> = files.iter().map(|path| maps_of(path)).collect();
    Ok(maps?.concat())
}

fn maps_of(path: &Path) -> Result<Vec<HeapMap>, Failure> {
    let name = name(path);
    let failed = |why: &dyn Display| Failure::usage(format_args!("cannot draw {name}: {why}"));
    let text = read(path).map_err(|error| failed(&error))?;
    let mut value =
        serde_json::from_slice(&text).map_err(|error| failed(&format_args!("not JSON: {error}")))?;
    make_printable(&mut value);
    let maps = match value {
        Value::Array(maps) if maps.is_empty() => return Err(failed(&"the array has no map")),
        Value::Array(maps) => maps,
        map => vec![map],
    };
    maps.into_iter().map(|map| parsed(map).map_err(|why| failed(&why))).collect()
}

/// The map in a JSON value. The schema is checked first: another one may have other fields.
fn parsed(value: Value) -> Result<HeapMap, String> {
    match value.get("schema").and_then(Value::as_str) {
        Some(HeapMap::SCHEMA) => {}
        Some(schema) if schema.starts_with("warpheap-result/") => {
            return Err(format!(
                "it has the results of a run (`{schema}`), not a map; `warpheap stress --map FILE` writes a map"
            ));
        }
        Some(schema) => {
            return Err(format!(
                "its schema is `{schema}`, but this program reads `{}`; use the version of warpheap that wrote it",
                HeapMap::SCHEMA
            ));
        }
        None => return Err(format!("it has no `schema`; a map has `{}`", HeapMap::SCHEMA)),
    }
    let map: HeapMap = serde_json::from_value(value).map_err(|error| error.to_string())?;
    map.validate().map_err(|error| error.to_string())?;
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn maps_in(text: &str) -> Result<Vec<HeapMap>, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("heap.json");
        std::fs::write(&path, text).unwrap();
        read_maps(&[path])
    }

    fn fresh() -> Value {
        json!({
            "schema": "warpheap-heap-map/1", "label": "a test", "unix_seconds": 0, "heap_bytes": 1048576,
            "slab_bytes": 16384, "mapped_bytes": 1048576, "failed_allocations": 0, "faults": 0,
            "parts": [{"first_slab": 0, "slabs": 64, "kind": "fresh"}], "spans": []
        })
    }

    #[test]
    fn a_file_has_one_map_or_several() {
        let one = maps_in(&fresh().to_string()).unwrap();
        assert_eq!((one.len(), one[0].slabs()), (1, 64));
        let mut other = fresh();
        other["label"] = "another".into();
        let labels: Vec<_> =
            maps_in(&json!([fresh(), other]).to_string()).unwrap().into_iter().map(|m| m.label).collect();
        assert_eq!(labels, ["a test", "another"]);
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let mut map = fresh();
        map["colour"] = "green".into();
        map["parts"][0]["age"] = 3.into();
        assert!(maps_in(&map.to_string()).is_ok());
    }

    #[test]
    fn invalid_files_are_rejected_with_a_reason() {
        let changed = |field: &str, value: Value| {
            let mut map = fresh();
            map[field] = value;
            map.to_string()
        };
        let kind = json!([{"first_slab": 0, "slabs": 64, "kind": "lake"}]);
        for (text, part) in [
            (String::new(), "not JSON: EOF"),
            ("{".into(), "not JSON"),
            ("[]".into(), "the array has no map"),
            ("7".into(), "it has no `schema`"),
            (changed("schema", "warpheap-heap-map/2".into()), "reads `warpheap-heap-map/1`; use the version"),
            (changed("schema", "warpheap-result/1".into()), "warpheap stress --map FILE"),
            (changed("schema", 1.into()), "it has no `schema`"),
            (changed("heap_bytes", (-1).into()), "invalid value: integer `-1`"),
            (changed("heap_bytes", 1_064_960.into()), "its parts end at slab 64, but the heap at slab 65"),
            (changed("parts", kind), "unknown variant `lake`"),
            (changed("parts", Value::Null), "invalid type: null"),
        ] {
            let failure = maps_in(&text).unwrap_err();
            assert_eq!(failure.status, Status::Usage);
            assert!(failure.message.contains(part), "{}", failure.message);
            assert!(failure.message.contains("heap.json: "), "{}", failure.message);
        }
        let missing = read_maps(&["no/such/file.json".into()]).unwrap_err();
        assert!(missing.message.starts_with("cannot draw no/such/file.json: "), "{}", missing.message);
    }
}
