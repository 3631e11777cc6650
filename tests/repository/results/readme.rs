//! The table of the README: figures of the newest set beside those of other allocators.

use super::report::{Report, cell, table};
use serde_json::Value;
use std::collections::BTreeSet;

const BEGIN: &str = "<!-- figures, written by scripts/results.sh -->\n";
const END: &str = "<!-- end of figures -->\n";

/// What a kernel does, the file and the name of its figure, and the workload of other allocators that does the
/// same, or the size for which their authors published a rate.
const KERNELS: [[&str; 4]; 11] = [
    ["`Heap`, allocate 16 B", "bench-heap-alloc", "heap alloc, 16 B", "alloc_16"],
    ["`Heap`, allocate 4096 B", "bench-heap-alloc", "heap alloc, 4096 B", "alloc_4096"],
    ["`Heap`, allocate 16 to 8192 B", "bench-heap-alloc", "heap alloc, mixed 16-8192 B", "alloc_16_to_8192"],
    ["`Heap`, free 16 B", "bench-heap-free", "heap free, 16 B", "free_16"],
    ["`Heap`, free 16 to 8192 B", "bench-heap-free", "heap free, mixed 16-8192 B", "free_16_to_8192"],
    [
        "`Heap`, 32 × (allocate 16 to 512 B, write, read, free)",
        "bench-heap-churn",
        "heap churn, mixed 16-512 B, 2^20",
        "churn_16_to_512",
    ],
    ["`Heap`, 64 × (allocate 16 B, write, free)", "bench-heap-churn", "heap churn, 16 B", "16 B"],
    ["`FreeList`, allocate 64 B", "bench", "free list alloc, 64 B", "alloc_64"],
    ["`FreeList`, 64 × (allocate 64 B, write, free)", "bench", "free list churn, 64 B", "64 B"],
    ["`Bump`, allocate 16 B", "bench", "bump alloc, 16 B", "alloc_16"],
    ["`Bump`, allocate 16 to 8192 B", "bench", "bump alloc, mixed 16-8192 B", "alloc_16_to_8192"],
];

/// What the host does, the file and the name of its figure, and its host threads.
const HOST: [(&str, &str, &str, Option<u32>); 3] = [
    ("`CachingPool`, allocate and free 1 MiB", "pool-pair", "pair of 1 MiB", Some(1)),
    ("the same on 16 host threads", "pool-pair", "pair of 1 MiB", Some(16)),
    ("`CachingPool`, 100,000 random allocations", "pool-random-to-64-MiB", "random to 64 MiB", None),
];

/// Replaces what is between the markers of the README.
pub fn fill(readme: &str, reports: &[Report]) -> String {
    let (before, rest) = readme.split_once(BEGIN).expect("where the figures begin");
    let (_, after) = rest.split_once(END).expect("where the figures end");
    format!("{before}{BEGIN}{}{END}{after}", figures(reports))
}

fn figures(reports: &[Report]) -> String {
    let of = |name: &str| {
        let newest =
            reports.iter().find(|report| report.path.starts_with("results/h200-") && report.name() == name);
        newest.unwrap_or_else(|| panic!("no {name}.json"))
    };
    let link = |report: &Report| format!("[file]({})", report.path);
    let peers = reports.iter().find(|report| report.name().starts_with("peers-")).expect("other allocators");
    let mut rows = Vec::new();
    for [what, file, name, peer] in KERNELS {
        let report = of(file);
        let figure = report.row("/data/figures", &[("name", name.into())]);
        let (ours, floor) = match figure["unit"] == "x" {
            true => (cell(&figure, "time/median_us us"), cell(&figure, "base/median_us us")),
            false => (cell(&figure, "value unit"), String::new()),
        };
        rows.push(vec![what.into(), ours, floor, best(&peers.json, peer), link(report)]);
    }
    for (what, file, name, threads) in HOST {
        let report = of(file);
        let of_pool = |pool: &str| match threads {
            Some(threads) => {
                let fields = [("name", name.into()), ("pool", pool.into()), ("threads", threads.into())];
                cell(&report.row("/data/pairs", &fields), "ns/median ns")
            }
            None => cell(
                &report.row("/data/random", &[("name", name.into()), ("pool", pool.into())]),
                "seconds s",
            ),
        };
        let other =
            format!("{} (driver's pool), {} (`cuMemAlloc`)", of_pool("driver-pool"), of_pool("driver"));
        rows.push(vec![what.into(), of_pool("caching"), String::new(), other, link(report)]);
    }
    let files = KERNELS.iter().map(|row| row[1]).chain(HOST.iter().map(|row| row.1));
    let origins: BTreeSet<String> = files
        .map(|file| cell(&of(file).json, "date day") + ", commit " + &cell(&of(file).json, "commit code"))
        .collect();
    format!(
        "{}, {}; other allocators\n[on the same model]({}), the fastest of each row.\n\n{}",
        cell(&of("bench").json, "device/name"),
        Vec::from_iter(origins).join("; "),
        peers.path,
        table(&["2^20 GPU threads", "warpheap", "floor", "fastest other", ""], &rows)
    )
}

/// The least time of another allocator for a workload, or the rate that its authors published for a size.
fn best(peers: &Value, peer: &str) -> String {
    for (name, published) in peers["published_elsewhere"].as_object().unwrap() {
        if let Some(rate) = published["billion_pairs_per_second"].get(peer) {
            return format!("{} ({}, published)", cell(rate, ". G pairs/s"), name.split(',').next().unwrap());
        }
    }
    // The file has a version of each allocator; the floor and a counter that never frees have none.
    let allocators = peers["versions"].as_object().unwrap().keys();
    let times = allocators.filter_map(|name| Some((peers["microseconds"][name].get(peer)?.as_f64()?, name)));
    let least = times.min_by(|a, b| a.0.total_cmp(&b.0));
    least.map_or("–".into(), |(us, name)| format!("{} ({name})", cell(&us.into(), ". us")))
}
