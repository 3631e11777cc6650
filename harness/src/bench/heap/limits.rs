//! A heap at its limits: exactly full, over full, half freed, and all freed.

use crate::Result;
use crate::bench::context::{Bench, GIB, Plan, THREADS};
use crate::bench::load::{Load, Pool, WITHOUT_ALLOCATING, check_addresses, one_size};
use crate::bench::results::{Bar, Figure};
use crate::kernels::bench::{
    Sizes, bench_alloc_floor, bench_heap_alloc, bench_heap_free, bench_heap_free_half,
};
use crate::kernels::stress::take_whole_heap;
use crate::summary::Timing;
use warpheap::device_pools::Heap;
use warpheap::driver::LaunchConfig;
use warpheap::kernel_names;
use warpheap_device::kernel::DevicePtr;

const LARGE: u32 = 8192;
const MIXED: Sizes = Sizes { min: 16, max: 8192 };

const EXACT: [&str; 2] = kernel_names![bench_heap_alloc, bench_heap_free];
const FULL: [&str; 2] = kernel_names![bench_alloc_floor, bench_heap_alloc];
const REUSE: [&str; 3] = kernel_names![bench_heap_alloc, bench_heap_free, bench_heap_free_half];
const WHOLE: [&str; 3] = kernel_names![bench_heap_alloc, bench_heap_free, take_whole_heap];

pub(super) fn plans() -> Vec<Plan> {
    let mut all = vec![
        Plan::new("heap alloc, 8192 B, exactly the heap", &EXACT, |b, name| b.heap_exact(name)),
        Plan::new("heap alloc, 8192 B, exactly the heap, granted", &EXACT, |b, name| {
            b.heap_exact_granted(name)
        }),
        Plan::new("heap alloc, 8192 B, full heap", &FULL, |b, name| b.heap_full(name)),
    ];
    for size in [64, 4096] {
        let name = format!("heap reuse, half freed, {size} B");
        all.push(Plan::new(name, &REUSE, move |b, name| b.heap_reuse(name, size)));
    }
    // The first request about half of the heap, the others four times its capacity.
    for (what, threads) in [("a mixed fill", 1 << 17), ("exhaustion", THREADS)] {
        let name = format!("heap whole, after {what}");
        all.push(Plan::new(name, &WHOLE, move |b, name| b.heap_whole(name, threads)));
    }
    all
}

impl Bench {
    /// A load, and a heap with exactly the memory that it requests.
    fn exact(&self) -> Result<(Load<'_>, Heap)> {
        Ok((self.load(THREADS, one_size(LARGE))?, self.heap(u64::from(THREADS) * u64::from(LARGE))?))
    }

    fn heap_exact(&self, name: &str) -> Result<Figure> {
        let (load, heap) = self.exact()?;
        let base = load.time_alloc(&self.heap(16 * GIB)?)?.time;
        let rounds = load.time_alloc(&heap)?;
        load.alloc_figure(name, rounds.time, ("the same with room", base), 4.0, load.granted()?)
    }

    fn heap_exact_granted(&self, name: &str) -> Result<Figure> {
        let (load, heap) = self.exact()?;
        let rounds = load.time_alloc(&heap)?;
        let checked = load.check_addresses(name, load.granted()?)?;
        let checked = format!("the fewest of all rounds, {}; of the last: {checked}", rounds.min);
        let share = percent(rounds.min.into(), load.threads().into());
        let figure = Figure::plain(name, load.threads(), "all requests").timed(rounds.time).checked(checked);
        Ok(figure.measured_by(share, "%", Bar::AtLeast, 98.0))
    }

    fn heap_full(&self, name: &str) -> Result<Figure> {
        let load = self.load(THREADS, one_size(LARGE))?;
        let base = load.alloc_floor()?;
        let heap = self.heap(GIB)?;
        heap.alloc(&load)?;
        let time = self.timer.time(|| Ok(()), || heap.alloc(&load))?;
        let figure = load.alloc_figure(name, time, (WITHOUT_ALLOCATING, base), 0.0, 0)?;
        Ok(figure.measured_by(time.median_us, "us", Bar::AtMost, 500.0))
    }

    /// Fills a heap with blocks of one size, frees a random half, and lets as many threads as there
    /// were blocks allocate once. The figure is the ratio of allocated to freed blocks.
    fn heap_reuse(&self, name: &str, size: u32) -> Result<Figure> {
        let sizes = one_size(size);
        let blocks = (GIB / u64::from(size)) as u32;
        let (full, again) = (self.load(blocks, sizes)?, self.load(blocks, sizes)?);
        let heap = self.heap(GIB)?;
        let freed = self.timer.device.zeroed::<u64>(1)?;
        let counter = DevicePtr(freed.address() as *mut _);
        let (mut round, mut freed_before) = (0, 0);
        let (mut min, mut what) = (f64::MAX, String::new());
        let time = self.timer.time_and_look(
            || {
                heap.free(&again, false)?;
                heap.free(&full, false)?;
                heap.alloc(&full)?;
                round += 1;
                let args = (heap.handle(), full.out.slice(), round, counter);
                // SAFETY: the blocks in `out` are allocated, and only this stream uses them.
                unsafe { full.launch(bench_heap_free_half, args) }
            },
            || heap.alloc(&again),
            || {
                let total = freed.copy_to_vec()?[0];
                let (now, got) = (total - freed_before, u64::from(again.granted()?));
                freed_before = total;
                if percent(got, now) < min {
                    (min, what) = (percent(got, now), format!("{got} blocks after {now} were freed"));
                }
                Ok(())
            },
        )?;
        let mut held = full.out.copy_to_vec()?;
        held.extend(again.out.copy_to_vec()?);
        let different = check_addresses(name, held, full.granted()? + again.granted()?)?;
        let faults = heap.check_freed(name)?;
        let checked = format!("{what}, the least of all rounds; of the last: {different}; {faults}");
        let figure = Figure::plain(name, again.threads(), "the bytes freed").timed(time).checked(checked);
        Ok(figure.measured_by(min, "%", Bar::AtLeast, 95.0))
    }

    /// Allocates and frees blocks of many sizes; then one thread allocates the whole heap as one
    /// block.
    fn heap_whole(&self, name: &str, threads: u32) -> Result<Figure> {
        let load = self.load(threads, MIXED)?;
        let heap = self.heap(GIB)?;
        let mut granted = Vec::new();
        let (time, whole) = self.time_whole(&heap, || {
            heap.alloc(&load)?;
            granted.push(load.granted()?);
            heap.free(&load, true)
        })?;
        let rounds = granted.len() as u64;
        let fewest = granted.into_iter().min().unwrap_or(0);
        let faults = heap.check_freed(name)?;
        let checked = format!("{whole} of {rounds} rounds, each after {fewest} blocks or more; {faults}");
        let figure = Figure::plain(name, load.threads(), "all rounds").timed(time).checked(checked);
        Ok(figure.measured_by(percent(whole, rounds), "%", Bar::AtLeast, 100.0))
    }

    /// Times an allocation of the whole heap by one thread, with its free, and counts the rounds in
    /// which it succeeded.
    fn time_whole(
        &self,
        heap: &Heap,
        prepare: impl FnMut() -> warpheap::Result<()>,
    ) -> Result<(Timing, u64)> {
        let answer = self.timer.device.zeroed::<u64>(1)?;
        let args = (heap.handle(), answer.ptr());
        let mut granted = 0;
        let (stream, one) = (&self.timer.stream, LaunchConfig::linear(1, 1));
        // SAFETY: nothing else uses the heap and the result.
        let launch = || unsafe { stream.launch(&self.timer.module, take_whole_heap, &one, args) };
        let time = self.timer.time_and_look(prepare, launch, || {
            granted += answer.copy_to_vec()?[0];
            Ok(())
        })?;
        Ok((time, granted))
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64 * 100.0
}
