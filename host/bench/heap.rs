//! The heap: every workload beside the same kernel without it.

use super::figures::{Bench, THREADS, ratio};
use super::timing::Timing;
use super::{Bar, Figure};
use crate::driver::LaunchConfig;
use crate::error::{Error, Result};
use crate::pool::Heap;
use warpheap_kernels::bench::{
    FLOOR_STRIDE, Order, Sizes, bench_alloc_floor, bench_churn_mixed_floor, bench_free_floor,
    bench_heap_alloc, bench_heap_alloc_sparse, bench_heap_churn, bench_heap_churn_mixed, bench_heap_free,
};

const BYTES: u64 = 8 << 30;
const BLOCK: u32 = 256;
/// Pairs by each thread of the churn of one size.
const TURNS: u32 = 64;
/// The same of the churn of many sizes.
const MIXED_TURNS: u32 = 32;

impl Bench<'_> {
    pub fn heap_figures(&mut self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        for size in [16, 64, 512, 4096] {
            let sizes = Sizes { min: size, max: size };
            self.heap_alloc_and_free(progress, &format!("{size} B"), sizes, [2.0, 2.0, 6.0])?;
        }
        let mixed = Sizes { min: 16, max: 8192 };
        self.heap_alloc_and_free(progress, "mixed 16-8192 B", mixed, [4.0, 4.0, 6.0])?;
        for (size, bar) in [(16, 65.0), (64, 40.0), (128, 30.0)] {
            let name = format!("heap churn, {size} B");
            self.figure(&name, progress, |b| b.heap_churn(&name, Sizes { min: size, max: size }, bar))?;
        }
        for log2 in [17, 20] {
            let name = format!("heap churn, mixed 16-512 B, 2^{log2}");
            self.figure(&name, progress, |b| b.heap_churn_mixed(&name, 1 << log2))?;
        }
        let name = "heap alloc, one lane in 32, 4096 B";
        self.figure(name, progress, |b| b.heap_sparse(name))?;
        let name = "heap alloc, 8192 B, exactly the heap";
        self.figure(name, progress, |b| b.heap_exact(name))?;
        let name = "heap alloc, 8192 B, full heap";
        self.figure(name, progress, |b| b.heap_full(name))
    }

    fn heap_alloc_and_free(
        &mut self,
        progress: &mut dyn FnMut(&str),
        what: &str,
        sizes: Sizes,
        bars: [f64; 3],
    ) -> Result<()> {
        let name = format!("heap alloc, {what}");
        self.figure(&name, progress, |b| b.heap_alloc(&name, sizes, bars[0]))?;
        for (how, permuted, bar) in [("free", 0, bars[1]), ("free, permuted", 1, bars[2])] {
            let name = format!("heap {how}, {what}");
            let order = Order { log2: THREADS.ilog2(), permuted };
            self.figure(&name, progress, |b| b.heap_free(&name, sizes, order, bar))?;
        }
        Ok(())
    }

    pub(super) fn heap(&self, bytes: u64) -> Result<Heap> {
        Heap::builder(bytes).build(&self.timer.device)
    }

    fn launch_heap_alloc(&self, heap: &Heap, sizes: Sizes) -> Result<()> {
        let args = (heap.handle(), self.out.slice(), sizes);
        // SAFETY: heap and `out` live, and this stream alone uses them.
        unsafe { self.timer.stream.launch(&self.timer.module, bench_heap_alloc, &Self::grid(), args) }
    }

    /// Rounds of allocating all and giving all back; the first of each is timed.
    fn time_heap_alloc(&self, heap: &Heap, sizes: Sizes) -> Result<Timing> {
        let (stream, module) = (self.timer.stream.clone(), self.timer.module.clone());
        let args = (heap.handle(), self.out.slice(), sizes);
        // SAFETY: heap and `out` live, and this stream alone uses them.
        let launch = || unsafe { stream.launch(&module, bench_heap_alloc, &Self::grid(), args) };
        let order = Order { log2: THREADS.ilog2(), permuted: 0 };
        let free = (heap.handle(), self.out.slice(), order, self.counter());
        let mut first = true;
        let give_back = || match std::mem::take(&mut first) {
            true => Ok(()),
            // SAFETY: every block in `out` was allocated and is freed once.
            false => unsafe { stream.launch(&module, bench_heap_free, &Self::grid(), free) },
        };
        self.timer.time(give_back, launch)
    }

    fn heap_alloc(&mut self, name: &str, sizes: Sizes, bar: f64) -> Result<Figure> {
        let base = self.alloc_floor(sizes)?;
        let heap = self.heap(BYTES)?;
        let time = self.time_heap_alloc(&heap, sizes)?;
        let checked = self.check_addresses(name, THREADS)?;
        Ok(ratio(name, time, "the same without allocating", base, bar, checked))
    }

    fn heap_free(&mut self, name: &str, sizes: Sizes, order: Order, bar: f64) -> Result<Figure> {
        let heap = self.heap(BYTES)?;
        self.failures.fill(0)?;
        self.launch_heap_alloc(&heap, sizes)?;
        let floor_args = (self.out.slice(), order, self.counter());
        let (stream, module) = (self.timer.stream.clone(), self.timer.module.clone());
        // SAFETY: `out` and the counter live, and this stream alone uses them.
        let floor = || unsafe { stream.launch(&module, bench_free_floor, &Self::grid(), floor_args) };
        let base = self.timer.time(|| Ok(()), floor)?;
        let args = (heap.handle(), self.out.slice(), order, self.counter());
        let mut first = true;
        let time = self.timer.time(
            || if std::mem::take(&mut first) { Ok(()) } else { self.launch_heap_alloc(&heap, sizes) },
            // SAFETY: every block in `out` was allocated and is freed once.
            || unsafe { stream.launch(&module, bench_heap_free, &Self::grid(), args) },
        )?;
        let checked = self.check_heap(name, &heap)?;
        Ok(ratio(name, time, "the same without freeing", base, bar, checked))
    }

    fn heap_churn(&mut self, name: &str, sizes: Sizes, bar: f64) -> Result<Figure> {
        let base = self.churn_floor(TURNS)?;
        let heap = self.heap(BYTES)?;
        self.failures.fill(0)?;
        let args = (heap.handle(), sizes, TURNS, self.counter());
        // SAFETY: the heap and the counter live, and this stream alone uses them.
        let launch =
            || unsafe { self.timer.stream.launch(&self.timer.module, bench_heap_churn, &Self::grid(), args) };
        let time = self.timer.time(|| Ok(()), launch)?;
        let checked = self.check_heap(name, &heap)?;
        let value = f64::from(THREADS) * f64::from(TURNS) / time.median_us / 1e3;
        Ok(ratio(name, time, "stores alone", base, 0.0, checked).measured_by(
            value,
            "G pairs/s",
            Bar::AtLeast,
            bar,
        ))
    }

    fn heap_churn_mixed(&mut self, name: &str, threads: u32) -> Result<Figure> {
        let sizes = Sizes { min: 16, max: 512 };
        let grid = LaunchConfig::linear(threads, BLOCK);
        self.failures.fill(0)?;
        let (stream, module) = (self.timer.stream.clone(), self.timer.module.clone());
        let places = u64::from(threads) * u64::from(MIXED_TURNS) * FLOOR_STRIDE / 8;
        let memory = self.timer.device.zeroed::<u64>(places as usize)?;
        let floor_args = (memory.slice(), sizes, MIXED_TURNS, self.counter());
        // SAFETY: the memory lives, and this stream alone uses it.
        let floor = || unsafe { stream.launch(&module, bench_churn_mixed_floor, &grid, floor_args) };
        let base = self.timer.time(|| Ok(()), floor)?;
        drop(memory);
        let heap = self.heap(BYTES)?;
        let args = (heap.handle(), sizes, MIXED_TURNS, self.counter());
        // SAFETY: the heap and the counter live, and this stream alone uses them.
        let launch = || unsafe { stream.launch(&module, bench_heap_churn_mixed, &grid, args) };
        let time = self.timer.time(|| Ok(()), launch)?;
        let checked = self.check_heap(name, &heap)?;
        let mut figure = ratio(name, time, "the same, each time elsewhere", base, 4.0, checked);
        figure.threads = threads;
        Ok(figure)
    }

    fn heap_sparse(&mut self, name: &str) -> Result<Figure> {
        let threads = 1 << 17;
        let sizes = Sizes { min: 4096, max: 4096 };
        let grid = LaunchConfig::linear(threads, BLOCK);
        let (stream, module) = (self.timer.stream.clone(), self.timer.module.clone());
        let floor_args = (self.out.address(), self.out.slice(), sizes);
        // SAFETY: `out` lives, and this stream alone uses it.
        let floor = || unsafe { stream.launch(&module, bench_alloc_floor, &grid, floor_args) };
        let base = self.timer.time(|| Ok(()), floor)?;
        let mut heap = self.heap(BYTES)?;
        let args = (heap.handle(), self.out.slice(), sizes);
        self.out.fill(0)?;
        // SAFETY: heap and `out` live, and this stream alone uses them.
        let launch = || unsafe { stream.launch(&module, bench_heap_alloc_sparse, &grid, args) };
        let time = self.timer.time(|| heap.reset(), launch)?;
        let checked = self.check_addresses(name, threads / 32)?;
        let mut figure = ratio(name, time, "the same without allocating", base, 2.0, checked);
        figure.threads = threads;
        Ok(figure)
    }

    fn heap_exact(&mut self, name: &str) -> Result<Figure> {
        let sizes = Sizes { min: 8192, max: 8192 };
        let base = self.time_heap_alloc(&self.heap(2 * BYTES)?, sizes)?;
        let heap = self.heap(u64::from(THREADS) * 8192)?;
        let time = self.time_heap_alloc(&heap, sizes)?;
        let granted = self.out.copy_to_vec()?.iter().filter(|address| **address != 0).count();
        let checked =
            format!("{granted} of {THREADS} granted, {}", self.check_addresses(name, granted as u32)?);
        Ok(ratio(name, time, "the same with room", base, 3.0, checked))
    }

    fn heap_full(&mut self, name: &str) -> Result<Figure> {
        let sizes = Sizes { min: 8192, max: 8192 };
        let base = self.alloc_floor(sizes)?;
        let heap = self.heap(1 << 30)?;
        self.launch_heap_alloc(&heap, sizes)?;
        let args = (heap.handle(), self.out.slice(), sizes);
        // SAFETY: heap and `out` live, and this stream alone uses them.
        let launch =
            || unsafe { self.timer.stream.launch(&self.timer.module, bench_heap_alloc, &Self::grid(), args) };
        let time = self.timer.time(|| Ok(()), launch)?;
        let checked = self.check_addresses(name, 0)?;
        let value = time.median_us;
        Ok(ratio(name, time, "the same without allocating", base, 0.0, checked).measured_by(
            value,
            "us",
            Bar::AtMost,
            1000.0,
        ))
    }

    /// Nothing went wrong that the threads saw.
    pub(super) fn check_heap(&self, name: &str, heap: &Heap) -> Result<String> {
        let (faults, failures) = (heap.faults()?, self.failed()?);
        if faults.count + failures != 0 {
            let found =
                format!("{} faults, the first {:?}, {failures} failures", faults.count, faults.first.first());
            return Err(Error::WrongResult { what: name.into(), found });
        }
        Ok("no fault, no failure".into())
    }
}
