//! A page with charts of an own kernel. The program times the kernel and a similar one without the
//! allocator, and writes the times in the format of `warpheap bench --json`. The program `warpheap`
//! draws them.
//!
//! It writes `lists.json` and, if `warpheap` is on the PATH, `lists.html`. `warpheap report
//! new.json --against lists.json` compares them with later times.
//!
//! `cargo run --release -p warpheap-examples --bin report [cpu | cuda] [FOLDER]` prints on the CPU:
//!
//! ```text
//! device: CPU …
//! - 256 sums of lists are as the host computes them
//! 256 threads: …
//! 1024 threads: …
//! 4096 threads: …
//! - the heap is empty again; no allocation failed
//! results: …
//! ```

use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use warpheap::device_pools::Heap;
use warpheap::{Device, DeviceBuffer, Module, Stream, kernel_names};
use warpheap_examples::kernels::list::{NODES, Node, list_sum, list_sum_floor};
use warpheap_examples::{Result, check_empty, check_same, device, grid, heap, load, threads};

/// Timed rounds. One without timing precedes them.
const ROUNDS: usize = 9;
/// The smallest number of threads. Each further one is four times as large.
const FIRST_THREADS: u32 = 1 << 8;

fn main() -> Result {
    let folder = std::env::args_os().nth(2).map_or(PathBuf::from("."), PathBuf::from);
    let device = device()?;
    run(&device, threads(&device), &folder, Path::new("warpheap"))
}

/// Times lists of up to `threads` threads, and writes the results to `folder`. The program
/// `warpheap`, a path or a name on the PATH, draws a page there.
pub fn run(device: &Device, threads: u32, folder: &Path, warpheap: &Path) -> Result {
    let [page, json] = ["lists.html", "lists.json"].map(|name| folder.join(name));
    let results = results(device, measure(device, threads)?)?;
    std::fs::write(&json, format!("{results:#}\n"))?;
    println!("results: {}", json.display());
    let mut draw = Command::new(warpheap);
    match draw.arg("report").arg(&json).arg("--html").arg(&page).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{draw:?}: {status}").into()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let warpheap = warpheap.display();
            println!("no page: `{warpheap}` was not found. To draw the page, install it, and run\n{draw:?}");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// What the kernels run on.
struct Setup {
    module: Module,
    stream: Stream,
    heap: Heap,
    nodes: DeviceBuffer<Node>,
}

/// The points of both kernels, for each number of threads.
fn measure(device: &Device, threads: u32) -> Result<[Vec<Value>; 2]> {
    let setup = Setup {
        module: load(device, &kernel_names![list_sum, list_sum_floor])?,
        stream: device.stream()?,
        heap: heap(device, threads)?,
        nodes: device.zeroed((NODES * threads) as usize)?,
    };
    let counts = std::iter::successors(Some(FIRST_THREADS), |count| Some(4 * count));
    let mut points = [Vec::new(), Vec::new()];
    for count in counts.take_while(|count| *count <= threads) {
        let sums = device.zeroed::<u64>(count as usize)?;
        let floor = setup.times(|| setup.floor(&sums))?;
        check_same("sums without an allocator", &sums.copy_to_vec()?, &expected(count))?;
        let times = setup.times(|| setup.lists(&sums))?;
        check_same("sums of lists", &sums.copy_to_vec()?, &expected(count))?;
        let median = floor[ROUNDS / 2];
        println!("{count} threads: {:.1?}, without an allocator {median:.1?}", times[ROUNDS / 2]);
        points[0].push(point(count, &floor, None));
        points[1].push(point(count, &times, Some(median)));
    }
    check_empty(&setup.heap)?;
    Ok(points)
}

impl Setup {
    /// The times of all rounds, in ascending order.
    fn times(&self, launch: impl Fn() -> warpheap::Result<()>) -> Result<Vec<Duration>> {
        launch()?;
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let begin = self.stream.record()?;
            launch()?;
            times.push(self.stream.record()?.elapsed(&begin)?);
        }
        times.sort_unstable();
        Ok(times)
    }

    fn lists(&self, sums: &DeviceBuffer<u64>) -> warpheap::Result<()> {
        let args = (self.heap.handle(), sums.slice());
        // SAFETY: heap and sums are live until the kernel has ended: their drops wait for it.
        // Kernels that use the sums run one after the other, on this stream.
        unsafe { self.stream.launch(&self.module, list_sum, &grid(sums.len()), args) }
    }

    fn floor(&self, sums: &DeviceBuffer<u64>) -> warpheap::Result<()> {
        let args = (self.nodes.slice(), sums.slice());
        // SAFETY: nodes and sums are live until the kernel has ended: their drops wait for it.
        // Kernels that use them run one after the other, on this stream.
        unsafe { self.stream.launch(&self.module, list_sum_floor, &grid(sums.len()), args) }
    }
}

/// Thread `i` adds `i`, `i + 1`, … for its nodes.
fn expected(count: u32) -> Vec<u64> {
    (0..count).map(|i| (i..i + NODES).map(u64::from).sum()).collect()
}

/// A point of a series: `times` are in ascending order.
fn point(threads: u32, times: &[Duration], floor: Option<Duration>) -> Value {
    let micros = |time: &Duration| time.as_secs_f64() * 1e6;
    json!({
        "x": threads, "median": micros(&times[ROUNDS / 2]), "min": micros(&times[0]),
        "max": micros(&times[ROUNDS - 1]), "rounds": ROUNDS, "floor": floor.as_ref().map(micros), "failed": 0,
    })
}

/// The file that `warpheap report` reads. docs/guide/results.md describes its fields.
fn results(device: &Device, [floor, lists]: [Vec<Value>; 2]) -> Result<Value> {
    let info = device.info()?;
    let command: Vec<_> = std::iter::once("report".into()).chain(std::env::args().skip(1)).collect();
    let dotted = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    let series = |contender: &str, points: Vec<Value>| {
        json!({
            "contender": contender, "operation": "build a list, add it up, free it", "over": "threads",
            "fixed": { "nodes": NODES }, "unit": "us", "points": points,
        })
    };
    Ok(json!({
        "schema": "warpheap-result/1", "kind": "bench", "title": "Lists in kernels",
        "version": env!("CARGO_PKG_VERSION"), "commit": "unknown",
        "date": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "command": command,
        "device": {
            "backend": info.backend.name(), "name": info.name,
            "compute_capability": info.compute_capability.map(dotted),
            "multiprocessors": info.multiprocessors, "memory_bytes": info.memory_total,
        },
        "driver": info.driver_version.map(dotted),
        "data": { "rounds": ROUNDS, "series": [series("floor", floor), series("heap", lists)] },
    }))
}
