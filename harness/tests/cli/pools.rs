//! `warpheap pool`.

use crate::support::{ends, err, json, out, rejects, status, stdout_and_stderr, warpheap};
use std::fs;
use std::path::PathBuf;

/// A log in a temporary folder.
fn log(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log.csv");
    fs::write(&path, text).expect("it can be written");
    (folder, path)
}

const LOG: &str = "\
thread,time,action,pointer,size,stream,align
1,10,allocate,0x100,1000,3,8
2,20,allocate,0x200,200,4,64
1,30,free,0x100,1000,3,8
2,40,free,0x900,7,4,8
2,50,allocate,0x300,300,4,8
1,60,free,0x200,200,4,64
";

#[test]
fn a_log_is_replayed_against_every_pool() {
    let (_folder, path) = log(LOG);
    for threads in ["one", "logged"] {
        let line =
            format!("pool replay --backend cpu --threads {threads} --trace {} --json -", path.display());
        let output = ends(0, &line);
        let results = json(&output);
        assert_eq!((&results["kind"], &results["device"]["backend"]), (&"pool-replay".into(), &"cpu".into()));
        let (trace, pools) = (&results["data"]["trace"], results["data"]["pools"].as_array().expect("pools"));
        assert_eq!((&trace["peak_live_bytes"], &trace["leaks"]["bytes"]), (&1200.into(), &300.into()));
        assert_eq!(trace["unmatched_frees"]["first"][0]["line"], 5);
        assert_eq!(pools.len(), warpheap_harness::pool_tools::POOLS.len());
        for (report, kind) in pools.iter().zip(warpheap_harness::pool_tools::POOLS) {
            assert_eq!((&report["pool"], &report["operations"]), (&kind.name.into(), &5.into()));
            assert!(report["call_ns"]["median"].as_f64().is_some_and(|nanos| nanos > 0.0), "{report}");
            assert_eq!((&report["peak_live_bytes"], &report["used_at_end_bytes"]), (&1200.into(), &0.into()));
        }
        let said = err(&output);
        for part in [
            "line 5: 0x900 is freed, but is not live: it was never allocated",
            "leaks, freed after the last call",
            "fragmentation",
        ] {
            assert!(said.contains(part), "no {part:?} in {said}");
        }
    }
}

#[test]
fn a_replay_reports_failed_allocations() {
    let (_folder, path) = log(LOG);
    let line = format!("pool replay --backend cpu --pool driver --bytes 500 --trace {}", path.display());
    let output = ends(0, &line);
    let said = out(&output);
    assert!(said.contains("driver: 1 allocations failed, and 1 frees left out; the first:"), "{said}");
    // A block of 1000 B does not fit in 500 B, so the pool cannot be built.
    let output = ends(1, &line.replace("--pool driver", "--pool blocks"));
    assert!(out(&output).contains("WRONG: blocks: cannot build a pool"), "{}", out(&output));
}

#[test]
fn an_invalid_log_is_rejected_with_line_and_column() {
    let (_folder, path) = log(&LOG.replace("0x300", "0xpool"));
    let line = format!("pool replay --backend cpu --trace {}", path.display());
    rejects(&line, "line 6, column 4 (`pointer`): `0xpool` is not an address");
    for (text, words) in [
        (
            LOG.replace("pointer,size,", "size,"),
            "line 1 has no column `pointer`, but thread, time, action, size, stream, align",
        ),
        (
            LOG.replacen("1000", "-1000", 1),
            "line 2, column 5 (`size`): `-1000` is not a number of bytes; correct that line",
        ),
        (LOG.replacen("1000", "", 1), "line 2, column 5 (`size`): the value is missing"),
        (String::new(), "nothing is allocated in its 0 rows"),
    ] {
        fs::write(&path, text).expect("it can be written");
        rejects(&line, words);
    }
    fs::remove_file(path).expect("it was there");
    rejects(&line, "--trace names a log");
}

#[test]
fn pools_are_measured_beside_the_driver() {
    let line = "pool bench --backend cpu --rounds 2 --threads 2 --allocations 100 --json -";
    let output = ends(0, line);
    let measured = warpheap_harness::pool_tools::POOLS.iter().filter(|kind| kind.reuses);
    let (results, pools) = (json(&output), measured.count());
    assert_eq!(results["kind"], "pool-bench");
    let (pairs, random) = (&results["data"]["pairs"], &results["data"]["random"]);
    assert_eq!(
        (pairs.as_array().map(Vec::len), random.as_array().map(Vec::len)),
        (Some(4 * pools), Some(2 * pools))
    );
    assert_eq!((&pairs[0]["pool"], &pairs[0]["driver_ratio"]), (&"driver".into(), &1.0.into()));
    for part in
        ["pair of 256 B to 64 MiB", "random to 64 MiB", "the targets do not apply", "RMM's benchmark has"]
    {
        assert!(err(&output).contains(part), "no {part:?} in {}", err(&output));
    }
    ends(2, "pool bench --backend cpu --figure 1.MiB --pool blocks");
}

#[test]
fn the_environment_turns_reports_of_failed_allocations_on() {
    let (_folder, path) = log(LOG);
    let said = |value: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_warpheap"))
            .args("pool replay --backend cpu --pool driver --bytes 500 --trace".split(' '))
            .arg(&path)
            .env("WARPHEAP_OOM_REPORT", value)
            .output()
            .expect("the program starts");
        assert_eq!(status(&output), 0, "{}", stdout_and_stderr(&output));
        out(&output)
    };
    let report = "\nreport of a limit";
    assert!(said("1").contains(report), "{}", said("1"));
    for off in ["", "0"] {
        let said = said(off);
        assert!(said.contains("WARPHEAP_OOM_REPORT=1 adds a report") && !said.contains(report), "{said}");
    }
}

#[test]
fn the_drivers_pools_are_shown_with_their_settings() {
    let output = ends(0, "pool show --backend cpu");
    let parts = [
        "default pool, at first",
        "release threshold",
        "peak reserved",
        "reuse: allow opportunistic",
        "are free",
    ];
    for part in parts {
        assert!(out(&output).contains(part), "no {part:?} in {}", out(&output));
    }
    let results = json(&warpheap("pool show --backend cpu --bytes 3MiB --json -"));
    let (data, device) = (&results["data"], &results["device"]);
    assert_eq!((&results["kind"], &data["current_is_default"]), (&"pool-show".into(), &true.into()));
    assert_eq!((&data["memory_total_bytes"], &device["backend"]), (&device["memory_bytes"], &"cpu".into()));
    let pools = data["pools"].as_array().expect("pools");
    let when: Vec<_> = pools.iter().map(|pool| pool["when"].as_str().expect("a moment")).collect();
    assert_eq!(when, ["at first", "allocated", "freed", "waited for"]);
    let figures = |pool: usize| {
        [&pools[pool]["used_bytes"], &pools[pool]["peak_used_bytes"], &pools[pool]["reserved_bytes"]]
    };
    let (mib3, mib4) = (3 << 20, 4 << 20);
    assert_eq!(figures(0), [0, 0, 0]);
    assert_eq!(figures(1), [mib3, mib3, mib4]);
    assert_eq!(figures(3), [0, mib3, 0], "the threshold is 0");
    assert_eq!((&pools[0]["release_threshold"], &pools[3]["peak_reserved_bytes"]), (&0.into(), &mib4.into()));
    assert_eq!(pools[0]["reuse"]["allow_internal_dependencies"], true);
}
