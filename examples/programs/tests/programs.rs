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
    blocks: "../src/bin/blocks.rs",
    caching: "../src/bin/caching.rs",
    device_pools: "../src/bin/device_pools.rs",
    graph: "../src/bin/graph.rs",
    growable: "../src/bin/growable.rs",
    host_pools: "../src/bin/host_pools.rs",
    octree: "../src/bin/octree.rs",
    out_of_memory: "../src/bin/out_of_memory.rs",
    overrun: "../src/bin/overrun.rs",
    region: "../src/bin/region.rs",
    report: "../src/bin/report.rs",
    stream_ordered: "../src/bin/stream_ordered.rs",
    table: "../src/bin/table.rs",
    two_streams: "../src/bin/two_streams.rs",
    vectors: "../src/bin/vectors.rs",
}

/// Runs a program with these arguments. `path` is its PATH.
fn output(program: &str, args: &[&str], path: &Path) -> Output {
    Command::new(program).args(args).env("PATH", path).output().expect("the program starts")
}

/// The lines of output at the head of a source. `…` replaces what differs between runs.
fn documented(source: &str) -> impl Iterator<Item = &str> {
    let (_, block) = source.split_once("//! ```text\n").expect("it has output at its head");
    let (block, _) = block.split_once("//! ```\n").expect("the output ends");
    block.lines().map(|line| line.trim_start_matches("//! ").trim_end_matches('…'))
}

/// Runs a program on the CPU. It succeeds, and prints what its head says.
fn check(program: &str, source: &str, args: &[&str], path: &Path) -> String {
    let output = output(program, &[&["cpu"], args].concat(), path);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{program}: {out}{err}");
    let missing: Vec<_> = documented(source).filter(|line| !out.contains(line)).collect();
    assert!(missing.is_empty(), "{program} does not print {missing:#?}, but\n{out}");
    assert!(documented(source).count() > 3, "{program}");
    out
}

/// The program `warpheap` of this build, which is that of another package: cargo does not build it
/// for this test alone. With `WARPHEAP_REQUIRE_PROGRAM=1` it is required.
fn built_warpheap() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_report"))
        .with_file_name(format!("warpheap{}", std::env::consts::EXE_SUFFIX))
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
    check(env!("CARGO_BIN_EXE_vectors"), include_str!("../src/bin/vectors.rs"), &[], Path::new(""));
    replay(vectors::run);
}

#[test]
fn a_table_is_right() {
    check(env!("CARGO_BIN_EXE_table"), include_str!("../src/bin/table.rs"), &[], Path::new(""));
    replay(table::run);
}

#[test]
fn a_graph_is_right() {
    check(env!("CARGO_BIN_EXE_graph"), include_str!("../src/bin/graph.rs"), &[], Path::new(""));
    replay(graph::run);
}

#[test]
fn an_octree_is_right() {
    check(env!("CARGO_BIN_EXE_octree"), include_str!("../src/bin/octree.rs"), &[], Path::new(""));
    replay(octree::run);
}

#[test]
fn two_streams_lose_no_message() {
    check(env!("CARGO_BIN_EXE_two_streams"), include_str!("../src/bin/two_streams.rs"), &[], Path::new(""));
    replay(two_streams::run);
    // A number that is no multiple of the senders of a mailbox.
    two_streams::run(&Device::cpu(), 100).unwrap();
}

/// Tests of programs without a number of threads: each also runs in the order of one seed.
macro_rules! pool_programs {
    ($($test:ident: $name:ident,)+) => {$(
        #[test]
        fn $test() {
            let source = include_str!(concat!("../src/bin/", stringify!($name), ".rs"));
            check(env!(concat!("CARGO_BIN_EXE_", stringify!($name))), source, &[], Path::new(""));
            $name::run(&Device::cpu_with(Mode::Replay { seed: 1 })).unwrap();
        }
    )+};
}

pool_programs! {
    blocks_are_counted_and_reused_in_order: blocks,
    a_caching_pool_reuses_blocks_in_order_up_to_its_limit: caching,
    a_buffer_grows_in_place: growable,
    a_region_is_reset_in_order: region,
    device_pools_serve_their_capacity: device_pools,
    a_block_crosses_streams: stream_ordered,
    host_pools_explain_why_memory_ran_out: host_pools,
    an_overrun_damages_no_other_block: overrun,
}

#[test]
fn reports_of_the_guide_are_those_of_the_program() {
    let source = include_str!("../src/bin/out_of_memory.rs");
    let out = check(env!("CARGO_BIN_EXE_out_of_memory"), source, &[], Path::new(""));
    let page = include_str!("../../../docs/guide/out-of-memory.md");
    let blocks = page.split("```text\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    let reports: Vec<_> = blocks.filter(|block| block.starts_with("report of the caching pool")).collect();
    assert_eq!(reports.len(), 2);
    for report in reports {
        assert!(out.contains(report), "not printed by the program:\n{report}\nbut:\n{out}");
    }
}

#[test]
fn a_report_has_the_times_and_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().to_str().unwrap();
    let program = built_warpheap();
    let run =
        |path| check(env!("CARGO_BIN_EXE_report"), include_str!("../src/bin/report.rs"), &[target], path);
    let out = run(Path::new(""));
    assert!(out.contains("no page: `warpheap` was not found"), "{out}");
    let text = std::fs::read_to_string(folder.path().join("lists.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (series, contender) in [(0, "floor"), (1, "heap")] {
        let series = &results["data"]["series"][series];
        assert_eq!(series["contender"], contender);
        let threads: Vec<_> = series["points"].as_array().unwrap().iter().map(|point| &point["x"]).collect();
        assert_eq!(threads, [256, 1024, 4096]);
        assert!(series["points"][0]["median"].as_f64().is_some_and(|time| time > 0.0), "{series}");
    }
    if program.exists() {
        run(program.parent().unwrap());
        let page = std::fs::read_to_string(folder.path().join("lists.html")).unwrap();
        for part in ["<h1>Lists in kernels: CPU", "build a list, add it up, free it", "ratio to the floor"] {
            assert!(page.contains(part), "no {part:?} in the page");
        }
    } else {
        let required = std::env::var_os("WARPHEAP_REQUIRE_PROGRAM").is_some_and(|value| value == "1");
        assert!(!required, "WARPHEAP_REQUIRE_PROGRAM=1, but there is no {}", program.display());
        eprintln!("skipped the page: there is no {}", program.display());
    }
    report::run(&Device::cpu_with(Mode::Replay { seed: 1 }), 256, folder.path(), &program).unwrap();
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
