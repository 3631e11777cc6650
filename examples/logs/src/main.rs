//! A log in parts of 2 KiB: each thread of a GPU searches one by a regular expression, with the
//! crate `regex-automata`, and counts what it finds in a `BTreeMap` of its own. All cores of the
//! host do the same.
//!
//! `cargo run --release -p warpheap-logs cpu` prints, with other times:
//!
//! ```text
//! device: CPU (2 workers)
//! 1048637 B (1.0 MiB) of a log, in 495 parts
//! - the heap is empty again; no allocation failed
//! - 495 counts by the kernel are as the host computes them
//! 2 cores of the host:                          3.9 ms, 0.3 GB/s
//! the kernel:                                   4.0 ms, 0.3 GB/s
//! the kernel, with copies to and from it:       4.0 ms, 0.3 GB/s
//! ```

mod log;

use regex_automata::dfa::regex::Builder;
use regex_automata::dfa::{StartKind, dense};
use std::num::NonZero;
use std::thread;
use std::time::{Duration, Instant};
use warpheap::device_pools::Heap;
use warpheap::simt::KernelAllocator;
use warpheap::{Backend, Bytes, Device, LaunchConfig, Watchdog, kernel_names};
use warpheap_examples::{Result, check_empty, check_same, device};
use warpheap_logs_kernels::{Found, count, count_all};

/// Kernels on the CPU allocate from the heap of their module.
#[global_allocator]
static ALLOCATOR: KernelAllocator = KernelAllocator::system();

/// The kernel, for every GPU since Volta. Empty if no compiler for kernels was found.
const PTX: &str = include_str!(env!("WARPHEAP_PTX_SM_70"));

/// The request of a line that reports an error, and its status.
const PATTERN: &str = r#"(GET|POST) /[a-z0-9/]+ HTTP/1.1" [45][0-9][0-9]"#;

const PART_BYTES: usize = 2048;
const HEAP_BYTES: u64 = 1 << 30;
/// Threads in a block.
const BLOCK: u32 = 128;
/// Each time is the median of so many, after one that is not counted.
const ROUNDS: usize = 11;
/// After this time the process ends.
const LIMIT: Duration = Duration::from_secs(120);

fn main() -> Result {
    let device = device()?;
    let log_bytes = if device.backend() == Backend::Cpu { 1 << 20 } else { 1 << 29 };
    let _watchdog = Watchdog::start(LIMIT, "the search", "", 4);
    run(&device, log_bytes)
}

fn run(device: &Device, log_bytes: usize) -> Result {
    let (log, ends) = log::log(log_bytes, PART_BYTES);
    println!("{} of a log, in {} parts", Bytes(log.len() as u64), ends.len());
    let config = dense::Config::new().start_kind(StartKind::Both).minimize(true);
    let regex = Builder::new().dense(config).build(PATTERN)?;
    let [forwards, backwards] = [regex.forward(), regex.reverse()].map(|dfa| {
        let (bytes, padding) = dfa.to_bytes_native_endian();
        bytes[padding..].to_vec()
    });

    let cores = thread::available_parallelism()?;
    let (expected, host) =
        on_host(&log, &ends, cores, |part| count(part, regex.find_iter(part).map(|found| found.range())))?;
    let kernels = &kernel_names![count_all];
    let module = match device.backend() {
        Backend::Cpu => device.native_kernels(kernels)?,
        _ => device.load_kernels(PTX, kernels)?,
    };
    let heap = Heap::builder(HEAP_BYTES).build(device)?;
    // The collections of the kernel allocate from it.
    module.set_global_heap(&heap)?;
    let stream = device.stream()?;
    let (mut log_there, mut ends_there) = (device.zeroed(log.len())?, device.zeroed(ends.len())?);
    let (mut forwards_there, mut backwards_there) =
        (device.zeroed(forwards.len())?, device.zeroed(backwards.len())?);
    forwards_there.copy_from_slice(&forwards)?;
    backwards_there.copy_from_slice(&backwards)?;
    let found_there = device.zeroed::<Found>(ends.len())?;
    let grid = LaunchConfig::linear(ends.len() as u32, BLOCK);
    let (mut found, mut in_kernel) = (Vec::new(), Vec::new());
    let whole = median(|| {
        let began = Instant::now();
        log_there.copy_from_slice(&log)?;
        ends_there.copy_from_slice(&ends)?;
        let args = (
            log_there.slice(),
            ends_there.slice(),
            forwards_there.slice(),
            backwards_there.slice(),
            found_there.slice(),
        );
        let before = stream.record()?;
        // SAFETY: the buffers and the heap outlive the kernel, and nothing else accesses the
        // buffers. The automata are those of one `Regex`. The ends ascend.
        unsafe { stream.launch(&module, count_all, &grid, args) }?;
        let after = stream.record()?;
        stream.synchronize()?;
        found = found_there.copy_to_vec()?;
        in_kernel.push(after.elapsed(&before)?);
        Ok(began.elapsed())
    })?;
    in_kernel.remove(0);
    in_kernel.sort();
    module.clear_global_heap()?;

    check_empty(&heap)?;
    check_same("counts by the kernel", &found, &expected)?;
    for (what, time) in [
        (format!("{cores} cores of the host:"), host),
        ("the kernel:".into(), in_kernel[in_kernel.len() / 2]),
        ("the kernel, with copies to and from it:".into(), whole),
    ] {
        let seconds = time.as_secs_f64();
        println!("{what:<42} {:>6.1} ms, {:.1} GB/s", 1e3 * seconds, log.len() as f64 / seconds / 1e9);
    }
    Ok(())
}

/// The median of the times that `one` returns.
fn median(mut one: impl FnMut() -> Result<Duration>) -> Result<Duration> {
    one()?;
    let mut times = (0..ROUNDS).map(|_| one()).collect::<Result<Vec<_>>>()?;
    times.sort();
    Ok(times[ROUNDS / 2])
}

/// What `count` returns for each part of the log, and the time of all, on so many cores. Each core
/// counts in an equal number of parts.
fn on_host(
    log: &[u8],
    ends: &[u32],
    cores: NonZero<usize>,
    count: impl Fn(&[u8]) -> Found + Sync,
) -> Result<(Vec<Found>, Duration)> {
    let share = ends.len().div_ceil(cores.get());
    let mut found = vec![Found::default(); ends.len()];
    let time = median(|| {
        let began = Instant::now();
        thread::scope(|scope| {
            for (core, found) in found.chunks_mut(share).enumerate() {
                let count = &count;
                scope.spawn(move || {
                    for (i, found) in (core * share..).zip(found) {
                        let start = i.checked_sub(1).map_or(0, |before| ends[before]) as usize;
                        *found = count(&log[start..ends[i] as usize]);
                    }
                });
            }
        });
        Ok(began.elapsed())
    })?;
    Ok((found, time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpheap::simt::Mode;

    #[test]
    fn the_kernel_counts_as_the_host_does() {
        run(&Device::cpu(), 1 << 18).unwrap();
    }

    #[test]
    fn it_does_under_other_interleavings() {
        for seed in 0..3 {
            run(&Device::cpu_with(Mode::Replay { seed }), 1 << 15).unwrap();
        }
    }

    #[test]
    fn equal_texts_are_counted_together() {
        let found = count(b"ab ab cd", [0..2, 3..5, 6..8].into_iter());
        assert_eq!((found.matches, found.different), (3, 2));
        assert_eq!(found.digest, count(b"cd ab ab", [0..2, 3..5, 6..8].into_iter()).digest);
        assert_ne!(found.digest, count(b"ab cd cd", [0..2, 3..5, 6..8].into_iter()).digest);
    }

    #[test]
    fn a_log_has_errors_to_find() {
        let (log, ends) = log::log(1 << 16, PART_BYTES);
        assert_eq!(ends.last(), Some(&(log.len() as u32)));
        assert!(ends.iter().all(|end| log[*end as usize - 1] == b'\n'));
        let regex = Builder::new().build(PATTERN).unwrap();
        let lines = log.split(|byte| *byte == b'\n').count() - 1;
        let errors = regex.find_iter(&log).count();
        assert!((lines / 8..lines / 2).contains(&errors), "{errors} of {lines}");
    }
}
