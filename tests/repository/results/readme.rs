//! The table of the README: figures of the newest set beside those of other allocators.

use super::report::{Report, cell, table};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const BEGIN: &str = "<!-- figures, written by scripts/results.sh -->\n";
const END: &str = "<!-- end of figures -->\n";

/// What a kernel does, the file and the name of its figure, and the workload of other allocators
/// that does the same, or the size for which their authors published a rate.
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
        let mut sets = reports.iter().filter(|report| report.path.starts_with("results/h200-"));
        sets.find(|report| report.name() == name).unwrap_or_else(|| panic!("no {name}.json"))
    };
    let peers = reports.iter().find(|report| report.name().starts_with("peers-")).expect("other allocators");
    let kernels =
        KERNELS.map(|[what, file, name, peer]| (what, of(file), kernel(of(file), name, &peers.json, peer)));
    let host = HOST.map(|(what, file, name, threads)| (what, of(file), host(of(file), name, threads)));
    // The commits of each device, by date.
    let (mut rows, mut origins) = (Vec::new(), BTreeMap::<_, BTreeMap<_, BTreeSet<_>>>::new());
    for (what, Report { path, json }, [ours, floor, other]) in kernels.into_iter().chain(host) {
        rows.push(vec![what.into(), ours, floor, other, format!("[file]({path})")]);
        let commit: String = json["commit"].as_str().expect("a commit").chars().take(8).collect();
        let dates = origins.entry(cell(json, "device/name")).or_default();
        dates.entry(cell(json, "date day")).or_default().insert(format!("`{commit}`"));
    }
    let head = ["2^20 threads of a kernel, or a host pool", "warpheap", "floor", "fastest other", ""];
    let of_date = |(date, commits)| format!("{date}, {}", Vec::from_iter::<BTreeSet<_>>(commits).join(", "));
    let of_device = |(device, dates): (String, BTreeMap<_, _>)| {
        format!("{device}: {}", Vec::from_iter(dates.into_iter().map(of_date)).join("; "))
    };
    let origins = Vec::from_iter(origins.into_iter().map(of_device)).join(". ");
    let peers = &peers.path;
    let conditions =
        format!("{origins}.\nOther allocators [on the same model]({peers}), the fastest of each row.");
    format!("{conditions}\n\n{}", table(&head, &rows))
}

/// Our time with its floor, or our rate, and the best of the other allocators.
fn kernel(report: &Report, name: &str, peers: &Value, peer: &str) -> [String; 3] {
    let figure = report.row("/data/figures", &[("name", name.into())]);
    let (ours, floor) = match figure["unit"] == "x" {
        true => (cell(&figure, "time/median_us us"), cell(&figure, "base/median_us us")),
        false => (cell(&figure, "value unit"), String::new()),
    };
    [ours, floor, best(peers, peer)]
}

/// The time of a pair on that many threads, or of all random allocations, and those of the driver.
fn host(report: &Report, name: &str, threads: Option<u32>) -> [String; 3] {
    let [ours, pool, driver] = ["caching", "driver-pool", "driver"].map(|pool| {
        let fields = [("name", name.into()), ("pool", pool.into())];
        match threads.map(|threads| ("threads", threads.into())) {
            Some(threads) => {
                cell(&report.row("/data/pairs", &[&fields[..], &[threads]].concat()), "ns/median ns")
            }
            None => cell(&report.row("/data/random", &fields), "seconds s"),
        }
    });
    [ours, String::new(), format!("{pool} (driver's pool), {driver} (`cuMemAlloc`)")]
}

/// The least time of another allocator for a workload, or the rate that its authors published for
/// a size.
fn best(peers: &Value, peer: &str) -> String {
    for (name, published) in peers["published_elsewhere"].as_object().unwrap() {
        if let Some(rate) = published["billion_pairs_per_second"].get(peer) {
            return format!("{} ({}, published)", cell(rate, ". G pairs/s"), name.split(',').next().unwrap());
        }
    }
    // The file has a version of each allocator; the floor and a counter that never frees have none.
    let allocators = peers["versions"].as_object().unwrap().keys();
    let times = allocators.filter_map(|name| Some((peers["microseconds"][name].get(peer)?.as_f64()?, name)));
    let min = times.min_by(|a, b| a.0.total_cmp(&b.0));
    min.map_or("–".into(), |(us, name)| format!("{} ({name})", cell(&us.into(), ". us")))
}
