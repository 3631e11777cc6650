//! Maps of heaps: demonstrations, saved maps, SVGs, counters over time.

use crate::exports::{CHROME, check, list, number};
use crate::support::{ends, err, json, out, rejects, status, stdout_and_stderr, stress, warpheap};
use roxmltree::Document;
use serde_json::Value;
use std::fs;

fn demo(args: &str) -> String {
    let output = ends(0, &format!("map --backend cpu --demo {args}"));
    out(&output)
}

/// The value of a figure in the text of a map.
fn fragmentation(text: &str) -> f64 {
    let (_, rest) = text.split_once("fragmentation ").expect("it is in the text");
    rest.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

/// The rows of cells, without offsets.
fn cells(text: &str) -> String {
    let is_row = |line: &&str| line.get(5..10).is_some_and(|unit| unit.ends_with('B'));
    text.lines().filter(is_row).filter_map(|line| line.get(12..)).collect()
}

#[test]
fn demonstrations_are_drawn() {
    let fresh = demo("fresh --bytes 8MiB");
    assert_eq!(cells(&fresh), ".".repeat(512), "{fresh}");
    let mixed = demo("mixed");
    for part in ["64 B", "256 B", "1024 B", "4096 B", "large allocation", "free slab", "never used", "held:"]
    {
        assert!(mixed.contains(part), "no {part:?} in {mixed}");
    }
}

/// The fragmentation can be found from the map alone: much is free, but in pieces of a few slabs,
/// which runs of one class with few live blocks separate.
#[test]
fn a_fragmented_heap_is_recognised_from_its_map() {
    let text = demo("fragmented");
    assert!(fragmentation(&text) > 90.0 && fragmentation(&demo("fresh")) == 0.0, "{text}");
    let cells = cells(&text);
    let longest = cells.split(|c: char| !"-+.".contains(c)).map(str::len).max();
    let separators = cells.matches('b').count();
    assert!(longest < Some(16) && separators > 64, "{text}");
    assert!(text.contains("b 4096 B"), "{text}");
}

/// The leak can be found from the maps alone: live bytes grow from step to step. The report names
/// the class of the blocks.
#[test]
fn a_leak_is_recognised_from_its_maps_and_from_the_report() {
    let text = demo("leak --report");
    let (_, table) = text.split_once("over time").expect("a picture over time");
    let live: Vec<&str> = (1..=4)
        .filter_map(|step| table.lines().find(|line| line.contains(&format!("{step} after step {step}"))))
        .collect();
    assert_eq!(live.len(), 4, "{text}");
    for part in ["report of a heap, after step 4", "Not fragmented", "Blocks of 256 B hold 100 %"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let text = demo("fragmented --report");
    assert!(text.contains("Blocks of 4096 B separate them"), "{text}");
    assert!(!demo("fragmented").contains("report of"));
}

#[test]
fn a_saved_map_is_drawn_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let (saved, again) = (folder.path().join("heap.json"), folder.path().join("again.json"));
    let first = demo(&format!("mixed --json {}", saved.display()));
    let read = ends(0, &format!("map {} --json {}", saved.display(), again.display()));
    let map_of = |text: &str| -> Vec<String> {
        let lines = text.lines().skip_while(|line| !line.starts_with("heap map"));
        lines.take_while(|line| !line.starts_with("map: ")).map(String::from).collect()
    };
    assert!(map_of(&first).len() > 20 && map_of(&first) == map_of(&out(&read)), "{first}");
    assert_eq!(fs::read(&saved).expect("saved"), fs::read(&again).expect("saved again"));
}

#[test]
fn an_svg_is_written_for_one_map_and_for_several() {
    let folder = tempfile::tempdir().expect("a folder");
    let (maps, svg) = (folder.path().join("maps.json"), folder.path().join("heap.svg"));
    let text = demo(&format!("timeline --json {} --svg {}", maps.display(), svg.display()));
    assert!(text.contains("over time") && text.contains("5 all are freed"), "{text}");
    let written = fs::read_to_string(&svg).expect("it was written");
    let document = Document::parse(&written).expect("well-formed");
    let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
    for part in ["Over time", "1 new", "5 all are freed", "peak", "largest free range"] {
        assert!(texts.contains(&part), "no {part:?} in {texts:?}");
    }
    let saved: Value = serde_json::from_slice(&fs::read(&maps).expect("saved")).expect("JSON");
    assert_eq!(saved.as_array().map(Vec::len), Some(5));
    let alone = warpheap(&format!("map {} --svg -", maps.display()));
    assert_eq!(out(&alone), written, "the same maps give the same picture, alone on standard output");
    assert!(err(&alone).contains("over time"), "{}", err(&alone));
}

#[test]
fn a_stress_run_saves_the_heap_of_its_last_round() {
    let folder = tempfile::tempdir().expect("a folder");
    let saved = folder.path().join("heap.json");
    let run = stress(&format!("--allocator heap --seed 7 --map {} --json -", saved.display()));
    assert_eq!(status(&run), 0, "{}", stdout_and_stderr(&run));
    let report = &json(&run)["data"]["runs"][0]["report"];
    let map: Value = serde_json::from_slice(&fs::read(&saved).expect("it was written")).expect("JSON");
    assert_eq!(map["schema"], "warpheap-heap-map/1");
    assert_eq!(
        (&map["label"], &map["heap_bytes"]),
        (&"stress, seed 7, after round 4".into(), &report["pool_bytes"])
    );
    let live = map["parts"].as_array().expect("parts").iter().map(|part| {
        let number = |field: &str| part[field].as_u64().unwrap_or(0);
        number("blocks") - number("free_blocks") + u64::from(part["kind"] == "large")
    });
    let live: u64 = live.sum();
    assert!(live > 0 && live <= report["peak_live_blocks"].as_u64().expect("a number"), "{live}: {report}");
    let drawn = ends(0, &format!("map {}", saved.display()));
    assert!(out(&drawn).contains("stress, seed 7, after round 4"), "{}", out(&drawn));
}

#[test]
fn another_schema_is_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("heap.json");
    demo(&format!("fresh --json {}", path.display()));
    let newer = fs::read_to_string(&path).expect("saved").replace("heap-map/1", "heap-map/2");
    fs::write(&path, newer).expect("written");
    let output = warpheap(&format!("map {}", path.display()));
    assert_eq!((status(&output), out(&output).as_str()), (2, ""));
    for part in ["heap.json: ", "`warpheap-heap-map/2`", "`warpheap-heap-map/1`"] {
        assert!(err(&output).contains(part), "no {part:?} in {}", err(&output));
    }
}

#[test]
fn colours_are_used_only_on_request_without_a_terminal() {
    let plain = demo("mixed");
    assert!(!plain.contains('\x1b') && !demo("mixed --color never").contains('\x1b'));
    assert!(demo("mixed --color always").contains("\x1b[48;5;"));
}

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
