//! The program as its users run it: what it prints, what it writes, and how it ends.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// A run that takes well under a second.
const SMALL: &str = "--backend cpu --threads 512 --size 16-64 --rounds 4 --streams 2";

fn warpheap(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpheap"))
        .args(line.split_whitespace())
        .env_remove("RUST_LOG")
        .output()
        .expect("the program starts")
}

fn stress(line: &str) -> Output {
    warpheap(&format!("stress {SMALL} {line}"))
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("it ended by itself")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

fn both(output: &Output) -> String {
    out(output) + &err(output)
}

/// What `--json -` leaves on standard output.
fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", both(output)))
}

/// The command that a fault report says to run.
fn reproduction(text: &str) -> &str {
    let line = text.lines().find(|line| line.trim_start().starts_with("warpheap stress --"));
    line.unwrap_or_else(|| panic!("no command in {text}")).trim().strip_prefix("warpheap ").unwrap()
}

/// Everything in a report that does not depend on time.
fn figures(results: &Value) -> Vec<Value> {
    let runs = results["data"]["runs"].as_array().expect("runs");
    let timeless = |run: &Value| {
        let mut report = run["report"].as_object().expect("a report").clone();
        report.retain(|key, _| {
            !key.ends_with("_seconds") && !key.ends_with("_per_second") && key != "blocks_sorted"
        });
        Value::Object(report)
    };
    runs.iter().map(timeless).collect()
}

#[test]
fn without_arguments_it_prints_help() {
    let output = warpheap("");
    assert_eq!(status(&output), 2);
    assert!(err(&output).contains("Usage: warpheap [OPTIONS] <COMMAND>"), "{}", err(&output));
}

#[test]
fn help_teaches() {
    let general = warpheap("--help");
    assert_eq!(status(&general), 0);
    for part in ["warpheap stress --plant overlap", "Exit status:", "4    a kernel hung", "doctor", "bench"] {
        assert!(out(&general).contains(part), "no {part:?} in {}", out(&general));
    }
    let stress = out(&warpheap("stress --help"));
    let options = [
        "--backend",
        "--device",
        "--allocator",
        "--threads",
        "--size",
        "--rounds",
        "--seconds",
        "--streams",
        "--pool",
        "--seed",
        "--replay",
        "--json",
        "--plant",
        "--watchdog",
    ];
    for option in options {
        let (_, text) =
            stress.split_once(&format!("      {option}")).unwrap_or_else(|| panic!("no {option}"));
        let text = text.split("\n      --").next().unwrap();
        assert!(text.contains("Default:") || option == "--seconds", "{option} has no default: {text}");
    }
    assert!(stress.contains("Examples:") && stress.contains("Exit status:"), "{stress}");
}

#[test]
fn a_clean_run_says_what_it_proved() {
    let output = stress("--seed 7");
    let text = out(&output);
    assert_eq!(status(&output), 0, "{}", both(&output));
    for part in
        ["seed 7", "512 GPU threads in each of 2 streams", "clean: no two live blocks overlapped", "freelist"]
    {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn off_a_terminal_nothing_but_text_is_printed() {
    for output in [stress(""), stress("--plant overlap"), warpheap("doctor"), warpheap("--help")] {
        let printed = both(&output);
        let control = printed.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(control, None, "{printed:?}");
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
        assert_eq!(status(&output), 1, "{plant}: {}", both(&output));
        assert!(text.contains(&format!("FAULT: freelist: {word}, round")), "{plant}: {text}");
        assert!(text.contains("caught: the planted"), "{plant}: {text}");
        let again = warpheap(reproduction(&text));
        assert_eq!(status(&again), 1, "{plant}: {}", both(&again));
    }
}

#[test]
fn bad_arguments_are_refused_with_what_is_accepted() {
    for (line, part) in [
        ("stress --threads many", "2^20"),
        ("stress --threads 0", "whole number of 1 or more"),
        ("stress --size 16..64", "16-8192"),
        ("stress --size 64-16", "starts above its end"),
        ("stress --pool 1KB", "1GiB"),
        ("stress --seed -1", "unexpected argument"),
        ("stress --seed one", "decimal or hexadecimal"),
        ("stress --seconds 0", "0 is none at all"),
        ("stress --rounds 0", "whole number of 1 or more"),
        ("stress --rounds 3 --seconds 3", "cannot be used with"),
        ("stress --backend rocm", "auto, cuda, cpu"),
        ("stress --allocator heap", "bump, freelist, all"),
        ("stress --plant fire", "overlap, double-free, lost-block, torn-write"),
        ("stress --replay --backend cuda", "cannot be replayed"),
        ("stress --backend cpu --device 1", "--device is for a GPU"),
        ("stress --replay --kernels sm_70", "--kernels is for a GPU"),
        ("stress --backend cpu --pool 900T", "a pool of"),
        ("stress --backend cpu --allocator bump --plant double-free", "use it with freelist"),
        ("stress --backend cpu --threads 2^31 --streams 64", "fewer threads"),
        ("bench --rounds none", "whole number of 1 or more"),
        ("fly", "unrecognized subcommand"),
    ] {
        let output = warpheap(line);
        assert_eq!(status(&output), 2, "{line}: {}", both(&output));
        assert!(err(&output).contains(part), "{line}: no {part:?} in {}", err(&output));
        assert_eq!(out(&output), "", "{line} began");
    }
}

#[test]
fn without_a_gpu_cuda_is_refused_with_advice() {
    if warpheap::Device::cuda_count().is_ok_and(|count| count > 0) {
        eprintln!("skipped: this machine has a GPU");
        return;
    }
    for line in ["stress --backend cuda", "stress --device 0", "bench"] {
        let output = warpheap(line);
        assert_eq!(status(&output), 3, "{line}: {}", both(&output));
        assert!(err(&output).contains("no usable device"), "{}", err(&output));
        assert!(err(&output).contains("warpheap doctor"), "{}", err(&output));
    }
    let auto = warpheap("stress --threads 256 --rounds 1 --allocator bump");
    assert_eq!(status(&auto), 0, "{}", both(&auto));
    assert!(out(&auto).contains("not on a GPU:"), "{}", out(&auto));
}

#[test]
fn results_hold_what_is_needed_to_repeat_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let output = stress(&format!("--seed 5 --json {}", path.display()));
    assert_eq!(status(&output), 0, "{}", both(&output));
    let results: Value =
        serde_json::from_slice(&std::fs::read(&path).expect("it was written")).expect("JSON");
    assert_eq!(results["schema"], "warpheap-result/1");
    assert_eq!(results["kind"], "stress");
    assert_eq!(results["commit"], warpheap::build_info::COMMIT);
    assert_eq!(results["device"]["backend"], "cpu");
    assert_eq!(results["compiler"]["host"], warpheap::build_info::HOST_COMPILER);
    assert_eq!(results["command"][0], "warpheap");
    let date = results["date"].as_str().expect("a date");
    assert!(date.len() == 20 && date.ends_with('Z') && date.as_bytes()[10] == b'T', "{date}");
    let runs = results["data"]["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert_eq!(run["status"], "clean");
        assert_eq!(run["report"]["seed"], 5);
        assert!(run["report"]["allocations"].as_u64().is_some_and(|n| n > 1000), "{run}");
        assert!(run["reproduce"].as_str().is_some_and(|command| command.contains("--seed 5")));
    }
}

#[test]
fn results_on_standard_output_are_alone_there() {
    let output = stress("--plant torn-write --json -");
    assert_eq!(status(&output), 1);
    let results = json(&output);
    assert_eq!(results["data"]["exit_status"], 1);
    let findings = &results["data"]["runs"][1]["report"]["findings"];
    assert_eq!(findings[0]["kind"], "torn", "{findings}");
    assert!(err(&output).contains("FAULT: freelist: torn"), "{}", err(&output));
}

#[test]
fn a_results_file_that_cannot_be_written_is_refused_before_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing").join("result.json");
    for (path, part) in [(missing.as_path(), "make it first"), (folder.path(), "it is a folder")] {
        for command in ["stress", "doctor"] {
            let output = warpheap(&format!("{command} --json {}", path.display()));
            assert_eq!(status(&output), 2, "{}", both(&output));
            assert!(err(&output).contains(part), "{}", err(&output));
            assert_eq!(out(&output), "", "it began");
        }
    }
    assert!(!Path::new(&missing).exists());
}

#[test]
fn a_replayed_seed_is_the_same_run_and_another_is_not() {
    let replay = |seed: u32| {
        let line = "stress --replay --threads 256 --size 16-64 --rounds 3 --streams 2 --json -";
        let output = warpheap(&format!("{line} --seed {seed}"));
        assert_eq!(status(&output), 0, "{}", both(&output));
        figures(&json(&output))
    };
    let first = replay(11);
    assert_eq!(first, replay(11));
    assert_ne!(first, replay(12));
}

#[test]
fn a_run_that_makes_no_progress_is_ended() {
    for (backend, advice) in [("--replay", "A replay"), ("--backend cpu", "with --replay")] {
        let output = warpheap(&format!("stress {backend} --threads 65536 --size 64 --watchdog 0.01"));
        assert_eq!(status(&output), 4, "{}", both(&output));
        let said = err(&output);
        let parts = ["hangs", "warpheap stress", advice];
        assert!(parts.iter().all(|part| said.contains(part)) && !said.contains("GPU"), "{said}");
    }
}

#[test]
fn the_doctor_finds_a_backend_that_works() {
    let output = warpheap("doctor --json -");
    assert_eq!(status(&output), 0, "{}", both(&output));
    let results = json(&output);
    assert_eq!(results["kind"], "doctor");
    assert_eq!(results["data"]["cpu"]["self_test"]["passed"], true);
    let kernels = &results["data"]["kernels"];
    assert_eq!(kernels["present"], warpheap::build_info::images().is_ok());
    if kernels["present"] == true {
        assert_eq!(kernels["targets"], serde_json::json!(["sm_70", "sm_80"]));
    } else {
        assert!(err(&output).contains("[--] kernels"), "{}", err(&output));
    }
    if results["data"]["cuda"]["found"] == false {
        assert!(results["data"]["cuda"]["advice"].as_str().is_some_and(|advice| !advice.is_empty()));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_ends_it_with_a_word() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::Stdio;
    let mut run = Command::new(env!("CARGO_BIN_EXE_warpheap"))
        .args(["stress", "--backend", "cpu", "--threads", "512", "--seconds", "60", "--seed", "9"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // It is ready to be interrupted before it says what it will do.
    let mut lines = BufReader::new(run.stdout.take().expect("a pipe")).lines();
    assert!(lines.next().expect("a line").expect("text").contains("seed 9"));
    let killed = Command::new("kill").args(["-INT", &run.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let mut text = String::new();
    run.stderr.take().expect("a pipe").read_to_string(&mut text).expect("text");
    assert_eq!(run.wait().expect("it ends").code(), Some(130), "{text}");
    assert!(text.contains("interrupted") && text.contains("seed 9"), "{text}");
}
