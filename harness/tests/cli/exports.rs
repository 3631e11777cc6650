//! `warpheap pool export`: the files of viewers.

use crate::support::{ends, err, out, rejects};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

pub const CHROME: &str = include_str!("schemas/chrome-trace.json");
const SNAPSHOT: &str = include_str!("schemas/memory-snapshot.json");

/// Two streams, of which one is an address, as in RMM's logs; tags, a failure, a leak, and a row
/// that was written late.
const LOG: &str = "\
thread,time,action,pointer,size,stream,align,tag
1,1000,allocate,0x7f0000000000,1000,3,256,\"layer 1, weights\"
2,2000,allocate,0x7f0000000400,200,0x7fab00000000,64,
1,4000,allocate,0x7f0000a00000,3000,3,256,optimiser
2,3000,free,0x7f0000000000,1000,3,256,
1,5000,allocate failure,0x0,5000000000,3,256,optimiser
2,6000,free,0x7f0000000900,7,4,8,
1,7000,free,0x7f0000000400,200,3,64,
";

struct Files {
    folder: tempfile::TempDir,
    log: PathBuf,
}

impl Files {
    fn new(log: &str) -> Files {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log.csv");
        fs::write(&path, log).expect("it can be written");
        Files { folder, log: path }
    }

    /// Exports the log, and returns the file and the text of the run.
    fn export(&self, format: &str, options: &str) -> (Vec<u8>, String) {
        let to = self.folder.path().join("export");
        let line =
            format!("pool export --trace {} --format {format} --out {}", self.log.display(), to.display());
        let output = ends(0, &format!("{line} {options}"));
        (fs::read(&to).expect("it was written"), out(&output))
    }

    fn perfetto(&self, options: &str) -> Value {
        serde_json::from_slice(&self.export("perfetto", options).0).expect("JSON")
    }

    fn pytorch(&self, options: &str) -> Value {
        let (pickle, _) = self.export("pytorch", options);
        serde_pickle::from_slice(&pickle, serde_pickle::DeOptions::new()).expect("a pickle")
    }
}

/// The objections of a schema to a value.
fn objections(schema: &str, value: &Value) -> Vec<String> {
    let schema = serde_json::from_str(schema).expect("JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    validator.iter_errors(value).take(5).map(|error| error.to_string()).collect()
}

pub fn check(schema: &str, value: &Value) {
    assert_eq!(objections(schema, value), [""; 0]);
}

pub fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("{name} is no list: {value}"))
}

pub fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} is no number: {value}"))
}

/// The events of a phase as text: process, name, time and, for counters, the value.
fn events(trace: &Value, ph: &str) -> Vec<String> {
    let of_phase = list(trace, "traceEvents").iter().filter(|event| event["ph"] == ph);
    let value =
        |event: &Value| if ph == "C" { format!(" {}", event["args"]["bytes"]) } else { String::new() };
    of_phase
        .map(|event| format!("{} {} {}{}", event["pid"], event["name"], event["ts"], value(event)))
        .collect()
}

#[test]
fn a_log_is_exported_for_perfetto() {
    let trace = Files::new(LOG).perfetto("");
    check(CHROME, &trace);
    let expected = [r#"2 "layer 1, weights" 1.0"#, r#"3 "block" 2.0"#, r#"2 "optimiser" 4.0"#];
    assert_eq!(events(&trace, "b"), expected);
    assert_eq!(events(&trace, "e"), [r#"2 "layer 1, weights" 3.0"#, r#"3 "block" 7.0"#]);
    assert_eq!(events(&trace, "i"), [r#"2 "failed allocation" 5.0"#]);
    let counters = events(&trace, "C");
    let all: Vec<_> = counters.iter().filter(|event| event.starts_with("1 ")).collect();
    let live = |time: u64, bytes: u64| format!("1 \"live\" {time}.0 {bytes}");
    let expected = [live(1, 1000), live(2, 1200), live(3, 200), live(4, 3200), live(7, 3000)];
    assert_eq!(all, expected.iter().collect::<Vec<_>>());
    let names: Vec<_> = list(&trace, "traceEvents")
        .iter()
        .filter(|event| event["name"] == "process_name")
        .map(|event| (number(event, "pid"), event["args"]["name"].as_str().expect("a name")))
        .collect();
    assert_eq!(names, [(1, "all streams"), (2, "stream 3"), (3, "stream 0x7fab00000000")]);
    let ids = |ph: &str| -> BTreeMap<String, (Value, Value)> {
        let of_phase = list(&trace, "traceEvents").iter().filter(|event| event["ph"] == ph);
        of_phase.map(|e| (e["id2"]["local"].to_string(), (e["pid"].clone(), e["name"].clone()))).collect()
    };
    let (begun, ended) = (ids("b"), ids("e"));
    assert!(ended.iter().all(|(id, pair)| begun.get(id) == Some(pair)), "{begun:?} {ended:?}");
}

#[test]
fn a_log_is_exported_for_pytorchs_viewer() {
    let files = Files::new(LOG);
    let snapshot = files.pytorch("");
    check(SNAPSHOT, &snapshot);
    let trace = snapshot["device_traces"][0].as_array().expect("a trace");
    let actions: Vec<_> = trace.iter().map(|entry| entry["action"].as_str().expect("an action")).collect();
    let freed = ["free_requested", "free_completed"];
    let expected = [&["alloc", "alloc"], &freed[..], &["alloc", "oom"], &freed].concat();
    assert_eq!(actions, expected);
    assert_eq!((number(&trace[5], "size"), number(&trace[5], "time_us")), (5_000_000_000, 5));
    assert_eq!(trace[0]["frames"][0]["name"], "layer 1, weights");
    let segments = list(&snapshot, "segments");
    assert_eq!(segments.len(), 2, "two address ranges: {segments:?}");
    assert_eq!(number(&segments[0], "address"), 0x7f00_0000_0000);
    assert_eq!(
        (number(&segments[0], "total_size"), number(&segments[0], "allocated_size")),
        (0x400 + 200, 0)
    );
    assert_eq!(segments[1]["blocks"][0]["state"], "active_allocated");
    assert_eq!(segments[1]["blocks"][0]["frames"][0]["name"], "optimiser");
    check_as_the_viewer_reads(&snapshot);
}

/// What the viewer relies on: the blocks of a segment cover it, each block of the trace is in a
/// segment, and the live blocks are those of the trace that are not freed.
fn check_as_the_viewer_reads(snapshot: &Value) {
    let (mut live, mut ranges) = (BTreeMap::new(), Vec::new());
    for segment in list(snapshot, "segments") {
        let start = number(segment, "address");
        let mut next = start;
        for block in list(segment, "blocks") {
            assert_eq!(number(block, "address"), next, "{segment}");
            if block["state"] == "active_allocated" {
                live.insert(next, number(block, "size"));
            }
            next += number(block, "size");
        }
        assert_eq!(next, start + number(segment, "total_size"), "{segment}");
        ranges.push(start..next);
    }
    assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
    let mut of_trace = BTreeMap::new();
    for entry in snapshot["device_traces"][0].as_array().expect("a trace") {
        if entry["action"] == "alloc" {
            let (address, size) = (number(entry, "addr"), number(entry, "size"));
            assert!(
                ranges.iter().any(|range| range.start <= address && address + size <= range.end),
                "{entry}"
            );
            assert_eq!(of_trace.insert(address, size), None, "it is live: {entry}");
        } else if entry["action"] == "free_completed" {
            assert_eq!(of_trace.remove(&number(entry, "addr")), Some(number(entry, "size")), "{entry}");
        }
    }
    assert_eq!(live, of_trace);
}

#[test]
fn filters_select_blocks_and_time() {
    let files = Files::new(LOG);
    let count = |options: &str| events(&files.perfetto(options), "b").len();
    assert_eq!(
        (count("--min-size 500"), count("--max-size 1000"), count("--min-size 201 --max-size 2K")),
        (2, 2, 1)
    );
    assert_eq!(
        (count("--stream 3"), count("--stream 0x7fab00000000"), count("--stream 3 --stream 4")),
        (2, 1, 2)
    );
    assert_eq!((count("--tag optimiser"), count("--from 0.0000025"), count("--to 0.0000015")), (1, 2, 2));
    let snapshot = files.pytorch("--from 0.0000025 --to 0.000004");
    check(SNAPSHOT, &snapshot);
    check_as_the_viewer_reads(&snapshot);
    assert_eq!(snapshot["device_traces"][0][0]["time_us"], 3, "live at the start, which is 3.5 us");
    let trace = files.perfetto("--from 0.0000025 --min-size 4K");
    check(CHROME, &trace);
    assert_eq!((events(&trace, "b").len(), events(&trace, "i").len()), (0, 1));
}

#[test]
fn invalid_requests_are_rejected_before_a_file_is_written() {
    let files = Files::new(LOG);
    let to = files.folder.path().join("export");
    let line =
        format!("pool export --trace {} --format perfetto --out {}", files.log.display(), to.display());
    for (options, words) in [
        ("--min-size 2K --max-size 1K", "no block is left"),
        ("--from 2 --to 1", "--from is not before --to"),
        ("--stream three", "a stream is its number in the log"),
        ("--tag absent", "none of its 7 rows is exported"),
        ("--from 1", "none of its 7 rows"),
    ] {
        rejects(&format!("{line} {options}"), words);
    }
    for (log, options, words) in [
        (LOG.replace("0x7f0000a00000", "0xpool"), "", "line 4, column 4 (`pointer`)"),
        (LOG.replace(",tag\n", ",label\n"), "--tag optimiser", "--tag needs a log with the column `tag`"),
        (String::new(), "", "it has no rows"),
    ] {
        fs::write(&files.log, log).expect("written");
        rejects(&format!("{line} {options}"), words);
    }
    assert!(!to.exists());
}

#[test]
fn an_export_does_not_replace_the_log() {
    let files = Files::new(LOG);
    let detour = files.folder.path().join(".").join("log.csv");
    for to in [&files.log, &detour] {
        let line = format!("--trace {} --format perfetto --out {}", files.log.display(), to.display());
        rejects(&format!("pool export {line}"), "would replace the input");
    }
    assert_eq!(fs::read_to_string(&files.log).expect("it is there"), LOG);
}

/// Blocks that overlap, that end behind the address space, and have sizes without a sum in 64 bits.
#[test]
fn impossible_blocks_are_exported() {
    let names = LOG.lines().next().expect("a header");
    let row = |time: u64, address: u64, size: u64| format!("1,{time},allocate,{address:#x},{size},3,8,\n");
    let rows = [row(1, 0x100, 1000), row(2, 0x200, 200), row(3, u64::MAX, 9), row(4, u64::MAX - 9, u64::MAX)];
    let more = [row(5, 0x300, u64::MAX), row(u64::MAX, 1 << 62, i64::MAX as u64)];
    let files = Files::new(&format!("{names}\n{}{}", rows.concat(), more.concat()));
    let trace = files.perfetto("");
    assert_eq!((events(&trace, "b").len(), objections(CHROME, &trace).len()), (6, 0));
    assert!(files.export("pytorch", "").1.contains("written  6 events"));
}

#[test]
fn the_export_can_be_standard_output() {
    let files = Files::new(LOG);
    let output = ends(0, &format!("pool export --trace {} --format perfetto --out -", files.log.display()));
    check(CHROME, &crate::support::json(&output));
    assert!(err(&output).contains("7 rows: 3 allocations, 2 frees, 1 failed calls"), "{}", err(&output));
}

/// The schemas reject files with planted defects.
#[test]
fn planted_defects_are_found_by_the_schemas() {
    let files = Files::new(LOG);
    let (trace, snapshot) = (files.perfetto(""), files.pytorch(""));
    let changed = |value: &Value, path: &str, to: Value| {
        let mut value = value.clone();
        *value.pointer_mut(path).unwrap_or_else(|| panic!("no {path}")) = to;
        value
    };
    let place = list(&trace, "traceEvents").iter().position(|event| event["ph"] == "b").expect("an event");
    for (path, to) in [("ts", "1".into()), ("id2", 7.into()), ("ph", "q".into()), ("pid", 0.into())] {
        let defect = changed(&trace, &format!("/traceEvents/{place}/{path}"), to);
        assert_ne!(objections(CHROME, &defect), [""; 0], "{path}");
    }
    for (path, to) in [
        ("/segments/0/blocks/0/state", "lost".into()),
        ("/device_traces/0/0/addr", Value::Null),
        ("/device_traces/0/0/action", "oom".into()),
        ("/segments/1/address", (-1).into()),
    ] {
        assert_ne!(objections(SNAPSHOT, &changed(&snapshot, path, to)), [""; 0], "{path}");
    }
}

/// The opcodes that the viewer's unpickler knows, by their names in Python's `pickletools`.
const OPCODES: &str = "APPEND APPENDS BINFLOAT BINGET BININT BININT1 BININT2 BINPUT BINUNICODE DICT EMPTY_DICT EMPTY_LIST \
    EMPTY_TUPLE FRAME LIST LONG1 LONG_BINGET LONG_BINPUT MARK MEMOIZE NEWFALSE NEWTRUE NONE PROTO SETITEM SETITEMS \
    SHORT_BINUNICODE STOP TUPLE TUPLE1 TUPLE2 TUPLE3";

const UNPICKLE: &str = "\
import json, pickle, pickletools, sys
data = open(sys.argv[1], 'rb').read()
unknown = {op.name for op, _, _ in pickletools.genops(data)} - set(sys.argv[2].split())
wide = [arg for op, arg, _ in pickletools.genops(data) if op.name == 'LONG1' and arg >= 2**63]
json.dump({'snapshot': pickle.loads(data), 'unknown': sorted(unknown), 'wide': wide}, sys.stdout)";

/// Python reads a snapshot, and the opcodes of the pickle are those of the viewer.
#[test]
fn python_reads_the_snapshot() {
    let files = Files::new(LOG);
    let snapshot = files.pytorch("");
    let path = files.folder.path().join("export");
    let python = Command::new("python3").args(["-c", UNPICKLE]).arg(&path).arg(OPCODES).output();
    let Ok(output) = python else { return eprintln!("skipped: there is no python3") };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(read["snapshot"], snapshot);
    assert_eq!((&read["unknown"], &read["wide"]), (&Value::Array(vec![]), &Value::Array(vec![])));
}

/// Time and memory of the export of a long log. To print them for 10 million rows:
///
///     WARPHEAP_EXPORT_ROWS=10000000 cargo test --release --locked -p warpheap-harness \
///         --features cli --test cli exports::long -- --nocapture
#[cfg(target_os = "linux")]
mod long {
    use super::Files;
    use crate::support::{status, stdout_and_stderr};
    use std::fs;
    use std::io::{BufWriter, Write};
    use std::path::Path;
    use std::process::{Child, Command, Output, Stdio};
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    /// Blocks that are live at a time.
    const LIVE: u64 = 10_000;
    const THREADS: u64 = 16;

    /// Writes a log of 16 threads with a stream each, with at most 10,000 live blocks and rows in
    /// disorder. Returns the number of rows: `most` without the frees before the first one.
    fn long_log(path: &Path, most: u64) -> u64 {
        let mut file = BufWriter::new(fs::File::create(path).expect("it can be written"));
        writeln!(file, "thread,time,action,pointer,size,stream,align,tag").expect("written");
        // Step `2 n` allocates block `n`, and step `2 n + FREED` frees it.
        const FREED: u64 = 2 * LIVE - 1;
        let steps = (0..most).filter(|step| step.is_multiple_of(2) || *step >= FREED);
        let row = |step: u64| {
            let is_alloc = step.is_multiple_of(2);
            let (block, action) =
                if is_alloc { (step / 2, "allocate") } else { ((step - FREED) / 2, "free") };
            // More addresses than live blocks: an address is free for a while before it is used
            // again.
            let (time, address) =
                (100 * (step ^ 5), 0x7f00_0000_0000 + (block % (LIVE + LIVE / 10)) * (1 << 20));
            let (thread, bytes, stream, tag) =
                (step / 2 % THREADS, 256 << (block % 13), 1 + block % THREADS, block % 40);
            let tag = if is_alloc { format!("\"layer {tag}\"") } else { String::new() };
            writeln!(file, "{thread},{time},{action},{address:#x},{bytes},{stream},256,{tag}")
                .expect("written");
        };
        steps.map(row).count() as u64
    }

    /// Exports with an address space of 256 MiB. `WARPHEAP_EXPORT_ROWS` sets the rows. The target
    /// of a release build is 10 million in 60 s.
    #[test]
    fn a_long_log_is_exported_in_bounded_memory() {
        const TARGET: (u64, f64) = (10_000_000, 60.0);
        let most =
            std::env::var("WARPHEAP_EXPORT_ROWS").map_or(Ok(100_000), |rows| rows.parse()).expect("a number");
        let files = Files::new("");
        let (rows, to) = (long_log(&files.log, most), files.folder.path().join("export"));
        let megabytes = |path: &Path| fs::metadata(path).expect("a file").len() as f64 / 1e6;
        eprintln!("log: {rows} rows, {THREADS} threads and streams, {:.0} MB", megabytes(&files.log));
        for format in ["perfetto", "pytorch"] {
            let start = Instant::now();
            let child = Command::new("sh")
                .args(["-c", "ulimit -v 262144 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_warpheap")])
                .args(["pool", "export", "--format", format, "--trace"])
                .arg(&files.log)
                .arg("--out")
                .arg(&to)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("it starts");
            let (output, kibibytes) = peak(child);
            let (seconds, said) = (start.elapsed().as_secs_f64(), stdout_and_stderr(&output));
            assert_eq!(status(&output), 0, "{format}: {said}");
            let (mebibytes, megabytes) = (kibibytes as f64 / 1024.0, megabytes(&to));
            eprintln!(
                "{format}: {seconds:.1} s, at most {mebibytes:.1} MiB resident, {megabytes:.0} MB written"
            );
            assert!(most < TARGET.0 || seconds < TARGET.1, "{seconds:.1} s");
            // The window, and the rows of one clock tick.
            let line =
                said.lines().find(|line| line.starts_with("  memory")).expect("a line").replace(',', "");
            let held: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            assert!(held[0] <= (1 << 14) + 8 && (LIVE - 10..LIVE + 10).contains(&held[1]), "{said}");
            assert!(said.replace(',', "").contains(&format!("  written  {rows} events")), "{said}");
        }
    }

    /// Waits for a program with little output. Returns the output and the largest resident memory
    /// in KiB, as the kernel counts it, last read at most 1 ms before the end.
    fn peak(mut child: Child) -> (Output, u64) {
        let (status, mut most) = (format!("/proc/{}/status", child.id()), 0);
        while child.try_wait().expect("it can be waited for").is_none() {
            let text = fs::read_to_string(&status).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let now = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            most = most.max(now.unwrap_or(0));
            sleep(Duration::from_millis(1));
        }
        assert!(most > 0, "no memory in {status}");
        (child.wait_with_output().expect("its output"), most)
    }
}
