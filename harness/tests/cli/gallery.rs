//! The gallery: the pictures in `docs` are those that the program draws of committed data.
//!
//! `scripts/gallery.sh` writes them again.

use crate::support::{status, stdout_and_stderr};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SUITE: &str = "results/h200-2026-11-25/bench-suite-full.json";

/// A file of the gallery, and the arguments that make it. The file comes last.
type Made = (&'static str, &'static [&'static str]);

const MADE: [Made; 7] = [
    ("docs/gallery/alloc.svg", &["report", SUITE, "--chart", "time: alloc over threads", "--svg"]),
    (
        "docs/gallery/latency.svg",
        &["report", SUITE, "--chart", "latency: alloc: one size, 2¹⁶ threads", "--svg"],
    ),
    ("docs/gallery/before.svg", &["map", "docs/gallery/before.json", "--svg"]),
    ("docs/gallery/after.svg", &["map", "docs/gallery/after.json", "--svg"]),
    ("docs/gallery/leak.svg", &["map", "docs/gallery/leak.json", "--svg"]),
    (
        "docs/gallery/pool.json",
        &["pool", "export", "--trace", "docs/gallery/pool.csv", "--format", "perfetto", "--out"],
    ),
    ("docs/guide/map-fragmented.svg", &["map", "docs/gallery/fragmented.json", "--svg"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn warpheap(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpheap"));
    let output = command.current_dir(root()).args(arguments).output().expect("the program starts");
    assert_eq!(status(&output), 0, "{arguments:?}: {}", stdout_and_stderr(&output));
    stdout_and_stderr(&output)
}

#[test]
fn the_gallery_is_what_the_program_draws() {
    let folder = tempfile::tempdir().expect("a folder");
    let is_update = std::env::var_os("WARPHEAP_UPDATE").is_some();
    let mut stale = Vec::new();
    for (name, arguments) in MADE {
        let (committed, now) = (root().join(name), folder.path().join("now"));
        warpheap(&[arguments, &[now.to_str().expect("a path")]].concat());
        let now = fs::read(now).expect("it was written");
        if is_update {
            fs::write(&committed, now).expect("a file");
        } else if fs::read(&committed).ok() != Some(now) {
            stale.push(name);
        }
    }
    assert!(stale.is_empty(), "run scripts/gallery.sh: {stale:?} would differ");
}

#[test]
fn a_chart_is_found_by_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let svg = folder.path().join("chart.svg");
    let svg = svg.to_str().expect("a path");
    let suite = root().join(SUITE);
    let suite = suite.to_str().expect("a path");
    for (arguments, part) in [
        (&["--svg", svg, "--chart", "time: x"][..], "no chart `time: x`; the charts are\n  figure: "),
        (&["--svg", svg], "--chart <NAME>"),
        (&["--chart", "time: alloc over threads"], "--svg <FILE>"),
        (&["--svg", suite, "--chart", "time: alloc over threads"], "would replace the input"),
        (&["--html", svg, "--svg", svg, "--chart", "time: alloc over threads"], "have the same target"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpheap"));
        let output = command.args(["report", suite]).args(arguments).output().expect("it starts");
        assert_eq!(status(&output), 2, "{arguments:?}: {}", stdout_and_stderr(&output));
        let text = stdout_and_stderr(&output);
        assert!(text.contains(part), "{arguments:?}: {text}");
        assert!(!Path::new(svg).exists(), "{arguments:?}");
    }
}

/// The guide quotes the report of the heap that leaks, and the picture shows the same heap.
#[test]
fn the_leak_of_the_guide_is_in_its_report() {
    let report = warpheap(&["map", "docs/gallery/leak.json", "--report"]);
    let (_, report) = report.split_once("report of a heap, after step 4").expect("a report");
    let guide = fs::read_to_string(root().join("docs/guide/map.md")).expect("the guide");
    let lines: Vec<&str> = report.lines().filter(|line| !line.trim().is_empty()).collect();
    assert!(lines.len() > 7, "{report}");
    for line in lines {
        assert!(guide.contains(line.trim_end()), "the guide has no {line:?}");
    }
}
