//! Results that the program writes, their pages, and comparisons with older ones.

use crate::support::{ends, err, json, out, rejects, status, stdout_and_stderr, stress, warpheap};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A committed file of results.
fn results(name: &str) -> String {
    format!("{}/../results/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The committed results of allocations, with the times of the first figure multiplied by `scale`.
fn scaled(path: &Path, scale: f64) {
    let text = fs::read(results("h200-2026-11-25/bench-heap-alloc.json")).expect("it is committed");
    let mut value: Value = serde_json::from_slice(&text).expect("JSON");
    let time = value["data"]["figures"][0]["time"].as_object_mut().expect("a time");
    for number in time.values_mut() {
        *number = (number.as_f64().expect("a number") * scale).into();
    }
    fs::write(path, value.to_string()).expect("a file");
}

#[test]
fn saved_results_are_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page.html");
    let [alloc, stress, pools] = [
        "h200-2026-11-25/bench-heap-alloc.json",
        "h200-2026-11-25/stress-default.json",
        "h200-2026-11-23/pool-pair.json",
    ]
    .map(results);
    let output = ends(0, &format!("report {alloc} {stress} {pools} --html {}", page.display()));
    assert!(out(&output).contains("page: "), "{}", out(&output));
    let page = fs::read_to_string(page).expect("it was written");
    for part in
        ["warpheap bench: NVIDIA H200", "warpheap stress: ", "warpheap pool bench: ", "heap alloc, 16 B"]
    {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn a_run_writes_the_page_of_its_results() {
    let folder = tempfile::tempdir().expect("a folder");
    let [page, json, again] = ["page.html", "run.json", "again.html"].map(|name| folder.path().join(name));
    let output = stress(&format!("--seed 5 --html {} --json {}", page.display(), json.display()));
    assert_eq!(status(&output), 0, "{}", stdout_and_stderr(&output));
    ends(0, &format!("report {} --html {}", json.display(), again.display()));
    let [page, again] = [page, again].map(|path| fs::read_to_string(path).expect("it was written"));
    assert!(page.contains("heap: clean") && page.contains("--seed 5") && page.contains("No GPU."), "{page}");
    // Only the final newline of the file differs.
    assert_eq!(page, again.replace("}\n</script>", "}</script>"));
}

#[test]
fn something_worse_is_exit_status_1() {
    let folder = tempfile::tempdir().expect("a folder");
    let [old, new, page] = ["old.json", "new.json", "page.html"].map(|name| folder.path().join(name));
    scaled(&old, 1.0);
    for (scale, arguments, expected, part) in [
        (2.0, "", 1, "31 measurements: 1 worse, 0 better, 30 the same"),
        (2.0, "--threshold 150%", 0, "31 measurements: 0 worse, 0 better, 31 the same"),
        (0.5, "", 0, "31 measurements: 0 worse, 1 better, 30 the same"),
        (1.01, "--threshold 0", 0, "0 worse"),
    ] {
        scaled(&new, scale);
        let files = format!("{} --against {} --html {}", new.display(), old.display(), page.display());
        let output = warpheap(&format!("report {files} {arguments}"));
        assert_eq!(status(&output), expected, "{scale}: {}", stdout_and_stderr(&output));
        assert!(out(&output).contains(part), "{scale}: {}", out(&output));
        assert!(fs::read_to_string(&page).expect("it was written").contains("Changes since "), "{scale}");
    }
}

#[test]
fn results_that_cannot_be_compared_are_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("other.json");
    scaled(&other, 1.0);
    let renamed =
        fs::read_to_string(&other).expect("it was written").replace("NVIDIA H200", "another device");
    fs::write(&other, renamed).expect("a file");
    let alloc = results("h200-2026-11-25/bench-heap-alloc.json");
    let free = results("h200-2026-11-25/bench-heap-free.json");
    let show = results("h200-2026-11-23/pool-show.json");
    for (arguments, part) in [
        (format!("{alloc} --against {}", other.display()), "measured on `another device`"),
        (format!("{alloc} --against {free}"), "no measurement in common"),
        (format!("{show} --against {free}"), "the results of `pool-show`"),
    ] {
        rejects(&format!("report {arguments}"), part);
    }
    // A benchmark of another device is rejected before it measures.
    let pairs = results("h200-2026-11-23/pool-pair.json");
    rejects(&format!("pool bench --backend cpu --against {pairs}"), "measured on `NVIDIA H200`");
}

#[test]
fn an_output_that_is_an_input_is_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let [a, old] = ["a.json", "old.json"].map(|name| folder.path().join(name));
    [&a, &old].into_iter().for_each(|path| scaled(path, 1.0));
    let before = [&a, &old].map(|path| fs::read(path).expect("it was written"));
    let detour = folder.path().join(".").join("old.json");
    let [a_name, old_name, detour] = [&a, &old, &detour].map(|path| path.display());
    for arguments in [
        format!("report {a_name} --html {a_name}"),
        format!("report {a_name} --against {old_name} --html {old_name}"),
        format!("report {a_name} --against {old_name} --html {detour}"),
        format!("bench --suite quick --backend cpu --against {old_name} --json {old_name}"),
        format!("pool bench --backend cpu --against {old_name} --html {old_name}"),
        format!("pool replay --backend cpu --trace {a_name} --json {a_name}"),
    ] {
        rejects(&arguments, "would replace the input");
    }
    assert_eq!([&a, &old].map(|path| fs::read(path).expect("it is there")), before);
}

#[test]
fn pools_are_compared_with_an_earlier_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let [json, page] = ["pools.json", "pools.html"].map(|name| folder.path().join(name));
    let command = "pool bench --backend cpu --pool blocks --figure pair --rounds 1 --threads 2";
    ends(0, &format!("{command} --json {}", json.display()));
    let output = ends(
        0,
        &format!("{command} --against {} --threshold 1000000% --html {}", json.display(), page.display()),
    );
    assert!(out(&output).contains("measurements: 0 worse"), "{}", out(&output));
    assert!(fs::read_to_string(page).expect("it was written").contains("pair of 1 MiB"));
}

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
