//! What the program reads: standard input, and input without an end. What it is asked for: more
//! threads, streams and bytes than the machine has.

use crate::support::{err, out, rejects, status, stdout_and_stderr, warpheap};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

const RESULTS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../results/h200-2026-11-25/bench-heap-alloc.json");
const LOG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/gallery/pool.csv");
const MAP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/gallery/before.json");

/// Runs the program with the file as its standard input, through a pipe.
fn piped(line: &str, file: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_warpheap"))
        .args(line.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let (mut stdin, bytes) = (child.stdin.take().expect("a pipe"), fs::read(file).expect("a file"));
    // It ends early after an error.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&bytes)));
    let output = child.wait_with_output().expect("its output");
    writer.join().expect("no panic");
    output
}

#[test]
fn every_input_may_be_standard_input() {
    for (line, file) in [
        ("map - --json /dev/null", MAP),
        ("report - --html /dev/null", RESULTS),
        ("report FILE --against -", RESULTS),
        ("pool replay --backend cpu --pool driver --trace -", LOG),
        ("pool export --format perfetto --out /dev/null --trace -", LOG),
    ] {
        let line = line.replace("FILE", file);
        let output = piped(&line, file);
        assert_eq!(status(&output), 0, "{line}: {}", stdout_and_stderr(&output));
    }
    let exported = |trace: &str| {
        let output = piped(&format!("pool export --format perfetto --out - --trace {trace}"), LOG);
        assert_eq!(status(&output), 0, "{}", err(&output));
        out(&output)
    };
    assert_eq!(exported("-"), exported(LOG), "from a pipe and from a file");
    assert_eq!(exported("/dev/stdin"), exported(LOG));
}

#[test]
fn standard_input_is_read_by_one_input() {
    for line in ["map - -", "report - --against -"] {
        let output = piped(line, MAP);
        assert_eq!((status(&output), out(&output).as_str()), (2, ""), "{line}");
        assert!(err(&output).contains("standard input can be read only once"), "{}", err(&output));
    }
}

#[test]
fn input_without_an_end_is_an_error() {
    let report = format!("report {RESULTS} --against /dev/zero");
    let row = "a row has more than 1048576 bytes";
    for (line, part) in [
        ("map /dev/zero", "/dev/zero: it has more than 512.0 MiB"),
        ("report /dev/zero --html /dev/null", "/dev/zero: it has more than 512.0 MiB"),
        (&report, "/dev/zero: it has more than 512.0 MiB"),
        ("pool replay --backend cpu --trace /dev/zero", row),
        ("pool export --format perfetto --out /dev/null --trace /dev/zero", row),
    ] {
        rejects(line, part);
    }
}

#[test]
fn too_many_threads_and_streams_are_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log.csv");
    let mut text = "thread,time,action,pointer,size,stream\n".to_owned();
    for i in 1..2000 {
        writeln!(text, "{i},{i},allocate,{:#x},8,{i}", i << 8).expect("a string");
    }
    fs::write(&log, text).expect("written");
    let replay =
        format!("pool replay --backend cpu --pool driver --threads logged --trace {}", log.display());
    // Each takes four mappings, and all of them a quarter of those of the system.
    let mappings = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    let streams = mappings.trim().parse::<u32>().unwrap_or(65_530) / 16 + 1;
    let [cpu, replays] = ["--backend cpu", "--replay"]
        .map(|device| format!("stress {device} --allocator bump --streams {streams} --threads 1"));
    for (line, expected, part) in [
        (cpu.as_str(), 5, "cannot start a thread for a stream on the CPU"),
        (&replays, 5, "cannot start a thread for a stream on the CPU"),
        ("pool bench --backend cpu --threads 1000000", 2, "threads = 1000000: it must be at most 1024"),
        ("pool bench --backend cpu --threads 1025", 2, "threads = 1025: it must be at most 1024"),
        (&replay, 2, "threads = 1999: it must be at most 1024"),
    ] {
        let output = warpheap(line);
        let said = stdout_and_stderr(&output);
        assert_eq!(status(&output), expected, "{line}: {said}");
        assert!(said.contains(part) && !said.contains("panicked"), "{line}: {said}");
    }
}

#[test]
fn too_large_a_pool_is_named_as_it_was_requested() {
    for allocator in ["heap", "freelist", "bump"] {
        for bytes in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 50) + 1] {
            let line = format!("stress --backend cpu --allocator {allocator} --pool {bytes}");
            rejects(&line, &format!("a pool of {bytes} B"));
        }
    }
}
