//! More than the machine has: threads, streams, bytes.

use crate::support::{err, status, stdout_and_stderr, warpheap};
use std::fmt::Write;

#[test]
fn too_many_threads_and_streams_are_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log.csv");
    let mut text = "thread,time,action,pointer,size,stream\n".to_owned();
    for i in 1..2000 {
        writeln!(text, "{i},{i},allocate,{:#x},8,{i}", i << 8).expect("a string");
    }
    std::fs::write(&log, text).expect("written");
    let replay =
        format!("pool replay --backend cpu --pool driver --threads logged --trace {}", log.display());
    // Each takes four mappings, and all of them a quarter of those of the system.
    let mappings = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    let streams = mappings.trim().parse::<u32>().unwrap_or(65_530) / 16 + 1;
    let [cpu, replays] = ["--backend cpu", "--replay"]
        .map(|device| format!("stress {device} --allocator bump --streams {streams} --threads 1"));
    for (line, expected, part) in [
        (cpu.as_str(), 5, "cannot start a thread for a stream on the CPU"),
        (&replays, 5, "cannot start a thread for a stream on the CPU"),
        ("pool bench --backend cpu --threads 1000000", 2, "threads = 1000000: it must be at most 1024"),
        ("pool bench --backend cpu --threads 1025", 2, "threads = 1025: it must be at most 1024"),
        (&replay, 2, "threads = 1999: it must be at most 1024"),
    ] {
        let output = warpheap(line);
        let said = stdout_and_stderr(&output);
        assert_eq!(status(&output), expected, "{line}: {said}");
        assert!(said.contains(part) && !said.contains("panicked"), "{line}: {said}");
    }
}

#[test]
fn too_large_a_pool_is_named_as_it_was_requested() {
    for allocator in ["heap", "freelist", "bump"] {
        for bytes in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 50) + 1] {
            let line = format!("stress --backend cpu --allocator {allocator} --pool {bytes}");
            let output = warpheap(&line);
            assert_eq!(status(&output), 2, "{line}: {}", stdout_and_stderr(&output));
            assert!(err(&output).contains(&format!("a pool of {bytes} B")), "{line}: {}", err(&output));
        }
    }
}
