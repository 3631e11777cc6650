//! Each program succeeds on the CPU and prints what it checked, also under other interleavings of
//! its threads.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use warpheap::Device;
use warpheap::simt::Mode;

/// The sources of the programs, with their functions `run`.
macro_rules! programs {
    ($($name:ident: $path:literal,)+) => {$(
        #[allow(dead_code, reason = "each has a main function")]
        #[path = $path]
        mod $name;
    )+};
}

programs! {
    graph: "../src/bin/graph.rs",
    host_pools: "../src/bin/host_pools.rs",
    octree: "../src/bin/octree.rs",
    report: "../src/bin/report.rs",
    table: "../src/bin/table.rs",
    two_streams: "../src/bin/two_streams.rs",
    vectors: "../src/bin/vectors.rs",
}

/// Runs a program with these arguments. `path` is its PATH.
fn output(program: &str, args: &[&str], path: &Path) -> Output {
    Command::new(program).args(args).env("PATH", path).output().expect("the program starts")
}

/// What a program prints on the CPU. It must succeed, and find the heap empty or the pool freed.
fn printed(program: &str, args: &[&str], path: &Path) -> String {
    let output = output(program, &[&["cpu"], args].concat(), path);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{program}: {out}{err}");
    assert!(out.starts_with("device: CPU"), "{out}");
    out
}

/// Threads of a run in which a seed decides the order of all steps.
const FEW: u32 = 160;

/// Runs a program in the orders of several seeds.
fn replay(run: fn(&Device, u32) -> warpheap_examples::Result) {
    for seed in 0..12 {
        let device = Device::cpu_with(Mode::Replay { seed });
        run(&device, FEW).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn vectors_are_right() {
    let out = printed(env!("CARGO_BIN_EXE_vectors"), &[], Path::new(""));
    for part in ["4096 factorisations", "4096 sums over all versions", "720720 = 2^4*3^2*5*7*11*13"] {
        assert!(out.contains(part), "no {part:?} in {out}");
    }
    replay(vectors::run);
}

#[test]
fn a_table_is_right() {
    let out = printed(env!("CARGO_BIN_EXE_table"), &[], Path::new(""));
    for part in ["the heap is empty again", "8192 counts", "4096 insertions of"] {
        assert!(out.contains(part), "no {part:?} in {out}");
    }
    replay(table::run);
}

#[test]
fn a_graph_is_right() {
    let out = printed(env!("CARGO_BIN_EXE_graph"), &[], Path::new(""));
    for part in ["the heap is empty again", "1024 adjacency lists", "1024 distances", "4096 edges"] {
        assert!(out.contains(part), "no {part:?} in {out}");
    }
    replay(graph::run);
}

#[test]
fn an_octree_is_right() {
    let out = printed(env!("CARGO_BIN_EXE_octree"), &[], Path::new(""));
    for part in ["the heap is empty again", "1025 counts of points", "4096 points: "] {
        assert!(out.contains(part), "no {part:?} in {out}");
    }
    replay(octree::run);
}

#[test]
fn two_streams_lose_no_message() {
    let out = printed(env!("CARGO_BIN_EXE_two_streams"), &[], Path::new(""));
    for part in ["the heap is empty again", "256 numbers and sums", "4096 threads sent 32768 messages: "] {
        assert!(out.contains(part), "no {part:?} in {out}");
    }
    replay(two_streams::run);
    // A number that is no multiple of the senders of a mailbox.
    two_streams::run(&Device::cpu(), 100).unwrap();
}

#[test]
fn host_pools_explain_why_memory_ran_out() {
    let out = printed(env!("CARGO_BIN_EXE_host_pools"), &[], Path::new(""));
    for part in [
        "report of the caching pool `requests`",
        "Blocks with the tag `cache` hold",
        "tag weights: allocated 1 times, at most 4194304 B (4.0 MiB) at once; 0 failed",
        "blocks were freed",
    ] {
        assert!(out.contains(part), "no {part:?} in {out}");
    }
    host_pools::run(&Device::cpu_with(Mode::Replay { seed: 1 })).unwrap();
}

#[test]
fn a_report_has_the_times_and_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().to_str().unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_report"));
    let out = printed(env!("CARGO_BIN_EXE_report"), &[target], Path::new(""));
    assert!(out.contains("no page: `warpheap` is not on the PATH"), "{out}");
    let text = std::fs::read_to_string(folder.path().join("lists.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (series, contender) in [(0, "floor"), (1, "heap")] {
        let series = &results["data"]["series"][series];
        assert_eq!(series["contender"], contender);
        let threads: Vec<_> = series["points"].as_array().unwrap().iter().map(|point| &point["x"]).collect();
        assert_eq!(threads, [256, 1024, 4096]);
        assert!(series["points"][0]["median"].as_f64().is_some_and(|time| time > 0.0), "{series}");
    }
    // Beside the programs of the examples, if it was built, as in `scripts/test.sh`.
    if program.with_file_name("warpheap").exists() {
        printed(env!("CARGO_BIN_EXE_report"), &[target], program.parent().unwrap());
        let page = std::fs::read_to_string(folder.path().join("lists.html")).unwrap();
        for part in ["<h1>Lists in kernels: CPU", "build a list, add it up, free it", "ratio to the floor"] {
            assert!(page.contains(part), "no {part:?} in the page");
        }
    }
    report::run(&Device::cpu_with(Mode::Replay { seed: 1 }), 256, folder.path()).unwrap();
}

#[test]
fn other_arguments_and_a_missing_gpu_are_errors() {
    let program = env!("CARGO_BIN_EXE_table");
    let other = output(program, &["gpu"], Path::new(""));
    assert_eq!(other.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&other.stderr).contains("gpu is neither cpu nor cuda"));
    if Device::cuda_count().is_ok_and(|count| count > 0) {
        eprintln!("skipped: this machine has a GPU");
        return;
    }
    assert_eq!(output(program, &["cuda"], Path::new("")).status.code(), Some(1));
    let automatic = output(program, &[], Path::new(""));
    assert!(automatic.status.success());
    assert!(String::from_utf8_lossy(&automatic.stderr).contains("running on the CPU"));
}
