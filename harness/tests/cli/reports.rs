//! Pages of results, and comparisons with older ones.

use crate::support::{ends, out, rejects, status, stdout_and_stderr, stress, warpheap};
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
