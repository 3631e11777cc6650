//! Output and exit status of runs.

use crate::support::{ends, err, json, out, status, stdout_and_stderr, stress, warpheap};
use serde_json::Value;
use std::process::Command;

/// The commands that the fault reports print for reproduction.
fn reproductions(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("warpheap "))
        .filter(|line| line.starts_with("stress --"))
}

/// Reports without times, rates and the counts of the host's comparisons between rounds, whose
/// number depends on time.
fn figures(results: &Value) -> Vec<Value> {
    let runs = results["data"]["runs"].as_array().expect("runs");
    let timeless = |run: &Value| {
        let mut report = run["report"].as_object().expect("a report").clone();
        report.retain(|key, _| {
            let compared = ["blocks_sorted", "wasted_bytes"].contains(&key.as_str());
            !key.ends_with("_seconds") && !key.ends_with("_per_second") && !compared
        });
        Value::Object(report)
    };
    runs.iter().map(timeless).collect()
}

#[test]
fn a_clean_run_lists_its_checks() {
    let output = stress("--seed 7");
    let text = out(&output);
    assert_eq!(status(&output), 0, "{}", stdout_and_stderr(&output));
    for part in [
        "seed 7",
        "512 GPU threads in each of 2 streams",
        "clean: 0 overlaps, 0 torn writes and 0 lost blocks",
        "freelist",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn every_concurrent_workload_runs_without_the_arena() {
    for workload in ["exchange", "pipeline", "storm"] {
        let output = stress(&format!("--seed 7 --workload {workload} --mix mostly-small"));
        let text = out(&output);
        assert_eq!(status(&output), 0, "{}", stdout_and_stderr(&output));
        for part in [workload, "freelist and heap", "bump is left out", "most of them", "clean:"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }
}

#[test]
fn every_planted_fault_is_caught_and_can_be_repeated() {
    for (plant, word) in [
        ("overlap", "overlap"),
        ("double-free", "double-free"),
        ("lost-block", "lost"),
        ("torn-write", "torn"),
    ] {
        let output = stress(&format!("--seed 3 --plant {plant}"));
        let text = out(&output);
        assert_eq!(status(&output), 1, "{plant}: {}", stdout_and_stderr(&output));
        let is_found = |kind, word| text.contains(&format!("FAULT: {kind}: {word}, round"));
        assert!(is_found("freelist", word), "{plant}: {text}");
        // A planted overlap marks a live block as free. If no thread allocates that size again, the
        // only finding is a count mismatch. `an_overlap_names_both_owners` in `stress/plants.rs`
        // tests the report of an overlap.
        let counts_as_free = plant == "overlap" && is_found("heap", "count-mismatch");
        assert!(is_found("heap", word) || counts_as_free, "{plant}: {text}");
        assert!(text.contains("detected: the injected fault"), "{plant}: {text}");
        let commands: Vec<_> = reproductions(&text).collect();
        assert!(commands.len() >= 2, "{plant}: {text}");
        for again in commands.into_iter().map(warpheap) {
            assert_eq!(status(&again), 1, "{plant}: {}", stdout_and_stderr(&again));
        }
    }
}

#[test]
fn a_seed_determines_the_replayed_run() {
    let replay = |seed: u32| {
        let line = "stress --replay --threads 256 --size 16-64 --rounds 3 --streams 2 --json -";
        let output = ends(0, &format!("{line} --seed {seed}"));
        figures(&json(&output))
    };
    let first = replay(11);
    assert_eq!(first, replay(11));
    assert_ne!(first, replay(12));
}

#[test]
fn without_a_gpu_cuda_is_rejected_with_advice() {
    if warpheap::Device::cuda_count().is_ok_and(|count| count > 0) {
        eprintln!("skipped: this machine has a GPU");
        return;
    }
    for line in [
        "stress --backend cuda",
        "stress --device 0",
        "bench",
        "bench --suite full",
        "bench --suite quick --backend cuda",
        "pool show --backend cuda",
        "pool bench --device 0",
    ] {
        let output = ends(3, line);
        assert!(err(&output).contains("no usable device"), "{}", err(&output));
        assert!(err(&output).contains("warpheap doctor"), "{}", err(&output));
    }
    let auto = ends(0, "stress --threads 256 --rounds 1 --allocator bump");
    assert!(out(&auto).contains("not on a GPU:"), "{}", out(&auto));
}

#[test]
fn a_hang_is_reported_with_advice() {
    for (backend, advice) in [("--replay", "A replay"), ("--backend cpu", "with --replay")] {
        let output = ends(4, &format!("stress {backend} --threads 65536 --size 64 --watchdog 0.01"));
        let said = err(&output);
        let parts = ["hangs", "warpheap stress", advice];
        assert!(parts.iter().all(|part| said.contains(part)) && !said.contains("GPU"), "{said}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_ends_the_run_with_a_message() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::Stdio;
    let mut run = Command::new(env!("CARGO_BIN_EXE_warpheap"))
        .args(["stress", "--backend", "cpu", "--threads", "512", "--seconds", "60", "--seed", "9"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // The handler for interrupts is installed before the first line is printed.
    let mut lines = BufReader::new(run.stdout.take().expect("a pipe")).lines();
    assert!(lines.next().expect("a line").expect("text").contains("seed 9"));
    let killed = Command::new("kill").args(["-INT", &run.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let mut text = String::new();
    run.stderr.take().expect("a pipe").read_to_string(&mut text).expect("text");
    assert_eq!(run.wait().expect("it ends").code(), Some(130), "{text}");
    assert!(text.contains("interrupted") && text.contains("seed 9"), "{text}");
}
