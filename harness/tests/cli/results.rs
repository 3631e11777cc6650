//! Results that the program writes.

use crate::support::{ends, err, json, rejects, status, stdout_and_stderr, stress};
use serde_json::Value;
use std::path::Path;

#[test]
fn results_hold_what_is_needed_to_repeat_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("result.json");
    let output = stress(&format!("--seed 5 --json {}", path.display()));
    assert_eq!(status(&output), 0, "{}", stdout_and_stderr(&output));
    let results: Value =
        serde_json::from_slice(&std::fs::read(&path).expect("it was written")).expect("JSON");
    assert_eq!(results["schema"], "warpheap-result/1");
    assert_eq!(results["kind"], "stress");
    assert_eq!(results["commit"], warpheap_harness::build_info::COMMIT);
    assert_eq!(results["device"]["backend"], "cpu");
    assert_eq!(results.get("kernels"), Some(&Value::Null), "the CPU runs none of the images");
    assert_eq!(results["compiler"]["host"], warpheap_harness::build_info::HOST_COMPILER);
    assert_eq!(results["command"][0], "warpheap");
    let date = results["date"].as_str().expect("a date");
    assert!(date.len() == 20 && date.ends_with('Z') && date.as_bytes()[10] == b'T', "{date}");
    let runs = results["data"]["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 3);
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
fn a_results_file_that_cannot_be_written_is_rejected_before_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing").join("result.json");
    for (path, part) in [(missing.as_path(), "create it first"), (folder.path(), "it is a folder")] {
        for command in ["stress", "doctor"] {
            rejects(&format!("{command} --json {}", path.display()), part);
        }
    }
    assert!(!Path::new(&missing).exists());
}

#[test]
fn the_doctor_finds_a_backend_that_works() {
    let output = ends(0, "doctor --json -");
    let results = json(&output);
    assert_eq!(results["kind"], "doctor");
    assert_eq!(results["data"]["cpu"]["self_test"]["passed"], true);
    let kernels = &results["data"]["kernels"];
    assert_eq!(kernels["present"], warpheap_harness::build_info::images().is_ok());
    if kernels["present"] == true {
        assert_eq!(kernels["targets"], serde_json::json!(["sm_70", "sm_80"]));
    } else {
        assert!(err(&output).contains("[--] kernels"), "{}", err(&output));
    }
    if results["data"]["cuda"]["found"] == false {
        assert!(results["data"]["cuda"]["advice"].as_str().is_some_and(|advice| !advice.is_empty()));
    }
}

#[test]
fn a_suite_on_the_cpu_says_that_its_threads_are_simulated() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("suite.html");
    let run = format!("bench --suite quick --backend cpu --rounds 1 --json - --html {}", page.display());
    let output = ends(0, &run);
    let text = err(&output);
    for part in ["the CPU simulates the threads", "simulated times of churn over threads", "CUDA's malloc"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let results = json(&output);
    assert_eq!((&results["kind"], &results["data"]["suite"]), (&"bench".into(), &"quick".into()));
    assert_eq!(results["data"]["simulated"], true);
    assert_eq!(results["data"]["figures"], serde_json::json!([]));
    let series = results["data"]["series"].as_array().expect("series");
    assert!(series.iter().all(|series| series["points"].as_array().is_some_and(|points| points.len() == 5)));
    let latency = results["data"]["latency"].as_array().expect("latency");
    assert!(latency.len() == 7 && latency.iter().all(|one| one["p50"].as_u64() <= one["p999"].as_u64()));
    let load = results["data"]["load"].as_array().expect("heaps over their load");
    assert!(load.len() == 9 && load.iter().all(|one| one["turn"]["median_ns"].as_f64() > Some(0.0)));
    let drift = results["data"]["drift"].as_array().expect("drifts");
    assert!(drift.len() == 26 && drift[12]["bytes"].is_null());
    assert!(text.contains("drift in a heap of 1.00 MiB, a random tenth survives"), "{text}");
    let page = std::fs::read_to_string(page).expect("it was written");
    for part in [
        "No GPU.",
        "Ratio to the floor",
        "Latency of single calls",
        "heap group calls",
        "A heap over its load",
    ] {
        assert!(page.contains(part), "no {part:?} in the page");
    }
}
