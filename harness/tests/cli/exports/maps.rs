//! `warpheap map --perfetto`.

use super::{CHROME, check, list, number};
use crate::support::{ends, err, out, rejects, status, stdout_and_stderr, warpheap};
use serde_json::Value;
use std::fs;

#[test]
fn maps_of_a_heap_are_counters_over_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("heap.json");
    ends(0, &format!("map --backend cpu --demo timeline --perfetto {}", to.display()));
    let trace: Value = serde_json::from_slice(&fs::read(&to).expect("written")).expect("JSON");
    check(CHROME, &trace);
    let of = |name: &str| -> Vec<&Value> {
        list(&trace, "traceEvents").iter().filter(|event| event["name"] == name).collect()
    };
    let memory = of("memory");
    let live: Vec<_> = memory.iter().map(|event| number(&event["args"], "live")).collect();
    assert_eq!((live.len(), live[0]), (5, 0));
    let times: Vec<_> = memory.iter().map(|event| event["ts"].as_f64().expect("a time")).collect();
    assert!(times[0] == 0.0 && times.is_sorted_by(|a, b| a < b), "{times:?}");
    let sum =
        |event: &&Value| event["args"].as_object().expect("series").values().filter_map(Value::as_u64).sum();
    assert!(
        memory.iter().map(sum).all(|bytes: u64| bytes == 16 << 20),
        "the series are the heap: {memory:?}"
    );
    let parts: Vec<_> = memory[0]["args"].as_object().expect("series").keys().collect();
    assert!(!parts.iter().any(|part| part.contains("metadata")), "no map has such slabs: {parts:?}");
    for name in ["new", "live, blocks of 4096 B", "largest free range", "failed allocations"] {
        assert!(!of(name).is_empty(), "no {name}: {trace}");
    }
    rejects(
        &format!("map --demo fresh --backend cpu --svg {0} --perfetto {0}", to.display()),
        "--svg and --perfetto have the same target",
    );
}

#[test]
fn a_trace_of_maps_does_not_replace_a_map() {
    let folder = tempfile::tempdir().expect("a folder");
    let [map, picture] = ["map.json", "map.svg"].map(|name| folder.path().join(name));
    ends(0, &format!("map --backend cpu --demo fresh --json {}", map.display()));
    let before = fs::read(&map).expect("written");
    let (map_name, picture_name) = (map.display(), picture.display());
    for options in [
        format!("--perfetto {map_name}"),
        format!("--svg {picture_name} --perfetto {map_name}"),
        format!("--json {map_name}"),
    ] {
        rejects(&format!("map {map_name} {options}"), "would replace the input");
    }
    assert!(fs::read(&map).expect("it is there") == before && !picture.exists());
}

#[test]
fn maps_without_increasing_times_are_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let [saved, to] = ["map.json", "trace.json"].map(|name| folder.path().join(name));
    ends(0, &format!("map --backend cpu --demo fresh --json {}", saved.display()));
    let map: Value = serde_json::from_slice(&fs::read(&saved).expect("written")).expect("JSON");
    let write = |times: &[(u64, u32)]| {
        let maps = times.iter().enumerate().map(|(i, (seconds, nanos))| {
            let mut map = map.clone();
            (map["unix_seconds"], map["subsec_nanos"]) = ((*seconds).into(), (*nanos).into());
            map["label"] = format!("sample {i}").into();
            map
        });
        fs::write(&saved, Value::Array(maps.collect()).to_string()).expect("written");
        warpheap(&format!("map {} --perfetto {}", saved.display(), to.display()))
    };
    for (times, words) in [
        (&[(7, 1), (7, 2), (7, 2)][..], "map 3 (`sample 2`) is not later than map 2 (`sample 1`)"),
        (&[(7, 0), (6, 9)], "map 2 (`sample 1`) is not later"),
        (&[(7, 0), (0, 0)], "map 2 (`sample 1`) has no time: its `unix_seconds` is 0"),
        (&[(0, 0), (7, 0)], "map 1 (`sample 0`) has no time"),
        (&[(u64::MAX - 1, 0), (u64::MAX, 0)], "is not later"),
    ] {
        let output = write(times);
        assert_eq!(status(&output), 2, "{times:?}: {}", stdout_and_stderr(&output));
        assert!(err(&output).contains(words), "no {words:?} in {}", err(&output));
        assert!(out(&output).is_empty() && !to.exists());
    }
    for times in [&[(0, 0)][..], &[(7, 1), (7, 2), (8, 0)]] {
        let output = write(times);
        assert_eq!(status(&output), 0, "{times:?}: {}", stdout_and_stderr(&output));
    }
}
