//! What the program reads: standard input, and input without an end.

use crate::support::{err, out, status, stdout_and_stderr, warpheap};
use std::fs;
use std::io::Write;
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
        let output = warpheap(line);
        assert_eq!((status(&output), out(&output).as_str()), (2, ""), "{line}: {}", err(&output));
        assert!(err(&output).contains(part), "{line}: {}", err(&output));
    }
}
