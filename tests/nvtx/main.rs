//! What a tool gets through NVTX: `recorder`, compiled as a library, is the tool. Each test runs
//! `child::child` in a process of its own, because a process loads the library once.
#![cfg(not(loom))]

mod allocations;
mod child;
mod program;
mod recorder;

use program::{Run, empty_library, run, run_with};
use std::collections::BTreeMap;

/// Asserts that each thread ends its ranges, innermost first, and returns the path of each range:
/// its name after those around it.
fn paths(record: &[String]) -> Vec<String> {
    let mut open: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut paths = Vec::new();
    for line in record {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["push", thread, _, name] => {
                let open = open.entry(thread).or_default();
                open.push(name);
                paths.push(open.join(" > "));
            }
            ["pop", thread] => {
                open.get_mut(thread).and_then(Vec::pop).expect("a range to end");
            }
            _ => {}
        }
    }
    assert!(open.values().all(Vec::is_empty), "never ended: {open:?}");
    paths
}

/// The lines about memory.
fn memory(record: &[String]) -> Vec<&str> {
    let is_memory = |line: &&str| ["+", "-", "name"].iter().any(|start| line.starts_with(start));
    record.iter().map(String::as_str).filter(is_memory).collect()
}

#[test]
fn a_pool_its_blocks_and_their_frees_are_registered() {
    let Run { record, said, .. } = run("blocks");
    assert_eq!(record[..3], ["core", "memory", "domain warpheap"]);
    let [pool, block] = &said[..] else { panic!("{said:?}") };
    let expected = [
        format!("+heap {pool} 8192 activations"),
        format!("+region {block} 1000 of {pool}"),
        format!("name {block} layer 3"),
        format!("-region {block}"),
        format!("-heap {pool}"),
    ];
    assert_eq!(memory(&record), expected);
    assert_eq!(paths(&record), ["activations: allocate", "activations: free"]);
    assert!(record.iter().any(|line| line.starts_with("push") && line.contains(" 1000 activations: ")));
}

#[test]
fn ranges_nest_and_end() {
    let Run { record, .. } = run("ranges");
    let paths = paths(&record);
    let count = |path: &str| paths.iter().filter(|found| *found == path).count();
    assert_eq!(count("cache: allocate > the caching pool `cached`: grow"), 1, "{paths:#?}");
    assert_eq!(count("cache: allocate"), 4 * 8 + 1, "{paths:#?}");
    assert_eq!(count("cache: free"), 4 * 8 + 1);
    assert_eq!(count("launch nothing"), 1);
    assert_eq!(count("the caching pool `cached`: wait"), 1);
    assert_eq!(count("the caching pool `cached`: release"), 1);
    let (added, removed): (Vec<_>, Vec<_>) =
        memory(&record).into_iter().filter(|line| line.contains("region ")).partition(|l| l.starts_with('+'));
    assert_eq!((added.len(), removed.len()), (33, 33));
}

/// Under a tool for memory only: the accesses of kernels before the free must not be reported.
#[test]
fn a_free_waits_for_its_stream_while_memory_is_observed() {
    assert_eq!(run("pending").said, ["true", "true"]);
    assert_eq!(run_with("pending", None::<&str>).said, ["true", "false"]);
}

/// A block keeps its region and its name if its free fails, and is replaced after a reset.
#[test]
fn regions_follow_failed_frees_and_resets() {
    let Run { record, said, .. } = run("frees");
    let [pool, block] = &said[..] else { panic!("{said:?}") };
    let expected = [
        format!("+heap {pool} 4096 arena"),
        format!("+region {block} 100 of {pool}"),
        format!("name {block} first"),
        // A free with another layout fails, within the scope of another tag.
        format!("-region {block}"),
        format!("+region {block} 100 of {pool}"),
        format!("name {block} first"),
        // A reset without frees, and an allocation that overlaps the old block.
        format!("-region {block}"),
        format!("+region {block} 200 of {pool}"),
        format!("-region {block}"),
        format!("-heap {pool}"),
    ];
    assert_eq!(memory(&record), expected);
}

#[test]
fn memory_of_device_pools_has_a_name_and_their_slow_calls_are_ranges() {
    let Run { record, .. } = run("device pools");
    let names: Vec<_> = memory(&record).into_iter().map(|line| line.splitn(3, ' ').last().unwrap()).collect();
    for pool in ["a bump arena", "a free list", "a heap"] {
        for part in ["memory", "metadata"] {
            assert!(names.contains(&&*format!("warpheap: {part} of {pool}")), "{names:#?}");
        }
    }
    // Mapped and reset when the heap is built, and again by the calls.
    assert_eq!(paths(&record), ["map memory", "a heap: reset"].repeat(2));
}

#[test]
fn a_pool_that_is_not_built_over_named_memory_has_ranges_only() {
    let Run { record, .. } = run("names only");
    assert_eq!(memory(&record), [""; 0]);
    assert_eq!(paths(&record), ["names: allocate", "names: free"]);
}

#[test]
fn without_a_tool_calls_allocate_nothing_on_the_host() {
    assert_eq!(run_with("allocations", None::<&str>).said, ["0"]);
    // The count counts: under a tool, the text of each tag is allocated.
    assert_ne!(run("allocations").said, ["0"]);
}

#[test]
fn without_a_library_nothing_is_observed_or_logged() {
    for path in [None, Some(""), Some("./.")] {
        let Run { record, said, log } = run_with("observed", path);
        assert_eq!((record, said), (vec![], vec!["Observed { ranges: false, memory: false }".into()]));
        assert!(!log.contains("NVTX"), "{log}");
    }
}

#[test]
fn a_library_that_cannot_be_used_is_logged_once() {
    let empty = empty_library();
    for path in ["/there/is/no/such/library.so", empty.to_str().unwrap()] {
        let Run { record, said, log } = run_with("observed", Some(path));
        assert_eq!((record, said), (vec![], vec!["Observed { ranges: false, memory: false }".into()]));
        assert_eq!(
            log.matches("NVTX is off: the library that NVTX_INJECTION64_PATH names").count(),
            1,
            "{log}"
        );
        assert!(log.contains(path), "{log}");
    }
}

#[test]
fn the_program_is_told_what_is_observed() {
    assert_eq!(run("observed").said, ["Observed { ranges: true, memory: true }"]);
}
